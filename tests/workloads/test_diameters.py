"""Distances of the columns of products, against every pair written out in exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Strategy,
    Total,
    marginals,
    optimal_strategy,
)
from matrixdp.workloads.comparison import compared_errors
from matrixdp.workloads.strategies import product as strategy_module
from matrixdp.workloads.strategies.diameters import product_diameter_squared, smallest_inner_product


def factors(most: int = 3) -> st.SearchStrategy[list[np.ndarray]]:
    matrix = hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(1, 5)),
        elements=st.integers(-3, 3).map(float),
    ).filter(lambda array: bool(array.any()))
    return st.lists(matrix, min_size=1, max_size=most)


def written_out(parts: list[np.ndarray]) -> np.ndarray:
    matrix: np.ndarray = np.ones((1, 1))
    for part in parts:
        matrix = np.kron(matrix, part)
    return matrix


def largest_squared_distance(matrix: np.ndarray) -> float:
    """Return it exactly: the entries are small integers."""
    gram = matrix.T @ matrix
    norms = np.diagonal(gram)
    return float(np.max(norms[:, None] + norms - 2 * gram))


@given(factors())
def test_products_of_integers_are_exact(parts: list[np.ndarray]) -> None:
    found = product_diameter_squared([part.T @ part for part in parts])
    assert found == largest_squared_distance(written_out(parts))


@given(factors(), st.data())
def test_inner_products_are_bounded_from_below(
    parts: list[np.ndarray], data: st.DataObject
) -> None:
    layout = tuple(len(part) for part in parts)
    weights = data.draw(hnp.arrays(np.float64, layout, elements=st.integers(0, 2).map(float)))
    matrix = weights.reshape(-1, 1) * written_out(parts)
    least = float(np.min(matrix.T @ matrix))
    assert smallest_inner_product(parts, weights) <= least


def test_more_norms_than_levels_are_rounded_up() -> None:
    queries = np.diag(np.sqrt(np.arange(1.0, 701.0)))
    exact = 700.0 * 700.0 + 700.0 * 699.0
    found = product_diameter_squared([queries.T @ queries] * 2)
    assert exact <= found * (1 + 1e-12)
    assert found <= exact * 1.01


def test_one_query_on_ten_thousand_cells_is_answered_as_well_as_directly() -> None:
    query = Dense(np.ones((1, 100)) + 0.01 * np.eye(1, 100))
    best = optimal_strategy(Product([query, query]), neighbouring="replace")
    exact = float(Fraction(1.01) ** 2 - 1)
    assert best.rmse == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    ("workload", "distance"),
    [
        (Product([Prefix(110), Total(80)]), 109.0),
        (Product([Identity(110), Total(80)]), 2.0),
        (Product([Prefix(100), Prefix(90)]), 8999.0),
    ],
)
def test_direct_answering_of_products(workload: Product, distance: float) -> None:
    found = compared_errors(workload, "replace")["direct"] ** 2
    assert distance * (1 - 1e-12) <= found <= distance * 1.001


def diameter_from_factors(strategy: Strategy) -> float:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy_module, "MOST_PAIRS", 0)
        return strategy.sensitivity("replace")


@pytest.mark.parametrize("kept", [[(0,), (1,)], [(0, 1)], [(0, 2), (1,)], [(0, 1), (1, 2)]])
def test_marginals_cost_from_the_factors_what_their_pairs_cost(kept: list[tuple[int]]) -> None:
    workload = marginals([5, 6, 7], kept)
    found = [optimal_strategy(workload, neighbouring="add-remove").strategy for _ in range(2)]
    pairs = found[0].sensitivity("replace")
    assert diameter_from_factors(found[1]) == pytest.approx(pairs, rel=1e-9)


@given(factors(2))
def test_strategies_know_their_diameter_from_the_factors(parts: list[np.ndarray]) -> None:
    exact = largest_squared_distance(written_out(parts))
    if exact == 0.0:
        return
    found = diameter_from_factors(ProductStrategy(parts))
    assert Fraction(found) ** 2 >= Fraction(exact)
    assert found**2 <= exact * (1 + 1e-10)


@given(factors(2), st.integers(1, 3))
def test_weighted_strategies_bound_their_diameter(parts: list[np.ndarray], weight: int) -> None:
    square = [part.T @ part + 100.0 * np.eye(part.shape[1]) for part in parts]
    weights = np.full([len(part) for part in square], float(weight))
    weights.flat[0] = 1.0
    matrix = weights.reshape(-1, 1) * written_out(square)
    exact = largest_squared_distance(matrix)
    if exact > 0.0:
        assert Fraction(diameter_from_factors(ProductStrategy(square, weights))) ** 2 >= Fraction(
            exact
        )


@pytest.mark.parametrize("seed", range(4))
def test_joint_norms_beyond_all_levels_are_rounded_up(seed: int) -> None:
    """Two factors of thirty columns have more norms together than are distinguished."""
    rng = np.random.default_rng(seed)
    parts = [rng.uniform(0.5, 2.0, (2, 30)) for _ in range(2)]
    exact = largest_squared_distance(written_out(parts))
    found = product_diameter_squared([part.T @ part for part in parts])
    assert exact * (1 - 1e-12) <= found <= exact * 1.1


def test_norms_that_differ_by_little_are_distinguished() -> None:
    """One factor's norms differ in the eleventh digit, and the other's columns are opposite."""
    factors = [np.diag([1.0, 1.0 + 1e-11]), np.array([[1.0, -1.0], [1e-3, 1e-3]])]
    found = diameter_from_factors(ProductStrategy(factors, np.array([[1.0, 0.0], [1.0, 0.0]])))
    assert Fraction(found) ** 2 >= (2 * Fraction(1.0 + 1e-11)) ** 2
