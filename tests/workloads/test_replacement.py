"""Strategies for replacing a record: optimality checked with everything written out."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrixdp import Budget, MatrixMechanism, privacy_mu
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    Total,
    Union,
    Workload,
    marginals,
    optimal,
    optimal_strategy,
)
from matrixdp.workloads.solve.explicit import _contrasts_of_queries
from matrixdp.workloads.solve.pairs import search_pairs
from matrixdp.workloads.solve.searches import ExplicitQueries
from reference import workloads as oracle

RNG = np.random.default_rng(5)
WORKLOADS: list[Workload] = [
    Prefix(2),
    Prefix(33),
    Ranges(20),
    Ranges(40, 5),
    Identity(12),
    Dense(RNG.standard_normal((6, 30))),
    Dense(RNG.standard_normal((1, 30))),
    Dense(RNG.standard_normal((40, 20)) * 10.0 ** RNG.uniform(-2, 2, (40, 1))),
    Union([Prefix(15), Identity(15)]),
    Product([Prefix(5), Ranges(6)]),
]


def dual_value(queries: np.ndarray, pairs: np.ndarray) -> float:
    """Return ``||W B diag(y)^(1/2)||_*^2 / sum(y)``, with a column of B for each pair of cells."""
    rows, columns = np.triu_indices(len(pairs), 1)
    weights = pairs[rows, columns]
    differences = (queries[:, rows] - queries[:, columns]) * np.sqrt(weights)
    singular = np.linalg.svd(differences, compute_uv=False)
    return float(singular.sum() ** 2 / weights.sum())


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_optimality_conditions(workload: Workload) -> None:
    """No weight on a pair is negative, and only pairs of largest distance have weight."""
    queries = oracle.dense(workload)
    found = search_pairs(_contrasts_of_queries(ExplicitQueries.of(workload)))
    pairs = found.dual.weights
    assert pairs.min() >= 0.0
    np.testing.assert_array_equal(pairs, pairs.T)
    best = optimal_strategy(workload, neighbouring="replace")
    bound = dual_value(queries, pairs)
    assert best.certificate.lower_bound <= bound * (1 + 1e-9)
    assert best.certificate.value <= bound * (1 + 1e-6)
    assert best.certificate.gap <= 1e-6
    measured = oracle.dense_strategy(best.strategy)
    gram = measured.T @ measured
    distances = np.diagonal(gram)[:, None] + np.diagonal(gram) - 2.0 * gram
    slack = 1.0 - distances / distances.max()
    assert float(np.sum(pairs * slack)) <= 3e-6 * float(np.sum(pairs))


@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 7), st.integers(2, 7)),
        elements=st.integers(-3, 3).map(float),
    ).filter(lambda matrix: bool(np.any(matrix, axis=1).all() and np.ptp(matrix, axis=1).any()))
)
@settings(max_examples=100)
def test_gaps_are_closed(matrix: np.ndarray) -> None:
    best = optimal_strategy(Dense(matrix), neighbouring="replace")
    assert best.certificate.gap <= 1e-6
    measured = oracle.dense_strategy(best.strategy)
    inverse = np.linalg.pinv(measured, rcond=1e-14)
    error = oracle.diameter(measured) ** 2 * np.linalg.norm(matrix @ inverse) ** 2
    assert best.certificate.value == pytest.approx(error, rel=1e-6)


def test_every_cell_has_a_closed_form() -> None:
    for size in (2, 5, 40):
        found = search_pairs(_contrasts_of_queries(ExplicitQueries.of(Identity(size))))
        assert found.dual.bound == pytest.approx(2.0 * size - 2.0, rel=1e-9)


def test_what_all_cells_share_costs_nothing() -> None:
    few = optimal_strategy(Dense([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]), neighbouring="replace")
    more = optimal_strategy(Dense([[4.0, 3.0, 5.0], [9.0, 10.0, 10.0]]), neighbouring="replace")
    assert more.certificate.value == pytest.approx(few.certificate.value, rel=1e-6)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize("attribute", [0, 1, 2])
def test_queries_on_one_attribute_are_solved_there(relation: str, attribute: int) -> None:
    totals = [Total(30), Total(40), Total(50)]
    parts = [Prefix(totals[attribute].size), Ranges(totals[attribute].size, 3)]
    workload = Union(
        [Product([*totals[:attribute], part, *totals[attribute + 1 :]]) for part in parts]
    )
    best = optimal_strategy(workload, neighbouring=relation)  # type: ignore[arg-type]
    alone = optimal_strategy(Union(parts), neighbouring=relation)  # type: ignore[arg-type]
    assert isinstance(best.strategy, ProductStrategy)
    assert best.strategy.dimensions == (30, 40, 50)
    assert best.certificate.value == pytest.approx(alone.certificate.value, rel=1e-7)
    assert best.certificate.lower_bound == pytest.approx(alone.certificate.lower_bound, rel=1e-12)
    assert best.certificate.gap <= 1e-6


def test_a_product_that_is_not_about_one_attribute_is_not_taken_for_one() -> None:
    small = Product([Prefix(4), Total(3), Prefix(2)])
    best = optimal_strategy(small, neighbouring="replace")
    dense = optimal_strategy(Dense(oracle.dense(small)), neighbouring="replace")
    assert best.certificate.value == pytest.approx(dense.certificate.value, rel=2e-6)


STRUCTURES: list[Workload] = [
    Dense(RNG.random((5, 8)) + 1e5),
    Product([Dense(RNG.random((5, 8)) + 1e5), Total(2)]),
    Product([Prefix(6), Ranges(5)]),
    marginals([2] * 8, [(0,), (3, 4)]),
    Union([marginals([2] * 6, [(0, 1)]), *[Product([Total(2)] * 6)] * 300]),
    Union([Product([Prefix(12), Total(10)]), Product([Total(12), Prefix(10)])]),
    Product([Identity(9), Identity(10)]),
]


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(
    ("workload", "limit"),
    # Without a weight for each pair, queries with a large offset need a large allowance.
    [(workload, 4096) for workload in STRUCTURES] + [(workload, 0) for workload in STRUCTURES[2:]],
    ids=lambda value: repr(value)[:40],
)
def test_what_is_promised_is_what_a_release_has(
    workload: Workload, relation: str, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(optimal, "_MOST_CELLS_OF_A_UNION", limit)
    monkeypatch.setattr(optimal, "MOST_CELLS_SEARCHED", limit)
    assert_promise_is_kept(workload, relation)


@pytest.mark.thorough
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
@pytest.mark.parametrize(
    "workload",
    [
        Union([Product([Prefix(60), Total(50)]), Product([Total(60), Prefix(50)])]),
        Product([Identity(90), Identity(100)]),
    ],
    ids=repr,
)
def test_what_is_promised_of_many_cells(workload: Workload, relation: str) -> None:
    assert_promise_is_kept(workload, relation)


def assert_promise_is_kept(workload: Workload, relation: str) -> None:
    """Rounding enlarges the noise by millionths only: a heavy total is measured exactly."""
    budget = Budget(1.0, 1e-5)
    best = optimal_strategy(workload, neighbouring=relation)  # type: ignore[arg-type]
    mechanism = MatrixMechanism(
        workload,
        budget,
        neighbouring=relation,  # type: ignore[arg-type]
        strategy=best.strategy,
    )
    promised = best.rmse / privacy_mu(budget.epsilon, budget.delta)
    assert promised <= mechanism.expected_error * (1 + 1e-9)
    assert mechanism.expected_error <= promised * (1 + 1e-5)


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_one_attribute_of_many_is_solved_with_its_weights(relation: str) -> None:
    many = Union([Product([Identity(4), *[Total(2)] * 7]), Product([Total(4), *[Total(2)] * 7])])
    best = optimal_strategy(many, neighbouring=relation)  # type: ignore[arg-type]
    assert best.certificate.gap <= 1e-6
    assert best.strategy.shape[0] <= 5


def test_bounds_allow_for_entries_that_were_rounded_before_they_cancel() -> None:
    row, scale = [1.0, 1.000002136819271], 1.0799425056081189
    best = optimal_strategy(Product([Dense([row]), Dense([[scale]])]), neighbouring="replace")
    exact = ((Fraction(row[1]) - Fraction(row[0])) * Fraction(scale)) ** 2
    assert Fraction(best.certificate.lower_bound) <= exact
    several = Product([Dense([row]), *[Dense([[scale]])] * 6])
    best = optimal_strategy(several, neighbouring="replace")
    exact = ((Fraction(row[1]) - Fraction(row[0])) * Fraction(scale) ** 6) ** 2
    assert exact * (1 - Fraction(1, 10**6)) <= Fraction(best.certificate.lower_bound) <= exact
