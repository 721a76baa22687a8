"""Batches of the loop that are filled up, as on a GPU: what is added counts for nothing."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import Dataset

from matrixdp.training import PrivateTraining
from matrixdp.training.lots import fast_sum
from matrixdp.training.lots.lot import Division
from matrixdp.training.lots.records import TensorRecords
from matrixdp.training.lots.sampling import SeededCoins, drawn_records
from matrixdp.training.noise.blocks import Sums
from training.captured_training import SEED, made
from training.small_training import (
    RECORDS,
    cross_entropy,
    private,
    small_data,
    small_model,
    small_plan,
    train,
    weights,
)

Losses = Callable[[nn.Module, Tensor, Tensor], Tensor]


@pytest.fixture
def fills(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let batches be filled up on the CPU too, from now on."""

    def fill() -> None:
        monkeypatch.setattr(fast_sum, "prepares_for_sizes", lambda _device: True)

    return fill


def squares(model: nn.Module, inputs: Tensor, _targets: Tensor) -> Tensor:
    return model(inputs).flatten(1).square().sum(1)


def noisy(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return losses whose second view of each record is another one."""
    signs = 1.0 - 2.0 * (torch.arange(len(inputs)) % 2)[:, None]
    return cross_entropy(model, inputs * signs, targets)


class Last(nn.Module):
    """The last output of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(3, 4, batch_first=True)

    def forward(self, inputs: Tensor) -> Tensor:
        made: Tensor = self.layer(inputs.reshape(-1, 2, 3))[0][:, -1]
        return made


class Functional(nn.Module):
    """A weight that is used without its layer, so that the model cannot be taken apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.linear(inputs, self.layer.weight, self.layer.bias)


class Convolutional(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            *(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Flatten()),
        )


def trained(make: Callable[[], nn.Module], losses: Losses, data: Any, **plan: Any) -> Tensor:
    torch.manual_seed(3)
    model = make()
    changes = small_plan(noise_multiplier=0.1, **plan)
    training = private(model, changes, losses=partial(losses, model), seed=SEED)
    train(training, data=data, size=16)
    assert training.progress.steps_left == 0
    return weights(model)


@pytest.mark.parametrize("make", [small_model, Last, Convolutional, nn.RMSNorm, Functional])
@pytest.mark.parametrize("views", [pytest.param(1, marks=pytest.mark.thorough), 2])
@pytest.mark.filterwarnings("ignore:the model is run")
def test_training_is_the_same(
    fills: Callable[[], None], make: Callable[..., nn.Module], views: int
) -> None:
    model = partial(make, 6) if make is nn.RMSNorm else make
    losses = noisy if views == 2 and make is small_model else squares
    options = {"views": views, "data": small_data()}
    as_they_are = trained(model, losses, **options)
    fills()
    torch.testing.assert_close(trained(model, losses, **options), as_they_are)


@pytest.mark.parametrize("losses", [squares, cross_entropy])
def test_groups_of_parameters(fills: Callable[[], None], losses: Losses) -> None:
    options: dict[str, Any] = {"data": small_data(), "clip_norm": {"0": 0.2, "": 0.7}}
    as_they_are = trained(small_model, losses, **options)
    fills()
    torch.testing.assert_close(trained(small_model, losses, **options), as_they_are)


class Items(Dataset[dict[str, Tensor]]):
    """A data set that is read item by item."""

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        inputs, targets = small_data()
        return {"inputs": inputs[number], "targets": targets[number]}


@pytest.mark.parametrize("workers", [0, 1])
def test_data_sets(fills: Callable[[], None], workers: int) -> None:
    fills()
    found = []
    lengths: set[int] = set()
    for data in (Items(), small_data()):
        model = small_model()

        def losses(*batch: Any, model: nn.Module = model) -> Tensor:
            parts = batch[0].values() if len(batch) == 1 else batch
            lengths.add(len(next(iter(parts))))
            return cross_entropy(model, *parts)

        training = private(model, losses=losses, seed=SEED)
        for lot in training.lots(data, workers=workers if isinstance(data, Items) else 0):
            training.step(lot, batch_size=16)
        found.append(weights(model))
    assert torch.equal(*found)
    # Those of the check have fewer.
    assert max(lengths) in Division(RECORDS, 10, 16).sizes


def test_losses_meet_a_few_sizes(fills: Callable[[], None]) -> None:
    fills()
    lengths: list[int] = []

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        lengths.append(len(inputs))
        return cross_entropy(model, inputs, targets)

    _, training = made(losses=losses, lot_size=20, steps=60)
    lots = training.lots(small_data())
    training.step(next(lots), batch_size=RECORDS)
    lengths.clear()  # of the checks
    for lot in lots:
        training.step(lot, batch_size=RECORDS)
    division = Division(RECORDS, 20, RECORDS)
    assert set(lengths) <= set(division.sizes)
    assert len(set(lengths)) > 1
    drawn = [
        len(drawn_records(SeededCoins(SEED), RECORDS, training.plan.exact_rate, step))
        for step in range(60)
    ]
    assert len(set(drawn)) > 2 * len(division.sizes)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("make", [small_model, Last, Convolutional])
def test_copies_of_a_record_that_is_not_finite(
    fills: Callable[[], None], make: Callable[[], nn.Module], value: float
) -> None:
    inputs, targets = small_data()
    rate = small_plan().exact_rate
    # The last record of a batch is the one that is copied.
    last = int(drawn_records(SeededCoins(SEED), RECORDS, rate, 0)[-1])
    inputs[last, 2] = value
    options = {"data": (inputs, targets)}
    as_they_are = trained(make, squares, **options)
    assert as_they_are.isfinite().all()
    fills()
    torch.testing.assert_close(trained(make, squares, **options), as_they_are)


def test_records_outside_of_the_lot_do_not_matter(fills: Callable[[], None]) -> None:
    fills()
    inputs, targets = small_data()
    numbers = drawn_records(SeededCoins(SEED), RECORDS, small_plan().exact_rate, 0)
    spoilt = torch.full_like(inputs, math.nan)
    spoilt[numbers] = inputs[numbers]
    found = []
    for rows in (inputs, spoilt):
        model, training = made()
        train(training, steps=1, data=(rows, targets))
        found.append(weights(model))
    assert torch.equal(*found)


def test_mode_exact_runs_each_record_once(fills: Callable[[], None]) -> None:
    fills()
    seen: list[Tensor] = []

    def losses(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        seen.append(inputs)
        return cross_entropy(model, inputs, targets)

    model = small_model()
    training = private(model, losses=partial(losses, model), seed=SEED, mode="exact")
    train(training, steps=1)
    numbers = drawn_records(SeededCoins(SEED), RECORDS, training.plan.exact_rate, 0)
    assert torch.equal(torch.cat(seen), small_data()[0][numbers])


@pytest.mark.filterwarnings("ignore:the model is run for one record after another")
def test_records_that_run_one_after_another_are_not_filled_up(fills: Callable[[], None]) -> None:
    class Branching(Functional):
        def forward(self, inputs: Tensor) -> Tensor:
            made = super().forward(inputs)
            # Decides by numbers, which `vmap` cannot take.
            return made if len(made) == 1 and float(made[0, 0].detach()) > 0.0 else 1.0 * made

    fills()
    model, rows = Branching(), []

    def losses(inputs: Tensor, _targets: Tensor) -> Tensor:
        rows.append(len(inputs))
        return model(inputs).square().sum(1)

    training = private(model, losses=losses, seed=SEED)
    lots = training.lots(small_data())
    rows.clear()
    training.step(next(lots), batch_size=16)
    drawn = drawn_records(SeededCoins(SEED), RECORDS, training.plan.exact_rate, 0)
    assert rows == [1] * len(drawn)


def summed(numbers: list[int], training: PrivateTraining, size: int) -> Sums:
    """Return the sum of a lot in batches that are filled up."""
    source = TensorRecords(small_data(), alone=False)
    steps = training._steps
    gradients = steps._gradients(source)
    assert gradients is not None
    division = Division(RECORDS, 10, size)
    lot = np.array(sorted(numbers), np.int64)
    return fast_sum.sum_of_lot(
        *(gradients, source, lot, division), views=1, device=torch.device("cpu")
    )


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.integers(0, RECORDS - 1)), st.integers(0, RECORDS - 1), st.sampled_from([1, 4, 40])
)
def test_neighbours_differ_by_one_record_at_the_most(
    numbers: set[int], record: int, size: int
) -> None:
    """Whether the record is the one that is copied or not, and whatever size its batch gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_sum, "prepares_for_sizes", lambda _device: True)
        lots = [sorted(numbers | {record}), sorted(numbers - {record})]
        more, less = (summed(lot, TRAINING, size) for lot in lots)
        alone = summed([record], TRAINING, 1)
    off = [more[part] - less.get(part, 0.0) - alone[part] for part in more]
    moved = [more[part] - less.get(part, 0.0) for part in more]
    norm = torch.cat([part.flatten() for part in moved]).norm()
    assert float(norm) <= TRAINING.plan.clip_norm * (1.0 + 1e-6)  # type: ignore[operator]
    assert float(torch.cat([part.flatten() for part in off]).norm()) < 1e-5


TRAINING = private(small_model(), seed=SEED)
