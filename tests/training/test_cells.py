"""Cells of recurrent layers in a loop over time, and arguments in containers, by brute force."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.backends import cudnn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from matrixdp.training.layers import per_record
from matrixdp.training.layers.trees import tensors_in
from training.brute_force import (
    brute_force,
    check_against_brute_force,
    check_every_gradient,
    clipped,
    traced,
)
from training.chosen_way import BY_LAYER, Calls, check_training
from training.test_several_outputs import Pair, Unknown

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CELLS: list[type[nn.RNNCellBase]] = [nn.RNNCell, nn.GRUCell, nn.LSTMCell]
STARTS = ["none", "position", "name", "list"]


class Steps(nn.Module):
    """A cell that is called once for each step in time, and whose states all matter."""

    def __init__(self, cell: nn.RNNCellBase, start: str = "none", *, first: bool = True) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2) if first else nn.Identity()
        self.cell = cell
        self.start = start

    def forward(self, inputs: Tensor) -> Tensor:
        rows = self.first(inputs)
        one = torch.tanh(inputs.sum((1, 2)))[:, None].expand(-1, self.cell.hidden_size)
        state: Any = (one, 2.0 * one) if isinstance(self.cell, nn.LSTMCell) else one
        found: list[Tensor] = []
        for step in range(inputs.shape[1]):
            if step == 0 and self.start == "none":
                state = self.cell(rows[:, step])
            elif self.start == "name":
                state = self.cell(hx=state, input=rows[:, step])
            elif self.start == "list" and isinstance(state, tuple):
                state = self.cell(rows[:, step], list(state))
            else:
                state = self.cell(rows[:, step], state)
            found += tensors_in(state)
        return torch.stack(found, 1)


@st.composite
def steps(draw: st.DrawFn) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(draw(st.integers(0, 1000)))
    kind: Any = draw(st.sampled_from(CELLS))
    cell = kind(2, draw(st.integers(1, 3)), bias=draw(st.booleans()))
    model = Steps(cell, draw(st.sampled_from(STARTS)), first=draw(st.booleans()))
    return model, torch.randn(6, draw(st.integers(1, 3)), 2)


@settings(max_examples=30)
@given(steps(), st.sampled_from([2, 3, 6]))
def test_cells(drawn: tuple[nn.Module, Tensor], examples: int) -> None:
    model, inputs = drawn
    check_every_gradient(model, inputs, examples)
    check_against_brute_force(model, inputs, examples, bounds=(0.8,))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", CELLS)
def test_cells_on_devices(kind: Any, start: str, device: str) -> None:
    torch.manual_seed(1)
    model = Steps(kind(2, 3), start).to(device)
    inputs = torch.randn(6, 3, 2, device=device)
    with cudnn.flags(enabled=True, allow_tf32=False):
        check_every_gradient(model, inputs, 3)
        check_against_brute_force(model, inputs, 3, bounds=(0.7,))


@pytest.mark.parametrize("kind", CELLS)
def test_cells_are_run_at_once(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    model, inputs = Steps(kind(2, 3)), torch.randn(6, 2, 2)
    monkeypatch.delattr(per_record, "_in_a_loop")
    expected = clipped(model, inputs, 3).norms
    monkeypatch.undo()
    monkeypatch.delattr(per_record, "_at_once")
    torch.testing.assert_close(clipped(model, inputs, 3).norms, expected)


def test_the_gradients_of_all_steps_are_held_once() -> None:
    model, inputs = Steps(nn.LSTMCell(2, 3)), torch.randn(6, 4, 2)
    uses, _ = traced(model, inputs, 6)
    assert [use.name for use in uses if use.name == "cell"] == ["cell"]


@pytest.mark.parametrize("trained", ["weight_ih", "weight_hh", "bias"])
@pytest.mark.parametrize("kind", CELLS)
def test_frozen_parameters(kind: Any, trained: str) -> None:
    torch.manual_seed(3)
    model = Steps(kind(2, 3), first=False)
    for name, part in model.named_parameters():
        part.requires_grad_(trained in name)
    check_against_brute_force(model, torch.randn(6, 3, 2), 3, bounds=(0.5,))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", CELLS)
def test_autocast(kind: Any, device: str) -> None:
    torch.manual_seed(4)
    model = Steps(kind(2, 3), "position").to(device)

    def losses(model: nn.Module, inputs: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16):
            outputs = model(inputs)
        return outputs.float().square().flatten(1).sum(1)

    inputs = torch.randn(6, 3, 2, device=device)
    found = clipped(model, inputs, 3, losses=losses)
    _, norms = brute_force(model, inputs, 3, losses=losses)
    torch.testing.assert_close(found.norms, norms, rtol=4e-2, atol=0.0)


class Takes(nn.Module):
    """A layer whose arguments are in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, *arguments: Any, **named: Any) -> Tensor:
        total = torch.zeros(())
        for number, part in enumerate(_parts((arguments, named))):
            total = total + torch.tanh((number + 1.0) * part @ self.weight)
        return total


def _parts(tree: Any) -> list[Tensor]:
    """Return tensors as the layer itself finds them."""
    if isinstance(tree, Tensor):
        return [tree]
    if isinstance(tree, PackedSequence):
        return [tree.data]
    if isinstance(tree, Unknown):
        return _parts(tree.inside)
    inner = (
        tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list | tuple) else ()
    )
    return [part for each in inner for part in _parts(each)]


@pytest.mark.parametrize(
    "call",
    [
        lambda layer, x: layer((x, x.square())),
        lambda layer, x: layer([x, None, 3.0], {"a": x.square(), "b": "text"}),
        lambda layer, x: layer(OrderedDict(a=(x,), b=[{"c": x.exp()}]), Pair(x, 1)),
        lambda layer, x: layer(other=(x.square(),), first=x),
        lambda layer, x: layer(x, second=(x.square(), Pair(x, 1)), scale=3),
        lambda layer, x: layer(layer([x]), [layer((x,))]),
        lambda layer, x: layer(x, b={"a": x.exp()}),
    ],
)
def test_arguments_in_containers(call: Callable[[nn.Module, Tensor], Tensor]) -> None:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(3, 3), Calls(Takes(), call))
    check_every_gradient(model, torch.randn(6, 3), 3)
    check_against_brute_force(model, torch.randn(6, 3), 2, bounds=(0.7,))


def packed(layer: nn.Module, inputs: Tensor) -> Tensor:
    sequence = pack_padded_sequence(inputs[:, None], torch.ones(len(inputs)), batch_first=True)
    made: Tensor = layer(inputs, sequence)
    return made


@pytest.mark.parametrize(
    "call",
    [
        lambda layer, x: layer([x, torch.ones(1, 3)]),
        lambda layer, x: layer(x, b=(torch.ones(3),)),
        lambda layer, x: layer(x, Unknown([x])),
        packed,
    ],
)
def test_arguments_that_cannot_be_followed(call: Callable[[nn.Module, Tensor], Tensor]) -> None:
    torch.manual_seed(6)
    assert check_training(Calls(Takes(), call), torch.randn(6, 3)) != BY_LAYER
