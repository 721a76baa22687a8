"""Layers of the user's own: decisions by row, infinite numbers, and changes in place."""

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from matrixdp.errors import InvalidParameterError
from training.chosen_way import BY_LAYER, check_training

Body = Callable[["Own", Tensor], Tensor]


class Own(nn.Module):
    """A layer with a weight, and what a test wants to be done with it."""

    def __init__(self, body: Body, width: int = 3) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.body = body

    def forward(self, inputs: Tensor) -> Tensor:
        return self.body(self, inputs)


def decides(layer: Own, rows: Tensor) -> Tensor:
    made = rows @ layer.weight
    return torch.stack([one.sin() if one.detach().sum() > 0 else -one for one in made])


class Negated(torch.autograd.Function):
    """Changes its gradient in place, which torch forbids and does not notice."""

    @staticmethod
    def forward(_ctx: Any, inputs: Tensor) -> Tensor:
        return inputs.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0].mul_(-1.0)


def negates(layer: Own, rows: Tensor) -> Tensor:
    made: Tensor = Negated.apply(rows @ layer.weight)  # type: ignore[no-untyped-call]
    return made


@pytest.mark.parametrize("body", [decides, negates])
def test_layers_that_look_at_rows(body: Body) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 3), Own(body))
    assert check_training(model, torch.randn(6, 3), 3) == BY_LAYER


def centred(layer: Own, rows: Tensor) -> Tensor:
    return (rows - rows.mean(0)) @ layer.weight


def test_infinite_numbers_hide_nothing() -> None:
    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        targets = torch.zeros(len(rows), dtype=torch.int64)
        return functional.cross_entropy(model(rows), targets, reduction="none")

    def masked(layer: Own, rows: Tensor) -> Tensor:
        return centred(layer, rows).masked_fill(torch.arange(3) > 1, -math.inf)

    def honest(layer: Own, rows: Tensor) -> Tensor:
        return (rows @ layer.weight).masked_fill(torch.arange(3) > 1, -math.inf)

    torch.manual_seed(0)
    rows = torch.randn(6, 3)
    with pytest.raises(InvalidParameterError, match="the loss of a record"):
        check_training(Own(masked), rows, losses=losses)
    assert check_training(Own(honest), rows, losses=losses) == BY_LAYER


class AddsInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.attention(inputs, inputs, inputs, need_weights=False)[0]
        made += inputs
        return made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (
            lambda: nn.Sequential(
                nn.Conv2d(2, 3, 3), nn.InstanceNorm2d(3, affine=True), nn.ReLU(inplace=True)
            ),
            (2, 5, 5),
        ),
        (lambda: nn.Sequential(weight_norm(nn.Linear(3, 4)), nn.ReLU(inplace=True)), (2, 3)),
        (
            lambda: nn.Sequential(
                nn.Linear(3, 3),
                Own(lambda layer, rows: (rows @ layer.weight)[:, :2]),
                nn.ReLU(inplace=True),
            ),
            (3,),
        ),
        (lambda: nn.Sequential(nn.Linear(4, 4), AddsInPlace()), (3, 4)),
    ],
    ids=["instance norm", "weight norm", "own", "attention"],
)
def test_a_view_that_is_changed_in_place_keeps_its_gradient(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    torch.manual_seed(1)
    assert check_training(make(), torch.randn(6, *shape), 3) == BY_LAYER
