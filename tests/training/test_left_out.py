"""Losses that leave out rows by what these are: nobody learns of it, others keep their share."""

import gc
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.nn import functional
from torch.utils.data import Dataset

from matrixdp.errors import ShapeError
from matrixdp.training import Units
from matrixdp.training.noise.block_noise import SimulatedNoise
from training.small_training import cross_entropy, private, small_model, small_plan, weights

CLIP_NORM = 0.1


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedNoise, "added_to", lambda _self, values, *_: values)


def sum_of(
    model: nn.Module, losses: Callable[..., Tensor], data: Any, size: int, **changes: Any
) -> Tensor:
    """Return the un-noised sum of all records, over the clip norm."""
    number = len(data[0])
    plan = small_plan(
        **({"records": number, "lot_size": number, "steps": 1, "clip_norm": CLIP_NORM} | changes)
    )
    before = weights(model)
    training = private(model, plan, losses=losses, seed=1)
    for lot in training.lots(data):
        training.step(lot, batch_size=size)
    moved: Tensor = (before - weights(model)) * (number / 0.1 / CLIP_NORM)
    return moved


def kept_of(model: nn.Module, rows: Tensor, targets: Tensor, *, half: bool) -> Tensor:
    kept = rows.flatten(1).abs().amax(1) < 100
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        scores = model(rows[kept])
    return functional.cross_entropy(scores.float(), targets[kept], reduction="none")


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 16), nn.Tanh(), nn.Linear(16, 3))


class OverSequences(nn.Module):
    """A layer whose norms are bounded by Gram matrices, which are above the true ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 16)

    def forward(self, rows: Tensor) -> Tensor:
        made: Tensor = self.layer(rows.unflatten(1, (2, 10))).mean(1)[:, :3]
        return made


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("make", [perceptron, OverSequences])
def test_others_keep_their_share_of_the_sum(make: Callable[[], nn.Module], *, half: bool) -> None:
    """By other margins or bounds for all of them one record moved the sum by 2.4 clip norms."""
    number, sums = 512, []
    for left_out in (False, True):
        torch.manual_seed(0)
        model = make()
        rows = torch.rand(number, 20, generator=torch.Generator().manual_seed(1)) * 3
        if left_out:
            rows[0] = 1000.0
        losses = partial(kept_of, model, half=half)
        sums.append(sum_of(model, losses, (rows, torch.zeros(number).long()), number))
    assert float((sums[0] - sums[1]).norm()) <= 1.001


@pytest.mark.parametrize("views", [2, 3, 4])
@pytest.mark.parametrize("fields", range(12))
def test_losses_of_one_class_are_not_taken_for_one_per_record(views: int, fields: int) -> None:
    """Records may have rows of several classes when they are made up."""
    number, norms = 20, []

    def losses(rows: Tensor, *classes: Tensor) -> Tensor:
        found: Tensor = model(rows)[:, 0][classes[-1] == 1]
        return found

    for ones in (9, 10, 11):
        torch.manual_seed(0)
        model = nn.Linear(3, 1, bias=False)
        rows = torch.zeros(number, 3)
        rows[:, 0] = 0.5  # a gradient below the clip norm, which shows if it is counted twice
        classes = [torch.zeros(number, dtype=torch.int64) for _ in range(1 + fields)]
        classes[-1][:ones] = 1
        try:
            found = sum_of(model, losses, (rows, *classes), number, views=views, clip_norm=1.0)
        except ShapeError:  # before a step is spent
            return
        norms.append(float(found.norm()) * CLIP_NORM)
    assert norms == pytest.approx([4.5, 5.0, 5.5], rel=1e-5)


def constants(kind: str, rows: Tensor) -> Tensor:
    made = {
        "expanded": rows.new_zeros(()).expand(len(rows)),
        "integers": torch.zeros(len(rows), dtype=torch.long),
        "one number": rows.new_zeros(()),
        "a column": rows.new_zeros(len(rows), 1),
    }
    return made[kind]


@pytest.mark.parametrize("kind", ["expanded", "integers", "one number", "a column"])
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("units", [None, Units(3, 2)])
def test_a_batch_of_which_nothing_is_left_raises_nothing(
    kind: str, mode: Any, units: Units | None
) -> None:
    model = small_model()

    def losses(rows: Tensor, targets: Tensor) -> Tensor:
        kept = rows.abs().amax(1) < 100
        if not kept.any():
            return constants(kind, rows)
        return cross_entropy(model, rows, targets) * kept

    who: dict[str, Any] = {"records": 6} if units is None else {"records": None, "units": units}
    plan = small_plan(**who, lot_size=3 if units else 6, steps=1)
    training = private(model, plan, losses=losses, seed=1, mode=mode)
    labels = None if units is None else np.repeat(np.arange(3), 2)
    before = weights(model)
    for lot in training.lots((torch.full((6, 6), 1e3), torch.zeros(6).long()), units=labels):
        training.step(lot, batch_size=3)
    assert torch.equal(weights(model), before)


@pytest.mark.parametrize("most", [0.9, 0.97, 0.99])
def test_larger_batches_of_made_up_records_may_leave_some_out(most: float) -> None:
    model = nn.Linear(6, 3)

    def losses(rows: Tensor, _targets: Tensor) -> Tensor:
        return model(rows[rows[:, 0] < most]).square().sum(1)

    rows = torch.rand(100, 6)
    assert sum_of(model, losses, (rows, torch.zeros(100)), 64).isfinite().all()


class Items(Dataset[Tensor]):
    def __init__(self) -> None:
        self.rows = torch.rand(40, 3)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, number: int) -> Tensor:
        return self.rows[number]


@pytest.mark.parametrize("make", [lambda: torch.rand(40, 3), Items])
def test_a_training_does_not_keep_its_data_alive(make: Callable[[], Any]) -> None:
    model = nn.Linear(3, 2)
    training = private(
        model, losses=lambda rows: model(rows).square().sum(1), seed=1, make=_descent
    )
    data = make()
    kept = data if isinstance(data, Tensor) else data.rows
    living = weakref.ref(data), weakref.ref(kept)
    for lot in training.lots(data):
        training.step(lot, batch_size=8)
    del data, kept
    gc.collect()
    assert [one() for one in living] == [None, None]


def _descent(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.1)
