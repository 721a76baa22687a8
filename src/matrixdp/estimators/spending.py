"""Noticing that a fit is one of many: each of them spends."""

import sys
import warnings

from matrixdp.privacy.budget import Budget

__all__ = ["RepeatedSpendingWarning", "fitting_repeatedly", "warn_of_repeated_spending"]

# Their estimators and functions fit what they are given more than once, on overlapping records.
_REPEATING = tuple(
    f"sklearn.{part}"
    for part in (
        "calibration",
        "ensemble",
        "feature_selection",
        "impute",
        "inspection",
        "linear_model",
        "model_selection",
        "multiclass",
        "multioutput",
        "semi_supervised",
    )
)


class RepeatedSpendingWarning(UserWarning):
    """A fit is one of several on overlapping records; each of them spends its own budget."""


def fitting_repeatedly() -> str | None:
    """Return the part of scikit-learn that calls the running fit again and again, or None.

    The callers are read from the call stack, which also holds them in the worker processes of a
    parallel search.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the call stack
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        part = ".".join(name.split(".")[:2])
        if part in _REPEATING:
            return part
        if frame.f_back is None:
            break
        frame = frame.f_back
    return None


def warn_of_repeated_spending(budget: Budget) -> None:
    """Warn if the running fit is one of several."""
    part = fitting_repeatedly()
    if part is None:
        return
    warnings.warn(
        f"fit was called by {part}, which fits several times: every candidate and every fold "
        f"spends epsilon={budget.epsilon:g}, delta={budget.delta:g} on the records that it is "
        "fitted to, guarantee_ is that of one fit alone, and scores on held-out records are not "
        "private at all. Choose parameters on public data, or give each of k fits a part of the "
        "budget, Budget(epsilon, delta).split(k)[0].epsilon",
        RepeatedSpendingWarning,
        stacklevel=4,
    )
