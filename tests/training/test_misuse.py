"""Every way to get a private loop wrong has an error that says what to do instead."""

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.training import PrivateTraining
from matrixdp.training.guarantee import Mode
from training.small_training import (
    cross_entropy,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]


def training_of(model: nn.Module, *, debug: bool = False, **options: Any) -> PrivateTraining:
    # Every record is in every lot, so that no lot is empty.
    plan = small_plan(**({"lot_size": 40} | options))
    return PrivateTraining(model, sgd(model), plan, seed=1, debug=debug)


@pytest.mark.parametrize(
    ("losses", "error", "message"),
    [
        (lambda m, x, y: functional.cross_entropy(m(x), y), ShapeError, 'reduction="none"'),
        (lambda m, x, y: cross_entropy(m, x, y)[:-1], ShapeError, r"shape \(7,\).* 8 examples"),
        (lambda m, x, y: cross_entropy(m, x, y).repeat(2), ShapeError, r"shape \(16,\)"),
        (lambda m, x, _: m(x).square(), ShapeError, r"flatten\(1\)\.mean\(1\)"),
        (lambda m, x, y: cross_entropy(m, x, y).detach(), InvalidParameterError, "no gradient"),
        (lambda m, x, y: cross_entropy(m, x, y).tolist(), InvalidParameterError, "is a list"),
        (
            lambda m, x, y: cross_entropy(m, x, y).sum().expand(len(x)),
            InvalidParameterError,
            "one number that was expanded",
        ),
        (
            lambda m, x, y: cross_entropy(m, x, y).to(torch.complex64),
            InvalidParameterError,
            "complex64.*pass real numbers",
        ),
        (
            lambda _m, x, _y: x.sum(1).requires_grad_(),
            InvalidParameterError,
            "do not depend on any layer",
        ),
    ],
)
def test_wrong_losses(losses: Losses, error: type[Exception], message: str) -> None:
    model = small_model()
    training = training_of(model)
    before = weights(model)
    with pytest.raises(error, match=message):
        train(training, model, losses=losses)
    assert training.steps_spent == 1  # since its lot was drawn
    assert torch.equal(weights(model), before)


def test_accumulating_twice() -> None:
    model = small_model()
    training = training_of(model)
    lot = next(training.lots(small_data()))
    for inputs, targets in lot.batches(40):
        losses = cross_entropy(model, inputs, targets)
        training.accumulate(losses)
        with pytest.raises(InvalidParameterError, match="once for each batch"):
            training.accumulate(losses)
    training.step()


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("disabled", [torch.no_grad, torch.inference_mode])
def test_accumulating_without_gradients(disabled: Callable[[], Any], mode: Mode) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1, mode=mode)
    lot = next(training.lots(small_data()))
    for inputs, targets in lot.batches(1 if mode == "exact" else 20):
        losses = cross_entropy(model, inputs, targets)
        with disabled(), pytest.raises(InvalidParameterError, match=r"outside of torch\.no_grad"):
            training.accumulate(losses)
        training.accumulate(losses)  # the batch still counts
    training.step()


def test_a_lot_is_gone_through_once() -> None:
    model = small_model()
    training = training_of(model)
    lot = next(training.lots(small_data()))
    for inputs, targets in lot.batches(20):
        training.accumulate(cross_entropy(model, inputs, targets))
    with pytest.raises(InvalidParameterError, match="each record may count once"):
        lot.batches(20)
    training.step()
    with pytest.raises(InvalidParameterError, match="each record may count once"):
        lot.batches(20)


def test_a_batch_without_its_losses() -> None:
    model = small_model()
    training = training_of(model)
    lot = next(training.lots(small_data()))
    batches = lot.batches(20)
    next(batches)
    with pytest.raises(InvalidParameterError, match="not accumulated"):
        next(batches)


def test_a_step_before_the_lot_is_complete() -> None:
    model = small_model()
    training = training_of(model)
    with pytest.raises(InvalidParameterError, match="no lot is open"):
        training.step()
    with pytest.raises(InvalidParameterError, match="no lot is open"):
        training.accumulate(torch.ones(3, requires_grad=True))
    lot = next(training.lots(small_data()))
    with pytest.raises(InvalidParameterError, match="not complete"):
        training.step()
    batches = lot.batches(20)
    inputs, targets = next(batches)
    training.accumulate(cross_entropy(model, inputs, targets))
    with pytest.raises(InvalidParameterError, match="not complete"):
        training.step()
    assert training.steps_spent == 1  # since its lot was drawn


def test_a_lot_without_a_step() -> None:
    training = training_of(small_model())
    lots = training.lots(small_data())
    next(lots)
    with pytest.raises(InvalidParameterError, match=r"step\(\) was not called"):
        next(lots)


def test_accumulating_outside_of_the_batches() -> None:
    model = small_model()
    training = training_of(model)
    lot = next(training.lots(small_data()))
    with pytest.raises(InvalidParameterError, match="no batch whose losses"):
        training.accumulate(cross_entropy(model, *small_data()))
    inputs, targets = next(lot.batches(40))  # the loop over batches ends here
    with pytest.raises(InvalidParameterError, match=r"within `for .* in lot\.batches"):
        training.accumulate(cross_entropy(model, inputs, targets))
    with pytest.raises(InvalidParameterError, match="not complete"):
        training.step()


def infinite(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model, inputs, targets) / (0.0 * inputs[:, 0]).detach()


def nan_in_the_first_layer(model: nn.Module, inputs: Tensor, _targets: Tensor) -> Tensor:
    """The square root of zero: a finite loss whose gradient is not."""
    layers = list(model.children())
    first: Tensor = layers[0](inputs)
    second: Tensor = layers[2](inputs[:, :5])
    return torch.sqrt(0.0 * first.sum(1)) + second.sum(1)


def too_long(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Finite gradients, whose squares float32 cannot hold."""
    return 1e25 * cross_entropy(model, inputs, targets)


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (too_long, r"layer '2' are not finite.*above about 1e19 cannot be formed in float32"),
        (infinite, "losses and gradients of layer '2' are not finite"),
        (nan_in_the_first_layer, "stopped the step: gradients of layer '0' are not finite"),
    ],
)
def test_debugging_names_what_is_not_finite(losses: Losses, message: str) -> None:
    model = small_model()
    training = training_of(model, debug=True)
    before = weights(model)
    with pytest.raises(InvalidParameterError, match=message):
        train(training, model, losses=losses)
    assert training.steps_spent == 1  # it looked at the data
    assert torch.equal(weights(model), before)
    train(training, model)
    assert training.steps_left == 0
    assert not torch.equal(weights(model), before)


def test_a_single_record_that_is_not_finite() -> None:
    def one(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        factors = torch.ones(len(inputs))
        factors[1] = math.nan
        return cross_entropy(model, inputs, targets) * factors

    model = small_model()
    training = training_of(model, debug=True)
    with pytest.raises(InvalidParameterError, match="not finite"):
        train(training, model, losses=one)
    assert training.steps_spent == 1


def test_a_model_that_is_one_layer_is_called_the_model() -> None:
    model = nn.Linear(6, 3)
    with pytest.raises(InvalidParameterError, match="gradients of the model are not finite"):
        train(training_of(model, debug=True), model, losses=infinite)


class Tied(nn.Module):
    """Uses a layer's weight without calling the layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)
        self.outer = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.outer(functional.linear(self.inner(inputs), self.inner.weight))


def test_a_gradient_beside_the_layers() -> None:
    model = Tied()
    training = training_of(model)
    with pytest.raises(InvalidParameterError, match=r"parameter 'inner\.weight' received"):
        train(training, model)
    assert training.steps_spent == 1  # since its lot was drawn
    assert all(part.grad is None for part in model.parameters())


def test_a_parameter_outside_of_the_model() -> None:
    temperature = nn.Parameter(torch.tensor(2.0))
    shift = torch.zeros(3, requires_grad=True)
    head = nn.Linear(3, 3)
    makers: list[Callable[[Tensor], Tensor]] = [
        lambda outputs: outputs / temperature,
        lambda outputs: outputs + shift,
        head,
    ]
    for make in makers:
        model = small_model()

        def losses(model: nn.Module, inputs: Tensor, targets: Tensor, make: Any = make) -> Tensor:
            return functional.cross_entropy(make(model(inputs)), targets, reduction="none")

        with pytest.raises(InvalidParameterError, match="not a parameter of the model"):
            train(training_of(model), model, losses=losses)
    assert all(part.grad is None for part in (temperature, shift, *head.parameters()))


def test_inputs_that_require_a_gradient() -> None:
    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, inputs.requires_grad_(), targets)

    found = []
    for one in (cross_entropy, losses):
        model = small_model()
        train(training_of(model), model, losses=one, steps=1)
        found.append(weights(model))
    assert torch.equal(*found)


def test_accumulating_within_a_layer() -> None:
    class Accumulates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 3)
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, inputs: Tensor, targets: Tensor, training: PrivateTraining) -> None:
            outputs = self.inner(inputs) * self.scale
            training.accumulate(functional.cross_entropy(outputs, targets, reduction="none"))

    model = Accumulates()
    training = training_of(model)
    batches = next(training.lots(small_data())).batches(8)
    batch = next(batches)
    with pytest.raises(InvalidParameterError, match=r"within the forward pass of layer ''"):
        model(*batch, training)


def test_a_backward_pass_of_ones_own() -> None:
    def penalised(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(model, inputs, targets)
        penalty = sum((part.square().sum() for part in model.parameters()), torch.zeros(()))
        penalty.backward()
        return losses

    model = small_model()
    with pytest.raises(InvalidParameterError, match=r"parameter '0\.weight' received"):
        train(training_of(model), model, losses=penalised)


def test_parameters_that_change_after_the_plan() -> None:
    model = small_model()
    training = training_of(model)
    model.append(nn.Linear(3, 3))
    with pytest.raises(InvalidParameterError, match=r"parameter '3\.weight' was added"):
        train(training, model)
    model = small_model()
    model[0].bias.requires_grad_(False)
    training = training_of(model)
    model[0].bias.requires_grad_(True)
    with pytest.raises(InvalidParameterError, match=r"parameter '0\.bias' was added or unfrozen"):
        train(training, model)
    model = small_model()
    training = training_of(model)
    model[0].bias.requires_grad_(False)
    with pytest.raises(InvalidParameterError, match=r"parameter '0\.bias' was removed or frozen"):
        train(training, model)
    assert training.steps_spent == 0


def test_a_parameter_that_is_frozen_within_a_lot() -> None:
    model = small_model()
    training = training_of(model)
    lot = next(training.lots(small_data()))
    bias = model.get_parameter("0.bias")
    for number, (inputs, targets) in enumerate(lot.batches(20)):
        training.accumulate(cross_entropy(model, inputs, targets))
        if number == 0:
            bias.requires_grad_(False)
    assert not bias.requires_grad  # nobody but the user trains it again
    with pytest.raises(InvalidParameterError, match=r"parameter '0\.bias' was removed or frozen"):
        training.step()
    assert training.steps_spent == 1  # since its lot was drawn


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_a_layer_that_mixes_records_is_added_later(mode: Any) -> None:
    # Without parameters of its own, so that no parameter gives it away.
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(), seed=1, mode=mode)
    model.append(nn.ReLU())
    train(training, model, steps=1)
    model.append(nn.BatchNorm1d(3, affine=False))
    with pytest.raises(InvalidParameterError, match="layer '4' is a BatchNorm1d"):
        train(training, model)
    assert training.steps_spent == 1


def test_a_parameter_group_that_is_added_later() -> None:
    model = small_model()
    optimizer = sgd(model)
    training = PrivateTraining(model, optimizer, small_plan(), seed=1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with pytest.raises(InvalidParameterError, match="not one of the model's"):
        training.lots(small_data())
    assert training.steps_spent == 0


def test_a_change_between_lots_spends_nothing() -> None:
    model = small_model()
    training = training_of(model)
    lots = training.lots(small_data())
    for inputs, targets in next(lots).batches(40):
        training.accumulate(cross_entropy(model, inputs, targets))
    training.step()
    model.append(nn.BatchNorm1d(3, affine=False))
    with pytest.raises(InvalidParameterError, match="layer '3' is a BatchNorm1d"):
        next(lots)
    assert training.steps_spent == 1


@pytest.mark.parametrize("mode", ["fast", "exact"])
def test_nothing_is_spent_in_inference_mode(mode: Mode) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1, mode=mode)
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        training.lots(small_data())
    lots = training.lots(small_data())
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        next(lots)
    assert training.steps_spent == 0
    for inputs, targets in next(training.lots(small_data())).batches(20):
        training.accumulate(cross_entropy(model, inputs, targets))
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        training.step()
    training.step()
