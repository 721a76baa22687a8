"""Lots that are given up, interrupted, or run beside other work on the same model."""

import threading
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.training import PrivateTraining
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
            elif not entered.is_set():  # and not when the layer is run again
                other.start()
                entered.wait(10.0)

        # A hook that stays: a layer must not change between its call and its gradient.
        next(model.children()).register_forward_pre_hook(interleave)
        found = cross_entropy(model, inputs, targets)
        released.set()
        other.join()
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
    assert training.steps_spent == 1  # since its lot was drawn
    assert torch.equal(weight, before)


def test_a_lot_that_was_given_up_counts() -> None:
    # Whether a lot is given up may depend on its records; drawing again for free would select lots.
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(steps=3))
    for spent in range(3):
        assert training.steps_spent == spent
        next(training.lots(small_data()))
    assert training.steps_left == 0
    with pytest.raises(BudgetExceededError):
        training.lots(small_data())
