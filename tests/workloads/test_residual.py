"""Unions of products: weights on the totals and the rest of each attribute, and a bound of them."""

import math
from itertools import combinations
from itertools import product as cartesian_product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError
from matrixdp.spectra import semidefinite_root
from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    Strategy,
    Total,
    Union,
    Workload,
    marginals,
    optimal_strategy,
)
from matrixdp.workloads import optimal as searched
from matrixdp.workloads.solve.bases import differing_directions
from matrixdp.workloads.solve.searches import Found
from matrixdp.workloads.unions import search as unions
from matrixdp.workloads.unions.bound import cell_weights, union_bound
from matrixdp.workloads.unions.residual import _error, _needs, _split, residual_strategy
from matrixdp.workloads.unions.search import row_weighted_strategy, strategies_for_union
from reference import workloads as oracle

SMALL: list[Workload] = [
    Union([Product([Prefix(9), Total(7)]), Product([Total(9), Prefix(7)])]),
    Union([Product([Prefix(8), Identity(6)]), Product([Identity(8), Ranges(6)])]),
    Union([Product([Prefix(8), Prefix(8)]), Product([Identity(8), Identity(8)])]),
    Union([Product([Ranges(5), Total(4), Identity(3)]), Product([Total(5), Prefix(4), Total(3)])]),
    Union([Product([Dense([[1, 0, 2, 0]]), Total(5)]), Product([Total(4), Prefix(5)])]),
    Union([Product([Dense([[1, -1, 0]]), Prefix(4)]), Product([Dense([[0, 1, -1]]), Total(4)])]),
    Union([Product([Identity(1), Prefix(6)]), Product([Total(1), Total(6)])]),
]


def product_of(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> ProductStrategy:
    """Return what the search for a single product ends with."""
    with monkeypatch.context() as patch:
        patch.setattr(unions, "weighted_strategies", lambda *_: Found((), 0.0))
        single = strategies_for_union(workload, "add-remove").best[0]
    assert isinstance(single, ProductStrategy)
    return single


def best_for_union(workload: Workload) -> tuple[ProductStrategy, float]:
    """Return the best that is made of a single product of a union, and the bound."""
    found = strategies_for_union(workload, "add-remove")
    products = [strategy for strategy in found.best if isinstance(strategy, ProductStrategy)]
    errors = [searched._error(workload, strategy, "add-remove") for strategy in products]
    return products[errors.index(min(errors))], found.lower_bound


def value(workload: Workload, strategy: Strategy) -> float:
    return strategy.sensitivity("add-remove") ** 2 * strategy.squared_error(workload)


def dense_value(workload: Workload, strategy: Strategy) -> float:
    measured = oracle.dense_strategy(strategy)
    return oracle.total_error(oracle.dense(workload), measured, oracle.column_norm(measured))


@pytest.mark.parametrize("workload", SMALL, ids=repr)
def test_residual_strategies_are_what_dense_arithmetic_says(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = product_of(workload, monkeypatch)
    strategy = residual_strategy(workload, product, None)[0]
    strategy.check_supports(workload)
    matrix, measured = oracle.dense(workload), oracle.dense_strategy(strategy)
    np.testing.assert_allclose(
        matrix @ np.linalg.pinv(measured) @ measured, matrix, atol=1e-9 * np.abs(matrix).max()
    )
    assert value(workload, strategy) == pytest.approx(dense_value(workload, strategy), rel=1e-9)
    assert value(workload, strategy) <= value(workload, product) * (1 + 1e-9)
    exact = max(float(oracle.norm_squared(column)) for column in oracle.exact_columns(strategy))
    assert exact <= strategy.sensitivity("add-remove") ** 2 <= exact * (1 + 1e-12)


@pytest.mark.parametrize("workload", SMALL, ids=repr)
def test_the_closed_form_is_the_error(workload: Workload, monkeypatch: pytest.MonkeyPatch) -> None:
    product = product_of(workload, monkeypatch)
    columns = list(zip(*workload.terms(), strict=True))
    splits = [_split(*pair) for pair in zip(product.factors, columns, strict=True)]
    bases = [split.basis for split in splits]
    needs = _needs(splits)
    for power in (0.25, 0.1):  # the best weights, and others
        weights = np.where(needs > 0.0, np.maximum(needs, 1e-300) ** power, 0.0)
        scale = float(np.max(weights))
        # Columns of the parts have norms of at most 1, and at one cell all have it.
        expected = np.sum(weights**2) * np.sum(needs[weights > 0] / weights[weights > 0] ** 2)
        for axis, split in enumerate(splits):
            weights = np.repeat(weights, split.blocks, axis=axis)
        found = dense_value(workload, ProductStrategy(bases, weights / scale))
        assert found == pytest.approx(float(expected), rel=1e-9)
        if power == 0.25:
            assert found == pytest.approx(_error(splits), rel=1e-9)
        else:
            assert found > _error(splits) * (1 - 1e-12)


@pytest.mark.parametrize("kept", [[(0,), (1, 2)], [(0, 1), (1, 2), (0, 2)], [(), (2,)]])
def test_marginals_are_optimal_even_as_general_unions(kept: list[tuple[int, ...]]) -> None:
    workload = marginals([4, 5, 3], kept)
    best = optimal_strategy(workload, neighbouring="add-remove")
    strategy, bound = best_for_union(workload)
    assert value(workload, strategy) == pytest.approx(value(workload, best.strategy), rel=1e-9)
    assert bound == pytest.approx(best.certificate.lower_bound, rel=1e-9)
    assert bound <= value(workload, best.strategy)


def test_on_one_attribute_nothing_is_lost() -> None:
    # Contrasts alone would lose: the total of the best strategy for prefixes is correlated to them.
    best = optimal_strategy(Prefix(20), neighbouring="add-remove")
    assert isinstance(best.strategy, ProductStrategy)
    split = _split(best.strategy.factors[0], [Prefix(20)])
    assert _error([split]) == pytest.approx(best.certificate.value, rel=1e-9)
    assert np.abs(split.basis[1:].sum(axis=1)).max() > 0.1
    np.testing.assert_array_equal(split.basis[0], np.ones(20))


@pytest.mark.parametrize(
    ("workload", "above", "below"),
    [
        (Union([Product([Prefix(16), Total(16)]), Product([Total(16), Prefix(16)])]), 0.005, 0.08),
        (
            Union(
                [
                    Product([Ranges(6) if index in kept else Total(6) for index in range(3)])
                    for count in (1, 2)
                    for kept in combinations(range(3), count)
                ]
            ),
            0.002,
            0.05,
        ),
        (
            Union([Product([Prefix(12), Prefix(12)]), Product([Identity(12), Identity(12)])]),
            0.02,
            0.01,
        ),
        (
            Union([Product([Prefix(16), Identity(16)]), Product([Identity(16), Prefix(16)])]),
            0.03,
            0.01,
        ),
    ],
    ids=repr,
)
def test_how_far_from_the_optimum(workload: Workload, above: float, below: float) -> None:
    # Of workloads small enough to be solved as a whole; what the documentation says is from here.
    best = optimal_strategy(workload, neighbouring="add-remove").certificate
    strategy, bound = best_for_union(workload)
    assert best.lower_bound <= value(workload, strategy) <= best.value * (1 + above)
    assert best.value * (1 - below) <= bound <= best.value * (1 + 1e-9)
    parts = [
        optimal_strategy(Product(list(term)), neighbouring="add-remove").certificate.lower_bound
        for term in workload.terms()
    ]
    assert bound > sum(parts)


@pytest.mark.parametrize("workload", SMALL, ids=repr)
def test_row_weights_are_what_dense_arithmetic_says(
    workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = product_of(workload, monkeypatch)
    residual = residual_strategy(workload, product, None)[0]
    cells = cell_weights(workload, product)
    rows = row_weighted_strategy(workload, residual, cells)
    columns = zip(*workload.terms(), strict=True)
    several = [{f for f in column if not isinstance(f, Total)} for column in columns]
    assert (rows is not None) == any(len(kinds) > 1 for kinds in several)
    if rows is None:
        return
    matrix, measured = oracle.dense(workload), oracle.dense_strategy(rows)
    np.testing.assert_allclose(
        matrix @ np.linalg.pinv(measured) @ measured, matrix, atol=1e-9 * np.abs(matrix).max()
    )
    assert value(workload, rows) == pytest.approx(dense_value(workload, rows), rel=1e-9)
    assert value(workload, rows) < value(workload, residual) * (1 + 1e-3)
    # No other weights in these bases are better by more than the gap that is left.
    rng = np.random.default_rng(0)
    assert rows.weights is not None
    for _ in range(20):
        moved = rows.weights * np.exp(rng.normal(0.0, 0.1, rows.weights.shape))
        other = ProductStrategy(rows.factors, moved)
        assert value(workload, other) > value(workload, rows) * (1 - 2e-3)


def test_row_weights_gain_what_blocks_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Union([Product([Prefix(16), Identity(16)]), Product([Identity(16), Prefix(16)])])
    product = product_of(workload, monkeypatch)
    residual = residual_strategy(workload, product, None)[0]
    rows = row_weighted_strategy(workload, residual, cell_weights(workload, product))
    assert rows is not None
    assert (
        value(workload, rows) < 0.96 * value(workload, residual) < 0.96 * value(workload, product)
    )


def ranges_or_cells(size: int, attributes: int) -> Union:
    """Return all tables of one or two attributes, each of which may be taken by ranges."""
    parts = []
    for count in (1, 2):
        for kept in combinations(range(attributes), count):
            for chosen in cartesian_product((Ranges(size), Identity(size)), repeat=count):
                factors: list[Factor] = [Total(size)] * attributes
                for index, factor in zip(kept, chosen, strict=True):
                    factors[index] = factor
                parts.append(Product(factors))
    return Union(parts)


def both(one: Factor, other: Factor) -> Union:
    """Return the two products of two factors."""
    return Union([Product([one, other]), Product([other, one])])


@pytest.mark.parametrize(
    ("workload", "of_product", "gap", "words"),
    [
        (both(Prefix(200), Total(200)), 81, 6.3, "6.3 % for prefixes on either"),
        (ranges_or_cells(32, 4), 75, 9.2, "9.2 % for ranges or cells"),
        (both(Prefix(64), Identity(64)), 94, 2.8, "Small unions of the same kinds are within 3 %"),
        (
            *(Union([Product([Prefix(64)] * 2), Product([Identity(64)] * 2)]), 99, 1.6),
            "1.6 % for 64 × 64 prefixes and all cells",
        ),
    ],
    ids=["either", "ranges", "one of each", "all"],
)
def test_documented_gaps(
    workload: Workload, of_product: int, gap: float, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    product = value(workload, product_of(workload, monkeypatch))
    found = optimal_strategy(workload, neighbouring="add-remove").certificate
    assert math.sqrt(found.value / product) == pytest.approx(of_product / 100, abs=5.1e-3)
    assert gap - 0.11 < 100 * found.gap <= gap
    page = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    assert words in " ".join(page.split())


def test_large_unions_gain() -> None:
    union = Union(
        [
            Product([Ranges(16) if index in kept else Total(16) for index in range(4)])
            for count in (1, 2)
            for kept in combinations(range(4), count)
        ]
    )
    best = optimal_strategy(union, neighbouring="add-remove")
    assert isinstance(best.strategy, ProductStrategy)
    assert best.strategy.weights is not None
    assert best.certificate.gap < 0.1
    plain = ProductStrategy(best.strategy.factors)
    assert best.certificate.value < 0.8 * searched._error(union, plain, "add-remove")
    replaced = optimal_strategy(union, neighbouring="replace")
    assert replaced.certificate.value <= searched._error(union, plain, "replace")


def test_more_cells_than_a_histogram_has() -> None:
    parts: list[Workload] = []
    for index in range(5):
        factors: list[Factor] = [Total(100)] * 5
        factors[index] = Prefix(100)
        parts.append(Product(factors))
    best = optimal_strategy(Union(parts), neighbouring="add-remove")
    # With a weight for each cell it would not fit in memory.
    assert not (isinstance(best.strategy, ProductStrategy) and best.strategy.weights is not None)
    alone = 5 * optimal_strategy(Prefix(100), neighbouring="add-remove").certificate.value
    assert best.certificate.lower_bound > 1.5 * alone
    several = Union([*parts, Product([Identity(100)] * 5)])
    bound = union_bound(several, [np.ones(100)] * 5)
    assert union_bound(Union(parts), [np.ones(100)] * 5) < bound < several.frobenius_squared()


FACTORS = st.integers(1, 4).flatmap(
    lambda size: st.lists(
        st.sampled_from([Identity(size), Total(size), Prefix(size), Ranges(size)])
        | st.lists(
            st.lists(st.integers(-2, 2), min_size=size, max_size=size).filter(any),
            min_size=1,
            max_size=3,
        ).map(Dense),
        min_size=3,
        max_size=3,
    )
)


@given(st.lists(FACTORS, min_size=2, max_size=3), st.integers(2, 3))
@settings(max_examples=40)
def test_random_unions(columns: list[list[Factor]], terms: int) -> None:
    workload = Union([Product(list(term)) for term in zip(*columns, strict=True)][:terms])
    strategy, bound = best_for_union(workload)
    try:
        strategy.check_supports(workload)
    except InvalidParameterError:
        return  # float64 cannot decide the rank; a plain strategy is returned then
    assert value(workload, strategy) == pytest.approx(dense_value(workload, strategy), rel=1e-6)
    matrix, measured = oracle.dense(workload), oracle.dense_strategy(strategy)
    np.testing.assert_allclose(
        matrix @ np.linalg.pinv(measured, rcond=1e-12) @ measured,
        matrix,
        atol=1e-7 * np.abs(matrix).max(),
    )
    best = optimal_strategy(Dense(matrix), neighbouring="add-remove").certificate
    assert bound <= best.value * (1 + 1e-9)
    assert value(workload, strategy) >= best.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize("workload", SMALL, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_proven(workload: Workload, seed: int) -> None:
    # At any weights the bound is below the dual value of the whole: in ball arithmetic, or where
    # the Gram matrix is singular by singular values, which are accurate to far less than it gives.
    rng = np.random.default_rng(seed)
    weights = [rng.uniform(0.1, 1.0, size) for size in workload.dimensions]
    whole = np.ones(1)
    for part in weights:
        whole = np.kron(whole, np.sqrt(part) ** 2)
    matrix = oracle.dense(workload)
    bound = union_bound(workload, weights)
    if np.linalg.matrix_rank(matrix) == workload.cells:
        truth = oracle.dual_value(workload.gram(), whole)
        assert bool(truth > bound)
        assert bool(truth * 0.7 < bound)
    else:
        values = np.linalg.svd(matrix * np.sqrt(whole), compute_uv=False)
        assert 0.7 < bound * whole.sum() / values.sum() ** 2 < 1.0


def test_a_bound_of_one_product_loses_nothing() -> None:
    workload = Product([Prefix(6), Ranges(5)])
    best = optimal_strategy(workload, neighbouring="add-remove")
    assert isinstance(best.strategy, ProductStrategy)
    bound = union_bound(workload, cell_weights(workload, best.strategy))
    assert best.certificate.value * (1 - 1e-5) < bound < best.certificate.value


@pytest.mark.parametrize("nothing", [0.0, 1e-17, -1e-17])
def test_directions_are_found_beside_matrices_of_nothing_but_rounding(nothing: float) -> None:
    # A term that asks for the total alone leaves nothing, or rounding, of its contrasts.
    one = np.array([[2.0, 1.0], [1.0, 2.0]])
    found = differing_directions([one, nothing * np.eye(2)])
    np.testing.assert_allclose(np.abs(found), np.full((2, 2), 0.5**0.5), rtol=1e-12)
    all_nothing = differing_directions([nothing * np.eye(2)] * 2)
    np.testing.assert_allclose(all_nothing.T @ all_nothing, np.eye(2), atol=1e-12)


def test_unions_may_ask_for_a_total_in_disguise() -> None:
    totals = Dense([[200.0, 200.0], [200.0, 200.0]])
    workload = Union(
        [
            Product([Dense([[-2.0, 0.0, 3.0, 2.0, 2.0]]), Total(2)]),
            Product([Prefix(5), Ranges(2)]),
            Product([Ranges(5, longest=2), Dense([[-1.0, 2.0]])]),
            Product([Dense([[-1.0, 2.0, 0.0, 1.0, -2.0]]), totals]),
        ]
    )
    strategy, bound = best_for_union(workload)
    truth = optimal_strategy(Dense(oracle.dense(workload)), neighbouring="add-remove").certificate
    assert 0.0 < bound <= truth.value * (1 + 1e-9)
    assert value(workload, strategy) >= truth.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize("rank", [6, 3])
def test_roots_are_off_by_less_than_they_say(rank: int) -> None:
    rng = np.random.default_rng(rank)
    half = rng.integers(-2, 3, (6, rank)).astype(float)
    exact = half @ half.T
    # A perturbed matrix represents one that is known only to that accuracy.
    wrong = rng.standard_normal((6, 6)) * 1e-9
    wrong = wrong + wrong.T
    root, distance = semidefinite_root(exact + wrong, float(np.linalg.norm(wrong)))
    values, vectors = np.linalg.eigh(exact)
    truth = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    off = float(np.linalg.norm(root - truth))
    assert off < distance < 1e-3
    # The square root is steep at 0: a bound that forgot would be wrong.
    if rank < 6:
        assert off > 100 * float(np.linalg.norm(wrong))
    assert math.isfinite(semidefinite_root(np.zeros((2, 2)), 0.0)[1])
