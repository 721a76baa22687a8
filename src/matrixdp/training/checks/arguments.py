"""Checks of a private training's arguments, which raise before anything begins."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn, optim

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.payment import RunPayer
from matrixdp.training.guarantee import Mode
from matrixdp.training.lots.exact_sum import MOST_RECORDS
from matrixdp.training.plan import TrainingPlan

__all__ = [
    "check_kinds",
    "check_losses",
    "check_mode",
    "check_not_inference",
    "checked_covariances",
    "checked_optimizers",
    "checked_spending",
]


def check_kinds(model: object, losses: object, plan: object, seed: object) -> None:
    """Raise unless model, losses, plan and seed are of the right kinds."""
    for name, value, kind in (("model", model, nn.Module), ("plan", plan, TrainingPlan)):
        if not isinstance(value, kind):
            raise InvalidParameterError(
                f"{name} is a {type(value).__name__}: pass a {kind.__name__}"
            )
    check_losses(losses)
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or not seed >= 0):
        raise InvalidParameterError(f"seed={seed!r} must be an integer of at least 0, or None")


def check_losses(losses: object) -> None:
    """Raise unless the losses are a function of a batch; a loss of torch's own runs no model."""
    of_torch = type(losses).__module__ == nn.modules.loss.__name__
    if of_torch or isinstance(losses, optim.Optimizer) or not callable(losses):
        raise InvalidParameterError(
            f"losses is a {type(losses).__name__}: pass a function of a batch that runs the model "
            "and returns one loss per record"
        )


def checked_optimizers(optimizer: object) -> tuple[optim.Optimizer, ...]:
    """Return the optimisers, of which there may be one or several."""
    several = isinstance(optimizer, list | tuple)
    found: tuple[object, ...] = tuple(optimizer) if several else (optimizer,)  # type: ignore[arg-type]
    if not found:
        raise InvalidParameterError("optimizer is empty: pass an optimiser, or a list of them")
    for one in found:
        if isinstance(one, torch.amp.GradScaler):
            raise InvalidParameterError(
                "optimizer is a GradScaler, which scales losses so that float16 gradients do not "
                "underflow, and skips steps by what it sees in them: private gradients are clipped "
                "in float32 and never skipped. Pass the optimiser itself, and autocast to bfloat16"
            )
        if not isinstance(one, optim.Optimizer):
            raise InvalidParameterError(
                f"optimizer is a {type(one).__name__}: pass an Optimizer, or a list of them"
            )
        if isinstance(one, optim.LBFGS):
            raise InvalidParameterError(
                "LBFGS evaluates its closure several times in a step, and each evaluation would "
                "need noise of its own: use an optimiser that takes one gradient per step"
            )
        if isinstance(one, optim.SparseAdam):
            raise InvalidParameterError(
                "SparseAdam takes sparse gradients only, and noise makes every gradient dense: use "
                "another optimiser, such as Adam"
            )
    return found  # type: ignore[return-value]


def checked_spending(spending: object) -> Path | RunPayer | None:
    """Return the path of a spending file, whatever folder is current, or the run of a ledger."""
    if spending is None or isinstance(spending, RunPayer):
        return spending
    name = os.fspath(spending) if isinstance(spending, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InvalidParameterError(
            f"spending={spending!r} is no path of a file: pass a string, a pathlib.Path, or "
            "account.run(name) of a ledger"
        )
    return Path(name).absolute()


def checked_covariances(covariances: Any) -> Mapping[str, Covariance]:
    """Return the shapes of noise, if there are any, by the names of their layers."""
    shapes = {} if covariances is None else covariances
    if not isinstance(shapes, Mapping) or not all(isinstance(name, str) for name in shapes):
        raise InvalidParameterError(
            f"layer_covariances={covariances!r} must map names of layers to covariances: pass for "
            "instance {'head': Isotropic(scale)}"
        )
    return shapes


def check_not_inference() -> None:
    """Raise within ``torch.inference_mode()``, where nothing can be trained."""
    if torch.is_inference_mode_enabled():
        raise InvalidParameterError(
            "torch.inference_mode() is on, in which nothing can be trained: draw lots and take "
            "steps outside of it"
        )


def check_mode(mode: object, plan: TrainingPlan, *, alone: bool = True) -> None:
    """Raise unless the mode is known and can do what the plan says, alone or on several ranks."""
    if mode not in get_args(Mode):
        raise InvalidParameterError(f"mode={mode!r} is not known: pass 'fast' or 'exact'")
    if mode == "exact" and not plan.population <= MOST_RECORDS:
        raise InvalidParameterError(
            f"{plan.unit}s={plan.population} is more than the {MOST_RECORDS} whose sum float64 "
            "holds exactly: use mode='fast'"
        )
    # Scaling a sum rounds it, so that one record could move it by more than its exact term.
    if mode == "exact" and plan.sum_norm is not None:
        raise InvalidParameterError(
            f"sum_norm={plan.sum_norm!r} would round sums that are exact: use mode='fast', or a "
            "plan without sum_norm"
        )
    if not alone and plan.sum_norm is not None:
        raise InvalidParameterError(
            f"sum_norm={plan.sum_norm!r} needs the norm of the whole sum, which no rank has: leave "
            "out sum_norm or ranks"
        )
