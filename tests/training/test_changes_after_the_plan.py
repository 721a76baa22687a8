"""A model or an optimiser that is changed after its training was made is refused, unspent."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from training.brute_force import check_against_brute_force
from training.small_training import (
    cross_entropy,
    private,
    sgd,
    small_data,
    small_model,
    small_plan,
    train,
)

MODES = ["fast", "exact"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: model.append(nn.Linear(3, 3)), r"'3\.weight' was added or unfrozen"),
        (lambda model: model[0].bias.requires_grad_(False), r"'0\.bias' was removed or frozen"),
        (lambda model: model.append(nn.BatchNorm1d(3, affine=False)), "layer '3' is a BatchNorm1d"),
    ],
)
def test_a_change_between_lots_spends_nothing(
    change: Callable[[nn.Module], object], message: str, mode: Any
) -> None:
    model = small_model()
    training = private(model, seed=1, mode=mode)
    lots = training.lots(small_data())
    training.step(next(lots), batch_size=8)
    change(model)
    with pytest.raises(InvalidParameterError, match=message):
        next(lots)
    with pytest.raises(InvalidParameterError, match=message):
        training.lots(small_data())
    assert training.progress.steps_spent == 1


def test_a_parameter_that_is_unfrozen() -> None:
    model = small_model()
    bias = model.get_parameter("0.bias").requires_grad_(False)
    training = private(model, seed=1)
    bias.requires_grad_(True)
    with pytest.raises(InvalidParameterError, match=r"'0\.bias' was added or unfrozen"):
        training.lots(small_data())


@pytest.mark.parametrize("mode", MODES)
def test_a_parameter_that_is_frozen_within_a_lot(mode: Any) -> None:
    model = small_model()
    training = private(model, seed=1, mode=mode)
    lot = next(training.lots(small_data()))
    bias = model.get_parameter("0.bias").requires_grad_(False)
    with pytest.raises(InvalidParameterError, match=r"'0\.bias' was removed or frozen"):
        training.step(lot, batch_size=8)
    bias.requires_grad_(True)
    training.step(lot, batch_size=8)
    assert training.progress.steps_spent == 1


def test_a_parameter_group_that_is_added_later() -> None:
    model = small_model()
    optimizer = sgd(model)
    training = private(model, make=lambda _: optimizer, seed=1)
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with pytest.raises(InvalidParameterError, match="not one of the model's"):
        training.lots(small_data())


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_spent_in_inference_mode(mode: Any) -> None:
    training = private(small_model(), seed=1, mode=mode)
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        training.lots(small_data())
    lots = training.lots(small_data())
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        next(lots)
    assert training.progress.steps_spent == 0
    lot = next(training.lots(small_data()))
    with torch.inference_mode(), pytest.raises(InvalidParameterError, match="inference_mode"):
        training.step(lot, batch_size=8)
    training.step(lot, batch_size=8)


def fine_tuned(*, trained: bool) -> nn.Sequential:
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh())
    body(torch.randn(20, 6))  # statistics of public data
    body.requires_grad_(trained)
    return nn.Sequential(body.eval(), nn.Linear(5, 3))


@pytest.mark.parametrize("trained", [False, True])
def test_fine_tuning_with_fixed_statistics(*, trained: bool) -> None:
    check_against_brute_force(fine_tuned(trained=trained), torch.randn(6, 6), bounds=(0.7,))


def test_statistics_that_are_no_longer_fixed() -> None:
    model = fine_tuned(trained=True)
    training = private(model, seed=1)
    train(training, steps=1)
    model.train()
    with pytest.raises(InvalidParameterError, match=r"layer '0\.1' is a BatchNorm1d"):
        train(training)
    assert training.progress.steps_spent == 1


@pytest.mark.parametrize("fixed", [False, True])
def test_batch_statistics_outside_of_the_model(*, fixed: bool) -> None:
    model, layer = small_model(), nn.BatchNorm1d(6).requires_grad_(False).train(not fixed)

    def losses(inputs: Tensor, targets: Tensor) -> Tensor:
        # With two positions, as one number alone has no statistics.
        made = layer(torch.stack([inputs, inputs + 1.0], dim=2))
        return cross_entropy(model, made[:, :, 0], targets)

    training = private(model, small_plan(steps=1), losses=losses, seed=1)
    if fixed:
        train(training)
    else:
        with pytest.raises(InvalidParameterError, match="depends on other records"):
            train(training)
    assert training.progress.steps_spent == int(fixed)
