"""Layers of random shapes and options: clipped sums against one backward pass for each record."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import numpy as np
import torch
from torch import Tensor, nn

from training.brute_force import check_against_brute_force
from training.test_cells import CELLS, STARTS, Steps

PADDING_MODES = ["zeros", "zeros", "reflect", "replicate", "circular"]


class Draws:
    """Random choices, which a number fixes together with torch's own."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)
        torch.manual_seed(seed)

    def integer(self, low: int, high: int) -> int:
        """Return an integer between two others, which are among the choices."""
        return int(self._generator.integers(low, high + 1))

    def one_of(self, *choices: Any) -> Any:
        return choices[self.integer(0, len(choices) - 1)]

    def flag(self) -> bool:
        return bool(self.integer(0, 1))

    def rows(self) -> tuple[int, int]:
        """Return how many records there are, and how many rows they have together."""
        records = self.integer(2, 4)
        return records, records * self.integer(1, 3)


def convolution(draws: Draws) -> tuple[nn.Module, tuple[int, ...]]:
    """Return a convolution, and a shape of inputs from which it makes at least one position."""
    axes, groups = draws.integer(1, 2), draws.one_of(1, 1, 1, 2, 3)
    named = draws.one_of(None, None, "same", "valid")  # torch has no strides with these
    kernel, stride, dilation, padding = (
        [draws.integer(low, high) for _ in range(axes)]
        for low, high in ((1, 4), (1, 1 if named else 3), (1, 3), (0, 3))
    )
    spans = [step * (size - 1) + 1 for step, size in zip(dilation, kernel, strict=True)]
    # Modes that repeat what is inside pad by less than that.
    sides = [
        max(span, pad + 1) + draws.integer(0, 3) for span, pad in zip(spans, padding, strict=True)
    ]
    # With many channels the norms come from Gram matrices, where there are few positions.
    width = draws.one_of(1, 2, 3, 24 // groups)
    channels = groups * width, groups * draws.one_of(width, draws.integer(1, 3))
    kind: Any = nn.Conv1d if axes == 1 else nn.Conv2d
    layer = kind(
        *channels,
        tuple(kernel),
        stride=tuple(stride),
        dilation=tuple(dilation),
        padding=named or tuple(padding),
        padding_mode=draws.one_of(*PADDING_MODES),
        groups=groups,
        bias=draws.flag(),
    )
    return layer, (channels[0], *sides)


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("seed", range(230))
def test_convolutions(seed: int) -> None:
    draws = Draws(seed)
    layer, shape = convolution(draws)
    if layer.bias is not None:
        frozen = draws.one_of(None, None, layer.weight, layer.bias)
        if frozen is not None:
            frozen.requires_grad_(False)
    records, rows = draws.rows()
    inputs = torch.randn(rows, *shape)
    if inputs.ndim == 4 and draws.flag():
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    bound = draws.one_of(0.1, 1.5, 20.0)
    check_against_brute_force(layer, inputs, records, norms_rtol=1e-3, bounds=(bound,))


Made = tuple[nn.Module, Callable[[int], Tensor]]
"""A model, and its inputs by the number of rows."""


def linear(draws: Draws) -> Made:
    """Return a linear layer on vectors, sequences or images."""
    width = draws.one_of(1, 3, 20)
    positions = [draws.integer(1, 6) for _ in range(draws.integer(0, 2))]
    layer = nn.Linear(width, draws.one_of(1, 4, 20), bias=draws.flag())
    return layer, lambda rows: torch.randn(rows, *positions, width)


def embedding(draws: Draws) -> Made:
    """Return a table of few rows, some of which a record uses again."""
    size, length = draws.integer(1, 5), draws.integer(1, 7)
    padding = draws.one_of(None, 0, size - 1, -1)
    layer = nn.Embedding(size, draws.integer(1, 4), padding_idx=padding)
    if size == 1:
        layer.padding_idx = None  # nothing would be trained
    return layer, lambda rows: torch.randint(0, size, (rows, length))


def lstm(draws: Draws) -> Made:
    """Return an LSTM, of which outputs and last states matter."""
    width, steps = draws.integer(1, 3), draws.integer(1, 4)
    layer = nn.LSTM(
        width,
        draws.integer(1, 3),
        num_layers=draws.integer(1, 2),
        bias=draws.flag(),
        bidirectional=draws.flag(),
        batch_first=True,
    )
    return layer, lambda rows: torch.randn(rows, steps, width)


def group_norm(draws: Draws) -> Made:
    groups, positions = draws.integer(1, 3), [draws.integer(1, 4) for _ in range(2)]
    channels = groups * draws.integer(2, 4)
    shape = (channels, *positions[: draws.integer(0, 2)])
    return nn.GroupNorm(groups, channels), lambda rows: torch.randn(rows, *shape)


def layer_norm(draws: Draws) -> Made:
    shape = [draws.integer(2, 5) for _ in range(draws.integer(1, 3))]
    normed = shape[-draws.integer(1, len(shape)) :]
    return nn.LayerNorm(normed, bias=draws.flag()), lambda rows: torch.randn(rows, *shape)


def instance_norm(draws: Draws) -> Made:
    axes, channels = draws.integer(1, 2), draws.integer(1, 4)
    shape = (channels, *(draws.integer(2, 5) for _ in range(axes)))
    kind = nn.InstanceNorm1d if axes == 1 else nn.InstanceNorm2d
    return kind(channels, affine=True), lambda rows: torch.randn(rows, *shape)


class Tied(nn.Module):
    """A table whose rows are also the weights of the last layer, as in language models."""

    def __init__(self, size: int, width: int, *, between: bool) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width)
        self.between = nn.Linear(width, width) if between else nn.Identity()
        self.last = nn.Linear(width, size, bias=between)
        self.last.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        made: Tensor = self.last(torch.tanh(self.between(self.table(tokens))))
        return made


def tied(draws: Draws) -> Made:
    size, length = draws.integer(2, 5), draws.integer(1, 5)
    model = Tied(size, draws.integer(1, 4), between=draws.flag())
    return model, lambda rows: torch.randint(0, size, (rows, length))


def called_again(draws: Draws) -> Made:
    """Return a layer that is called several times."""
    width = draws.integer(1, 4)
    layer = draws.one_of(nn.Linear(width, width), nn.Conv1d(width, width, 3, padding=1))
    shape = (width, width) if isinstance(layer, nn.Linear) else (width, 5)
    calls = [layer, nn.Tanh()] * draws.integer(2, 3)
    return nn.Sequential(*calls), lambda rows: torch.randn(rows, *shape)


def cell(draws: Draws) -> Made:
    """Return a recurrent cell that is called for each step in time."""
    made = draws.one_of(*CELLS)(2, draws.integer(1, 3), bias=draws.flag())
    model = Steps(made, draws.one_of(*STARTS), first=draws.flag())
    steps = draws.integer(1, 3)
    return model, lambda rows: torch.randn(rows, steps, 2)


KINDS = [
    *(linear, embedding, lstm, group_norm, layer_norm, instance_norm),
    *(tied, called_again, cell),
]


@pytest.mark.parametrize("seed", range(11))
@pytest.mark.parametrize("make", KINDS)
def test_other_layers(make: Callable[[Draws], Made], seed: int) -> None:
    draws = Draws(seed)
    model, inputs = make(draws)
    records, rows = draws.rows()
    with torch.no_grad():
        for part in model.parameters():  # also those that begin as one or zero
            part.add_(0.3 * torch.randn(part.shape))
    bound = draws.one_of(0.1, 1.5, 20.0)
    check_against_brute_force(model, inputs(rows), records, norms_rtol=1e-3, bounds=(bound,))
