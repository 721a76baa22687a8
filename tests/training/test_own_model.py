"""The model stays the user's own: its class, its state, its evaluation and what is frozen in it."""

import copy
import io
import pickle

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from training.small_training import (
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

SEED = 11


def hooks_of(model: nn.Module) -> int:
    """Return how many hooks there are, those that torch has for all modules included."""
    kinds = (
        *("_forward_hooks", "_forward_pre_hooks"),
        *("_backward_hooks", "_backward_pre_hooks"),
    )
    own = sum(len(vars(module)[kind]) for module in model.modules() for kind in kinds)
    return own + sum(len(getattr(torch_module, f"_global{kind}")) for kind in kinds)


def test_the_model_stays_what_it_is() -> None:
    model = small_model()
    keys, kinds = list(model.state_dict()), [type(part) for part in model.modules()]
    train(private(model, seed=SEED), size=50)
    assert list(model.state_dict()) == keys
    assert [type(part) for part in model.modules()] == kinds
    assert hooks_of(model) == 0
    assert all(part.requires_grad and part.grad is None for part in model.parameters())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = small_model()
    fresh.load_state_dict(torch.load(file))
    assert torch.equal(weights(fresh), weights(model))
    assert torch.equal(weights(pickle.loads(pickle.dumps(model))), weights(model))  # noqa: S301
    assert torch.equal(weights(copy.deepcopy(model)), weights(model))


def test_evaluation_in_the_middle_changes_nothing() -> None:
    plain, evaluated = small_model(), small_model()
    train(private(plain, seed=SEED))

    def with_evaluation(inputs: Tensor, targets: Tensor) -> Tensor:
        losses = cross_entropy(evaluated, inputs, targets)
        with torch.no_grad():
            cross_entropy(evaluated, *small_data())
        return losses

    train(private(evaluated, losses=with_evaluation, seed=SEED))
    assert torch.equal(weights(plain), weights(evaluated))


def test_hooks_exist_within_a_step_only() -> None:
    model = small_model()
    seen: list[int] = []

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(hooks_of(model))
        return cross_entropy(model, inputs, targets)

    training = private(model, small_plan(lot_size=40), losses=losses, seed=SEED)
    for lot in training.lots(small_data()):
        assert hooks_of(model) == 0
        seen.clear()
        training.step(lot, batch_size=10)
        if lot.step > 0:  # before the first batch, larger ones are checked
            assert min(seen) > 0
        assert hooks_of(model) == 0
    # A plain backward pass works as ever.
    cross_entropy(model, *small_data()).mean().backward()
    assert all(part.grad is not None for part in model.parameters())


def test_an_exception_in_the_losses_leaves_nothing_behind() -> None:
    model = small_model()
    fails = False

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        found = cross_entropy(model, inputs, targets)
        if fails:
            raise ZeroDivisionError
        return found

    training = private(model, small_plan(lot_size=40), losses=losses, seed=SEED)
    before = weights(model)
    lot = next(training.lots(small_data()))
    fails = True
    with pytest.raises(ZeroDivisionError):
        training.step(lot, batch_size=8)
    assert hooks_of(model) == 0
    assert torch.equal(weights(model), before)
    fails = False
    training.step(lot, batch_size=8)  # no noise was drawn for it yet
    train(training)
    assert training.progress.steps_left == 0
    assert hooks_of(model) == 0


def test_frozen_parameters_stay() -> None:
    model = small_model()
    model[0].requires_grad_(False)
    frozen, trained = weights(model[0]), weights(model[2])
    train(private(model, seed=SEED))
    assert torch.equal(weights(model[0]), frozen)
    assert not torch.equal(weights(model[2]), trained)


@pytest.mark.parametrize("seed", [SEED, None])
@pytest.mark.parametrize("captured", [False, True])
def test_tensors_may_be_made_elsewhere_by_default(seed: int | None, *, captured: bool) -> None:
    # As after torch.set_default_device("cuda"), with a model that begins at zero.
    found = []
    for device in ("cpu", "meta"):
        model, data = small_model(), small_data()
        nn.init.zeros_(model.get_parameter("2.weight"))
        with torch.device(device):
            training = private(model, seed=seed)
            if captured:
                training.captured_step(data, batch_size=16)()
            else:
                train(training, steps=1, data=data)
        found.append(weights(model))
    assert training.progress.steps_spent == 1
    assert seed is None or torch.equal(*found)
