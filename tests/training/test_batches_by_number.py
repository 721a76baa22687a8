"""Batches of a lot, which are fixed by the numbers of its records."""

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="private training needs the extra `train`")

from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from matrixdp.training.lots.lot import Division, filled

RECORDS = 60
# Coins for all of them: sets would rarely be large.
lots = st.lists(st.booleans(), min_size=RECORDS, max_size=RECORDS).map(np.flatnonzero)
expected_sizes = st.floats(1.0, RECORDS)
sizes = st.integers(1, 12) | st.integers(13, RECORDS + 5)


def batches_of(numbers: NDArray[np.int64], expected: float, size: int) -> list[tuple[int, ...]]:
    return [tuple(part.tolist()) for part in Division(RECORDS, expected, size).batches(numbers)]


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
    found = list(Division(10_000, 1000.0, 64).batches(numbers))
    # 64 leave room for four standard deviations above the mean of 40 in each range.
    assert len(found) == 25
    assert max(map(len, found)) <= 64


def test_a_lot_without_records_has_no_batches() -> None:
    assert batches_of(np.array([], np.int64), 10.0, 4) == []


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9, unique=True), st.integers(0, 9))
def test_a_batch_is_filled_up_with_a_record_of_its_own(numbers: list[int], more: int) -> None:
    records = filled(np.array(numbers, dtype=np.int64), len(numbers) + more).tolist()
    assert records[: len(numbers)] == numbers
    assert len(records) == len(numbers) + more
    assert set(records) == set(numbers)


@given(lots, expected_sizes, sizes)
def test_every_batch_fits_into_one_of_a_few_sizes(
    numbers: NDArray[np.int64], expected: float, size: int
) -> None:
    division = Division(RECORDS, expected, size)
    assert len(division.sizes) <= 9
    assert division.sizes[-1] <= size
    for batch in division.batches(numbers):
        smaller = [one for one in division.sizes if one < division.size_for(batch)]
        assert max(smaller, default=0) < len(batch) <= division.size_for(batch)


@pytest.mark.parametrize("expected", [64, 256, 1024, 4096])
def test_filling_up_adds_a_third_of_a_standard_deviation(expected: int) -> None:
    records = 50 * expected
    generator = np.random.default_rng(2)
    division = Division(records, expected, 2 * expected)
    drawn = generator.binomial(records, 0.02, 20_000)
    deviation = math.sqrt(expected * 0.98)
    drawn = drawn[drawn <= division.sizes[-1]]
    assert len(drawn) > 19_990  # nearly all, and the others are halved
    added = np.array([division.size_for(np.arange(number)) for number in drawn[:2000]])
    # And half of what sizes are multiples of.
    assert np.mean(added - drawn[:2000]) < 0.35 * deviation + 4.0


@pytest.mark.parametrize(("views", "multiple"), [(1, 8), (2, 4), (3, 8), (16, 1)])
def test_sizes_are_multiples_of_eight_rows(views: int, multiple: int) -> None:
    *sizes, most = Division(4096, 64.0, 100, views).sizes
    assert all(size % multiple == 0 for size in sizes)
    assert math.gcd(*sizes, most if multiple == 1 else 0) == multiple


def test_a_batch_size_of_the_whole_lot_needs_no_more_rows_than_records() -> None:
    """Half of all lots are larger than expected: halves of them must not be filled up to a lot."""
    division = Division(50_000, 1000.0, 1000)
    lot = np.flatnonzero(np.random.default_rng(3).random(50_000) < 0.02)
    rows = sum(division.size_for(batch) for batch in division.batches(lot))
    assert rows < 1.1 * len(lot)


def test_whole_data_sets_are_one_batch() -> None:
    division = Division(60, 60.0, 60)
    assert division.sizes == (60,)
    assert [len(batch) for batch in division.batches(np.arange(60))] == [60]
