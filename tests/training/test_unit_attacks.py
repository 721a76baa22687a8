"""Attacks on units of several records: what mixes users, and what tells of records."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from matrixdp.errors import InvalidParameterError
from matrixdp.training import TrainingPlan, Units
from matrixdp.training.noise.block_noise import SimulatedNoise
from training.small_training import cross_entropy, private, small_model, weights

USERS = 6


def plan(most: int, **changes: Any) -> TrainingPlan:
    parts: dict[str, Any] = {
        "units": Units(USERS, most, "user"),
        "lot_size": USERS,
        "steps": 1,
        "clip_norm": 1.0,
        "noise_multiplier": 2.0,
        "delta": 1e-3,
    }
    return TrainingPlan(**(parts | changes))


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedNoise, "added_to", lambda _self, values, *_: values)


class Sequences(torch.utils.data.Dataset[Tensor]):
    """Sequences of different lengths, which a function pads."""

    def __init__(self, records: int) -> None:
        self.rows = [torch.randn(2 + number % 3, 3) for number in range(records)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> Tensor:
        return self.rows[number]


def padded(items: list[Tensor]) -> Tensor:
    return pad_sequence(items, batch_first=True)


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8])
def test_padding_to_the_longest_record_of_other_users_is_found(most: int) -> None:
    model = nn.Linear(3, 1)
    labels = np.repeat(np.arange(USERS), most)
    training = private(model, plan(most), losses=lambda rows: model(rows)[..., 0].mean(1))
    with pytest.raises(InvalidParameterError, match="another one when the record is alone"):
        training.lots(Sequences(len(labels)), units=labels, collate=padded)


@pytest.mark.parametrize("most", [1, 3, 4, 5, 8])
def test_lengths_by_a_mask_of_the_batch_are_found(most: int) -> None:
    model = nn.Linear(3, 1)
    labels = np.repeat(np.arange(USERS), most)
    mask = torch.ones(len(labels), 8, dtype=torch.int64)

    def losses(rows: Tensor, mask: Tensor) -> Tensor:
        longest = mask.sum(1).max()
        return (model(rows)[..., 0] * mask).sum(1) / longest

    training = private(model, plan(most), losses=losses)
    with pytest.raises(InvalidParameterError, match="another one when the record is alone"):
        training.lots((torch.randn(len(labels), 8, 3), mask), units=labels)


def kept_of(model: nn.Module, rows: Tensor) -> Tensor:
    losses: Tensor = model(rows)[:, 0]
    return losses[rows.abs().amax(1) < 1000]


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("of_users", [False, True])
def test_losses_that_leave_out_half_of_the_rows(mode: Any, *, of_users: bool) -> None:
    """With two views they are as many as one for each record, and were taken for those."""
    number, sums = 20, []
    for changed in (False, True):
        rows = torch.zeros(number, 3)
        rows[:10], rows[10:, 0] = 5000.0, 0.5
        if changed:
            rows[0] = 0.0  # adds zero, as one that is left out does
        model = nn.Linear(3, 1, bias=False)
        nn.init.zeros_(model.weight)
        who: dict[str, Any] = {"units": Units(number, 2)} if of_users else {"records": number}
        options: Any = {"losses": partial(kept_of, model), "mode": mode, "seed": 1}
        plain = plan(2, **({"units": None, "views": 2, "lot_size": number} | who))
        training = private(model, plain, **options)
        data = rows.repeat_interleave(2, 0) if of_users else rows
        labels = np.repeat(np.arange(number), 2) if of_users else None
        for lot in training.lots(data, units=labels):
            training.step(lot, batch_size=100)
        sums.append(weights(model))
    assert torch.equal(*sums)


def left_out(model: nn.Module, rows: Tensor, targets: Tensor) -> Tensor:
    kept = rows.abs().amax(1) < 8.0
    return cross_entropy(model, rows[kept], targets[kept])


def expanded(model: nn.Module, rows: Tensor, targets: Tensor) -> Tensor:
    kept = rows.abs().amax(1) < 8.0
    if not kept.any():
        return rows.new_zeros(()).expand(len(rows))
    return cross_entropy(model, rows, targets) * kept


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("most", [1, 3, 4])
@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.thorough), 4])
@pytest.mark.parametrize("of", [left_out, expanded])
def test_records_that_losses_leave_out_raise_nothing(
    mode: Any, most: int, views: int, size: int, of: Callable[..., Tensor]
) -> None:
    labels = np.repeat(np.arange(USERS), 3)
    rows, targets = torch.randn(18, 6), torch.randint(0, 3, (18,))
    rows[[4, 9, 10, 11]] = 9.0
    model = small_model()
    training = private(model, plan(most, views=views), losses=partial(of, model), mode=mode, seed=1)
    for lot in training.lots((rows, targets), units=labels):
        training.step(lot, batch_size=size)
    assert training.progress.steps_left == 0


@pytest.mark.usefixtures("silent")
def test_the_mode_exact_has_the_mean_of_records_that_are_left() -> None:
    labels = np.repeat(np.arange(USERS), [3, 1, 1, 1, 1, 1])
    rows, targets = torch.randn(8, 6), torch.randint(0, 3, (8,))
    rows[2] = 9.0
    model = small_model()
    before = weights(model)
    training = private(
        model, plan(4, clip_norm=100.0), losses=partial(left_out, model), mode="exact", seed=1
    )
    expected = torch.zeros_like(before)
    for chosen in ([0, 1], *([number] for number in range(3, 8))):
        loss = functional.cross_entropy(model(rows[chosen]), targets[chosen])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        expected += torch.cat([gradient.flatten() for gradient in gradients])
    for lot in training.lots((rows, targets), units=labels):
        training.step(lot, batch_size=8)
    moved = (before - weights(model)) * USERS / 0.1
    assert torch.allclose(moved, expected, atol=1e-4)


def test_a_check_is_remembered_when_the_same_losses_are_set_again() -> None:
    model, runs = small_model(), []

    def losses(rows: Tensor, targets: Tensor) -> Tensor:
        runs.append(len(rows))
        return cross_entropy(model, rows, targets)

    training = private(model, plan(2), losses=losses, seed=1)
    rows = torch.randn(12, 6), torch.randint(0, 3, (12,))
    training.check(rows)
    runs.clear()
    training.losses = lambda rows, targets: cross_entropy(model, rows, targets)
    training.losses = losses
    training.lots(rows, units=np.repeat(np.arange(USERS), 2))
    assert not runs


def test_beginning_takes_no_longer_with_many_records_of_a_user() -> None:
    model = small_model()
    read: list[int] = []

    class Counted(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
        def __len__(self) -> int:
            return USERS

        def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
            return torch.randn(6), torch.tensor(number % 3)

    def collated(items: list[Any]) -> Any:
        read.append(len({one[0].data_ptr() for one in items}))
        return torch.utils.data.default_collate(items)

    private(model, plan(500)).lots(Counted(), units=np.arange(USERS), collate=collated)
    assert 8 < max(read) <= 4 * 8
