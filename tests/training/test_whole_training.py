"""Whole trainings of models with layers that are run again: loops and captured steps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from training.brute_force import brute_force
from training.small_training import RECORDS, private, small_plan, train, weights

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


class Scorer(nn.Module):
    """From six numbers, as two positions of three, to three scores."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = nn.GRU(3, 4, batch_first=True)
        self.looks = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.looks(self.reads(inputs.reshape(-1, 2, 3))[0])
        made: Tensor = self.last(hidden.flatten(1))
        return made


class Stepper(nn.Module):
    """The same with a parameter of its own, around a GRU and a cell that returns two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.0, 0.5, -1.5]))
        self.reads = nn.GRU(3, 4, batch_first=True)
        self.cell = nn.LSTMCell(4, 4)
        self.last = nn.Linear(8, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        state: Any = None
        for step in self.reads(inputs.reshape(-1, 2, 3) * self.scale)[0].unbind(1):
            state = self.cell(step, state)
        made: Tensor = self.last(torch.cat(state, dim=1)) * self.scale
        return made


MODELS: list[Callable[[], nn.Module]] = [Scorer, Stepper]


def squares(model: nn.Module, inputs: Tensor) -> Tensor:
    made: Tensor = model(inputs)
    return made.square().sum(1)


@pytest.mark.parametrize("views", [pytest.param(1, marks=pytest.mark.thorough), 2])
@pytest.mark.parametrize("size", [3, 64])
@pytest.mark.parametrize("make", MODELS)
def test_a_step_of_a_whole_training(make: Callable[[], nn.Module], size: int, views: int) -> None:
    torch.manual_seed(3)
    model, inputs = make(), torch.randn(RECORDS, 6)
    sums, _ = brute_force(model, inputs, RECORDS, bounds=(0.5,), losses=squares)
    before = weights(model)
    # All records, and hardly any noise.
    plan = small_plan(lot_size=RECORDS, steps=1, noise_multiplier=0.01, views=views)
    training = private(model, plan, losses=partial(squares, model), seed=1)
    train(training, size=size, data=inputs)
    expected = torch.cat([part.flatten() for part in sums.values()]) * (-0.1 / RECORDS)
    assert float(expected.abs().max()) > 2e-3
    # The noise of each number has a scale of 1.25e-5.
    torch.testing.assert_close(weights(model) - before, expected, rtol=1e-3, atol=7e-5)
    assert all(part.requires_grad for part in model.parameters())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("make", MODELS)
def test_a_captured_step_is_that_of_the_loop(make: Callable[[], nn.Module], device: str) -> None:
    found = []
    for is_captured in (True, False):
        torch.manual_seed(4)
        model, inputs = make().to(device), torch.randn(RECORDS, 6).to(device)
        plan = small_plan(noise_multiplier=0.1, steps=2)
        training = private(model, plan, losses=partial(squares, model), seed=1)
        if is_captured:
            step = training.captured_step(inputs, batch_size=7)
            while training.progress.steps_left:
                step()
        else:
            train(training, data=inputs)
        found.append(weights(model))
    tight = device == "cpu"
    torch.testing.assert_close(*found, rtol=1e-5 if tight else 1e-3, atol=1e-6 if tight else 1e-4)
