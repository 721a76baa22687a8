"""Neighbouring data never leave the claimed set, in exact arithmetic, and come close to its edge.

Random neighbours by hypothesis; adversarial ones by a local search that maximises the difference.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import FrobeniusBall, RowBounds, RowBox, SymmetricBall
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    CrossMoment,
    Features,
    Gram,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
)
from reference.membership import contains, share

RECORDS = 6
NORM = PublicBounds(3, norm=1.3)
BOX = PublicBounds(3, lower=[-1.0, -0.5, -3.0], upper=[2.0, 0.7, 0.1])
POSITIVE = PublicBounds(3, lower=[0.1, 0.2, 3.0], upper=[1.0, 0.7, 4.0])
BOTH = PublicBounds(3, lower=[-1.0, 0.0, -0.4], upper=[0.5, 0.7, 0.9], norm=1.1)
LAST = PublicBounds(1, norm=0.9)
CORNER = PublicBounds(3, lower=0.0, upper=2.0, norm=1.2)
BOUNDS = {"norm": NORM, "box": BOX, "positive box": POSITIVE, "both": BOTH, "corner": CORNER}

Maker = Callable[[PublicBounds], Query]
ADDING: dict[str, Maker] = {
    "sum": lambda b: Sum(b, "add-remove"),
    "mean": lambda b: Mean(b, "add-remove", count=7),
    "gram": lambda b: Gram(b, "add-remove"),
    "covariance": lambda b: SampleCovariance(b, "add-remove", count=5),
    "cross": lambda b: CrossMoment(b, LAST, "add-remove"),
    "joint": lambda b: JointMoments(b, LAST, "add-remove"),
    "clipped": lambda b: ClippedRecords(b, "add-remove"),
}
REPLACING: dict[str, Maker] = {
    "sum": lambda b: Sum(b, "replace"),
    "mean": lambda b: Mean(b, "replace", count=RECORDS),
    "gram": lambda b: Gram(b, "replace"),
    "covariance": lambda b: SampleCovariance(b, "replace", count=RECORDS),
    "cross": lambda b: CrossMoment(b, LAST, "replace"),
    "joint": lambda b: JointMoments(b, LAST, "replace"),
    "clipped": lambda b: ClippedRecords(b, "replace"),
    "features": lambda b: Features(b, "replace", count=RECORDS),
}


def width(query: Query) -> int:
    parts = [getattr(query, name, None) for name in ("bounds", "x", "y")]
    return sum(part.columns for part in parts if part is not None)


def adding(query: Query, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers with and without the first record."""
    return query.evaluate(records[1:]), query.evaluate(records)


def replacing(query: Query, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers with the first record and with the second in its place."""
    return query.evaluate(records[1:]), query.evaluate(np.delete(records, 1, axis=0))


CASES = [
    pytest.param(make(bounds), answers, id=f"{name}, {kind}, {answers.__name__}")
    for makers, answers in ((ADDING, adding), (REPLACING, replacing))
    for name, make in makers.items()
    for kind, bounds in BOUNDS.items()
]
Answers = Callable[[Query, np.ndarray], tuple[np.ndarray, np.ndarray]]


@pytest.mark.parametrize(("query", "answers"), CASES)
@settings(max_examples=15)
@given(data=st.data())
def test_random_neighbours_stay_within(query: Query, answers: Answers, data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 2**32))
    power = data.draw(st.integers(-30, 40))
    rng = np.random.default_rng(seed)
    records = rng.standard_normal((RECORDS + 1, width(query))) * 2.0**power
    # Some records are repeated, because bounds are often attained by many equal ones.
    records = records[rng.integers(0, len(records), len(records))]
    assert contains(query.sensitivity, *answers(query, records))


# So many equal records that one more among them moves their mean by less than 1 %.
OTHERS = 200


def neighbours(answers: Answers, points: np.ndarray) -> np.ndarray:
    """Return records of which the first is added, or replaces the second; the others are equal."""
    if answers is adding:
        return np.vstack([points[:1], np.repeat(points[2:], OTHERS, axis=0)])
    return np.vstack([points[:2], np.repeat(points[2:], RECORDS - 1, axis=0)])


def climbed(query: Query, answers: Answers, start: np.ndarray, seed: int) -> np.ndarray:
    """Return the records that a local search reaches."""
    rng = np.random.default_rng(seed)
    best, reached = start, -1.0
    for step in (0.0, *np.repeat([4.0, 1.0, 0.3, 0.1, 0.03], 5)):
        moved = best + step * rng.standard_normal(start.shape)
        trial = share(query.sensitivity, *answers(query, neighbours(answers, moved)))
        if trial > reached:
            best, reached = moved, trial
    return neighbours(answers, best)


def farthest(query: Query, answers: Answers) -> np.ndarray:
    """Return the records with the largest difference that searches from several starts find."""
    corners = 5.0 * np.array(list(product([1.0, -1.0], repeat=width(query))))
    rng = np.random.default_rng(1)
    starts = [np.array([corner, -corner, -corner]) for corner in corners]
    # Equal but for the last column, which is y in the moments of [x y].
    last = np.where(np.arange(width(query)) == width(query) - 1, -1.0, 1.0)
    starts += [np.array([corner, corner * last, corner * last]) for corner in corners[::2]]
    starts += [rng.choice([-5.0, 0.0, 5.0], (3, width(query))) for _ in range(4)]
    found = [climbed(query, answers, start, seed) for seed, start in enumerate(starts)]
    return max(found, key=lambda records: share(query.sensitivity, *answers(query, records)))


# Where a docstring proves how much smaller the largest difference can be. Elsewhere it is 0.99.
PROVEN_GAPS = {
    "gram, box, replacing": 0.70,
    "joint, box, replacing": 0.70,
    "joint, positive box, replacing": 0.50,
    "covariance, both, adding": 0.25,
    "covariance, both, replacing": 0.25,
    "covariance, corner, replacing": 0.25,
}


# A count has two values, between which a local search does not climb.
CONTINUOUS = [case for case in CASES if not isinstance(case.values[0], ClippedRecords)]
# A search takes a tenth of a second, and those of one query under two relations are much alike.
SEARCHED = [
    pytest.param(*case.values, id=case.id, marks=pytest.mark.thorough if index % 2 else ())
    for index, case in enumerate(CONTINUOUS)
]


@pytest.mark.parametrize(("query", "answers"), SEARCHED)
def test_adversarial_neighbours_stay_within_and_come_close(
    query: Query, answers: Answers, request: pytest.FixtureRequest
) -> None:
    pair = answers(query, farthest(query, answers))
    assert contains(query.sensitivity, *pair)
    assert share(query.sensitivity, *pair) >= PROVEN_GAPS.get(request.node.callspec.id, 0.99)


def test_the_rounding_of_sums_of_products_is_covered() -> None:
    # A record at the bound whose square is one above a multiple of 2**19 steps, added to records
    # whose squares add up to just below half of that: rounding moves the sum by a unit more.
    step = 2.0**-20
    bounds = PublicBounds(1, norm=(2**20 + 1) * step)
    records = np.array([[511.0], [31.0], [6.0], [5.0], [2.0**20 + 1]]) * step
    for query, rows in (
        (Gram(bounds, "add-remove"), records),
        (CrossMoment(bounds, bounds, "add-remove"), np.hstack([records, records])),
    ):
        first, second = query.evaluate(rows[:4]), query.evaluate(rows)
        assert Fraction(second.item()) - Fraction(first.item()) > Fraction(bounds.norm or 0.0) ** 2
        assert contains(query.sensitivity, first, second)


def test_the_rounding_of_quotients_is_covered() -> None:
    unit = PublicBounds(1, norm=1.0)  # of 2**20 steps
    # In quarters of a step over 3, one step is 4/3 and rounded down, with the record up.
    mean, few = Mean(unit, "add-remove", count=3), np.array([[2.0**-20], [1.0]])
    boxed = Mean(PublicBounds(2, lower=0, upper=[1.0, 0.25]), "add-remove", count=3)
    assert isinstance(boxed.sensitivity, RowBox)
    wide = few * [1.0, 0.25]
    # All records at one end but one at the other: 5/36 2**42 over 2**17 ends in .8.
    covariance, ends = SampleCovariance(unit, "replace", count=6), -np.ones((6, 1))
    moved = np.vstack([ends[1:], [[1.0]]])
    for query, answers, change in (
        (mean, (mean.evaluate(few[:1]), mean.evaluate(few)), Fraction(1, 3)),
        (boxed, (boxed.evaluate(wide[:1]), boxed.evaluate(wide)), Fraction(1, 3)),
        (covariance, (covariance.evaluate(ends), covariance.evaluate(moved)), Fraction(20, 36)),
    ):
        assert Fraction(float(answers[1][0, 0])) - Fraction(float(answers[0][0, 0])) > change
        assert contains(query.sensitivity, *answers)


def test_three_records_at_one_distance_stay_within_the_covariance() -> None:
    # The axes of a corner: sqrt(2) C apart. Their change exceeds that squared, but not (2 C)².
    query = SampleCovariance(CORNER, "replace", count=61)
    x, y, others = np.eye(3) * 1.2
    first, second = (
        query.evaluate(np.vstack([record, np.tile(others, (60, 1))])) for record in (x, y)
    )
    assert contains(query.sensitivity, first, second)
    assert np.linalg.norm(first - second) > 1.2 * 2 * 1.2**2 * 60 / 61**2


def test_counts_of_clipped_records_attain_their_bound() -> None:
    inside, outside = [0.5, 0.5, 0.0], [9.0, 9.0, 9.0]
    query = ClippedRecords(NORM, "replace")
    first, second = query.evaluate([inside, inside]), query.evaluate([inside, outside])
    assert share(query.sensitivity, first, second) == 1.0


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_tables_stay_within_and_attain_their_bound(relation: str) -> None:
    attributes = [Categories("c", ["a", "b"]), Bins("n", [0, 1, 2, 3])]
    table = ContingencyTable(attributes, relation)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    shares = []
    for _ in range(30):
        rows = [("ab"[rng.integers(2)], float(rng.uniform(0, 3))) for _ in range(5)]
        first = table.evaluate(rows[1:])
        second = table.evaluate(rows if relation == "add-remove" else [rows[0], *rows[2:]])
        assert contains(table.sensitivity, first, second)
        shares.append(share(table.sensitivity, first, second))
    assert max(shares) >= 1 - 1e-15


def test_contains_can_fail() -> None:
    ball = FrobeniusBall(1.0, "replace")
    assert contains(ball, np.array([[1.0]]), np.array([[0.0]]))
    assert not contains(ball, np.array([[np.nextafter(1.0, 2.0)]]), np.array([[0.0]]))
    symmetric = SymmetricBall(5.0, "replace")
    assert not contains(symmetric, np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros((2, 2)))
    assert not contains(RowBox([1.0, 1.0], "replace"), np.array([[0.0, 1.5]]), np.zeros((1, 2)))
    assert not contains(RowBounds([2.0, 2.0], "replace"), np.ones((2, 2)), np.zeros((2, 2)))
