"""Checks of a private training's arguments, which raise before anything begins."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import torch
from torch import nn, optim

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.training.exact_sum import MOST_RECORDS
from matrixdp.training.guarantee import Mode
from matrixdp.training.plan import TrainingPlan

__all__ = [
    "check_callable",
    "check_kinds",
    "check_mode",
    "check_not_inference",
    "checked_shapes",
    "checked_spending_path",
]


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
        raise InvalidParameterError(f"seed={seed!r} must be an integer of at least 0, or None")


def checked_spending_path(record: object) -> Path | None:
    """Return the path of a spending file, which stays the same whatever folder is current."""
    if record is None:
        return None
    name = os.fspath(record) if isinstance(record, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InvalidParameterError(
            f"record={record!r} is no path of a file: pass a string or a pathlib.Path"
        )
    return Path(name).absolute()


def checked_shapes(noise: Any) -> Mapping[str, Covariance]:
    """Return the shapes of noise, if there are any, by the names of their layers."""
    shapes = {} if noise is None else noise
    if not isinstance(shapes, Mapping) or not all(isinstance(name, str) for name in shapes):
        raise InvalidParameterError(
            f"noise={noise!r} must map names of layers to covariances: pass for instance "
            "{'head': Isotropic(scale)}"
        )
    return shapes


def check_callable(value: object, name: str) -> None:
    """Raise unless an argument can be called."""
    if not callable(value):
        raise InvalidParameterError(
            f"{name} is a {type(value).__name__}: pass a function of the tensors of a batch"
        )


def check_not_inference() -> None:
    """Raise within ``torch.inference_mode()``, where nothing can be trained."""
    if torch.is_inference_mode_enabled():
        raise InvalidParameterError(
            "torch.inference_mode() is on, in which nothing can be trained: draw lots and take "
            "steps outside of it"
        )


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
