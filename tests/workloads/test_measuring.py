"""Measuring only what has weight gives what measuring everything gives."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrixdp.workloads import ProductStrategy, marginals, optimal_strategy
from matrixdp.workloads.strategies import measuring
from matrixdp.workloads.strategies.measuring import compensated_product, measured_blocks, run_starts
from reference import workloads as oracle


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_blocks_are_those_of_the_whole(sizes: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    factors = [rng.integers(-3, 4, (size, size)) + 5.0 * np.eye(size) for size in sizes]
    weights = data.draw(hnp.arrays(np.float64, tuple(sizes), elements=st.sampled_from([0.0, 1.0])))
    counts = rng.integers(0, 9, sizes).astype(float)
    whole: np.ndarray = np.ones((1, 1))
    for factor in factors:
        whole = np.kron(whole, factor)
    expected = np.where(weights.ravel() > 0.0, whole @ counts.ravel(), 0.0)
    found = measured_blocks(factors, weights, counts)
    np.testing.assert_array_equal(np.where(weights > 0.0, found, 0.0).ravel(), expected)


def test_blocks_without_weight_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    # Tables are measured set by set unless there are very many sets.
    monkeypatch.setattr("matrixdp.workloads.solve.tables._MANY_SETS", 0)
    strategy = optimal_strategy(marginals([40, 50], [(0,), (1,)]), neighbouring="replace").strategy
    assert isinstance(strategy, ProductStrategy)
    work = []

    def counted(matrix: np.ndarray, array: np.ndarray) -> np.ndarray:
        work.append(matrix.shape[0] * array.size)
        return compensated_product(matrix, array)

    monkeypatch.setattr(measuring, "compensated_product", counted)
    counts = np.random.default_rng(1).poisson(3.0, (40, 50)).astype(float)
    measured = strategy.measure(counts)
    np.testing.assert_allclose(
        measured.ravel(), oracle.dense_strategy(strategy) @ counts.ravel(), rtol=1e-9, atol=1e-9
    )
    assert sum(work) < 5 * counts.size  # contrasts of all cells would take forty times that


def test_runs() -> None:
    weights = np.array([[1.0, 2.0, 2.0, 0.0], [1.0, 2.0, 2.0, 0.0], [3.0, 0.0, 0.0, 0.0]])
    assert run_starts(weights, 0).tolist() == [0, 2]
    assert run_starts(weights, 1).tolist() == [0, 1, 3]
