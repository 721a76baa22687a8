"""A small private training, and its captured step."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from torch import Tensor, nn, optim

from matrixdp.training import PrivateTraining
from training.small_training import cross_entropy, sgd, small_data, small_model, small_plan

__all__ = ["SEED", "Made", "captured", "made"]

SEED = 11
Made = tuple[nn.Sequential, PrivateTraining]


def made(
    device: str = "cpu",
    *,
    seed: int | None = SEED,
    make: Callable[..., optim.Optimizer] = sgd,
    record: Path | None = None,
    debug: bool = False,
    **changes: Any,
) -> Made:
    model = small_model().to(device)
    plan = small_plan(**changes)
    training = PrivateTraining(model, make(model), plan, seed=seed, record=record, debug=debug)
    return model, training


def captured(
    model: nn.Module,
    training: PrivateTraining,
    *,
    size: int = 8,
    data: Any = None,
    losses: Callable[[nn.Module, Tensor, Tensor], Tensor] = cross_entropy,
) -> Callable[[], None]:
    device = next(model.parameters()).device
    data = tuple(part.to(device) for part in small_data()) if data is None else data
    return training.captured_step(data, lambda *batch: losses(model, *batch), batch_size=size)
