"""What a private training is made from: arguments that do not fit raise before anything begins."""

from typing import get_args

from torch import nn, optim

from matrixdp.errors import InvalidParameterError
from matrixdp.training.exact_sum import MOST_RECORDS
from matrixdp.training.guarantee import Mode
from matrixdp.training.plan import TrainingPlan

__all__ = ["check_kinds", "check_mode"]


def check_kinds(model: object, optimizer: object, plan: object, seed: object) -> None:
    """Raise unless model, optimiser, plan and seed are of the right kinds."""
    for name, value, kind in (
        ("model", model, nn.Module),
        ("optimizer", optimizer, optim.Optimizer),
        ("plan", plan, TrainingPlan),
    ):
        if not isinstance(value, kind):
            raise InvalidParameterError(
                f"{name} is a {type(value).__name__}: pass a {kind.__name__}"
            )
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not seed >= 0):
        raise InvalidParameterError(f"seed={seed!r} must be a whole number of at least 0, or None")


def check_mode(mode: object, plan: TrainingPlan) -> None:
    """Raise unless the mode is known and can do what the plan says."""
    if mode not in get_args(Mode):
        raise InvalidParameterError(f"mode={mode!r} is not known: pass 'fast' or 'exact'")
    if mode == "exact" and not plan.records <= MOST_RECORDS:
        raise InvalidParameterError(
            f"records={plan.records} is more than the {MOST_RECORDS} whose sum float64 holds "
            "exactly: use mode='fast'"
        )
    # Scaling a sum rounds it, so that one record could move it by more than its exact term.
    if mode == "exact" and plan.sum_norm is not None:
        raise InvalidParameterError(
            f"sum_norm={plan.sum_norm!r} would round sums that are exact: use mode='fast', or a "
            "plan without sum_norm"
        )
