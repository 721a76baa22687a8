"""Queries compute what they say, and a release of one takes one line."""

import copy
import functools
import pickle
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, BudgetExceededError, FrobeniusBall, PrivacyFilter, ReleaseKey
from matrixdp.baselines import MVG, AnalyticGaussian, ClassicGaussian, private_directions
from matrixdp.errors import InvalidParameterError
from matrixdp.queries import (
    ClippedRecords,
    CrossMoment,
    Features,
    GradientSum,
    Gram,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
)
from matrixdp.sensitivity.sets import RowBounds, RowBox

BUDGET = Budget(1.0, 1e-6)
KEY = bytes(range(32))
ROWS = np.random.default_rng(0).uniform(-0.5, 0.5, (400, 4))
WIDE = PublicBounds(4, norm=2.0)
PARTS = PublicBounds(3, norm=2.0), PublicBounds(1, lower=-1, upper=1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (Sum(WIDE, "replace"), ROWS.sum(axis=0)[None]),
        (Mean(WIDE, "replace", count=400), ROWS.mean(axis=0)[None]),
        (Mean(WIDE, "add-remove", count=300), ROWS.sum(axis=0)[None] / 300),
        (Gram(WIDE, "replace"), ROWS.T @ ROWS),
        (SampleCovariance(WIDE, "replace", count=400), np.cov(ROWS.T, bias=True)),
        (SampleCovariance(WIDE, "add-remove", count=1), np.cov(ROWS.T) * 399),
        (CrossMoment(*PARTS, "replace"), ROWS[:, :3].T @ ROWS[:, 3:]),
        (JointMoments(*PARTS, "replace"), ROWS.T @ ROWS),
        (Features(WIDE, "replace", count=400), ROWS),
        (ClippedRecords(WIDE, "replace"), [[0.0]]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Query) else "",
)
def test_answers_are_those_of_numpy_up_to_the_grid(query: Query, expected: Any) -> None:
    # 400 records, each off by at most half a step of 2**-19: an error of all of them would be 4e-4.
    np.testing.assert_allclose(query.evaluate(ROWS), expected, atol=4e-4)


def test_records_outside_are_moved_inside() -> None:
    query = Sum(PublicBounds(2, norm=5.0), "replace")
    np.testing.assert_allclose(query.evaluate([[30.0, 40.0]]), [[3.0, 4.0]], rtol=1e-4)
    box = Sum(PublicBounds(2, lower=[0, -1], upper=[2, 1]), "replace")
    assert box.evaluate([[30.0, -40.0], [-1.0, 0.5]]).tolist() == [[2.0, -0.5]]


def test_gradients_are_clipped_over_all_parameters() -> None:
    query = GradientSum([(2, 2), (3,)], norm=1.0, neighbouring="replace")
    assert query.sensitivity == FrobeniusBall(2.0, "replace")
    gradients = [np.full((4, 2, 2), 3.0), np.full((4, 3), -3.0)]
    weights, offsets = query.split(query.evaluate(gradients))
    np.testing.assert_allclose(weights, 4 / 7**0.5 * np.ones((2, 2)), rtol=1e-4)
    np.testing.assert_allclose(offsets, -4 / 7**0.5 * np.ones(3), rtol=1e-4)
    batches = iter([[part[:1] for part in gradients], [part[1:] for part in gradients]])
    np.testing.assert_array_equal(query.evaluate(batches), query.evaluate(gradients))


@pytest.mark.parametrize(
    ("query", "bound"),
    [
        (Sum(WIDE, "add-remove"), 2.0),
        (Sum(WIDE, "replace"), 4.0),
        (Gram(WIDE, "add-remove"), 4.0),
        (Gram(WIDE, "replace"), 4 * 2**0.5),
        (Gram(PublicBounds(1, norm=2.0), "replace"), 4.0),
        (Gram(PublicBounds(4, lower=0, upper=1), "replace"), 4.0),
        (SampleCovariance(WIDE, "add-remove", count=1), 16.0),
        (SampleCovariance(WIDE, "replace", count=10), 16 * 9 / 100),
        (SampleCovariance(PublicBounds(4, lower=5, upper=6), "add-remove", count=1), 4.0),
        # A norm and a box: the smaller diameter, and the distance of two records.
        (
            SampleCovariance(PublicBounds(2, lower=-9, upper=9, norm=0.5), "replace", count=4),
            3 / 16,
        ),
        (
            SampleCovariance(PublicBounds(2, lower=-1, upper=3, norm=50), "replace", count=4),
            32 * 3 / 16,
        ),
        (SampleCovariance(PublicBounds(2, lower=0, upper=9, norm=0.5), "add-remove", count=1), 0.5),
        (Sum(PublicBounds(4, lower=0, upper=9, norm=1), "replace"), 2**0.5),
        (Sum(PublicBounds(4, lower=-0.125, upper=9, norm=1), "replace"), 3**0.5),
        (CrossMoment(*PARTS, "add-remove"), 2.0),
        (CrossMoment(*PARTS, "replace"), 4.0),
        (JointMoments(*PARTS, "add-remove"), 5.0),
        (JointMoments(*PARTS, "replace"), 5 * 2**0.5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Query) else "",
)
def test_bounds_are_the_derived_ones_and_their_rounding(query: Any, bound: float) -> None:
    assert bound <= query.sensitivity.bound <= bound * (1 + 1e-4)


def test_of_a_ball_and_a_box_the_one_with_less_noise_is_taken() -> None:
    box = Sum(PublicBounds(3, lower=0, upper=[1, 10, 100]), "replace").sensitivity
    assert isinstance(box, RowBox)
    assert box.bounds.tolist() == [1.0, 10.0, 100.0]
    both = PublicBounds(3, lower=-1, upper=1, norm=0.5)
    assert Sum(both, "add-remove").sensitivity == FrobeniusBall(0.5, "add-remove")
    rows = Features(PublicBounds(2, norm=1.0), "replace", count=2).sensitivity
    assert isinstance(rows, RowBounds)
    assert rows.bounds.tolist() == [2.0, 2.0]
    assert isinstance(
        Features(PublicBounds(2, lower=0, upper=[1, 9]), "replace", 2).sensitivity, RowBox
    )


def test_a_release_takes_one_line_and_is_that_of_the_mechanism() -> None:
    query = Gram(WIDE, "replace")
    release = query.release(ROWS, BUDGET, key=ReleaseKey.from_bytes(KEY))
    by_hand = IMGM(query.sensitivity, BUDGET).release(
        query.evaluate(ROWS), key=ReleaseKey.from_bytes(KEY)
    )
    np.testing.assert_array_equal(release.value, by_hand.value)
    assert release.guarantee.neighbouring == "replace"
    np.testing.assert_array_equal(release.value, release.value.T)


@pytest.mark.parametrize(
    "mechanism",
    [
        IMGM,
        AnalyticGaussian,
        ClassicGaussian,
        functools.partial(MVG, shape=(1, 4), norm_bound=1000.0),
    ],
)
def test_every_mechanism_accepts_a_query(mechanism: Any) -> None:
    release = Sum(WIDE, "add-remove").release(ROWS, BUDGET, mechanism=mechanism)
    assert release.shape == (1, 4)
    assert release.guarantee.epsilon == 1.0


def test_a_mechanism_for_another_set_is_refused() -> None:
    other = FrobeniusBall(0.001, "add-remove")
    with pytest.raises(InvalidParameterError, match="another sensitivity"):
        Sum(WIDE, "add-remove").release(
            ROWS, BUDGET, mechanism=lambda _, budget: IMGM(other, budget)
        )


def test_a_filter_pays() -> None:
    purse = PrivacyFilter(BUDGET, neighbouring="add-remove")
    Sum(WIDE, "add-remove").release(ROWS, BUDGET.split(2)[0], privacy_filter=purse)
    assert 0 < purse.spent < BUDGET.mu
    with pytest.raises(BudgetExceededError):
        Sum(WIDE, "add-remove").release(ROWS, BUDGET, privacy_filter=purse)


def test_a_private_count_is_paid_within_the_budget() -> None:
    query = Mean(PublicBounds(4, norm=2.0), "add-remove")
    purse = PrivacyFilter(BUDGET, neighbouring="add-remove")
    release = query.release(np.repeat(ROWS, 100, axis=0), BUDGET, privacy_filter=purse)
    parts = release.total.guarantee.mu, release.count.guarantee.mu
    assert sum(mu**2 for mu in parts) <= BUDGET.mu**2 * (1 + 1e-15)
    assert parts[0] ** 2 / parts[1] ** 2 == pytest.approx(2.0)
    assert release.guarantee.mu <= BUDGET.mu
    # 40,000 records and noise of scale 13 at most: both are within 1 % for sure.
    np.testing.assert_allclose(release.value, ROWS.mean(axis=0)[None], atol=0.01)
    with pytest.raises(BudgetExceededError):
        query.release(ROWS, BUDGET, privacy_filter=purse)


def test_a_noisy_count_below_one_does_not_divide_by_zero() -> None:
    query = Mean(PublicBounds(1, norm=1.0), "add-remove")
    tiny = Budget(1e-3, 1e-9)
    values = [query.release([[0.5]], tiny).value for _ in range(20)]
    assert np.isfinite(values).all()


def test_ranges_are_shown_for_every_column_unless_they_are_equal() -> None:
    assert str(PublicBounds(3, lower=0, upper=1)) == "column ranges 0 to 1"
    shown = str(PublicBounds(3, lower=0, upper=[1, 2, 1], norm=0.5))
    assert shown == "column ranges 0 to 1, 0 to 2, 0 to 1 and norm at most 0.5"


def test_queries_can_be_copied_and_pickled() -> None:
    query = Sum(PublicBounds(2, lower=[-1, 0], upper=1, norm=0.5), "replace")
    twin = pickle.loads(pickle.dumps(query))  # noqa: S301
    np.testing.assert_array_equal(twin.evaluate(ROWS[:, :2]), query.evaluate(ROWS[:, :2]))
    assert str(copy.deepcopy(query)) == str(query)
    with pytest.raises(ValueError, match="read-only"):
        twin.bounds.lower[0] = -9.0


def test_queries_show_bounds_and_no_data() -> None:
    query = SampleCovariance(PublicBounds(2, lower=0, upper=[1, 5]), "replace", count=9)
    assert str(query) == (
        "covariance of records over the public count 9, column ranges 0 to 1, 0 to 5"
    )
    query.evaluate(np.full((9, 2), 0.123456))
    assert "123456" not in repr(query) + str(vars(query))


MAKERS: list[Any] = [
    IMGM,
    AnalyticGaussian,
    ClassicGaussian,
    lambda source, budget: MVG(source, budget, shape=(4, 4), norm_bound=1e4),
]


@pytest.mark.parametrize("make", MAKERS)
def test_every_mechanism_takes_a_query_for_its_set(make: Any) -> None:
    query = CrossMoment(WIDE, WIDE, "replace")
    mechanism, by_hand = make(query, BUDGET), make(query.sensitivity, BUDGET)
    assert mechanism.sensitivity is query.sensitivity
    assert mechanism.guarantee == by_hand.guarantee
    twice = np.hstack([ROWS, ROWS])
    released = mechanism.release(query.evaluate(twice), key=ReleaseKey.from_bytes(KEY))
    expected = by_hand.release(query.evaluate(twice), key=ReleaseKey.from_bytes(KEY))
    np.testing.assert_array_equal(released.value, expected.value)
    for wrong in (SimpleNamespace(sensitivity=3.0), Sum, 1.0, None):
        with pytest.raises(InvalidParameterError, match="or a query"):
            make(wrong, BUDGET)


def test_directions_are_found_for_a_query() -> None:
    query = Gram(WIDE, "replace")
    found = private_directions(query.evaluate(ROWS), query, BUDGET)
    assert found.guarantee.neighbouring == "replace"


def test_a_box_beside_a_norm_makes_joint_moments_change_by_less() -> None:
    # y² is from 9 to 16 and x is short: less than sqrt(2) (0.01 + 16).
    query = JointMoments(PublicBounds(2, norm=0.1), PublicBounds(1, lower=3, upper=4), "replace")
    assert query.sensitivity.bound == pytest.approx((7.0**2 + 4 * 0.8**2) ** 0.5, rel=1e-3)


def test_the_narrowest_ranges_and_the_widths_of_ranges() -> None:
    assert PublicBounds(1, lower=0, upper=2.0**-14, norm=1.0).columns == 1
    # 0.7 - (-0.1) and 1 - (-1e-30) are not floats: their widths are rounded up.
    bounds = PublicBounds(2, lower=[-0.1, -1e-30], upper=[0.7, 1.0])
    for low, high, width in zip(*bounds.intervals, bounds.widths, strict=True):
        assert Fraction(float(width)) >= Fraction(float(high)) - Fraction(float(low))


def test_threads_are_passed_on() -> None:
    query = Sum(PublicBounds(3, norm=1.0), "add-remove")
    with pytest.raises(InvalidParameterError, match="threads=0"):
        query.release(np.zeros((5, 3)), Budget(1.0, 1e-5), threads=0)
    assert query.release(np.zeros((5, 3)), Budget(1.0, 1e-5), threads=2).shape == (1, 3)


def test_bounds_in_words_name_their_columns() -> None:
    assert str(PublicBounds(["age"], norm=1.0)) == "column 'age', norm at most 1"
    many = PublicBounds([f"c{k}" for k in range(30)], norm=1.0)
    assert str(many).startswith("columns 'c0', 'c1', ")
    assert str(many).endswith("'c19' and 10 more, norm at most 1")
