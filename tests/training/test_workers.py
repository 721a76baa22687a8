"""Data sets that are read item by item, also by other processes: the same lots and records."""

import os
from typing import Any

import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from matrixdp.errors import InvalidParameterError
from matrixdp.training.lots.sampling import SeededCoins, drawn_records
from training.small_training import (
    RECORDS,
    cross_entropy,
    private,
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
    """Return weights, the records of each lot, and the processes that read them."""
    model = small_model()
    seen: list[list[int]] = [[]]
    processes: set[int] = set()

    def losses(inputs: Tensor, targets: Tensor, numbers: Tensor, readers: Tensor) -> Tensor:
        seen[-1] += numbers.tolist()
        processes.update(readers.tolist())
        return cross_entropy(model, inputs, targets)

    # Lots of about two records, of which some are empty.
    plan = small_plan(views=views, lot_size=2, steps=12)
    training = private(model, plan, losses=losses, seed=3)
    lots = training.lots(Items(), workers=workers)
    seen.clear()
    processes.clear()  # those of the check
    for lot in lots:
        seen.append([])
        training.step(lot, batch_size=2)
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
    seen: list[int] = []
    stops = [False]

    def losses(inputs: Tensor, targets: Tensor, numbers: Tensor, _readers: Tensor) -> Tensor:
        if stops[0]:
            raise KeyboardInterrupt
        seen.extend(numbers.tolist())
        return cross_entropy(model, inputs, targets)

    training = private(model, small_plan(lot_size=40, steps=3), losses=losses, seed=3)
    lots = training.lots(Items(), workers=1)
    lot = next(lots)
    stops[0] = True
    with pytest.raises(KeyboardInterrupt):
        training.step(lot, batch_size=4)
    stops[0] = False
    training.load_state_dict(training.state_dict())  # gives the lot up
    seen.clear()
    # What was read ahead for that lot does not get into the next one.
    training.step(next(lots), batch_size=16)
    assert seen[-RECORDS:] == list(range(RECORDS))  # after made-up ones


class Sequences(Dataset[tuple[Tensor, Tensor]]):
    """Records of different lengths."""

    def __init__(self) -> None:
        _, self.targets = small_data()
        self.tokens = [torch.arange(1 + number % 5) for number in range(RECORDS)]

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.tokens[number], self.targets[number]


def padded(items: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    rows = [functional.pad(tokens, (0, 5 - len(tokens)), value=7) for tokens, _ in items]
    return {"tokens": torch.stack(rows), "targets": torch.stack([label for _, label in items])}


@pytest.mark.parametrize("workers", [0, 1])
def test_items_are_collated_as_the_user_says(workers: int) -> None:
    found = []
    sequences = Sequences()
    whole = padded([sequences[number] for number in range(RECORDS)])
    for data in (sequences, tuple(whole.values())):
        torch.manual_seed(3)
        model = nn.Sequential(nn.Embedding(8, 2, padding_idx=7), nn.Flatten(), nn.Linear(10, 3))

        def of_parts(*batch: Any, model: nn.Module = model) -> Tensor:
            # A dict comes as it is, and a tuple in its parts.
            parts = tuple(batch[0].values()) if isinstance(batch[0], dict) else batch
            return cross_entropy(model, *parts)

        training = private(model, losses=of_parts, seed=3)
        options: dict[str, Any] = {"collate": padded, "workers": workers}
        for lot in training.lots(data, **(options if data is sequences else {})):
            training.step(lot, batch_size=8)
        found.append(weights(model))
    assert torch.equal(found[0], found[1])


@pytest.mark.parametrize(
    ("data", "options", "message"),
    [
        (small_data(), {"workers": 2}, "workers=2 is of no use to tensors"),
        (small_data(), {"collate": padded}, "collate=.* is of no use to tensors"),
        (Items(), {"workers": -1}, "workers=-1"),
        (Items(), {"workers": 1.5}, "workers=1.5"),
        (Items(), {"collate": 3}, "collate is a int: pass a function"),
    ],
)
def test_what_does_not_fit(data: Any, options: dict[str, Any], message: str) -> None:
    training = private(small_model())
    with pytest.raises(InvalidParameterError, match=message):
        training.lots(data, **options)
    assert training.progress.steps_spent == 0


def test_data_are_read_only_where_a_lot_has_them() -> None:
    """The check looks at the first record's shapes and types; nothing else is read for it."""
    read: list[int] = []

    class Watched(Items):
        def __getitem__(self, number: int) -> tuple[Tensor, Tensor, int, int]:
            read.append(number)
            return super().__getitem__(number)

    model = small_model()
    training = private(model, losses=lambda x, y, *_: cross_entropy(model, x, y), seed=3)
    lots = training.lots(Watched())
    assert set(read) == {0}
    read.clear()
    training.step(next(lots), batch_size=8)
    drawn = drawn_records(SeededCoins(3), RECORDS, training.plan.exact_rate, 0)
    assert read == drawn.tolist()
