"""Contingency tables: closed forms against the general problem, and against dense arithmetic."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    OptimalStrategy,
    ProductStrategy,
    ResidualStrategy,
    marginals,
    optimal_strategy,
    svd_bound,
)
from matrixdp.workloads.solve.explicit import optimal_factor, replacement_factor
from matrixdp.workloads.solve.searches import ExplicitQueries
from matrixdp.workloads.solve.tables import _in_the_worst_case
from matrixdp.workloads.strategies.attribute_sets import covering_sets, members, set_costs
from matrixdp.workloads.strategies.plain import direct_sensitivity_squared
from matrixdp.workloads.strategies.set_distances import shares
from reference import workloads as oracle

RELATIONS: list[Neighbouring] = ["add-remove", "replace"]


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, ...]]]:
    sizes = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    subsets = [
        group for many in range(len(sizes) + 1) for group in combinations(range(len(sizes)), many)
    ]
    return sizes, draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=4, unique=True))


def dense_error(found: OptimalStrategy) -> float:
    """Return ``s^2 ||W A^+||^2`` with everything written out."""
    measured = oracle.dense_strategy(found.strategy)
    inverse = np.linalg.pinv(measured, rcond=1e-12)
    queries = found.workload.written_out()
    np.testing.assert_allclose(queries @ inverse @ measured, queries, atol=1e-9)
    sensitivity = oracle.column_norm if found.neighbouring == "add-remove" else oracle.diameter
    return float(sensitivity(measured) ** 2 * np.linalg.norm(queries @ inverse) ** 2)


@pytest.mark.parametrize("relation", RELATIONS)
@given(tables())
@settings(max_examples=40)
def test_the_optimum_is_that_of_the_general_problem(
    relation: Neighbouring, asked: tuple[list[int], list[tuple[int, ...]]]
) -> None:
    workload = marginals(*asked)
    try:
        found = optimal_strategy(workload, neighbouring=relation)
    except InvalidParameterError as refusal:
        assert relation == "replace"
        assert "subtract" in str(refusal)  # noqa: PT017 (only totals are refused)
        assert max(factor.rows for term in workload.terms() for factor in term) == 1
        return
    solve = optimal_factor if relation == "add-remove" else replacement_factor
    general = solve(ExplicitQueries.of(workload))
    assert found.certificate.gap < 5e-7
    assert found.certificate.lower_bound == pytest.approx(general.lower_bound, rel=1e-6)
    assert found.certificate.value == pytest.approx(dense_error(found), rel=1e-8)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    ("sizes", "kept"),
    [
        ([200, 150], [(0,), (1,)]),
        ([20] * 4, [(0, 1), (2,), (1, 3)]),
        ([3] * 10, [(0, 9), (4, 5)]),
        ([2, 3, 5, 7] * 3, list(combinations(range(12), 2))),
        ([8192] * 18, [(0, 17), (4, 5)]),
    ],
)
def test_tables_of_many_cells_are_certified(
    relation: Neighbouring, sizes: list[int], kept: list[tuple[int, ...]]
) -> None:
    found = optimal_strategy(marginals(sizes, kept), neighbouring=relation)
    assert found.certificate.gap < 5e-7


def test_a_single_table_of_all_cells_is_measured_cell_by_cell() -> None:
    found = optimal_strategy(marginals([4, 5], [(0, 1)]), neighbouring="replace")
    # Distances of 1 in 19 contrasts: 2 - 2/20 each, since the number of records is public.
    assert found.certificate.lower_bound == pytest.approx(20 * (2 - 2 / 20), rel=1e-9)


def test_many_sets_are_measured_as_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = marginals([3, 1, 4, 2], [(0, 1), (2, 3), ()])
    for relation in RELATIONS:
        by_sets = optimal_strategy(workload, neighbouring=relation)
        assert isinstance(by_sets.strategy, ResidualStrategy)
        with monkeypatch.context() as patch:
            patch.setattr("matrixdp.workloads.solve.tables._MANY_SETS", 0)
            product = optimal_strategy(workload, neighbouring=relation)
        assert isinstance(product.strategy, ProductStrategy)
        assert product.certificate.value == pytest.approx(by_sets.certificate.value, rel=1e-9)
        one, other = (oracle.dense_strategy(found.strategy) for found in (by_sets, product))
        np.testing.assert_allclose(one.T @ one, other.T @ other, atol=1e-9 * np.max(one.T @ one))


# Attributes of the Adult data set, as Xiao et al. count their cells.
ADULT = (100, 100, 100, 99, 85, 42, 16, 15, 9, 7, 6, 5, 2, 2)


def test_the_error_is_the_square_root_rule() -> None:
    # Xiao et al. (2023): with p_S = prod (n_i - 1) / n_i and v_S the coefficient of the noise of S
    # in the sum of all variances, the least sum is (sum of (p_S v_S)^(1/2))^2, in rationals here.
    kept = [group for many in range(4) for group in combinations(range(14), many)]
    workload = marginals(ADULT, kept)
    rank = {group: Fraction(1) for group in kept}
    needs = {group: Fraction(0) for group in kept}
    for group in kept:
        for index in group:
            rank[group] *= Fraction(ADULT[index] - 1, ADULT[index])
        for many in range(len(group) + 1):
            for inner in combinations(group, many):
                others = [ADULT[index] for index in group if index not in inner]
                cells = math.prod(ADULT[index] for index in inner)
                needs[inner] += rank[inner] * cells / math.prod(others)
    total = sum(math.sqrt(rank[group] * needs[group]) for group in kept) ** 2
    found = optimal_strategy(workload, neighbouring="add-remove")
    assert found.certificate.value == pytest.approx(total, rel=1e-12)
    assert found.certificate.gap < 1e-11
    assert svd_bound(workload) == pytest.approx(total, rel=1e-12)


def test_beyond_sixteen_attributes_the_gap_is_bounded() -> None:
    for size, count in ((2, 17), (5, 24)):
        workload = marginals([size] * count, combinations(range(count), 2))
        found = optimal_strategy(workload, neighbouring="replace")
        assert 1e-6 < found.certificate.gap <= 1.0 / (size - 1) + 1e-6
    # With as few attributes as can be solved, the bound is below the optimum, and the error above.
    few = marginals([3] * 4, combinations(range(4), 2))
    best = optimal_strategy(few, neighbouring="replace").certificate
    asked = set_costs(few)
    norms = shares(asked.sets, few.dimensions)
    precisions, bound = _in_the_worst_case(few.dimensions, asked, norms)
    strategy = ResidualStrategy(
        few.dimensions, [members(s) for s in asked.sets.tolist()], np.sqrt(precisions)
    )
    value = strategy.diameter**2 * strategy.squared_error(few)
    assert bound <= best.lower_bound * (1 + 1e-6)
    assert best.value * (1 - 1e-6) <= value <= bound * 1.5


def test_errors_of_measuring_queries_are_those_of_dense_matrices() -> None:
    workload = marginals([2, 3, 1], [(0, 1), (2,), ()])
    dense = oracle.dense(workload)
    direct = direct_sensitivity_squared(workload, "add-remove")
    assert direct == pytest.approx(oracle.column_norm(dense) ** 2, rel=1e-12)
    direct = direct_sensitivity_squared(workload, "replace")
    assert direct == pytest.approx(oracle.diameter(dense) ** 2, rel=1e-12)


def test_sets_are_covered_by_sets_that_no_other_contains() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        sets = set(rng.integers(0, 64, rng.integers(1, 30)).tolist())
        largest = {s for s in sets if not any(s != t and s & t == s for t in sets)}
        found = covering_sets(sets)
        assert set(found) == sets
        assert set(found.values()) == largest
        assert all(s & t == s for s, t in found.items())


def test_more_sets_than_can_be_listed_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="keep fewer attributes"):
        set_costs(marginals([2] * 23, [range(23)]))
    with pytest.raises(InvalidParameterError, match="63 attributes"):
        set_costs(marginals([2] * 63, [(0,)]))
