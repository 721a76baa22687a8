"""Gradient passes of the user's own within a batch: they do not enter what is clipped."""

from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from matrixdp.training.recording import Recording
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


def training_of(model: nn.Module) -> PrivateTraining:
    # Every record is in every lot, and every gradient is clipped.
    return PrivateTraining(model, sgd(model), small_plan(lot_size=40, clip_norm=0.01), seed=1)


def attacked(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return inputs moved along the sign of a large gradient."""
    moved = inputs.clone().requires_grad_()
    total = 100.0 * functional.cross_entropy(model(moved), targets, reduction="sum")
    (gradient,) = torch.autograd.grad(total, moved)
    return inputs + 0.1 * gradient.sign()


def after_an_attack(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    attacked(model, inputs, targets)
    return cross_entropy(model, inputs, targets)


def after_a_backward_pass(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    losses = cross_entropy(model, inputs, targets)
    (100.0 * losses).sum().backward(retain_graph=True)
    return losses


def after_saliency(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    outputs = model(inputs)
    torch.autograd.grad(100.0 * outputs[:, 0].sum(), outputs, retain_graph=True)
    return functional.cross_entropy(outputs, targets, reduction="none")


def trained(losses: Losses) -> Tensor:
    """Return the weights after all steps; batches of two sizes."""
    model = small_model()
    training = training_of(model)
    for lot in training.lots(small_data()):
        for inputs, targets in lot.batches(16):
            training.accumulate(losses(model, inputs, targets))
        training.step()
    return weights(model)


@pytest.mark.parametrize("losses", [after_an_attack, after_a_backward_pass, after_saliency])
def test_they_change_nothing(losses: Losses) -> None:
    torch.testing.assert_close(trained(losses), trained(cross_entropy), rtol=1e-5, atol=1e-6)


def test_adversarial_training() -> None:
    def as_one(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(model, attacked(model, inputs, targets), targets)

    def apart(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        # A copy is not watched.
        copy = small_model()
        copy.load_state_dict(model.state_dict())
        return cross_entropy(model, attacked(copy, inputs, targets), targets)

    torch.testing.assert_close(trained(as_one), trained(apart), rtol=1e-5, atol=1e-6)


def test_a_lot_that_was_given_up_does_not_enter_a_later_one() -> None:
    found = []
    for size in (1.0, 1000.0):
        model = small_model()
        training = training_of(model)
        for number, lot in enumerate(training.lots(small_data())):
            for inputs, targets in lot.batches(40):
                if number:
                    attacked(model, size * inputs, targets)
                    break
                training.accumulate(cross_entropy(model, inputs, targets))
            if number:
                break
            training.step()
        for lot in training.lots(small_data()):
            for inputs, targets in lot.batches(40):
                training.accumulate(cross_entropy(model, inputs, targets))
            training.step()
        found.append(weights(model))
    assert torch.equal(*found)


def test_gradients_that_are_differentiated_again() -> None:
    def penalised(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        inputs = inputs.clone().requires_grad_()
        losses = cross_entropy(model, inputs, targets)
        (slopes,) = torch.autograd.grad(losses.sum(), inputs, create_graph=True)
        return losses + slopes.square().sum(1)

    with pytest.raises(InvalidParameterError, match=r"create_graph=True.* mode='exact'"):
        trained(penalised)


class Equilibrium(nn.Module):
    """A fixed point, whose gradient is found by gradients within the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(6, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        start = torch.tanh(self.cell(inputs)).detach().requires_grad_()
        after = torch.tanh(self.cell(start))

        def solve(gradient: Tensor) -> Tensor:
            (inner,) = torch.autograd.grad(after, start, gradient, retain_graph=True)
            return gradient + inner

        point = torch.tanh(self.cell(start.detach()))
        point.register_hook(solve)
        answer: Tensor = self.head(point)
        return answer


def test_gradients_within_the_backward_pass() -> None:
    model = Equilibrium()
    with pytest.raises(InvalidParameterError, match=r"asks for gradients through layer 'cell'"):
        train(training_of(model), model)


def test_losses_of_a_batch_before() -> None:
    model = small_model()
    training = training_of(model)
    for inputs, targets in next(training.lots(small_data())).batches(40):
        before = cross_entropy(model, inputs, targets)
        break
    batches = next(training.lots(small_data())).batches(40)
    inputs, targets = next(batches)
    losses = cross_entropy(model, inputs, targets) + before
    with pytest.raises(InvalidParameterError, match="from before this batch"):
        training.accumulate(losses)


def test_gradients_after_a_batch() -> None:
    model = small_model()
    recording = Recording(model)
    inputs, targets = small_data()
    with recording.on():
        kept = cross_entropy(model, inputs, targets)
        recording.backward(cross_entropy(model, inputs, targets), 40, 40)
    kept.sum().backward()
    with recording.on():
        losses = cross_entropy(model, inputs, targets)
        uses = recording.backward(losses, 40, 40)
    assert [use.name for use in uses] == ["2", "0"]
