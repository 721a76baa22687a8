"""Post-processing of estimates: the closest histogram without negative counts, integer counts."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import optimize

from matrixdp import Budget, InvalidParameterError, MatrixMechanism, ReleaseKey
from matrixdp.errors import CalibrationError, ShapeError
from matrixdp.postprocess.counts import integer_counts, nonnegative_estimate
from matrixdp.workloads import (
    Prefix,
    Product,
    ProductStrategy,
    StackedStrategy,
    Total,
    Union,
    Workload,
    marginals,
)
from reference import workloads as oracle


@pytest.mark.parametrize(
    "workload", [Prefix(10), Product([Prefix(3), Prefix(4)]), marginals([3, 4], [(0,), (0, 1)])]
)
def test_nonnegative_estimates_solve_their_problem(workload: Workload) -> None:
    mechanism = MatrixMechanism(workload, Budget(0.5, 1e-5), neighbouring="add-remove")
    counts = np.arange(workload.cells) % 3
    release = mechanism.release(counts, key=ReleaseKey.from_bytes(bytes(32)))
    assert release.estimate is not None
    assert release.estimate.min() < 0
    found = nonnegative_estimate(release)
    assert found.min() >= 0
    matrix = oracle.dense_strategy(mechanism.strategy)
    measured = np.asarray(release.measurements.value).ravel()
    expected, distance = optimize.nnls(matrix, measured)
    assert np.linalg.norm(matrix @ found - measured) == pytest.approx(distance, rel=1e-5)
    np.testing.assert_allclose(found, expected, atol=0.05)


@pytest.mark.parametrize("most_solved", [2048, 0])
def test_stacks_have_nonnegative_estimates(
    most_solved: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = Union([Product([Prefix(4), Total(5)]), Product([Total(4), Prefix(5)])])
    stack = StackedStrategy(
        [
            ProductStrategy([np.eye(4), np.ones((1, 5))]),
            ProductStrategy([np.ones((1, 4)), np.tri(5) / 2]),
        ]
    )
    monkeypatch.setattr("matrixdp.postprocess.counts._MOST_CELLS_SOLVED", most_solved)
    mechanism = MatrixMechanism(
        workload, Budget(0.5, 1e-5), neighbouring="add-remove", strategy=stack
    )
    release = mechanism.release([0, 1] * 10, key=ReleaseKey.from_bytes(bytes(32)))
    assert release.estimate is not None
    assert release.estimate.min() < 0
    found = nonnegative_estimate(release)
    assert found.min() >= 0
    matrix = oracle.dense_strategy(stack)
    measured = np.asarray(release.measurements.value).ravel()
    _, distance = optimize.nnls(matrix, measured)
    assert np.linalg.norm(matrix @ found - measured) == pytest.approx(distance, rel=1e-5)


@given(hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6)))
def test_integer_counts_keep_the_total_and_stay_close(estimate: np.ndarray) -> None:
    whole = integer_counts(estimate)
    assert np.all(np.abs(whole - estimate) < 1)
    assert abs(int(whole.sum()) - float(estimate.sum())) <= 0.5 + 1e-6
    assert np.all(whole[estimate >= 0] >= 0)
    np.testing.assert_array_equal(integer_counts(whole.astype(float)), whole)


def test_an_estimate_that_did_not_converge_is_not_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mechanism = MatrixMechanism(Prefix(40), Budget(0.5, 1e-5), neighbouring="add-remove")
    release = mechanism.release([0] * 40, key=ReleaseKey.from_bytes(bytes(32)))
    monkeypatch.setattr("matrixdp.postprocess.counts._MOST_CELLS_SOLVED", 0)
    nonnegative_estimate(release)
    monkeypatch.setattr("matrixdp.postprocess.nonnegative._MOST_STEPS", 1)
    with pytest.raises(CalibrationError, match=r"use release\.estimate"):
        nonnegative_estimate(release)


@pytest.mark.parametrize(
    ("estimate", "message"),
    [
        ([np.nan], "finite"),
        ([2.0**53], "below 2"),
        (np.ma.array([1.5, 2.5], mask=[False, True]), "masked"),
        (["1", "2"], "dtype"),
        ([1.5, 1j], "dtype complex128"),
        ([1.5, None], "dtype object"),
        ([[1.5], [1.5, 2.5]], "ragged"),
    ],
)
def test_bad_estimates_are_refused(estimate: Any, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=f"estimate .*{message}"):
        integer_counts(estimate)


@pytest.mark.parametrize("release", [[1], None, np.ones(3)])
def test_only_releases_have_estimates(release: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"MatrixMechanism\.release"):
        nonnegative_estimate(release)
