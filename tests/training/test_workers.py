"""Data sets that other processes read: the same lots, records and order as without them."""

import os
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor
from torch.utils.data import Dataset

from matrixdp.errors import InvalidParameterError
from matrixdp.training import PrivateTraining
from training.small_training import (
    RECORDS,
    cross_entropy,
    sgd,
    small_data,
    small_model,
    small_plan,
    weights,
)


class Items(Dataset[tuple[Tensor, Tensor, int, int]]):
    """Records with their numbers, and the process that read them."""

    def __init__(self) -> None:
        self.inputs, self.targets = small_data()

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int, int]:
        return self.inputs[number], self.targets[number], number, os.getpid()


def trained(workers: int, views: int) -> tuple[Tensor, list[list[int]], set[int]]:
    """Return weights, the records of each batch, and the processes that read them."""
    model = small_model()
    # Lots of about two records, of which some are empty.
    plan = small_plan(views=views, lot_size=2, steps=12)
    training = PrivateTraining(model, sgd(model), plan, seed=3)
    seen: list[list[int]] = []
    processes: set[int] = set()
    for lot in training.lots(Items(), workers=workers):
        seen.append([])
        for inputs, targets, numbers, readers in lot.batches(2):
            seen[-1] += numbers.tolist()
            processes |= set(readers.tolist())
            training.accumulate(cross_entropy(model, inputs, targets))
        training.step()
    return weights(model), seen, processes


@pytest.mark.parametrize("views", [1, 2])
def test_workers_change_nothing(views: int) -> None:
    alone, expected, here = trained(0, views)
    found, seen, elsewhere = trained(2, views)
    assert torch.equal(found, alone)
    assert seen == expected
    assert [] in expected
    assert max(map(len, expected)) > 2 * views  # several batches, and both processes read
    assert here == {os.getpid()}
    assert len(elsewhere) == 2  # for all lots
    assert os.getpid() not in elsewhere


def test_a_lot_that_is_left_early() -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan(lot_size=40, steps=3), seed=3)
    lots = training.lots(Items(), workers=1)
    for inputs, targets, *_ in next(lots).batches(4):
        training.accumulate(cross_entropy(model, inputs, targets))
        break
    training.load_state_dict(training.state_dict())  # gives the lot up
    # What was read ahead for that lot does not get into the next one.
    lot = next(lots)
    seen = []
    for inputs, targets, numbers, _ in lot.batches(16):
        seen += numbers.tolist()
        training.accumulate(cross_entropy(model, inputs, targets))
    training.step()
    assert seen == list(range(RECORDS))


@pytest.mark.parametrize(
    ("data", "workers", "message"),
    [
        (small_data(), 2, "workers=2 are of no use to tensors"),
        (Items(), -1, "workers=-1"),
        (Items(), 1.5, "workers=1.5"),
    ],
)
def test_workers_that_do_not_fit(data: Any, workers: Any, message: str) -> None:
    model = small_model()
    training = PrivateTraining(model, sgd(model), small_plan())
    with pytest.raises(InvalidParameterError, match=message):
        training.lots(data, workers=workers)
