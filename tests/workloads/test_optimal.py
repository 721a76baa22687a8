"""Optimal strategies: the optimality conditions re-derived outside the solver."""

import math
from itertools import combinations

import numpy as np
import pytest

from matrixdp import InvalidParameterError
from matrixdp.errors import CalibrationError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    Certificate,
    Dense,
    Identity,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
    marginals,
    optimal,
    optimal_strategy,
    svd_bound,
)
from matrixdp.workloads.comparison import compared_errors, haar_gram, hierarchy_gram
from matrixdp.workloads.solve.certificate import certified_bound
from matrixdp.workloads.solve.dual import Problem, dual_point, maximise_dual
from reference import workloads as oracle


@pytest.mark.parametrize(
    ("workload", "identity", "svd", "optimum"),
    [
        (Ranges(128), math.sqrt(130 / 3), 2.5734725, 2.5989908),
        (Prefix(128), math.sqrt(64.5), 2.2544140, 2.3110012),
    ],
)
def test_known_errors(workload: Workload, identity: float, svd: float, optimum: float) -> None:
    best = optimal_strategy(workload, neighbouring="add-remove")
    assert best.rmse == pytest.approx(optimum, abs=5e-8)
    assert best.certificate.gap < 1e-8
    assert math.sqrt(svd_bound(workload) / workload.rows) == pytest.approx(svd, abs=5e-8)
    errors = compared_errors(workload, "add-remove")
    assert errors["identity"] == pytest.approx(identity, rel=1e-14)


EXPLICIT: list[Workload] = [
    Prefix(24),
    Ranges(17),
    Ranges(20, longest=3),
    Identity(6),
    Total(9),
    Union([Prefix(8), Total(8), Identity(8)]),
    Dense(np.random.default_rng(3).standard_normal((30, 12))),
    Dense(np.random.default_rng(4).standard_normal((5, 12))),
    Dense([[1.0, 0.5]]),
    Dense([[3, 0, 1], [0, 0, 2]]),
    Dense(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [1, 2, 1, 0], [0, 0, 1, 0.001]])),
    Union([Product([Prefix(4), Total(3)]), Product([Total(4), Ranges(3)])]),
]


@pytest.mark.parametrize("workload", EXPLICIT, ids=repr)
def test_certificates_hold_in_dense_arithmetic(workload: Workload) -> None:
    best = optimal_strategy(workload, neighbouring="add-remove")
    matrix, measured = oracle.dense(workload), oracle.dense_strategy(best.strategy)
    norm = oracle.column_norm(measured)
    assert best.certificate.value == pytest.approx(
        oracle.total_error(matrix, measured, norm), rel=1e-9
    )
    assert best.certificate.gap < 1e-6
    assert best.certificate.lower_bound < best.certificate.value
    np.testing.assert_allclose(
        matrix @ np.linalg.pinv(measured) @ measured, matrix, atol=1e-9 * np.abs(matrix).max()
    )


@pytest.mark.parametrize("workload", [Prefix(24), Ranges(17), Ranges(20, longest=3)], ids=repr)
def test_optimality_conditions(workload: Workload) -> None:
    # Q G^-1 Q = D^-1 ... : at the optimum Q^-1 G Q^-1 is diagonal, and where it is positive the
    # diagonal of Q is 1. Both follow from the strategy alone.
    best = optimal_strategy(workload, neighbouring="add-remove")
    measured = oracle.dense_strategy(best.strategy)
    square = measured.T @ measured
    np.testing.assert_allclose(np.diagonal(square), 1.0, atol=1e-12)
    multipliers = np.linalg.inv(square) @ workload.gram() @ np.linalg.inv(square)
    weights = np.diagonal(multipliers)
    assert np.all(weights > 0)
    np.testing.assert_allclose(multipliers, np.diag(weights), atol=1e-3 * weights.max())
    # And the multipliers are a dual point whose value closes the gap, in ball arithmetic.
    bound = oracle.dual_value(workload.gram(), weights)
    assert bool(bound > best.certificate.value * (1 - 1e-6))
    # A strategy that is not optimal fails both.
    wrong = np.linalg.inv(np.eye(len(square))) @ workload.gram()
    assert np.abs(wrong - np.diag(np.diagonal(wrong))).max() > 0.5


@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_proven(seed: int) -> None:
    # At any dual point the certified bound is below the value in ball arithmetic, and close to it.
    rng = np.random.default_rng(seed)
    matrix = rng.integers(-3, 4, (9, 7)).astype(float)
    gram = matrix.T @ matrix
    point = dual_point(Problem.of(gram), rng.uniform(0.1, 2.0, 7))
    truth = oracle.dual_value(gram, np.sqrt(point.weights) ** 2)
    bound = certified_bound(gram, 0.0, point)
    assert bool(truth > bound)
    assert bool(truth * (1 - 1e-6) < bound)
    # Were the eigenvalues a little too large, the residual would show it.
    wrong = point._replace(roots=point.roots * (1 + 1e-3))
    assert bool(truth > certified_bound(gram, 0.0, wrong))


@pytest.mark.parametrize(
    "factors",
    [[Prefix(6), Ranges(5)], [Total(4), Prefix(7)], [Dense([[1, 2, 0], [0, 1, 1]]), Prefix(4)]],
    ids=repr,
)
def test_products_equal_dense(factors: list[Prefix]) -> None:
    structured = optimal_strategy(Product(factors), neighbouring="add-remove")
    flat = optimal_strategy(Dense(oracle.dense(Product(factors))), neighbouring="add-remove")
    assert structured.certificate.value == pytest.approx(flat.certificate.value, rel=1e-6)
    assert structured.certificate.gap < 1e-6
    assert svd_bound(Product(factors)) == pytest.approx(
        svd_bound(Dense(oracle.dense(Product(factors)))), rel=1e-9
    )


@pytest.mark.parametrize(
    "kept", [[(0,), (1,), (2,)], [(0, 1), (1, 2)], [()], [(0, 1, 2), (), (2,)], [(0,), (0,)]]
)
def test_marginals_equal_dense(kept: list[tuple[int, ...]]) -> None:
    workload = marginals([2, 3, 4], kept)
    closed = optimal_strategy(workload, neighbouring="add-remove")
    flat = optimal_strategy(Dense(oracle.dense(workload)), neighbouring="add-remove")
    assert closed.certificate.value == pytest.approx(flat.certificate.value, rel=1e-6)
    assert closed.certificate.gap < 1e-12
    measured = oracle.dense_strategy(closed.strategy)
    expected = oracle.total_error(oracle.dense(workload), measured, oracle.column_norm(measured))
    assert closed.certificate.value == pytest.approx(expected, rel=1e-9)


def test_marginals_of_a_million_cells() -> None:
    workload = marginals([10] * 6, combinations(range(6), 2))
    best = optimal_strategy(workload, neighbouring="add-remove")
    assert best.certificate.gap < 1e-9


def test_large_unions_report_their_gap_as_it_is() -> None:
    union = Union([Product([Prefix(50), Total(60)]), Product([Total(50), Ranges(60)])])
    best = optimal_strategy(union, neighbouring="add-remove")
    errors = compared_errors(union, "add-remove")
    assert best.rmse < min(errors["identity"], errors["direct"])
    assert best.strategy.dimensions == (50, 60)
    parts = sum(
        optimal_strategy(part, neighbouring="add-remove").certificate.lower_bound
        for part in union.parts
    )
    assert parts < best.certificate.lower_bound < best.certificate.value
    assert best.certificate.gap < 0.1
    small = Union([Product([Prefix(5), Total(6)]), Product([Total(5), Ranges(6)])])
    whole = optimal_strategy(small, neighbouring="add-remove")
    assert whole.certificate.gap < 1e-6


@pytest.mark.parametrize("size", [2, 9, 40])
def test_replacement_improves_on_the_other_relation(size: int) -> None:
    workload = Prefix(size)
    other = optimal_strategy(workload, neighbouring="add-remove")
    best = optimal_strategy(workload, neighbouring="replace")
    distance = other.strategy.sensitivity("replace")
    alone = distance * other.rmse / other.strategy.sensitivity("add-remove")
    assert best.rmse < alone
    assert best.certificate.gap < 5e-3


def test_replacement_beyond_pairs_is_bounded_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    # Small enough to know the optimum, and solved as if it were too large for a weight per pair.
    workload = Product([Prefix(18), Prefix(10)])
    truth = optimal_strategy(workload, neighbouring="replace").certificate
    monkeypatch.setattr(optimal, "MOST_CELLS_SEARCHED", 100)
    found = optimal_strategy(workload, neighbouring="replace").certificate
    assert found.lower_bound <= truth.value < found.value * (1 - 1e-3)
    assert 0.1 < found.gap < 1.0
    values = np.linalg.svd(oracle.dense(workload), compute_uv=False)
    expected = 2 * (values.sum() - values[0]) ** 2 / (workload.cells - 1)
    assert found.lower_bound == pytest.approx(expected, rel=1e-6)


@pytest.mark.thorough
def test_replacement_of_more_cells_than_pairs_are_weighted_for() -> None:
    best = optimal_strategy(Product([Prefix(90), Prefix(50)]), neighbouring="replace")
    assert 0.0 < best.certificate.gap < 1.0


@pytest.mark.parametrize("name", ["hierarchical", "wavelet"])
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("size", [2, 7, 16])
def test_compared_trees(name: str, relation: Neighbouring, size: int) -> None:
    matrix, gram = {
        "hierarchical": (oracle.hierarchy(size), hierarchy_gram(size)),
        "wavelet": (oracle.haar_wavelet(size), haar_gram(size)),
    }[name]
    assert np.linalg.matrix_rank(matrix) == size
    np.testing.assert_array_equal(gram, matrix.T @ matrix)
    sensitivity = (oracle.column_norm if relation == "add-remove" else oracle.diameter)(matrix)
    expected = math.sqrt(oracle.total_error(oracle.dense(Prefix(size)), matrix, sensitivity) / size)
    assert compared_errors(Prefix(size), relation)[name] == pytest.approx(expected, rel=1e-9)


def test_progress_is_reported_after_every_step() -> None:
    reported: list[tuple[int, float]] = []
    optimal_strategy(
        Prefix(30), neighbouring="add-remove", progress=lambda *step: reported.append(step)
    )
    assert [step for step, _ in reported] == list(range(len(reported)))
    assert reported[-1][1] < 1e-9 < reported[0][1]


@pytest.mark.parametrize("difference", [3e-8, 1e-12, 2.0**-52])
def test_nearly_dependent_queries_are_answered(difference: float) -> None:
    rows = np.array([[1.0, 1.0, 0.0], [1.0, 1.0 + difference, 0.0], [0.0, 0.0, 1.0]])
    best = optimal_strategy(Dense(rows), neighbouring="add-remove")
    assert best.certificate.gap < 1e-6
    measured = oracle.dense_strategy(best.strategy)
    np.testing.assert_allclose(rows @ np.linalg.pinv(measured) @ measured, rows, atol=1e-9)


def test_unsuitable_workloads_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="Dense"):
        optimal_strategy(np.eye(3), neighbouring="add-remove")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="neighbouring='swap'"):
        optimal_strategy(Prefix(3), neighbouring="swap")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="keep fewer attributes"):
        optimal_strategy(marginals([8192, 8192, 2], [(0, 1, 2), (1,)]), neighbouring="add-remove")
    with pytest.raises(InvalidParameterError, match="subtract"):
        optimal_strategy(Total(5), neighbouring="replace")


def test_the_solver_starts_from_the_svd_bound_and_raises_it() -> None:
    problem = Problem.of(Prefix(64).gram())
    assert maximise_dual(problem).dual.bound > dual_point(problem, np.ones(64)).bound


def test_a_certificate_without_a_bound_says_so() -> None:
    assert Certificate(1.0, 0.0).gap == math.inf


@pytest.mark.parametrize(
    ("value", "bound"), [(1.0, 1.0 + 1e-8), (math.nan, 1.0), (1.0, math.nan), (math.inf, 1.0)]
)
def test_no_error_is_below_its_bound(value: float, bound: float) -> None:
    with pytest.raises(CalibrationError, match="below"):
        Certificate(value, bound)


def test_nothing_is_advised_to_be_published() -> None:
    for rows in ([[1.7e9, 1.7e9 + 60, 1.7e9 + 120]], [[1, 1.0000005]], [[1.0, 1.0]]):
        with pytest.raises(InvalidParameterError, match="subtract") as refusal:
            optimal_strategy(Dense(rows), neighbouring="replace")
        assert "publish" not in str(refusal.value)


FEW_QUERIES = [
    [[0, 0, 0.2, 0, -0.2, 0.1, 0.4, 0.3, -0.2, -0.4, -0.2],
     [0.1, -7, -0.7, -3.7, -2.2, -1.6, -0.9, 1.2, 3.1, -0.4, 4.1]],
    [[1.0, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1.000001]],
]  # fmt: skip


@pytest.mark.parametrize("queries", FEW_QUERIES)
def test_fewer_queries_than_cells_are_solved_where_newton_gets_stuck(
    queries: list[list[float]],
) -> None:
    best = optimal_strategy(Dense(queries), neighbouring="add-remove")
    assert best.certificate.gap < 1e-6


@pytest.mark.parametrize("spread", [0.0, 1.0, 3.0])
def test_the_gap_closes_on_random_queries_of_any_rank(spread: float) -> None:
    rng = np.random.default_rng(int(spread))
    for _ in range(60):
        shape = (int(rng.integers(1, 8)), int(rng.integers(2, 20)))
        queries = rng.standard_normal(shape) * 10.0 ** rng.uniform(-spread, spread, (shape[0], 1))
        best = optimal_strategy(Dense(queries), neighbouring="add-remove")
        assert best.certificate.gap < 1e-6
