"""A small model, small data and plain loops, which the tests of private training share."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn, optim
from torch.nn import functional

from matrixdp.training import PrivateTraining, TrainingPlan

RECORDS = 40


def small_plan(**changes: Any) -> TrainingPlan:
    parts: dict[str, Any] = {
        "records": RECORDS,
        "lot_size": 10,
        "steps": 4,
        "clip_norm": 0.5,
        "noise_multiplier": 2.0,
        "delta": 1e-3,
    }
    return TrainingPlan(**(parts | changes))


def small_model() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def small_data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(6)
    inputs = torch.randn(RECORDS, 6, generator=generator)
    return inputs, torch.randint(0, 3, (RECORDS,), generator=generator)


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.1)


def cross_entropy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs), targets, reduction="none")


def private(
    model: nn.Module,
    plan: TrainingPlan | None = None,
    *,
    losses: Callable[..., Tensor] | None = None,
    make: Callable[[nn.Module], optim.Optimizer] = sgd,
    **options: Any,
) -> PrivateTraining:
    """Return a private training of a model, by cross entropy unless other losses are given."""
    of_batch = losses if losses is not None else partial(cross_entropy, model)
    plan = small_plan() if plan is None else plan
    return PrivateTraining(model, of_batch, make(model), plan, **options)


def train(
    training: PrivateTraining, *, steps: int | None = None, size: int = 8, data: Any = None
) -> None:
    """Take some steps, or all that are left."""
    for number, lot in enumerate(training.lots(small_data() if data is None else data), 1):
        training.step(lot, batch_size=size)
        if number == steps:
            return


def weights(model: nn.Module) -> Tensor:
    return torch.cat([part.detach().flatten() for part in model.parameters()])
