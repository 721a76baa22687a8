"""Non-negative least squares against another solver, where gradient searches stop too early."""

import numpy as np
import pytest
from scipy import optimize

from matrixdp import Budget, MatrixMechanism, ReleaseKey
from matrixdp.postprocess.counts import nonnegative_estimate
from matrixdp.postprocess.nonnegative import nearest_nonnegative
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    ProductStrategy,
    Ranges,
    Strategy,
    Total,
    Union,
    Workload,
    marginals,
    optimal_strategy,
)
from reference import workloads as oracle

HEAVY = ProductStrategy([np.concatenate([np.eye(64), np.full((1, 64), 2.0**20)])])
CASES: dict[str, tuple[Workload, Neighbouring, Strategy | None]] = {
    "prefixes": (Prefix(64), "replace", None),
    "cells and total": (Union([Total(64), Identity(64)]), "replace", None),
    "weighty total": (Union([Dense(np.full((1, 64), 1e3)), Identity(64)]), "replace", None),
    "heavy total": (Identity(64), "replace", HEAVY),
    "heavy total, not public": (Identity(64), "add-remove", HEAVY),
    "ranges": (Ranges(150), "add-remove", None),
    "all cells of a table": (marginals([4, 5], [(0,), (0, 1)]), "add-remove", None),
}


@pytest.mark.parametrize("most", [1, 3, 10**6])
@pytest.mark.parametrize("name", CASES)
def test_estimates_are_those_of_another_solver(name: str, most: int) -> None:
    workload, neighbouring, strategy = CASES[name]
    mechanism = MatrixMechanism(
        workload, Budget(0.5, 1e-5), neighbouring=neighbouring, strategy=strategy
    )
    rng = np.random.default_rng(most)
    counts = np.where(rng.random(workload.cells) < 0.2, rng.integers(0, most, workload.cells), 0)
    release = mechanism.release(counts, key=ReleaseKey.from_bytes(rng.bytes(32)))
    assert release.estimate is not None
    assert release.estimate.min() < 0
    found = nonnegative_estimate(release)
    assert found.min() >= 0
    measured = np.asarray(release.measurements.value).ravel()
    expected, _ = optimize.nnls(oracle.dense_strategy(mechanism.strategy), measured, maxiter=10**4)
    # Far within the noise; a heavy total of many records costs either solver digits.
    np.testing.assert_allclose(found, expected, atol=1e-4 * mechanism.covariance.scale)


@pytest.mark.parametrize("shape", [(30, 12), (12, 12), (5, 12), (1, 12)])
def test_solutions_are_optimal_at_any_rank(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(shape[0])
    solved = 0
    for _ in range(20):
        matrix = rng.standard_normal(shape)
        measured = rng.standard_normal(shape[0])
        found = nearest_nonnegative(matrix, np.linalg.pinv(matrix) @ measured)
        if found is not None:
            solved += 1
            _, least = optimize.nnls(matrix, measured)
            assert np.linalg.norm(matrix @ found - measured) == pytest.approx(least, abs=1e-9)
    assert solved == 20 or shape[0] < shape[1]


@pytest.mark.parametrize("cells", [300, 600])
def test_many_cells_are_solved_as_well(cells: int) -> None:
    strategy = optimal_strategy(Prefix(cells), neighbouring="add-remove").strategy
    rng = np.random.default_rng(10)
    counts = np.where(rng.random(cells) < 0.2, rng.integers(0, 10, cells), 0).astype(float)
    noisy = strategy.apply(counts) + rng.standard_normal(cells)
    found = nearest_nonnegative(strategy.written_out(), strategy.reconstruct(noisy))
    assert found is not None
    expected, _ = optimize.nnls(strategy.written_out(), noisy, maxiter=10**4)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_nothing_to_mend_is_left_as_it_is() -> None:
    free = np.array([1.0, 2.0, 0.5])
    found = nearest_nonnegative(np.eye(3), free)
    assert found is not None
    np.testing.assert_array_equal(found, free)
    found = nearest_nonnegative(np.eye(3), -free)
    assert found is not None
    np.testing.assert_array_equal(found, np.zeros(3))


def test_a_search_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrixdp.postprocess.nonnegative._MOST_EXCHANGES", 1)
    matrix = np.tril(np.ones((6, 6)))
    assert nearest_nonnegative(matrix, np.array([-1.0, 1.0, -3.0, 0.5, 1.0, -1.0])) is None
