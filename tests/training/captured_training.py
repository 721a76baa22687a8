"""A small private training, and its captured step."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from torch import Tensor, nn, optim

from matrixdp.training import PrivateTraining
from training.small_training import (
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    small_plan,
)

__all__ = ["SEED", "Made", "captured", "made"]

SEED = 11
Made = tuple[nn.Sequential, PrivateTraining]


def made(
    device: str = "cpu",
    *,
    seed: int | None = SEED,
    make: Callable[..., optim.Optimizer] = sgd,
    spending: Path | None = None,
    debug: bool = False,
    losses: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy,
    **changes: Any,
) -> Made:
    model = small_model().to(device)
    options: Any = {"seed": seed, "spending": spending, "debug": debug}
    training = private(
        model, small_plan(**changes), losses=partial(losses, model), make=make, **options
    )
    return model, training


def captured(
    model: nn.Module, training: PrivateTraining, *, size: int = 8, data: Any = None
) -> Callable[[], None]:
    device = next(model.parameters()).device
    data = tuple(part.to(device) for part in small_data()) if data is None else data
    return training.captured_step(data, batch_size=size)
