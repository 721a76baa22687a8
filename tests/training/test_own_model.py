"""The model stays the user's own: its class, its state, its evaluation and what is frozen in it."""

import copy
import io
import pickle

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

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

SEED = 11


def test_the_model_stays_what_it_is() -> None:
    model = small_model()
    keys, kinds = list(model.state_dict()), [type(part) for part in model.modules()]
    training = PrivateTraining(model, sgd(model), small_plan(), seed=SEED)
    for lot in training.lots(small_data()):
        for inputs, targets in lot.batches(50):
            losses = cross_entropy(model, inputs, targets)
            # In the middle of a batch, while the model is watched.
            inside = pickle.loads(pickle.dumps(model))  # noqa: S301
            assert torch.equal(weights(inside), weights(model))
            assert torch.equal(weights(copy.deepcopy(model)), weights(model))
            with torch.no_grad():
                model(inputs[:1])
            training.accumulate(losses)
        training.step()
    assert list(model.state_dict()) == keys
    assert [type(part) for part in model.modules()] == kinds
    assert all(part.requires_grad and part.grad is None for part in model.parameters())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = small_model()
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(weights(fresh), weights(model))


def test_evaluation_in_the_middle_changes_nothing() -> None:
    plain, watched = small_model(), small_model()
    train(PrivateTraining(plain, sgd(plain), small_plan(), seed=SEED), plain)

    def with_evaluation(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(model, inputs, targets)
        with torch.no_grad():
            cross_entropy(model, *small_data())
        return losses

    training = PrivateTraining(watched, sgd(watched), small_plan(), seed=SEED)
    train(training, watched, losses=with_evaluation)
    assert torch.equal(weights(plain), weights(watched))


def test_nothing_is_watched_outside_of_the_loop() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=SEED)
    for lot in training.lots(small_data()):
        for inputs, targets in lot.batches(10):
            assert torch_module._global_forward_hooks
            training.accumulate(cross_entropy(model, inputs, targets))
            assert not torch_module._global_forward_hooks
        training.step()
        break
    for lot in training.lots(small_data()):
        for _ in lot.batches(10):
            break
        break
    assert not torch_module._global_forward_hooks
    # A plain backward pass works as ever.
    cross_entropy(model, *small_data()).mean().backward()
    assert all(part.grad is not None for part in model.parameters())


def test_an_exception_in_the_loop_leaves_nothing_behind() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=SEED)

    def failing(_model: nn.Module, _inputs: Tensor, _targets: Tensor) -> Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(training, model, losses=failing)
    assert not torch_module._global_forward_hooks
    train(training, model)
    assert training.steps_left == 0
    assert not torch_module._global_forward_hooks


def test_frozen_parameters_stay() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    frozen, trained = weights(model[0]), weights(model[2])
    training = PrivateTraining(model, sgd(model), small_plan(), seed=SEED)
    train(training, model)
    assert torch.equal(weights(model[0]), frozen)
    assert not torch.equal(weights(model[2]), trained)
