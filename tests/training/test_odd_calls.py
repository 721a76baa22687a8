"""Layers that are called in unusual ways: the right gradients, by whichever way."""

import pickle
from collections.abc import Callable
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.utils.prune import l1_unstructured
from torch.utils.checkpoint import checkpoint

from matrixdp.errors import InvalidParameterError
from training.chosen_way import AT_ONCE, BY_LAYER, ONE_BY_ONE, Calls, check_training


class Own(nn.Module):
    """A layer of a kind that is not known, with options."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))

    def forward(self, inputs: Tensor, other: Any = None, scale: float = 1.0) -> Tensor:
        if isinstance(other, list):
            inputs = inputs + other[0]
        elif other is not None:
            inputs = inputs + other
        return functional.linear(inputs, self.weight) * scale


class Several(Own):
    """A layer that returns two tensors."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return inputs, super().forward(inputs)


class Tied(nn.Module):
    """A parameter of its own that a child has too, and that has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.child = nn.Linear(3, 3)
        self.first = self.child.weight
        self.second = self.child.weight

    def forward(self, inputs: Tensor) -> Tensor:
        # Used before and after the child is called.
        hidden = torch.tanh(torch.tanh(inputs @ self.first) @ self.second)
        return torch.tanh(self.child(hidden)) @ self.first


class SquaredWeights(nn.Conv2d):
    """A convolution with another weight than its parameter, behind the same forward method."""

    def _conv_forward(self, inputs: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(inputs, weight.square(), bias)


def tied_directions() -> nn.Module:
    layer = nn.LSTM(3, 4, bidirectional=True, batch_first=True)
    layer.weight_ih_l0_reverse = layer.weight_ih_l0
    layer.bias_hh_l0 = layer.bias_ih_l0
    return layer


def tied_scale_and_shift() -> nn.Module:
    layer = nn.GroupNorm(2, 4)
    layer.bias = layer.weight
    return layer


def hooked() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_forward_pre_hook(lambda _, arguments: (2.0 * arguments[0],))
    return layer


def hooked_by_position() -> nn.Module:
    layer = Own()
    layer.register_forward_pre_hook(lambda _, arguments: (torch.tanh(2.0 * arguments[0]),))
    return layer


def hooked_by_name() -> nn.Module:
    layer = Own()
    layer.register_forward_pre_hook(
        lambda _, arguments, named: (arguments, named | {"scale": 3.0 * named["scale"]}),
        with_kwargs=True,
    )
    return layer


class ByNameOnly(Own):
    """A layer with an argument that has no place."""

    def forward(self, inputs: Tensor, *, scale: float = 1.0) -> Tensor:  # type: ignore[override]
        return super().forward(inputs, scale=scale)


class Learned(nn.Module):
    """What all records share and the model learns: a view of a parameter, for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        # With one row, the parameter itself.
        return self.token if len(inputs) == 1 else self.token.expand(len(inputs), -1)


def hooked_on_both_sides() -> nn.Module:
    layer = hooked()
    layer.register_forward_hook(lambda _, __, outputs: 3.0 * outputs)
    return layer


def pruned() -> nn.Module:
    layer = nn.Linear(3, 3)
    l1_unstructured(layer, "weight", 0.5)
    return layer


def hooked_output() -> nn.Module:
    layer = Own()
    layer.register_forward_hook(lambda _, __, output: torch.tanh(0.5 * output))

    def smaller(_: nn.Module, gradients: Any) -> tuple[Tensor]:
        return (gradients[0].clamp(max=0.1),)

    layer.register_full_backward_pre_hook(smaller)
    return nn.Sequential(nn.Linear(3, 3), layer)


def patched() -> nn.Module:
    layer = nn.Linear(3, 3)
    plain = layer.forward
    layer.forward = lambda inputs: plain(2.0 * inputs)  # type: ignore[method-assign, assignment]
    return layer


class CallsItself(Own):
    """A layer that uses its weight twice, by calling itself."""

    def forward(self, inputs: Tensor, times: int = 2) -> Tensor:  # type: ignore[override]
        below = self(inputs, times - 1) if times > 1 else inputs
        return super().forward(below)


class Chooses(Own):
    """A layer that returns indices, too."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        outputs = super().forward(inputs)
        return outputs, outputs.argmax(1)


def with_older_weights(layer: nn.Module, inputs: Tensor) -> Tensor:
    older = {name: part.detach() for name, part in layer.named_parameters()}
    made: Tensor = functional_call(layer, older, (inputs,))
    return made


def masked() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.weight.register_hook(lambda gradient: 0.0 * gradient)
    return layer


def with_states(layer: nn.Module, inputs: Tensor) -> Tensor:
    start = torch.tanh(inputs[:, 0].sum(1, keepdim=True)).expand(-1, 4)[None]
    made: Tensor = layer(inputs, hx=(start, 2.0 * start))[0]
    return made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: Calls(nn.LSTM(3, 4, batch_first=True), with_states), (5, 3)),
        (lambda: Calls(nn.Linear(3, 2), lambda layer, rows: layer(input=rows)), (3,)),
        (lambda: Calls(Own(), lambda layer, rows: layer(rows, scale=3.0)), (3,)),
        (lambda: Calls(Own(), lambda layer, rows: layer(rows, other=rows.square())), (3,)),
        (lambda: Calls(Own(), lambda layer, rows: layer(rows, [rows.square()])), (3,)),
        (lambda: Calls(Several(), lambda layer, x: layer(x)[1]), (3,)),
        (lambda: Calls(Chooses(), lambda layer, x: layer(x)[0]), (3,)),
        (lambda: Calls(hooked_by_position(), lambda layer, x: layer(x, scale=3.0)), (3,)),
        (lambda: Calls(hooked_by_position(), lambda layer, x: layer(x, other=x.square())), (3,)),
        (lambda: Calls(ByNameOnly(), lambda layer, x: layer(x, scale=3.0)), (3,)),
        (lambda: Calls(ByNameOnly(), lambda layer, x: layer(scale=3.0, inputs=x)), (3,)),
        (lambda: Calls(Learned(), lambda layer, x: x * layer(x)), (3,)),
        (lambda: nn.Sequential(Learned(), nn.Linear(3, 2)), (3,)),
        (Tied, (3,)),
        (tied_directions, (5, 3)),
        (tied_scale_and_shift, (4, 3)),
        (lambda: SquaredWeights(2, 3, 2), (2, 4, 4)),
        (hooked, (3,)),
        (hooked_on_both_sides, (3,)),
        (hooked_output, (3,)),
        (patched, (3,)),
        (lambda: nn.GroupNorm(2, 6), (6,)),
    ],
)
def test_layer_by_layer(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    assert check_training(make(), torch.randn(8, *shape), 4) == BY_LAYER


def test_a_parameter_that_is_returned() -> None:
    torch.manual_seed(2)
    model = Calls(Learned(), lambda layer, x: x * layer(x))
    assert check_training(model, torch.randn(1, 3)) == BY_LAYER
    assert model.get_parameter("layer.token").is_leaf


def checkpointed(layer: nn.Module, inputs: Tensor) -> Tensor:
    made: Tensor = checkpoint(layer, inputs, use_reentrant=False)
    return made


def both_weights(layer: nn.Module, inputs: Tensor) -> Tensor:
    return torch.tanh(layer(inputs)) * with_older_weights(layer, inputs)


def bags(layer: nn.Module, inputs: Tensor) -> Tensor:
    tokens = (inputs > 0).long()
    starts = torch.arange(0, tokens.numel(), tokens.shape[1])
    made: Tensor = layer(tokens.flatten(), starts)
    return made


@pytest.mark.parametrize(
    ("make", "way"),
    [
        (pruned, AT_ONCE),
        (CallsItself, AT_ONCE),
        (lambda: Calls(Own(), lambda layer, x: layer(x, torch.ones(2, 3)[:1])), AT_ONCE),
        (lambda: Calls(Own(), lambda layer, x: layer(x, [torch.ones(1, 3)])), AT_ONCE),
        (lambda: nn.Sequential(nn.Linear(3, 3), Calls(nn.Linear(3, 3), both_weights)), AT_ONCE),
        (lambda: Calls(nn.EmbeddingBag(2, 3, mode="sum"), bags), AT_ONCE),
        (masked, ONE_BY_ONE),
        (lambda: Calls(hooked_by_name(), lambda layer, x: layer(x, scale=2.0)), BY_LAYER),
        # With as many rows as columns, saved inputs could be taken for the saved weight.
        (lambda: nn.Sequential(nn.Linear(3, 3), Calls(nn.Linear(3, 3), checkpointed)), BY_LAYER),
    ],
)
def test_by_whichever_way(make: Callable[[], nn.Module], way: str) -> None:
    torch.manual_seed(1)
    assert check_training(make(), torch.randn(3, 3)) == way


def in_place(layer: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = layer(inputs)
    inputs.mul_(2.0)
    return outputs


def test_what_plain_autograd_refuses() -> None:
    with pytest.raises(InvalidParameterError, match="modified by an inplace operation"):
        check_training(Calls(nn.Linear(3, 3), in_place), torch.randn(4, 3))


def test_weights_that_are_never_used() -> None:
    with pytest.raises(InvalidParameterError, match="do not depend on any parameter"):
        check_training(Calls(nn.Linear(3, 3), with_older_weights), torch.randn(4, 3))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Conv1d(4, 4, 2), (4, 5)),
        (lambda: nn.Conv2d(4, 4, 2), (4, 5, 5)),
        (lambda: nn.InstanceNorm1d(4, affine=True), (4, 5)),
        (lambda: nn.LayerNorm((4, 5)), (4, 5)),
        (lambda: Calls(Own(), lambda layer, x: layer(x.reshape(2, 2, 3)).reshape(4, 3)), (4, 3)),
        (lambda: Calls(nn.LSTM(3, 4, batch_first=True), lambda layer, x: layer(x)[0]), (4, 3)),
    ],
)
def test_rows_that_are_taken_for_something_else(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    # Four rows, and a layer that takes them for channels, for time or for a single example.
    with pytest.raises(InvalidParameterError, match=r"of a record depends on|for made-up records"):
        check_training(make(), torch.randn(shape))


def test_a_layer_that_runs_again_keeps_nothing_of_it() -> None:
    layer = pruned()
    check_training(layer, torch.randn(4, 3))
    weight, mask = dict(layer.named_parameters())["weight_orig"], layer.weight_mask
    assert torch.equal(cast("Tensor", layer.weight), weight * cast("Tensor", mask))
    assert layer._forward_pre_hooks
    pickle.dumps(layer)
