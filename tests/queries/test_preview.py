"""Previews: what a release will be like, without data; and what an error costs."""

from typing import Any

import numpy as np
import pytest

import matrixdp as mdp
from matrixdp.baselines import ClassicGaussian
from matrixdp.privacy import ErrorMeasure
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    CrossMoment,
    Features,
    GradientSum,
    Gram,
    GroupMoments,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
)

LOWER, UPPER = np.array([0.0, -2.0, 1.0]), np.array([4.0, 3.0, 9.0])
BOX = PublicBounds(3, lower=LOWER, upper=UPPER)
BALL = PublicBounds(3, norm=2.0)
PARTS = PublicBounds(2, lower=LOWER[:2], upper=UPPER[:2]), PublicBounds(1, norm=5.0)
DATA = np.random.default_rng(3).uniform(-4.0, 10.0, size=(50, 3))
BUDGET = mdp.Budget(1.0, 1e-5)
NUMBERS: list[Query] = [
    Sum(BOX, "replace"),
    Sum(BALL, "add-remove"),
    Mean(BOX, "replace", 50),
    Mean(BALL, "add-remove", 77),
    Gram(BOX, "replace"),
    Gram(BALL, "add-remove"),
    JointMoments(*PARTS, "replace"),
    CrossMoment(*PARTS, "add-remove"),
    SampleCovariance(BOX, "replace", 50),
    Features(BOX, "replace", 50),
    ClippedRecords(BOX, "replace"),
]
each_query = pytest.mark.parametrize("query", NUMBERS, ids=lambda query: type(query).__name__)


@each_query
def test_a_preview_is_what_the_release_will_be(query: Query) -> None:
    preview, release = query.preview(BUDGET), query.release(DATA, BUDGET)
    assert preview.shape == release.shape
    assert preview.guarantee == release.guarantee
    assert preview.sensitivity == release.sensitivity
    np.testing.assert_array_equal(preview.standard_errors, release.standard_errors())
    assert str(query) in str(preview)
    assert preview.ranges.lengths.shape == preview.shape


def test_previews_of_tables_gradients_and_other_mechanisms() -> None:
    table = ContingencyTable([Categories("a", ["x", "y", "z"]), Bins("b", [0, 1, 2])], "replace")
    assert table.preview(BUDGET).shape == table.evaluate([("x", 1.0)]).shape == (3, 2)
    assert GradientSum([(2, 2), (3,)], 1.0, "replace").preview(BUDGET).shape == (1, 7)
    ours = NUMBERS[0].preview(BUDGET).error("frobenius")
    theirs = NUMBERS[0].preview(BUDGET, mechanism=ClassicGaussian)
    assert theirs.error("frobenius") > ours


@each_query
def test_no_entry_leaves_its_range_and_none_is_twice_as_long_as_needed(query: Query) -> None:
    generator = np.random.default_rng(0)
    corners = np.stack(np.meshgrid(*[[-9.0, 0.0, 9.0]] * 3), axis=-1).reshape(-1, 3)
    lengths, each = query.ranges
    if each:
        values = [query.evaluate(record[None]) for record in [*corners, *DATA]]
    else:
        rows = len(DATA)
        samples = [corners[generator.integers(27, size=2)] for _ in range(400)]
        values = [
            query.evaluate(np.repeat(pair, [rows // 2, rows - rows // 2], 0)) for pair in samples
        ]
    spread = np.max(values, axis=0) - np.min(values, axis=0)
    # With add-remove the divisor need not be the number of records.
    factor = 50 / 77 if isinstance(query, Mean) and query.count == 77 else 1.0
    assert np.all(spread <= factor * lengths * (1 + 1e-5))
    # Ranges of products do not use a norm, which halves them.
    least = 0.95 if isinstance(query, SampleCovariance) else 0.49
    assert np.all(spread >= least * factor * lengths)


def test_what_is_said_of_noise_that_hides_the_answer() -> None:
    few = SampleCovariance(BOX, "replace", 20).preview(BUDGET)
    assert few.least_records is None
    assert 0 < few.hidden_entries <= 9
    assert f"LARGER THAN THE RANGE of {few.hidden_entries} of 9 entries" in str(few)
    many = SampleCovariance(BOX, "replace", 10**6).preview(BUDGET)
    assert many.hidden_entries == 0
    assert "LARGER" not in str(many)
    counts = ContingencyTable([Categories("a", ["x", "y"])], "add-remove").preview(BUDGET)
    assert counts.least_records == 4  # a scale of 3.73
    assert "with fewer than 4 records" in str(counts)


def test_means_over_a_private_count_have_two_errors() -> None:
    query = Mean(BOX, "add-remove")
    preview, release = query.preview(BUDGET), query.release(DATA, BUDGET)
    assert preview.guarantee == release.guarantee
    np.testing.assert_array_equal(preview.standard_errors, release.total.standard_errors())
    assert preview.count_error == release.count.standard_errors().item()
    assert "standard error of the number of records" in str(preview)
    with pytest.raises(mdp.InvalidParameterError, match="mechanism"):
        query.preview(BUDGET, mechanism=ClassicGaussian)


@each_query
@pytest.mark.parametrize("measure", list(ErrorMeasure))
def test_a_budget_for_an_error_is_enough_and_not_more(query: Query, measure: ErrorMeasure) -> None:
    wanted = 0.37 * query.preview(mdp.Budget.from_mu(1.0, 1e-6)).error(measure)
    budget = query.budget_for(wanted, measure, delta=1e-6)
    error = query.preview(budget).error(measure)
    assert wanted * (1 - 1e-9) <= error <= wanted
    less = mdp.Budget.from_mu(budget.mu * 0.999, 1e-6)
    assert query.preview(less).error(measure) > wanted


@pytest.mark.parametrize("error", [0.0, -1.0, np.nan, "1"])
def test_errors_that_are_no_errors(error: Any) -> None:
    with pytest.raises(mdp.InvalidParameterError, match="error"):
        NUMBERS[0].budget_for(error, delta=1e-6)


def test_groups_have_a_preview() -> None:
    bounds = PublicBounds(["a", "b"], lower=LOWER[:2], upper=UPPER[:2])
    for order in (1, 2):
        query = GroupMoments(bounds, "replace", by=[Categories("g", ["x", "y"])], order=order)
        rows = [("x", a, b) for a in (-9.0, 0.0, 9.0) for b in (-9.0, 0.0, 9.0)]
        preview, release = query.preview(BUDGET), query.release(rows, BUDGET)
        assert preview.shape == release.shape
        np.testing.assert_array_equal(preview.standard_errors, release.standard_errors())
        values = [query.evaluate([row])[0] for row in rows]
        spread = np.ptp(values, axis=0)[1:]
        assert np.all(spread <= query.ranges.lengths[0, 1:] * (1 + 1e-5))
        assert np.all(spread >= query.ranges.lengths[0, 1:] * 0.99)
