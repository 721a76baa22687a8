"""Stacks of products against the matrices that they stand for, dense and in exact rationals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError
from matrixdp.errors import ShapeError
from matrixdp.mechanisms.matrix_mechanism import measured_sensitivity
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.rounding import sqrt_up
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    StackedStrategy,
    Total,
    Union,
)
from matrixdp.workloads.strategies.stacked import squared_diameter
from reference import workloads as oracle

RNG = np.random.default_rng(21)
MODULE = "matrixdp.workloads.strategies.stacked"

STACKS = {
    "two attributes": StackedStrategy(
        [
            ProductStrategy([RNG.standard_normal((3, 3)), np.ones((1, 4))]),
            ProductStrategy([np.full((1, 3), 0.3), RNG.standard_normal((4, 4))]),
        ]
    ),
    "with the total": StackedStrategy(
        [
            ProductStrategy([RNG.standard_normal((2, 3)), RNG.standard_normal((5, 2))]),
            ProductStrategy([np.full((1, 3), 7.1), np.full((1, 2), 0.7)]),
        ]
    ),
    "of different size": StackedStrategy(
        [
            ProductStrategy([RNG.standard_normal((2, 2)) * 2.0**18, np.eye(3)]),
            ProductStrategy([np.eye(2) * 1e-3, RNG.standard_normal((3, 3)) * 2.0**-20]),
            ProductStrategy([np.ones((1, 2)), RNG.standard_normal((2, 3))]),
        ]
    ),
    "three attributes": StackedStrategy(
        [
            ProductStrategy([np.tril(np.ones((2, 2))), np.eye(2) / 3, np.ones((1, 3))]),
            ProductStrategy(
                [np.ones((1, 2)), RNG.standard_normal((2, 2)), RNG.standard_normal((4, 3))]
            ),
        ]
    ),
    "one part": StackedStrategy([ProductStrategy([RNG.standard_normal((3, 2)), np.eye(2)])]),
    "one attribute": StackedStrategy(
        [ProductStrategy([np.eye(4)]), ProductStrategy([np.tri(4) * 0.1])]
    ),
}


def truths(stack: StackedStrategy) -> dict[Neighbouring, Fraction]:
    columns = oracle.exact_columns(stack)
    norm = max(oracle.norm_squared(column) for column in columns)
    return {"add-remove": norm, "replace": oracle.diameter_squared(columns)}


@pytest.mark.parametrize("name", STACKS)
def test_sensitivities_are_above_the_truth_and_close(name: str) -> None:
    for relation, truth in truths(STACKS[name]).items():
        claimed = STACKS[name].sensitivity(relation)
        assert Fraction(claimed) ** 2 >= truth
        assert claimed <= sqrt_up(truth) * (1 + 1e-10)


@pytest.mark.parametrize("name", STACKS)
def test_operators_equal_the_matrix(name: str) -> None:
    stack = STACKS[name]
    matrix = oracle.dense_strategy(stack)
    assert stack.shape == matrix.shape
    assert stack.layout == (len(matrix),)
    np.testing.assert_allclose(stack.written_out(), matrix, rtol=1e-15)
    values, answers = RNG.standard_normal(stack.dimensions), RNG.standard_normal(len(matrix))
    size = np.abs(matrix).max()
    np.testing.assert_allclose(stack.apply(values), matrix @ values.ravel(), atol=1e-13 * size)
    found = stack.apply_transpose(answers)
    assert found.shape == stack.dimensions
    np.testing.assert_allclose(found.ravel(), matrix.T @ answers, atol=1e-13 * size)


@pytest.mark.parametrize("name", STACKS)
def test_measurements_are_as_exact_as_they_claim(name: str) -> None:
    stack = STACKS[name]
    counts = RNG.integers(0, 10**6, stack.shape[1]).astype(float)
    columns = oracle.exact_columns(stack)
    for index, value in enumerate(stack.measure(counts).tolist()):
        parts = [column[index] * Fraction(x) for column, x in zip(columns, counts, strict=True)]
        size = sum((abs(part) for part in parts), Fraction(0))
        off = abs(Fraction(value) - sum(parts, Fraction(0)))
        assert off <= size * Fraction(stack.measurement_error)


@pytest.mark.parametrize("name", [name for name in STACKS if name != "of different size"])
def test_reconstruction_is_the_pseudo_inverse(name: str) -> None:
    stack = STACKS[name]
    answers = RNG.standard_normal(stack.shape[0])
    expected = np.linalg.pinv(oracle.dense_strategy(stack)) @ answers
    np.testing.assert_allclose(stack.reconstruct(answers), expected, atol=1e-9)


def test_reconstruction_sees_small_parts_beside_large_ones() -> None:
    stack = STACKS["of different size"]
    answers = RNG.standard_normal(stack.shape[0])
    expected = np.linalg.pinv(oracle.dense_strategy(stack), rcond=1e-15) @ answers
    np.testing.assert_allclose(stack.reconstruct(answers), expected, rtol=1e-5, atol=1e-6)


def test_reconstruction_is_exact_beside_many_records() -> None:
    stack = STACKS["two attributes"]
    counts = RNG.integers(0, 2**30 // 12, 12).astype(float)
    noise = RNG.standard_normal(stack.shape[0])
    expected = np.linalg.pinv(oracle.dense_strategy(stack)) @ noise
    exact = np.linalg.pinv(oracle.dense_strategy(stack)) @ stack.apply(counts)
    moved = stack.reconstruct(stack.measure(counts) + noise) - exact
    np.testing.assert_allclose(moved, expected, atol=1e-5)


def test_an_inexact_estimate_is_kept_with_a_warning(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{MODULE}._MOST_ITERATIONS", 2)
    stack = STACKS["two attributes"]
    measured = stack.apply(np.ones(12)) + RNG.standard_normal(stack.shape[0])
    with pytest.warns(RuntimeWarning, match="least-squares estimate is not exact"):
        found = stack.reconstruct(measured)
    assert np.linalg.norm(stack.apply(found) - measured) < np.linalg.norm(measured)


def test_largest_norms_of_parts_may_lie_in_different_cells() -> None:
    one = ProductStrategy([np.diag([1.0, 3.0]), np.eye(2)])
    other = ProductStrategy([np.diag([4.0, 1.0]), np.eye(2)])
    stack = StackedStrategy([one, other])
    assert stack.sensitivity("add-remove") == pytest.approx(math.sqrt(17.0), rel=1e-12)  # not 5
    assert stack.rounded_norm == stack.sensitivity("add-remove")


def test_what_floats_lose_when_parts_are_added_is_in_the_sensitivity() -> None:
    lost = 2.0**-26.6  # the square is lost beside 1, however often it is added
    parts = [ProductStrategy([np.eye(2)]), *[ProductStrategy([np.diag([lost, lost])])] * 1000]
    truth = 1 + 1000 * Fraction(lost) ** 2
    plain = math.sqrt(sum(float(np.square(part.factors[0][0, 0])) for part in parts))
    assert Fraction(plain * (1 + 2.0**-52)) ** 2 < truth
    stack = StackedStrategy(parts)
    assert Fraction(stack.sensitivity("add-remove")) ** 2 >= truth
    assert Fraction(stack.sensitivity("replace")) ** 2 >= 2 * truth


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_sensitivities_hold_for_any_entries(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dimensions = rng.integers(1, 4, rng.integers(1, 4))
    parts = []
    for _ in range(rng.integers(1, 4)):
        sizes = 10.0 ** rng.uniform(-6, 5)
        factors = [rng.standard_normal((rng.integers(1, 4), cells)) for cells in dimensions]
        parts.append(ProductStrategy(factors).scaled(sizes))
    stack = StackedStrategy(parts)
    if stack.shape[1] == 1:
        return
    for relation, truth in truths(stack).items():
        assert Fraction(stack.sensitivity(relation)) ** 2 >= truth


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_distances_are_bounded_beyond_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [
        ProductStrategy([rng.standard_normal((rng.integers(1, 4), 3)), rng.standard_normal((2, 2))])
        for _ in range(rng.integers(1, 4))
    ]
    parts.append(ProductStrategy([np.full((1, 3), 5.0), np.full((1, 2), 0.3)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{MODULE}.MOST_PAIRS", 0)
        patch.setattr("matrixdp.workloads.strategies.product.MOST_PAIRS", 0)
        stack = StackedStrategy(parts)
        claimed = stack.sensitivity("replace")
    assert Fraction(claimed) ** 2 >= truths(stack)["replace"]
    varied = StackedStrategy(parts[:-1])
    assert claimed <= 2 * varied.sensitivity("add-remove") * (1 + 1e-12)


def test_beyond_memory_the_parts_are_bounded_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.LARGEST_HISTOGRAM", 3)
    one = ProductStrategy([np.diag([1.0, 3.0]), np.eye(2)])
    other = ProductStrategy([np.diag([4.0, 1.0]), np.eye(2)])
    stack = StackedStrategy([one, other])
    assert stack.sensitivity("add-remove") == pytest.approx(5.0, rel=1e-12)


def test_parts_with_equal_columns_cost_nothing_where_the_total_is_public() -> None:
    rows = ProductStrategy([np.eye(2), np.ones((1, 3))])
    total = ProductStrategy([np.full((1, 2), 9.0), np.full((1, 3), 0.1)])
    alone, both = StackedStrategy([rows]), StackedStrategy([rows, total])
    assert both.sensitivity("replace") == alone.sensitivity("replace")
    assert squared_diameter([total]) == 0.0
    with pytest.raises(InvalidParameterError, match="all columns of the strategy are equal"):
        StackedStrategy([total, total]).sensitivity("replace")


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
@pytest.mark.parametrize("name", STACKS)
def test_floats_of_neighbours_are_within_the_claimed_sensitivity(
    name: str, neighbouring: Neighbouring
) -> None:
    stack = STACKS[name]
    allowance = 2**31 * Fraction(stack.measurement_error) * Fraction(stack.rounded_norm)
    claimed = Fraction(measured_sensitivity(stack, neighbouring))
    assert claimed >= Fraction(stack.sensitivity(neighbouring)) + allowance
    cells = stack.shape[1]
    counts = np.floor(RNG.dirichlet(np.ones(cells)) * (2**30 - 2 * cells)) + 1.0
    base = stack.measure(counts).tolist()
    for cell in range(cells):
        other = counts.copy()
        other[cell] -= 1
        if neighbouring == "replace":
            other[cell - 1] += 1
        near = stack.measure(other).tolist()
        pairs = zip(base, near, strict=True)
        assert oracle.norm_squared([Fraction(a) - Fraction(b) for a, b in pairs]) <= claimed**2


UNION = Union([Product([Prefix(3), Total(4)]), Product([Total(3), Prefix(4)])])


def answering(one: float = 1.0, other: float = 1.0) -> StackedStrategy:
    return StackedStrategy(
        [
            ProductStrategy([np.eye(3) * one, np.ones((1, 4))]),
            ProductStrategy([np.ones((1, 3)), np.eye(4) * other]),
        ]
    )


@pytest.mark.parametrize("scales", [(1.0, 1.0), (0.3, 2.0)])
def test_errors_are_bounded_by_what_each_part_says_alone(scales: tuple[float, float]) -> None:
    stack = answering(*scales)
    queries, matrix = oracle.dense(UNION), oracle.dense_strategy(stack)
    response = queries @ np.linalg.pinv(matrix)
    np.testing.assert_allclose(response @ matrix, queries, atol=1e-9)
    truth = np.sum(np.square(response), axis=1)
    stated = stack.query_variances(UNION)
    assert np.all(truth <= stated * (1 + 1e-9))
    assert np.any(truth < stated * 0.9)  # the other part helps
    expected = [*(np.arange(1, 4) / scales[0] ** 2), *(np.arange(1, 5) / scales[1] ** 2)]
    np.testing.assert_allclose(stated, expected, rtol=1e-9)
    assert stack.squared_error(UNION) == pytest.approx(sum(expected), rel=1e-12)
    stack.check_supports(UNION)


def test_a_stack_must_fit_the_union() -> None:
    stack = answering()
    with pytest.raises(InvalidParameterError, match="does not answer"):
        StackedStrategy(stack.parts[::-1]).check_supports(UNION)
    with pytest.raises(ShapeError, match="one part for each product"):
        StackedStrategy(stack.parts[:1]).check_supports(UNION)
    with pytest.raises(ShapeError, match="one part for each product"):
        stack.squared_error(UNION.parts[0])
    with pytest.raises(ShapeError, match="make the strategy for this workload"):
        stack.check_supports(Union([Product([Prefix(4), Total(4)])] * 2))
    flat = Union([Dense(np.eye(3)), Identity(3)])
    StackedStrategy([ProductStrategy([np.eye(3)])] * 2).check_supports(flat)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "empty"),
        ([np.eye(2)], "ndarray"),
        ([ProductStrategy([np.eye(2)], [1.0, 2.0])], "weights"),
        ([ProductStrategy([np.eye(2)]), ProductStrategy([np.eye(3)])], "one layout"),
    ],
)
def test_bad_stacks_are_refused(parts: list[ProductStrategy], message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        StackedStrategy(parts)


def test_more_measurements_than_memory_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.MOST_ANSWERS", 3)
    with pytest.raises(InvalidParameterError, match="4 measurements"):
        StackedStrategy([ProductStrategy([np.eye(2)])] * 2)


def test_stacks_of_next_to_nothing_are_refused() -> None:
    part = ProductStrategy([[[2.0**-30, -(2.0**-30)]], *[[[2.0**-30]]] * 3])
    for relation in ("add-remove", "replace"):
        with pytest.raises(InvalidParameterError, match="scale"):
            StackedStrategy([part]).sensitivity(relation)
