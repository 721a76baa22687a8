"""Gradient passes of the user's own within the losses: they do not enter what is clipped."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.chosen_way import ONE_BY_ONE, check_training
from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]


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


def beside_a_penalty(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    sum((part.square().sum() for part in model.parameters()), torch.zeros(())).backward()
    return cross_entropy(model, inputs, targets)


def with_inputs_that_require_a_gradient(
    model: nn.Module, inputs: Tensor, targets: Tensor
) -> Tensor:
    return cross_entropy(model, inputs.requires_grad_(), targets)


def trained(losses: Losses, mode: Any) -> Tensor:
    """Return the weights after all steps; every gradient is clipped, in batches of two sizes."""
    model = small_model()
    plan = small_plan(lot_size=40, clip_norm=0.01)
    train(private(model, plan, losses=partial(losses, model), seed=1, mode=mode), size=16)
    assert all(part.grad is None for part in model.parameters())
    return weights(model)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(
    "losses",
    [
        *(after_an_attack, after_a_backward_pass, after_saliency, beside_a_penalty),
        with_inputs_that_require_a_gradient,
    ],
)
def test_they_change_nothing(losses: Losses, mode: Any) -> None:
    plain = trained(cross_entropy, mode)
    torch.testing.assert_close(trained(losses, mode), plain, rtol=1e-5, atol=1e-6)


def test_a_gradient_that_was_there_before_a_step_changes_nothing() -> None:
    found = []
    for size in (0.0, 1000.0):
        model = small_model()
        training = private(model, small_plan(lot_size=40), seed=1)
        for lot in training.lots(small_data()):
            (size * cross_entropy(model, *small_data())).sum().backward()
            training.step(lot, batch_size=16)
        found.append(weights(model))
    assert torch.equal(*found)


def classified(losses: Losses, model: nn.Module, rows: Tensor) -> Tensor:
    return losses(model, rows, (rows[:, 0] > 0).long())


def adversarial(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(model, attacked(model, inputs, targets), targets)


def test_adversarial_training() -> None:
    def apart(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        copy = small_model()  # which is not traced
        copy.load_state_dict(model.state_dict())
        return cross_entropy(model, attacked(copy, inputs, targets), targets)

    mine, other = trained(adversarial, "fast"), trained(apart, "fast")
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def penalised(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    inputs = inputs.clone().requires_grad_()
    losses = cross_entropy(model, inputs, targets)
    (slopes,) = torch.autograd.grad(losses.sum(), inputs, create_graph=True)
    return losses + slopes.square().sum(1)


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


@pytest.mark.parametrize(
    ("make", "losses"), [(small_model, penalised), (Equilibrium, cross_entropy)]
)
def test_gradients_of_gradients_need_one_record_at_a_time(
    make: Callable[[], nn.Module], losses: Losses
) -> None:
    torch.manual_seed(0)
    inputs = small_data()[0][:8]
    way = check_training(make(), inputs, losses=partial(classified, losses))
    assert way == ONE_BY_ONE
