"""Losses return one real number for each record, which depends on what is trained."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.errors import InvalidParameterError, ShapeError
from training.small_training import cross_entropy, private, small_model, small_plan, train, weights

Losses = Callable[[nn.Module, Tensor, Tensor], Any]

# Of a single record, as it is in the mode exact, a sum is that record's own.
ONLY_FAST: list[tuple[Losses, type[Exception], str]] = [
    (
        lambda m, x, y: cross_entropy(m, x, y).sum().expand(len(x)),
        InvalidParameterError,
        "one number that was expanded",
    ),
    (
        lambda m, x, y: cross_entropy(m, x, y).mean() * torch.ones(len(x)),
        InvalidParameterError,
        "depends on other records",
    ),
    (
        lambda m, x, y: cross_entropy(m, x, y).detach(),
        InvalidParameterError,
        "do not depend on any parameter",
    ),
    (
        lambda _m, x, _y: x.sum(1).requires_grad_(),
        InvalidParameterError,
        "do not depend on any parameter",
    ),
    # Of a record alone, losses may leave it out: then it adds nothing.
    (lambda m, x, y: cross_entropy(m, x, y)[:-1], ShapeError, r"for a batch of \d rows"),
]
ALWAYS: list[tuple[Losses, type[Exception], str]] = [
    (lambda m, x, y: functional.cross_entropy(m(x), y), ShapeError, 'reduction="none"'),
    (lambda m, x, y: cross_entropy(m, x, y).repeat(2), ShapeError, r"shape \(\d,\)"),
    (lambda m, x, _: m(x).square(), ShapeError, r"flatten\(1\)\.mean\(1\)"),
    (lambda m, x, y: cross_entropy(m, x, y).tolist(), InvalidParameterError, "returns a list"),
    (
        lambda m, x, y: cross_entropy(m, x, y).to(torch.complex64),
        InvalidParameterError,
        "complex64.*a loss is a real number",
    ),
]


@pytest.mark.parametrize(("losses", "error", "message"), [*ONLY_FAST, *ALWAYS])
def test_wrong_losses_are_refused_before_a_step_is_spent(
    losses: Losses, error: type[Exception], message: str
) -> None:
    model = small_model()
    training = private(model, small_plan(lot_size=40), losses=partial(losses, model), seed=1)
    with pytest.raises(error, match=message):
        train(training)
    assert training.progress.steps_spent == 0


@pytest.mark.parametrize(("losses", "error", "message"), ALWAYS)
def test_wrong_losses_are_refused_in_the_mode_exact(
    losses: Losses, error: type[Exception], message: str
) -> None:
    model = small_model()
    plan = small_plan(lot_size=40)
    training = private(model, plan, losses=partial(losses, model), seed=1, mode="exact")
    before = weights(model)
    with pytest.raises(error, match=message):
        train(training)
    assert torch.equal(weights(model), before)


@dataclass
class OfModel:
    """Losses with a state; as a dataclass, which compares what it holds, they have no hash."""

    model: nn.Module

    def __call__(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.model, inputs, targets)


def test_losses_need_no_hash() -> None:
    model = small_model()
    training = private(model, losses=OfModel(model), seed=1)
    train(training)
    assert training.progress.steps_left == 0
