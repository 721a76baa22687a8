"""Layers that are changed between their call and the gradient of it, or called in several ways."""

import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional

from matrixdp.errors import InvalidParameterError
from training.brute_force import clipped, one_loss_per_row
from training.chosen_way import AT_ONCE, BY_LAYER, ONE_BY_ONE, check_training


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))


@contextmanager
def doubled_inputs(layer: nn.Module) -> Iterator[None]:
    handle = layer.register_forward_pre_hook(lambda _, arguments: (2.0 * arguments[0],))
    yield
    handle.remove()


@contextmanager
def doubled_outputs(layer: nn.Module) -> Iterator[None]:
    forward = layer.forward
    layer.forward = lambda inputs: 2.0 * forward(inputs)
    yield
    del layer.forward


@pytest.mark.parametrize(
    ("changed", "way"), [(doubled_inputs, BY_LAYER), (doubled_outputs, AT_ONCE)]
)
def test_changes_for_the_forward_pass_alone(changed: Any, way: str) -> None:
    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        with changed(model[2]):  # type: ignore[index]
            return one_loss_per_row(model, rows)

    assert check_training(two_layers(), torch.randn(6, 5), losses=losses) == way


SETTINGS: list[tuple[Callable[[], nn.Module], tuple[int, ...], str, Any]] = [
    (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5), "dilation", (2, 2)),
    (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 5, 5), "padding", (2, 2)),
    (lambda: nn.GroupNorm(2, 4), (4, 3), "num_groups", 1),
    (lambda: nn.LayerNorm(4), (4,), "eps", 1.0),
    (lambda: nn.Embedding(5, 4), (), "padding_idx", 0),
    (lambda: nn.LSTM(4, 3, batch_first=True), (2, 4), "bidirectional", True),
]


@pytest.mark.parametrize(("make", "shape", "name", "value"), SETTINGS)
def test_settings_that_are_changed(
    make: Callable[[], nn.Module], shape: tuple[int, ...], name: str, value: Any
) -> None:
    torch.manual_seed(0)
    layer = make()
    ordinary = getattr(layer, name)
    inputs = torch.arange(6) % 5 if isinstance(layer, nn.Embedding) else torch.randn(6, *shape)

    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        setattr(model, name, ordinary)
        found = one_loss_per_row(model, rows)
        setattr(model, name, value)
        return found

    assert check_training(layer, inputs, losses=losses) == AT_ONCE


class Dilated(nn.Module):
    """One convolution with several dilations."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(2, 3, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        total = torch.zeros(())
        for size in (1, 2):
            self.layer.dilation = self.layer.padding = (size, size)
            total = total + torch.tanh(self.layer(inputs))
        return total


def test_one_layer_with_several_settings() -> None:
    torch.manual_seed(0)
    assert check_training(Dilated(), torch.randn(6, 2, 5, 5)) == AT_ONCE


def test_a_convolution_that_an_instance_replaces() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh())

    def circular(_self: nn.Module, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        padded = functional.pad(inputs, (1, 1, 0, 0), mode="circular")
        return functional.conv2d(functional.pad(padded, (0, 0, 1, 1)), weight, bias)

    vars(model[0])["_conv_forward"] = types.MethodType(circular, model[0])
    assert check_training(model, torch.randn(6, 2, 5, 5)) == BY_LAYER


def layer_frozen_for_a_call(model: nn.Module, rows: Tensor) -> Tensor:
    first = one_loss_per_row(model, rows)
    layer = model.get_submodule("2").requires_grad_(False)
    second = one_loss_per_row(model, 2.0 * rows)
    layer.requires_grad_(True)
    return first + second


def parameter_frozen_for_a_call(model: nn.Module, rows: Tensor) -> Tensor:
    weight = model.get_parameter("2.weight").requires_grad_(False)
    found = one_loss_per_row(model, rows)
    weight.requires_grad_(True)
    return found


def with_tangents(model: nn.Module, rows: Tensor) -> Tensor:
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(rows.clone().requires_grad_(), torch.ones_like(rows))
        tangent = forward_ad.unpack_dual(model(dual)).tangent
        return one_loss_per_row(model, rows) + tangent.square().sum(1)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    ("losses", "way"),
    [
        (layer_frozen_for_a_call, BY_LAYER),
        (parameter_frozen_for_a_call, ONE_BY_ONE),
        (with_tangents, ONE_BY_ONE),
    ],
)
def test_losses_that_are_made_in_several_ways(
    losses: Callable[[nn.Module, Tensor], Tensor], way: str
) -> None:
    assert check_training(two_layers(), torch.randn(6, 5), losses=losses) == way


def test_a_parameter_that_a_hook_unfreezes() -> None:
    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        rows = rows.clone().requires_grad_()
        found = one_loss_per_row(model, rows)
        weight = model.get_parameter("0.weight").requires_grad_(False)

        def unfreeze(_gradient: Tensor) -> None:
            weight.requires_grad_(True)

        rows.register_hook(unfreeze)
        return found

    # Plain autograd cannot tell either whose gradient is meant.
    with pytest.raises(InvalidParameterError, match="does not require grad"):
        check_training(two_layers(), torch.randn(6, 5), losses=losses)


class UsesByAnotherName(nn.Module):
    """Holds a weight of a layer inside it, and uses it by the other layer's name."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(5, 5)
        self.weight = self.inner.weight

    def forward(self, inputs: Tensor) -> Tensor:
        return functional.linear(torch.tanh(self.inner(inputs)), self.inner.weight)


def test_a_parameter_with_two_names_used_by_either() -> None:
    torch.manual_seed(0)
    assert check_training(UsesByAnotherName(), torch.randn(6, 5)) == BY_LAYER


def test_a_hook_after_the_gradient_of_a_parameter() -> None:
    model = two_layers()
    seen: list[Tensor] = []
    model.get_parameter("0.weight").register_post_accumulate_grad_hook(seen.append)
    assert check_training(model, torch.randn(6, 5)) == BY_LAYER
    assert not seen  # no parameter gets a gradient that is not clipped


def test_dropout_that_an_lstm_gets_later() -> None:
    def losses(model: nn.Module, rows: Tensor) -> Tensor:
        model.dropout = 0.0  # type: ignore[assignment]
        found = one_loss_per_row(model, rows)
        model.dropout = 0.9  # type: ignore[assignment]
        return found

    torch.manual_seed(0)
    layer = nn.LSTM(4, 3, 2, batch_first=True)
    assert check_training(layer, torch.randn(6, 2, 4), losses=losses) == BY_LAYER


def test_a_parameter_that_hooks_freeze_only_while_it_is_measured() -> None:
    # Its norm is not taken, so it must not be in the sum either.
    torch.manual_seed(1)
    first, last = nn.Linear(4, 4), nn.Linear(4, 3)

    def switched(on: bool) -> Callable[[Tensor], None]:  # noqa: FBT001
        def switch(_: Tensor) -> None:
            first.requires_grad_(on)

        return switch

    def losses(_: nn.Module, rows: Tensor) -> Tensor:
        rows = rows.clone().requires_grad_()
        made: Tensor = last(torch.relu(first(rows)))
        made.register_hook(switched(False))
        rows.register_hook(switched(True))
        return made.square().sum(1)

    sums = clipped(nn.Sequential(first, last), 50.0 * torch.randn(1, 4), 1, (0.5,), losses=losses)
    assert float(torch.cat([part.flatten() for part in sums.sums.values()]).norm()) <= 0.5
