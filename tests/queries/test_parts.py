"""Parts of queries: the same bits in every order, tree and division, equal to exact rationals."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import matrixdp as mdp
from matrixdp.integer_sums import Part
from matrixdp.queries import (
    AdditiveQuery,
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    CrossMoment,
    GradientSum,
    Gram,
    GroupMoments,
    JointMoments,
    Mean,
    PublicBounds,
    SampleCovariance,
    Sum,
)
from matrixdp.queries.grid import RecordGrid
from matrixdp.workloads.counting import TableCounts
from reference.membership import contains

ROWS = 60
BOUNDS = PublicBounds(["a", "b", "c"], lower=[-1, -2, 0], upper=[1, 2, 3], norm=2.0)
BOX = PublicBounds(3, lower=[-1, -2, 0], upper=[1, 2, 3])
X, Y = PublicBounds(2, norm=1.5), PublicBounds(1, lower=-1, upper=1)
GROUPS = [Bins("a", [-99.0, 0.0, 99.0])]
LARGE = 2**43  # more bits are rounded off than for any smaller bound


def queries(most: int) -> list[AdditiveQuery]:
    return [
        Sum(BOUNDS, "replace", most),
        Sum(BOX, "add-remove", most),
        Mean(BOUNDS, "add-remove", 50, most),
        Gram(BOUNDS, "add-remove", most),
        Gram(BOX, "replace", most),
        SampleCovariance(BOX, "replace", ROWS, most),
        CrossMoment(X, Y, "add-remove", most),
        JointMoments(X, Y, "replace", most),
        GroupMoments(
            PublicBounds(["b", "c"], norm=1.5), "replace", by=GROUPS, order=2, most_records=most
        ),
        GradientSum([(3,)], 1.0, "add-remove", most),
    ]


QUERIES = [
    *queries(2**30),
    *queries(LARGE),
    ClippedRecords(BOUNDS, "replace"),
    ContingencyTable([*GROUPS, Bins("b", [-9.0, 1.0, 9.0]), Bins("c", [-9.0, 9.0])], "replace"),
]
every_query = pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)


def records(seed: int, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-3, 3, (rows, 3))


def data_for(query: AdditiveQuery, rows: np.ndarray) -> Any:
    return [rows] if isinstance(query, GradientSum) else rows


def in_a_random_tree(parts: list[Part], draw: st.DataObject) -> Part:
    """Merge parts, two at a time, in an order that is drawn."""
    while len(parts) > 1:
        first, second = (parts.pop(draw.draw(st.integers(0, len(parts) - 1))) for _ in range(2))
        parts.append(AdditiveQuery.merge([first, second]))
    return parts[0]


@every_query
@settings(max_examples=10)
@given(draw=st.data())
def test_no_division_order_or_tree_changes_a_bit(query: AdditiveQuery, draw: st.DataObject) -> None:
    rows = records(draw.draw(st.integers(0, 9)))
    expected = query.evaluate(data_for(query, rows))
    order = draw.draw(st.permutations(range(ROWS)))
    cuts = sorted(draw.draw(st.lists(st.integers(0, ROWS), max_size=8)))
    blocks = np.split(rows[order], cuts)  # some of them are empty
    parts = [query.partial(data_for(query, block)) for block in blocks]
    np.testing.assert_array_equal(query.finish(in_a_random_tree(parts, draw)), expected)


def whole(bounds: PublicBounds, rows: np.ndarray) -> list[list[int]]:
    """Return the integers of records on their grid, which tests of the grid are about."""
    return [[int(number) for number in row] for row in RecordGrid(bounds)(rows)]


def rounded(number: int, bits: int) -> int:
    """Return the multiple of 2**bits that is nearest, halves up."""
    unit: int = 2**bits
    return (number + unit // 2) // unit * unit


@pytest.mark.parametrize(("most", "dropped"), [(2**30, 0), (2**32 + 1, 1), (2**34, 2), (2**43, 11)])
def test_sums_are_exact_rationals(most: int, dropped: int) -> None:
    query, rows = Sum(BOX, "add-remove", most), records(1, 999)
    steps = [Fraction(float(step)) for step in RecordGrid(BOX).steps]
    totals = [sum(column) for column in zip(*whole(BOX, rows), strict=True)]
    expected = [rounded(a, dropped) * step for a, step in zip(totals, steps, strict=True)]
    assert [Fraction(float(entry)) for entry in query.evaluate(rows)[0]] == expected


@pytest.mark.parametrize(("most", "dropped"), [(7, 0), (2**30, 19), (2**33 + 1, 23), (2**43, 32)])
def test_products_are_exact_rationals(most: int, dropped: int) -> None:
    rows = records(2, 7)
    found = Gram(BOX, "add-remove", most).evaluate(rows)
    columns = list(zip(*whole(BOX, rows), strict=True))
    steps = [Fraction(float(step)) for step in RecordGrid(BOX).steps]
    for i, left in enumerate(columns):
        for j, right in enumerate(columns):
            exact = rounded(sum(a * b for a, b in zip(left, right, strict=True)), dropped)
            assert Fraction(float(found[i, j])) == exact * steps[i] * steps[j]


def neighbours(query: AdditiveQuery, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers with a record and without it, or with another in its place."""
    rng = np.random.default_rng(seed)
    rows = records(seed, ROWS + 1) * rng.choice([0.1, 1.0, 9.0], (ROWS + 1, 1))
    rest = np.delete(rows, 1, axis=0) if query.neighbouring == "replace" else rows
    first, second = (query.evaluate(data_for(query, each)) for each in (rows[1:], rest))
    return first, second


@pytest.mark.parametrize("query", queries(LARGE), ids=lambda query: type(query).__name__)
def test_neighbours_stay_within_whatever_bound_is_stated(query: AdditiveQuery) -> None:
    assert all(contains(query.sensitivity, *neighbours(query, seed)) for seed in range(40))


@pytest.mark.parametrize(("make", "steps"), [(Sum, 1023), (Gram, 46340)])
def test_rounding_that_is_not_allowed_for_would_be_seen(make: Any, steps: int) -> None:
    # Just below half a unit without the largest record, and just above one and a half with it.
    bounds = PublicBounds(1, norm=1.001)
    rest, largest = [[steps * 2.0**-20]], [[1.001]]
    query = make(bounds, "add-remove", LARGE)
    answers = query.evaluate(rest), query.evaluate(rest + largest)
    assert contains(query.sensitivity, *answers)
    assert not contains(make(bounds, "add-remove").sensitivity, *answers)


def test_rounding_of_the_sums_of_groups_would_be_seen() -> None:
    bounds, by = PublicBounds(["v"], norm=1.001), [Categories("g", ["x"])]
    rest, largest = [("x", 1023 * 2.0**-20)], [("x", 1.001)]
    query = GroupMoments(bounds, "add-remove", by=by, most_records=LARGE)
    answers = query.evaluate(rest), query.evaluate(rest + largest)
    assert contains(query.sensitivity, *answers)
    assert not contains(GroupMoments(bounds, "add-remove", by=by).sensitivity, *answers)


def test_a_stated_bound_costs_what_its_rounding_needs() -> None:
    bounds = PublicBounds(256, norm=1.0)
    bound = [Gram(bounds, "add-remove", most).sensitivity.bound for most in (2**30, 2**34, 2**43)]
    assert bound[0] == pytest.approx(1 + 256 * 2.0**-21, rel=1e-9)
    assert bound[1] == pytest.approx(1 + 256 * 2.0**-17, rel=1e-9)
    assert bound[2] == pytest.approx(1 + 256 * 2.0**-8, rel=1e-9)
    sums = [Sum(bounds, "add-remove", most).sensitivity for most in (2**30, 2**32, 2**33)]
    assert sums[0] == sums[1] == mdp.FrobeniusBall(1.0, "add-remove")
    assert isinstance(sums[2], mdp.FrobeniusBall)
    assert sums[2].bound == pytest.approx(1 + 2 * 16 * 2.0**-20, rel=1e-9)


@pytest.mark.parametrize("most", [0, 2**43 + 1, 1.5, True])
def test_bad_bounds_of_the_number_of_records(most: Any) -> None:
    for make in (Sum, Gram):
        with pytest.raises(mdp.InvalidParameterError, match="most_records="):
            make(BOX, "replace", most)


def test_a_stated_bound_is_in_the_words_of_the_query() -> None:
    assert "records" not in str(Sum(BOX, "replace")).replace("sum of records", "")
    for query in queries(2**34):
        assert str(query).endswith(", at most 17179869184 records")


def test_counts_of_tables_are_added_up() -> None:
    rows = np.random.default_rng(0).integers(0, 3, (100, 3))
    counts = TableCounts((3, 3, 3), ((0,), (1, 2)))
    parts = [counts.partial(block) for block in np.split(rows, [0, 7, 50])]
    found = counts.finish(AdditiveQuery.merge(reversed(parts)))
    expected = counts.finish(counts.partial(rows))
    for kept in counts.tables:
        np.testing.assert_array_equal(found[kept], expected[kept])
        assert found[kept].sum() == 100


def test_a_category_is_counted_in_every_block() -> None:
    table = ContingencyTable([Categories("c", ["x", "y"])], "replace")
    parts = [table.partial(block) for block in (["x", "y"], [], ["y"])]
    assert table.finish(table.merge(parts)).tolist() == [[1.0], [2.0]]
