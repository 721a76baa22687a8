"""Captured steps of what cannot be captured, and of numbers that are not finite."""

import math
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor
from torch.utils.data import Dataset

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training import PrivateTraining
from training.captured_training import captured, made
from training.small_training import (
    RECORDS,
    cross_entropy,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
)


class Items(Dataset[tuple[Tensor, Tensor]]):
    """A data set that is read item by item."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        inputs, targets = small_data()
        return inputs[number], targets[number]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"data": Items()}, InvalidParameterError, "Items: a captured step needs tensors"),
        ({"data": small_data()[0][:7]}, InvalidParameterError, "7 records, but the plan"),
        ({"data": small_data()[0].to("meta")}, InvalidParameterError, "on meta and the model on"),
        ({"size": 0}, InvalidParameterError, "batch_size=0"),
        (
            {"losses": lambda m, x, y: cross_entropy(m, x, y).mean()},
            ShapeError,
            'reduction="none"',
        ),
        (
            {"losses": lambda m, x, y: cross_entropy(m, x, y).detach()},
            InvalidParameterError,
            "no gradient",
        ),
        (
            {"losses": lambda m, x, _y: (m[2].weight @ m[0](x).T).sum(0)},
            InvalidParameterError,
            r"'2\.weight' received a gradient",
        ),
    ],
)
def test_what_does_not_fit(options: dict[str, Any], error: type[Exception], message: str) -> None:
    model, training = made()
    with pytest.raises(error, match=message):
        captured(model, training, **options)
    assert training.steps_spent == 0
    assert all(part.grad is None and part.requires_grad for part in model.parameters())
    train(training, model)


def test_mode_exact_is_not_captured() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), mode="exact")
    with pytest.raises(InvalidParameterError, match="one record at a time"):
        captured(model, training)


def test_what_is_not_finite_is_named_within_no_grad() -> None:
    inputs, targets = small_data()
    model, training = made(lot_size=40, debug=True)
    step = captured(model, training, data=(inputs, targets), size=16)
    inputs[38, 2] = math.inf
    with (
        torch.no_grad(),
        pytest.raises(InvalidParameterError, match="gradients of layer '0' are not finite"),
    ):
        step()
