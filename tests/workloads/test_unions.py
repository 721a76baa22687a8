"""Unions too large to be written out: never worse than the obvious, and proven to a known gap."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import Budget, InvalidParameterError, MatrixMechanism, ReleaseKey
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    Dense,
    Factor,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    StackedStrategy,
    Strategy,
    Total,
    Union,
    Workload,
    optimal_strategy,
)
from matrixdp.workloads.comparison import compared_errors
from matrixdp.workloads.solve.explicit import optimal_factor
from matrixdp.workloads.strategies.plain import direct_strategy
from matrixdp.workloads.unions import search as unions
from reference import workloads as oracle

WORKLOADS = "matrixdp.workloads"
# Rounding, and the allowance for distances of columns from their inner products.
MARGIN = 1.0 + 1e-9


@contextmanager
def taken_for_large(*, pairs: bool = True) -> Iterator[None]:
    """Take the path of large unions, with every pair of cells looked at or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{WORKLOADS}.optimal._MOST_CELLS_OF_A_UNION", 0)
        patch.setattr(f"{WORKLOADS}.optimal.MOST_CELLS_SEARCHED", 0)
        patch.setattr(Union, "writable", False)
        if not pairs:
            for module in (
                "optimal",
                "strategies.plain",
                "strategies.stacked",
                "strategies.product",
                "solve.certificate",
            ):
                patch.setattr(f"{WORKLOADS}.{module}.MOST_PAIRS", 0)
        yield


def dense_factors(cells: int) -> st.SearchStrategy[Factor]:
    """Return matrices of one to three queries, whole or not, small or large."""

    def matrix(seed: int) -> Factor:
        rng = np.random.default_rng(seed)
        rows = rng.integers(-2, 3, (rng.integers(1, 4), cells)) + 0.0
        rows[:, rng.integers(cells)] = rng.integers(1, 4)
        return Dense(rows * rng.choice([1.0, 0.3, 100.0]))

    return st.integers(0, 2**32).map(matrix)


def factors(cells: int) -> st.SearchStrategy[Factor]:
    ordered = st.sampled_from(
        [Identity(cells), Total(cells), Prefix(cells), Ranges(cells), Ranges(cells, longest=2)]
    )
    return st.one_of(dense_factors(cells), ordered)


@st.composite
def any_union(draw: st.DrawFn) -> Union:
    dimensions = draw(st.sampled_from([(3, 4), (2, 2, 3), (5, 2)]))
    product = st.tuples(*map(factors, dimensions)).map(lambda term: Product(list(term)))
    return Union(draw(st.lists(product, min_size=2, max_size=4)))


def assert_never_worse(workload: Workload, relation: Neighbouring) -> None:
    """Check a strategy against identity, direct answering, its bound and its own dense error."""
    best = optimal_strategy(workload, neighbouring=relation)
    errors = compared_errors(workload, relation)
    assert best.rmse <= errors["identity"] * MARGIN
    assert best.rmse <= errors["direct"] * MARGIN
    queries, measured = oracle.dense(workload), oracle.dense_strategy(best.strategy)
    response = queries @ np.linalg.pinv(measured, rcond=1e-12)
    sizes = np.abs(queries).sum(axis=1, keepdims=True)
    np.testing.assert_allclose((response @ measured - queries) / sizes, 0.0, atol=1e-7)
    sensitivity = best.strategy.sensitivity(relation)
    true = (oracle.column_norm if relation == "add-remove" else oracle.diameter)(measured)
    assert sensitivity >= true * (1 - 1e-14)
    variances = np.sum(np.square(response), axis=1)
    assert np.all(variances <= best.strategy.query_variances(workload) * (1 + 1e-6))
    assert sensitivity**2 * variances.sum() <= best.certificate.value * (1 + 1e-6)
    if relation == "add-remove":
        assert best.certificate.gap <= len(workload.terms()) - 1 + 1e-6


def assert_adding_never_worse(workload: Union) -> None:
    with taken_for_large():
        assert_never_worse(workload, "add-remove")


@given(any_union())
@settings(max_examples=30)
def test_adding_and_removing(workload: Union) -> None:
    assert_adding_never_worse(workload)


@pytest.mark.thorough
@given(any_union())
@settings(max_examples=200)
def test_adding_and_removing_with_more_unions(workload: Union) -> None:
    assert_adding_never_worse(workload)


def varies(workload: Workload) -> bool:
    """Tell whether an answer changes when a record is replaced."""
    return bool(np.any(np.ptp(oracle.dense(workload), axis=1) > 0.0))


@given(any_union(), st.booleans())
@settings(max_examples=30)
def test_replacing(workload: Union, pairs: bool) -> None:  # noqa: FBT001 (drawn)
    assert_replacing_never_worse(workload, pairs=pairs)


@pytest.mark.thorough
@given(any_union(), st.booleans())
@settings(max_examples=200)
def test_replacing_with_more_unions(workload: Union, pairs: bool) -> None:  # noqa: FBT001 (drawn)
    assert_replacing_never_worse(workload, pairs=pairs)


def assert_replacing_never_worse(workload: Union, *, pairs: bool) -> None:
    with taken_for_large(pairs=pairs):
        if not varies(workload):
            with pytest.raises(InvalidParameterError, match="subtract"):
                optimal_strategy(workload, neighbouring="replace")
            return
        assert_never_worse(workload, "replace")


APART = Union([Product([Prefix(9), Total(6)]), Product([Total(9), Ranges(6)])])
ALIKE = Union([Product([Prefix(9), Prefix(9)]), Product([Ranges(9), Ranges(9)])])


def single_and_stack(
    workload: Workload, relation: Neighbouring = "add-remove"
) -> tuple[Strategy, StackedStrategy]:
    found = unions.strategies_for_union(workload, relation).best
    single, stack = found[0], found[-1]
    assert isinstance(single, ProductStrategy)
    assert isinstance(stack, StackedStrategy)
    return single, stack


def error_of(workload: Workload, strategy: Strategy) -> float:
    return strategy.sensitivity("add-remove") ** 2 * strategy.squared_error(workload)


def test_either_strategy_may_be_the_better() -> None:
    single, stack = single_and_stack(APART)
    assert error_of(APART, stack) < error_of(APART, single)
    single, stack = single_and_stack(ALIKE)
    assert error_of(ALIKE, single) < error_of(ALIKE, stack)


def test_the_shares_of_the_parts_are_the_best() -> None:
    optima = [
        optimal_strategy(part, neighbouring="add-remove").certificate.value for part in APART.parts
    ]
    found = unions.strategies_for_union(APART, "add-remove")
    expected = sum(math.sqrt(optimum) for optimum in optima) ** 2
    assert error_of(APART, found.best[-1]) == pytest.approx(expected, rel=1e-6)
    assert expected <= 2.0 * found.lower_bound * (1 + 1e-6)
    assert found.lower_bound >= sum(optima) * (1 - 1e-6)


def test_products_with_their_weight_in_different_cells_are_measured_directly() -> None:
    left, right = Dense([[1.0, 0.0, 0.0]]), Dense([[0.0, 0.0, 1.0]])
    workload = Union([Product([left, Total(9)]), Product([right, Identity(9)])])
    with taken_for_large():
        best = optimal_strategy(workload, neighbouring="add-remove")
        assert isinstance(direct_strategy(workload), StackedStrategy)
    assert isinstance(best.strategy, StackedStrategy)
    assert best.certificate.value == pytest.approx(10.0, rel=1e-9)  # shares of their own: 12


def test_direct_measurements_keep_the_proportions_of_the_queries() -> None:
    queries = [Product([Dense([[3e5, 1e5]]), Prefix(3)]), Product([Prefix(2), Dense([[1, 0, 2]])])]
    workload = Union(queries)
    with taken_for_large():
        stack = direct_strategy(workload)
    assert stack is not None
    measured, wanted = oracle.dense_strategy(stack), oracle.dense(workload)
    gram, expected = measured.T @ measured, wanted.T @ wanted
    np.testing.assert_allclose(gram / gram[0, 0], expected / expected[0, 0], rtol=1e-9)


def test_a_public_total_takes_nothing_from_the_others() -> None:
    both = Union([*APART.parts, Product([Total(9), Total(6)])])
    errors = [
        stack.sensitivity("replace") ** 2 * stack.squared_error(workload)
        for workload in (APART, both)
        for stack in single_and_stack(workload, "replace")[1:]
    ]
    assert errors[1] < errors[0] * 1.01  # a share of its own would add a fifth


def test_equal_factors_are_solved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved = []

    def counted(explicit: object, progress: object = None) -> object:
        solved.append(explicit)
        return optimal_factor(explicit, progress)  # type: ignore[arg-type]

    monkeypatch.setattr(f"{WORKLOADS}.solve.explicit.optimal_factor", counted)
    monkeypatch.setattr(f"{WORKLOADS}.unions.search._MOST_ROUNDS", 1)
    terms = [Product([Prefix(5), Prefix(5)]), Product([Prefix(5), Ranges(5)])] * 2
    unions.strategies_for_union(Union(terms), "add-remove")
    assert len(solved) == 2


def test_stacks_too_large_for_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("unions.search", "strategies.plain"):
        monkeypatch.setattr(f"{WORKLOADS}.{module}.MOST_ANSWERS", 14)
    found = unions.strategies_for_union(APART, "add-remove").best
    assert not any(isinstance(strategy, StackedStrategy) for strategy in found)
    with taken_for_large():
        assert direct_strategy(APART) is None
        assert_never_worse(Union([Product([Identity(9), Total(6)]), *APART.parts]), "add-remove")


def test_histograms_beyond_memory_are_optimised_all_the_same() -> None:
    others = [Total(4)] * 13
    workload = Union([Product([Prefix(4), *others]), Product([*others, Prefix(4)])])
    best = optimal_strategy(workload, neighbouring="add-remove")
    assert workload.cells == 2**28
    assert best.certificate.gap <= 1.0 + 1e-6
    assert best.certificate.value <= 8 * 8.0 * MARGIN  # direct: eight queries, columns of norm 8


@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_few_queries_on_many_cells(relation: Neighbouring) -> None:
    # Few enough to be written out, but not the inner products of 90,000 columns.
    one, other = (Dense(np.random.default_rng(n).integers(0, 3, (1, 300)) + 0.5) for n in (1, 2))
    workload = Union([Product([Total(300), one]), Product([other, Total(300)])])
    best = optimal_strategy(workload, neighbouring=relation)
    errors = compared_errors(workload, relation)
    assert best.rmse <= min(errors["identity"], errors["direct"]) * MARGIN


@pytest.mark.parametrize("size", [60, pytest.param(400, marks=pytest.mark.thorough)])
def test_too_many_entries_to_be_written_out(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A single product has no chance, so that one round of its search is enough.
    monkeypatch.setattr(f"{WORKLOADS}.unions.search._MOST_ROUNDS", 1)
    workload = Union([Product([Prefix(size), Total(size)]), Product([Total(size), Prefix(size)])])
    if size == 400:
        assert not workload.writable
    else:
        monkeypatch.setattr(Union, "writable", False)
    best = optimal_strategy(workload, neighbouring="add-remove")
    errors = compared_errors(workload, "add-remove")
    assert best.rmse < errors["direct"] / 3 < errors["identity"] / 10
    assert best.certificate.gap < 0.1
    mechanism = MatrixMechanism(
        workload, Budget(1.0, 1e-5), neighbouring="add-remove", strategy=best.strategy
    )
    counts = np.random.default_rng(1).poisson(3.0, (size, size))
    release = mechanism.release(counts, key=ReleaseKey.from_bytes(bytes(32)))
    off = (release.answers - workload.apply(counts)) / mechanism.standard_errors()
    assert 0.3 < np.sqrt(np.mean(np.square(off))) < 2.0  # strongly correlated, and two totals
    answers = release.answers.reshape(2, size)
    assert answers[0, -1] == pytest.approx(answers[1, -1], abs=1e-3)  # one total, not two
