"""Layers that are called in unusual ways: right gradients, or a refusal that names the layer."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from matrixdp.errors import BudgetExceededError, InvalidParameterError, ShapeError
from matrixdp.training import PrivateTraining
from matrixdp.training.layers.table import check_layer
from training.brute_force import brute_force, check_against_brute_force, clipped
from training.small_training import (
    cross_entropy,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

pytestmark = pytest.mark.filterwarnings("ignore:.* has no shortcut")


class Calls(nn.Module):
    """A model of one layer that is called as a test wants it."""

    def __init__(self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self.call = call

    def forward(self, inputs: Tensor) -> Tensor:
        return self.call(self.layer, inputs)


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


class Dropping(Own):
    """A layer whose gradient cannot be found by running it once more."""

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        return functional.dropout(super().forward(inputs))


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


def hooked() -> nn.Module:
    layer = nn.Linear(3, 3)
    layer.register_forward_pre_hook(lambda _, arguments: (2.0 * arguments[0],))
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
        (Tied, (3,)),
        (lambda: SquaredWeights(2, 3, 2), (2, 4, 4)),
        (hooked, (3,)),
        (hooked_output, (3,)),
        (patched, (3,)),
        (lambda: nn.GroupNorm(2, 6), (6,)),
    ],
)
def test_unusual_calls(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    check_against_brute_force(make(), torch.randn(8, *shape), 4, bounds=(0.7,))


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: Calls(nn.LSTM(3, 4, batch_first=True), lambda layer, x: layer(x)[0]), (4, 3)),
        (lambda: nn.Conv1d(4, 4, 2), (4, 5)),
        (lambda: nn.Conv2d(4, 4, 2), (4, 5, 5)),
        (lambda: nn.InstanceNorm1d(4, affine=True), (4, 5)),
        (lambda: nn.InstanceNorm2d(4, affine=True), (4, 5, 5)),
        (lambda: nn.LayerNorm((4, 5)), (4, 5)),
        (lambda: nn.RMSNorm((4, 5)), (4, 5)),
        (lambda: Calls(nn.Linear(4, 4), lambda layer, x: layer(x)[:, None]), (4,)),
        (lambda: Calls(Own(), lambda layer, x: layer(x.reshape(2, 2, 3)).reshape(4, 3)), (4, 3)),
    ],
)
def test_rows_that_are_taken_for_something_else(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    # Four rows, and a layer that takes them for channels, for time or for a single example.
    with pytest.raises(ShapeError, match="keep the batch as the first axis"):
        clipped(make(), torch.randn(shape), 4)


def in_place(layer: nn.Module, inputs: Tensor) -> Tensor:
    outputs: Tensor = layer(inputs)
    inputs.mul_(2.0)
    return outputs


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Calls(nn.Linear(3, 3), in_place), "changed in place"),
        (Calls(Own(), lambda layer, x: layer(x, [x])), "takes a list of tensors"),
        (Calls(Own(), lambda layer, x: layer(x, torch.ones(2, 3)[:1])), "beside 4 rows"),
        (Dropping(), "cannot differentiate it example by example"),
        (Calls(Several(), lambda layer, x: layer(x)[1]), "returns several tensors"),
    ],
)
def test_calls_that_cannot_be_followed(model: nn.Module, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        clipped(model, torch.randn(4, 3), 4)


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4), nn.EmbeddingBag(5, 3, max_norm=1.0)], ids=type)
def test_layers_that_mix_rows(layer: nn.Module) -> None:
    with pytest.raises(InvalidParameterError, match="'name'"):
        check_layer(layer, "name")


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("rows", [4, 8])
def test_checkpointing_is_refused(rows: int, *, reentrant: bool) -> None:
    # With as many rows as columns, torch would take the saved inputs for the saved weight.
    model = nn.Sequential(
        nn.Linear(8, 8),
        Calls(
            nn.Linear(8, 8),
            lambda layer, x: checkpoint(layer, x, use_reentrant=reentrant),
        ),
    )
    with pytest.raises(InvalidParameterError, match=r"'1\.layer' is called during the backward"):
        clipped(model, torch.randn(rows, 8), rows)
    clipped(model[0], torch.randn(rows, 8), rows)


@pytest.mark.parametrize(
    ("layer", "call"),
    [
        (nn.LSTM(3, 3, batch_first=True), lambda layer, x: layer(x[:, None])[0][:, 0]),
        (Own(), lambda layer, x: layer(x)),
    ],
)
def test_autocast(layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor]) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 3), Calls(layer, call), nn.Linear(3, 2))

    def losses(model: nn.Module, inputs: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            outputs = model(inputs)
        return functional.cross_entropy(
            outputs.float(), torch.zeros(len(inputs), dtype=torch.int64), reduction="none"
        )

    inputs = torch.randn(6, 3)
    found = clipped(model, inputs, 6, losses=losses)
    _, norms = brute_force(model, inputs, 6, losses=losses)
    torch.testing.assert_close(found.norms, norms, rtol=2e-2, atol=0.0)


def test_a_lot_that_was_given_up_is_not_watched() -> None:
    models = [small_model() for _ in range(2)]
    first, second = (PrivateTraining(model, sgd(model), small_plan(), seed=3) for model in models)
    abandoned = next(first.lots(small_data())).batches(8)
    next(abandoned)  # and kept, as the traceback of an exception keeps it
    next(second.lots(small_data()))  # given up as well, but not held
    train(first, models[0])
    train(second, models[1])
    del abandoned
    for one, other in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


def test_an_interruption_within_a_layer() -> None:
    models = [small_model() for _ in range(2)]
    training = PrivateTraining(models[0], sgd(models[0]), small_plan(), seed=3)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    hook = next(models[0].children()).register_forward_pre_hook(interrupted)
    batches = next(training.lots(small_data())).batches(8)  # kept, as a progress bar keeps them
    inputs, _ = next(batches)
    with pytest.raises(KeyboardInterrupt):
        models[0](inputs)
    hook.remove()
    for model in models:
        train(PrivateTraining(model, sgd(model), small_plan(), seed=3), model)
    assert torch.equal(weights(models[0]), weights(models[1]))
    del batches
    assert all(part.requires_grad for part in models[0].parameters())


def test_another_thread_runs_the_model() -> None:
    models = [small_model() for _ in range(2)]
    first, second = (PrivateTraining(model, sgd(model), small_plan(), seed=3) for model in models)

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        entered, released = threading.Event(), threading.Event()
        other = threading.Thread(target=model, args=(inputs[:1],))

        def interleave(*_: Any) -> None:
            # Both are within the layer at once, and the one that came last leaves last.
            if threading.current_thread() is other:
                entered.set()
                released.wait(10.0)
            else:
                other.start()
                entered.wait(10.0)

        hook = next(model.children()).register_forward_pre_hook(interleave)
        found = cross_entropy(model, inputs, targets)
        released.set()
        other.join()
        hook.remove()
        return found

    train(first, models[0], losses=losses)
    train(second, models[1])
    torch.testing.assert_close(weights(models[0]), weights(models[1]))


def test_gradients_of_ones_own_between_lots() -> None:
    models = [small_model() for _ in range(2)]
    first, second = (PrivateTraining(model, sgd(model), small_plan(), seed=3) for model in models)
    for lot in first.lots(small_data()):
        models[0](torch.ones(1, 6)).sum().backward()  # such as a picture of what matters
        for inputs, targets in lot.batches(8):
            first.accumulate(cross_entropy(models[0], inputs, targets))
        first.step()
    train(second, models[1])
    assert torch.equal(weights(models[0]), weights(models[1]))


def test_gradients_left_in_frozen_parameters() -> None:
    model = small_model()
    cross_entropy(model, *small_data()).sum().backward()
    weight = next(model.parameters()).requires_grad_(False)
    model[0].requires_grad_(False)
    before = weight.clone()
    with pytest.raises(InvalidParameterError, match="frozen parameter that has a gradient"):
        PrivateTraining(model, sgd(model), small_plan(), seed=3)
    sgd(model).zero_grad()
    training = PrivateTraining(model, sgd(model), small_plan(), seed=3)
    lot = next(training.lots(small_data()))
    for inputs, targets in lot.batches(8):
        training.accumulate(cross_entropy(model, inputs, targets))
    weight.grad = torch.ones_like(weight)
    with pytest.raises(InvalidParameterError, match="frozen parameter that has a gradient"):
        training.step()
    assert training.steps_spent == 0
    assert torch.equal(weight, before)


def test_a_lot_that_was_given_up_counts() -> None:
    # Whether a lot is given up may depend on its records; drawing again for free would select lots.
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(steps=3))
    for spent in range(3):
        next(training.lots(small_data()))
        assert training.steps_spent == spent
    train(training, model)
    assert training.steps_left == 0
    with pytest.raises(BudgetExceededError):
        training.lots(small_data())
