"""Contingency tables: closed forms against the general problem, and against dense arithmetic."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import OptimalStrategy, marginals, optimal_strategy
from matrixdp.workloads.solve.addition import optimal_factor
from matrixdp.workloads.solve.explicit import ExplicitQueries
from matrixdp.workloads.solve.replacement import replacement_factor
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
    [([200, 150], [(0,), (1,)]), ([20] * 4, [(0, 1), (2,), (1, 3)]), ([3] * 10, [(0, 9), (4, 5)])],
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
