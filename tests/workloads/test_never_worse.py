"""Strategies are never worse than measuring every cell or every query, whatever is asked."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrixdp import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    OptimalStrategy,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
    marginals,
    optimal,
    optimal_strategy,
)
from matrixdp.workloads.comparison import compared_errors
from reference import workloads as oracle

# The noise of the public total adds at most a millionth to the squares.
MARGIN = 1.0 + 1e-6


def without_empty_rows(matrix: np.ndarray) -> bool:
    return bool(np.all(np.any(matrix, axis=1)))


def whole_matrices(rows: int, columns: int, least: int = 1) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, rows), st.integers(least, columns)),
        elements=st.integers(-3, 3).map(float),
    ).filter(without_empty_rows)


@st.composite
def scaled_matrices(draw: st.DrawFn) -> np.ndarray:
    """Return matrices with entries, rows or columns from 1 to 1e6 in size."""
    matrix = draw(whole_matrices(7, 7, least=2))
    rows, columns = matrix.shape
    shape = draw(st.sampled_from([(rows, columns), (rows, 1), (1, columns)]))
    powers = draw(hnp.arrays(np.float64, shape, elements=st.integers(0, 6).map(float)))
    return np.asarray(matrix * 10.0**powers)


def assert_never_worse(workload: Workload, relation: Neighbouring) -> OptimalStrategy:
    best = optimal_strategy(workload, neighbouring=relation)
    errors = compared_errors(workload, relation)
    assert best.rmse <= errors["identity"] * MARGIN
    assert best.rmse <= errors["direct"] * MARGIN
    return best


def assert_answers(matrix: np.ndarray, best: OptimalStrategy, sensitivity: float) -> None:
    """Check in dense arithmetic that the queries are answered, and with the error stated."""
    measured = oracle.dense_strategy(best.strategy)
    inverse = np.linalg.pinv(measured, rcond=1e-15)
    sizes = np.abs(matrix).sum(axis=1, keepdims=True)
    np.testing.assert_allclose((matrix @ inverse @ measured - matrix) / sizes, 0.0, atol=1e-7)
    error = sensitivity**2 * float(np.linalg.norm(matrix @ inverse)) ** 2
    assert best.certificate.value == pytest.approx(error, rel=1e-6)
    assert best.certificate.lower_bound <= best.certificate.value * (1 + 1e-9)


@given(whole_matrices(8, 8))
@settings(max_examples=100)
def test_integers(matrix: np.ndarray) -> None:
    best = assert_never_worse(Dense(matrix), "add-remove")
    assert best.certificate.gap < 1e-6
    assert_answers(matrix, best, oracle.column_norm(oracle.dense_strategy(best.strategy)))


@given(scaled_matrices())
@settings(max_examples=100)
def test_dynamic_ranges_up_to_a_million(matrix: np.ndarray) -> None:
    best = assert_never_worse(Dense(matrix), "add-remove")
    assert best.certificate.gap < 1e-6
    assert best.strategy.sensitivity("add-remove") >= oracle.column_norm(
        oracle.dense_strategy(best.strategy)
    ) * (1 - 1e-15)


@given(st.one_of(whole_matrices(6, 6, least=2), scaled_matrices()), st.integers(0, 5))
@settings(max_examples=80)
def test_replacement_with_any_range_and_offset(matrix: np.ndarray, power: int) -> None:
    offset = matrix + 2.0 * 10.0**power * np.abs(matrix).max()
    if not np.ptp(matrix, axis=1).any():
        with pytest.raises(InvalidParameterError, match="subtract"):
            optimal_strategy(Dense(offset), neighbouring="replace")
        return
    try:
        best = assert_never_worse(Dense(offset), "replace")
    except InvalidParameterError as refusal:
        assert "subtract" in str(refusal)  # noqa: PT017 (only offsets beyond 1e5 or so are)
        assert power >= 4
        return
    assert best.certificate.gap < 1e-3
    assert_answers(offset, best, oracle.diameter(oracle.dense_strategy(best.strategy)))


@given(whole_matrices(4, 4, least=2), whole_matrices(4, 4))
@settings(max_examples=40)
def test_products(one: np.ndarray, other: np.ndarray) -> None:
    product = Product([Dense(one), Dense(other)])
    best = assert_never_worse(product, "add-remove")
    assert best.certificate.gap < 1e-6
    flat = optimal_strategy(Dense(np.kron(one, other)), neighbouring="add-remove")
    assert best.certificate.value == pytest.approx(flat.certificate.value, rel=2e-6)
    if np.ptp(np.kron(one, other), axis=1).any():
        assert_never_worse(product, "replace")


@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.just(3)), elements=st.integers(0, 2)),
    hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.just(4)), elements=st.integers(0, 2)),
    st.sampled_from([Identity(4), Total(4), Prefix(4), Ranges(4)]),
)
@settings(max_examples=40)
def test_unions(one: np.ndarray, other: np.ndarray, factor: Factor) -> None:
    if not (without_empty_rows(one) and without_empty_rows(other)):
        return
    union = Union([Product([Dense(one), factor]), Product([Prefix(3), Dense(other)])])
    assert assert_never_worse(union, "add-remove").certificate.gap < 1e-6
    assert_never_worse(union, "replace")


def one_query(size: int, seed: int) -> Dense:
    return Dense(np.random.default_rng(seed).integers(0, 2, (1, size)) + np.eye(1, size))


def structures(one: int, other: int) -> list[Workload]:
    """Return workloads of every structure that is solved in a way of its own."""
    first, second = one_query(other, 1), one_query(one, 2)
    return [
        Union([Product([Total(one), first]), Product([second, Total(other)])]),
        Union([Product([Identity(one), Identity(other)]), Product([Total(one), first])]),
        Product([Identity(one), Identity(other)]),
        Product([Prefix(one), Prefix(other)]),
        Product([Total(one), first]),
        marginals([one] * 2 + [2] * 2, [(0, 1), (2,)]),
    ]


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("workload", structures(9, 7), ids=repr)
@pytest.mark.parametrize("limit", [0, 4096])
def test_structures_as_if_large_or_small(
    workload: Workload, relation: Neighbouring, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimal, "_MOST_CELLS_OF_A_UNION", limit)
    monkeypatch.setattr(optimal, "MOST_CELLS_SEARCHED", limit)
    assert_never_worse(workload, relation)


@pytest.mark.thorough
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(
    "workload", [*structures(70, 60), *structures(20, 15), *structures(100, 90)[2:4]], ids=repr
)
def test_large_structures(workload: Workload, relation: Neighbouring) -> None:
    assert_never_worse(workload, relation)


@pytest.mark.parametrize(
    "rows",
    [
        [[0.0, 2000.0, -20.0, 3000.0]],
        [[2.0, -1000.0, -2000.0, 0.0, -100.0, -10.0]],
        [[300.0, 200.0, 200.0, -2.0, -1.0]],
        [[1e5, 1], [1, 0]],
        [[1000, 0, 0, 0], [20000, -200, 0, 2000], [-100, 0, 1, 30]],
        [[1e6, 1e6, 0], [0, 1, 1], [1, 0, 0]],
        [[10, -10, 0, -2e5], [-20, 30, -100, -3e5], [1, 3, 0, 1e4]],
        [[-30.0, -30.0, -20.0], [-3e4, 1e4, -2e4], [0.0, 0.0, -1e6], [-10.0, 30.0, -30.0]],
        [[-1e4, 3e4, 1e4, 1e4, -2e4], [200, -200, 300, 100, 200], [-1e3, 2e3, -1e3, 2e3, 2e3]],
    ],
)
def test_badly_scaled_queries(rows: list[list[float]]) -> None:
    matrix = np.array(rows)
    best = assert_never_worse(Dense(matrix), "add-remove")
    assert best.certificate.gap <= 1e-6
    assert_answers(matrix, best, oracle.column_norm(oracle.dense_strategy(best.strategy)))
    replaced = assert_never_worse(Dense(matrix), "replace")
    assert replaced.certificate.gap <= 1e-6


def test_a_strategy_that_is_worse_would_be_noticed() -> None:
    workload = Prefix(16)
    best = optimal_strategy(workload, neighbouring="add-remove")
    assert best.rmse * 4.0 > compared_errors(workload, "add-remove")["identity"] * MARGIN
