"""Layers that normalise over the batch are refused wherever they are; with fixed numbers not."""

import threading
from collections.abc import Callable

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from matrixdp.training.guarantee import Mode
from training.brute_force import check_against_brute_force
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

MODES: list[Mode] = ["fast", "exact"]


def before_the_model(layer: nn.Module) -> Callable[[nn.Module, Tensor, Tensor], Tensor]:
    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        # With two positions, as one number alone has no statistics.
        made = layer(torch.stack([inputs, inputs + 1.0], dim=2))
        return cross_entropy(model, made[:, :, 0], targets)

    return losses


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "layer",
    [nn.BatchNorm1d(6), nn.BatchNorm1d(6, track_running_stats=False).eval()],
    ids=["train", "without statistics"],
)
def test_outside_of_the_model(layer: nn.Module, mode: Mode) -> None:
    model, layer = small_model(), layer.requires_grad_(False)
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1, mode=mode)
    with pytest.raises(InvalidParameterError, match=r"a BatchNorm1d .* Call eval\(\) on it"):
        train(training, model, losses=before_the_model(layer))


def test_after_a_loop_that_was_left() -> None:
    model, layer = small_model(), nn.BatchNorm1d(6)
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1)
    batches = next(training.lots(small_data())).batches(8)
    next(batches)
    layer(torch.randn(3, 6, 2))  # with the batch still out, for something else
    with pytest.raises(InvalidParameterError, match="a BatchNorm1d outside of the model"):
        training.accumulate(cross_entropy(model, small_data()[0][:8], small_data()[1][:8]))


def in_another_thread(action: Callable[[], Tensor]) -> Tensor:
    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(action()))
    thread.start()
    thread.join()
    return made[0]


def takes_a_step(model: nn.Module, losses: Callable[..., Tensor], mode: Mode) -> bool:
    before = weights(model)
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1, mode=mode)
    train(training, model, losses=losses, steps=1)
    return training.steps_spent == 1 and not torch.equal(weights(model), before)


@pytest.mark.parametrize("mode", MODES)
def test_in_another_thread(mode: Mode) -> None:
    model, layer = small_model(), nn.BatchNorm1d(6).requires_grad_(False)

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        two = torch.stack([inputs, inputs + 1.0], dim=2)
        made = in_another_thread(lambda: layer(two))
        return cross_entropy(model, made[:, :, 0], targets)

    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1, mode=mode)
    with pytest.raises(InvalidParameterError, match=r"a BatchNorm1d .* used the statistics"):
        train(training, model, losses=losses)


@pytest.mark.parametrize("mode", MODES)
def test_another_thread_trains_something_else(mode: Mode) -> None:
    model, layer = small_model(), nn.BatchNorm1d(6)

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        in_another_thread(lambda: layer(torch.randn(11, 6)))
        return cross_entropy(model, inputs, targets)

    assert takes_a_step(model, losses, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_generator_makes_its_fakes_before_the_batches(mode: Mode) -> None:
    model, generator = small_model(), nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1, mode=mode)
    lot = next(training.lots(small_data()))
    fakes = generator(torch.randn(8, 4)).detach()
    for inputs, targets in lot.batches(8):
        losses = cross_entropy(model, inputs, targets)
        training.accumulate(losses + model(fakes[: len(inputs)]).square().sum(1))
        generator(torch.randn(8, 4))
    before = weights(model)
    training.step()
    assert not torch.equal(weights(model), before)


def test_a_generator_is_told_where_to_run() -> None:
    model, generator = small_model(), nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6))

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        fakes = generator(torch.randn(len(inputs) + 1, 4)).detach()[1:]
        return cross_entropy(model, inputs, targets) + model(fakes).square().sum(1)

    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1)
    with pytest.raises(InvalidParameterError, match=r"a generator, before lot\.batches"):
        train(training, model, losses=losses)


@pytest.mark.parametrize("mode", MODES)
def test_fixed_numbers_outside_of_the_model(mode: Mode) -> None:
    model, layer = small_model(), nn.BatchNorm1d(6).requires_grad_(False).eval()
    assert takes_a_step(model, before_the_model(layer), mode)


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
    model = fine_tuned(trained=False)
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40), seed=1)
    train(training, model, steps=1)
    model.train()
    with pytest.raises(InvalidParameterError, match=r"BatchNorm1d|'0\.1\."):
        train(training, model)
