"""A warning of trainings that use the same records again: each spends a budget of its own."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils.data import Subset, TensorDataset
from torch.utils.weak import WeakIdKeyDictionary

from matrixdp.errors import CalibrationError
from matrixdp.privacy import LossAccount, SampledPlan
from matrixdp.rounding import shown_up
from matrixdp.training.plan import TrainingPlan

__all__ = ["Release", "RepeatedTrainingWarning", "warn_if_repeated"]


class RepeatedTrainingWarning(UserWarning):
    """A training uses records or parameters that another one of this process has used."""


class Release(NamedTuple):
    """A training that releases something.

    Attributes
    ----------
    run : str
        Its name, which stays the same when it is resumed.
    plan : TrainingPlan
        Its plan.
    spent : callable
        Returns how many of its steps are spent.
    """

    run: str
    plan: TrainingPlan
    spent: Callable[[], int]


# What releases have used, and which parts of it: data sets, tensors and parameters, as long as they
# exist.
_USED: Any = WeakIdKeyDictionary()

_Part = range | frozenset[int] | None
"""The bytes of a tensor, the numbers of some records, or all there is."""


def warn_if_repeated(release: Release, used: Iterable[object]) -> None:
    """Warn if other releases have used the same data or parameters, and say what all cost.

    Parameters
    ----------
    release : Release
        The one that begins.
    used : iterable of objects
        Its data and its parameters.
    """
    others: dict[str, Release] = {}
    for one in used:
        lasting, part = _lasting(one)
        try:
            releases = _USED.setdefault(lasting, {})
        except TypeError:
            continue  # a list, for instance, of which nobody can know whether it still exists
        others |= {
            run: other
            for run, (other, parts) in releases.items()
            if any(_meet(part, each) for each in parts)
        }
        _, parts = releases.get(release.run, (release, []))
        releases[release.run] = release, parts if part in parts else [*parts, part]
    others.pop(release.run, None)
    earlier = [other for other in others.values() if other.spent()]
    if not earlier:
        return
    warnings.warn(
        f"this is training number {len(earlier) + 1} in this process that uses these records or "
        f"parameters; each spends a budget of its own, and {_together(release, earlier)}. Plan "
        "all of them beforehand, or go on with the training that you have",
        RepeatedTrainingWarning,
        stacklevel=4,
    )


def _lasting(one: object) -> tuple[object, _Part]:
    """Return what stays the same where a part of some data is taken once more, and which part."""
    part: _Part = None
    while isinstance(one, Subset):
        indices = [int(number) for number in one.indices]
        part = frozenset(indices if part is None else (indices[number] for number in part))
        one = one.dataset
    if isinstance(one, TensorDataset):
        one = one.tensors[0]
    if not isinstance(one, Tensor):
        return one, part
    if part is None and one.numel():
        start, size = one.storage_offset(), one.element_size()
        last = sum((n - 1) * by for n, by in zip(one.shape, one.stride(), strict=True))
        part = range(start * size, (start + last + 1) * size)
    return one.untyped_storage(), part


def _meet(one: _Part, other: _Part) -> bool:
    """Return whether two parts have something in common, as far as that can be seen."""
    if isinstance(one, range) and isinstance(other, range):
        return one.start < other.stop and other.start < one.stop
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        return not one.isdisjoint(other)
    return True


def _together(release: Release, earlier: list[Release]) -> str:
    """Say what all releases cost together."""
    unit = release.plan.unit
    if any(other.plan.unit != unit for other in earlier):
        return f"no guarantee for a {unit} follows from those that protect something else"
    steps = Counter({_kind(release.plan): release.plan.steps})
    for other in earlier:
        steps[_kind(other.plan)] += other.spent()
    plans = [
        SampledPlan(
            noise_multiplier=multiplier,
            sampling_rate=rate,
            steps=number,
            neighbouring="add-remove",
        )
        for (multiplier, rate), number in steps.items()
    ]
    delta = release.plan.delta
    try:
        epsilon = LossAccount(plans).epsilon_at(delta).upper
    except CalibrationError:
        return "their guarantees add up"
    shown = f"({shown_up(epsilon, 4)}, {shown_up(delta, 4)})"
    return f"for a {unit} that is in all of them, the guarantee of all together is {shown}"


def _kind(plan: TrainingPlan) -> tuple[float, float]:
    return plan.noise_multiplier, plan.sampling_rate
