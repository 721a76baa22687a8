"""Batches of a lot, which are fixed by the numbers of its records."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from matrixdp.training.lots.lot import batched

RECORDS = 60
# Coins for all of them: sets would rarely be large.
lots = st.lists(st.booleans(), min_size=RECORDS, max_size=RECORDS).map(np.flatnonzero)
expected_sizes = st.floats(1.0, RECORDS)
sizes = st.integers(1, 12) | st.integers(13, RECORDS + 5)


def batches_of(numbers: NDArray[np.int64], expected: float, size: int) -> list[tuple[int, ...]]:
    return [tuple(part.tolist()) for part in batched(numbers, RECORDS, expected, size)]


@given(lots, expected_sizes, sizes)
def test_every_record_is_in_one_batch(
    numbers: NDArray[np.int64], expected: float, size: int
) -> None:
    batches = batches_of(numbers, expected, size)
    assert [number for batch in batches for number in batch] == numbers.tolist()
    assert all(1 <= len(batch) <= size for batch in batches)


@given(lots, st.integers(0, RECORDS - 1), expected_sizes, sizes.filter(lambda size: size > 1))
def test_a_record_more_or_less_changes_batches_of_one_range(
    numbers: NDArray[np.int64], record: int, expected: float, size: int
) -> None:
    lots = (np.union1d(numbers, [record]), np.setdiff1d(numbers, [record]))
    whole, without = (set(batches_of(lot, expected, size)) for lot in lots)
    for changed in {number for batch in whole ^ without for number in batch} - {record}:
        # Two records are never too many for a range, so they are in one batch if it is one range.
        assert len(batches_of(np.sort([changed, record]), expected, size)) == 1


@given(lots, lots, expected_sizes, sizes)
def test_where_a_lot_is_divided_does_not_depend_on_who_is_in_it(
    numbers: NDArray[np.int64], others: NDArray[np.int64], expected: float, size: int
) -> None:
    """Batches of fewer records are whole batches of more, as far as these are left."""
    fewer = np.intersect1d(numbers, others)
    whole = [set(batch) for batch in batches_of(numbers, expected, size)]
    for batch in map(set, batches_of(fewer, expected, size)):
        touched = [one for one in whole if not one.isdisjoint(batch)]
        assert batch == set().union(*touched) & set(fewer.tolist())


def test_ranges_are_seldom_halved() -> None:
    generator = np.random.default_rng(1)
    numbers = np.flatnonzero(generator.random(10_000) < 0.1)
    found = list(batched(numbers, 10_000, 1000.0, 64))
    # 64 leave room for four standard deviations above the mean of 39 in each range.
    assert len(found) == 26
    assert max(map(len, found)) <= 64


def test_a_lot_without_records_has_no_batches() -> None:
    assert batches_of(np.array([], np.int64), 10.0, 4) == []
