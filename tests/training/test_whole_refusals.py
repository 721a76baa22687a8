"""Calls of attention and recurrent layers that are refused, each with the way out."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training.layers.table import check_layer
from training.brute_force import clipped
from training.test_odd_calls import Calls

pytestmark = [
    pytest.mark.filterwarnings("ignore:.* has no shortcut"),
    pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN"),
]

KINDS = [nn.GRU, nn.RNN, nn.LSTM]


def frozen(layer: nn.Module) -> nn.Module:
    return layer.requires_grad_(False)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        *((kind(3, 4), "use batch_first=True") for kind in KINDS),
        *((kind(3, 4, 2, batch_first=True, dropout=0.1), "nn.Dropout between") for kind in KINDS),
        (nn.MultiheadAttention(4, 2), "use batch_first=True"),
        (frozen(nn.MultiheadAttention(4, 2)), "use batch_first=True"),  # it would mix rows
        (nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True), "attribute dropout to 0.0"),
    ],
    ids=str,
)
def test_layers_that_are_refused(layer: nn.Module, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=f"'name'.*{message}"):
        check_layer(layer, "name")


def test_layers_that_are_not_trained_need_not_be_repeated() -> None:
    check_layer(frozen(nn.MultiheadAttention(4, 2, dropout=0.1, batch_first=True)), "name")
    check_layer(frozen(nn.GRU(4, 2, 2, dropout=0.1, batch_first=True)), "name")


def test_dropout_that_is_switched_on_later() -> None:
    model = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.1, batch_first=True)
    with pytest.raises(InvalidParameterError, match=r"'self_attn' is a .* with dropout=0"):
        clipped(model, torch.randn(4, 3, 4), 4)
    model.self_attn.dropout = 0.0

    def losses(model: nn.Module, inputs: Tensor) -> Tensor:
        attention: Any = model.get_submodule("self_attn")
        attention.dropout = 0.1
        made: Tensor = model(inputs)
        return made.flatten(1).sum(1)

    with pytest.raises(InvalidParameterError, match=r"'self_attn' is a .* with dropout=0"):
        clipped(model, torch.randn(4, 3, 4), 4, losses=losses)


def attends(layer: nn.Module, rows: Tensor) -> Tensor:
    made: Tensor = layer(rows, rows, rows)[0]
    return made


def remembers(layer: nn.Module, rows: Tensor) -> Tensor:
    made: Tensor = layer(rows)[0]
    return made


@pytest.mark.parametrize(
    ("layer", "call"),
    [
        (nn.MultiheadAttention(4, 2, batch_first=True), attends),
        *((kind(4, 4, batch_first=True), remembers) for kind in KINDS),
    ],
    ids=lambda part: type(part).__name__,
)
def test_rows_that_are_taken_for_positions(
    layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]
) -> None:
    # Four rows without positions, which torch takes for four positions of a single example.
    with pytest.raises(ShapeError, match="keep the batch as the first axis"):
        clipped(Calls(layer, call), torch.randn(4, 4), 4)
    # Two rows for one.
    with pytest.raises(ShapeError, match="keep the batch as the first axis"):
        clipped(
            Calls(layer, lambda layer, rows: call(layer, rows.repeat(2, 1, 1))[:4]),
            torch.randn(4, 5, 4),
            4,
        )


def test_states_that_change_in_place() -> None:
    def call(layer: nn.Module, rows: Tensor) -> Tensor:
        states = torch.zeros(1, len(rows), 2), torch.zeros(1, len(rows), 4)
        made: Tensor = layer(rows, states)[0]
        states[1].add_(1.0)
        return made

    layer = nn.LSTM(3, 4, proj_size=2, batch_first=True)
    with pytest.raises(InvalidParameterError, match="changed in place"):
        clipped(Calls(layer, call), torch.randn(4, 5, 3), 4)
