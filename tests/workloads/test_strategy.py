"""Strategies: proven sensitivities, and measurements that are as exact as they claim."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError
from matrixdp.errors import ShapeError
from matrixdp.rounding import sqrt_down, sqrt_up
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    marginals,
    optimal_strategy,
)
from matrixdp.workloads.strategies.measuring import compensated_error, compensated_product
from reference import workloads as oracle

RNG = np.random.default_rng(8)


STRATEGIES = {
    "dense": ProductStrategy([RNG.standard_normal((5, 4))]),
    "triangular": optimal_strategy(Prefix(7), neighbouring="add-remove").strategy,
    "with the total": optimal_strategy(Prefix(7), neighbouring="replace").strategy,
    "product": ProductStrategy([RNG.standard_normal((2, 3)), RNG.standard_normal((3, 2))]),
    "weighted": optimal_strategy(
        marginals([2, 3], [(0,), (1,)]), neighbouring="add-remove"
    ).strategy,
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_sensitivities_are_above_the_truth_and_close(name: str) -> None:
    strategy = STRATEGIES[name]
    columns = oracle.exact_columns(strategy)
    norm = max(sum((x * x for x in column), Fraction(0)) for column in columns)
    distance = max(
        sum(((x - y) ** 2 for x, y in zip(one, other, strict=True)), Fraction(0))
        for one in columns
        for other in columns
    )
    for truth, claimed in (
        (norm, strategy.sensitivity("add-remove")),
        (distance, strategy.sensitivity("replace")),
    ):
        assert Fraction(claimed) ** 2 >= truth
        assert claimed <= sqrt_up(truth) * (1 + 1e-12)
        assert sqrt_down(truth) * (1 - 1e-9) < claimed  # so that a claim of nothing would fail


def test_many_cells_are_bounded_through_the_factors() -> None:
    factors = [RNG.standard_normal((3, 65)), RNG.standard_normal((2, 64))]
    strategy = ProductStrategy(factors)
    matrix = oracle.dense_strategy(strategy)
    gram = matrix.T @ matrix
    squares = np.diagonal(gram)
    truth = np.sqrt(np.max(squares[:, None] + squares - 2 * gram))
    claimed = strategy.sensitivity("replace")
    assert truth <= claimed <= 2 * strategy.sensitivity("add-remove") * (1 + 1e-12)


@given(st.integers(0, 2**32), st.integers(1, 60))
@settings(max_examples=40)
def test_compensated_products_are_as_exact_as_they_claim(seed: int, terms: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((3, terms)) * 10.0 ** rng.integers(-6, 6, (3, terms))
    vector = np.rint(10.0 ** rng.uniform(0, 9, (terms, 1)))
    found = compensated_product(matrix, vector)[:, 0].tolist()
    for value, row in zip(found, matrix.tolist(), strict=True):
        products = [Fraction(a) * Fraction(x) for a, x in zip(row, vector[:, 0], strict=True)]
        size = sum((abs(product) for product in products), Fraction(0))
        off = abs(Fraction(value) - sum(products, Fraction(0)))
        assert off <= Fraction(compensated_error(terms)) * size


def test_zeros_that_are_passed_over_change_nothing() -> None:
    vector = np.rint(RNG.uniform(0, 1e9, (6, 2)))
    full = RNG.standard_normal((6, 6))
    zeros = [np.triu(full), np.tril(full), np.diag(np.diagonal(full)), full * (full > 0.5)]
    for matrix in [*zeros, np.zeros((6, 6))]:
        found = compensated_product(matrix, vector)
        for column, values in enumerate(vector.T.tolist()):
            for row, entries in enumerate(matrix.tolist()):
                products = [Fraction(a) * Fraction(x) for a, x in zip(entries, values, strict=True)]
                size = sum((abs(product) for product in products), Fraction(0))
                off = abs(Fraction(found[row, column].item()) - sum(products, Fraction(0)))
                assert off <= Fraction(compensated_error(6)) * size


def test_ordinary_products_would_not_keep_that_claim() -> None:
    matrix = RNG.standard_normal((200, 4000))
    vector = np.rint(RNG.uniform(0, 1e9, (4000, 1)))
    ordinary = (matrix @ vector)[:, 0]
    careful = compensated_product(matrix, vector)[:, 0]
    allowed = compensated_error(4000) * (np.abs(matrix) @ vector)[:, 0]
    exact = [
        sum((Fraction(a) * Fraction(x) for a, x in zip(row, vector[:, 0], strict=True)), Fraction())
        for row in matrix[:5].tolist()
    ]
    for index, truth in enumerate(exact):
        assert abs(Fraction(careful[index].item()) - truth) <= Fraction(allowed[index].item())
    assert np.any(np.abs(ordinary - careful) > np.abs(careful) * 2.0**-52)


@pytest.mark.parametrize("name", STRATEGIES)
def test_measurements_and_reconstruction(name: str) -> None:
    strategy = STRATEGIES[name]
    matrix = oracle.dense_strategy(strategy)
    counts = RNG.integers(0, 10**6, strategy.shape[1]).astype(float)
    columns = oracle.exact_columns(strategy)
    measured = strategy.measure(counts).ravel()
    for index, value in enumerate(measured.tolist()):
        parts = [column[index] * Fraction(x) for column, x in zip(columns, counts, strict=True)]
        size = sum((abs(part) for part in parts), Fraction(0))
        assert abs(Fraction(value) - sum(parts, Fraction(0))) <= size * Fraction(
            strategy.measurement_error
        )
    np.testing.assert_allclose(strategy.apply(counts).ravel(), matrix @ counts, rtol=1e-9)
    answers = RNG.standard_normal(strategy.shape[0])
    np.testing.assert_allclose(
        strategy.apply_transpose(answers).ravel(), matrix.T @ answers, atol=1e-12
    )
    np.testing.assert_allclose(
        strategy.reconstruct(answers), np.linalg.pinv(matrix) @ answers, atol=1e-9
    )


@pytest.mark.parametrize(
    ("factors", "weights", "message"),
    [
        ([], None, "empty"),
        ([np.zeros((0, 2))], None, "not empty"),
        ([[[np.nan]]], None, "NaN"),
        ([[[2.0**21]]], None, "scale it into"),
        ([np.eye(2)], [1.0], "one weight"),
        ([np.eye(2)], [1.0, -1.0], "from 9"),
        ([np.eye(2)], [0.0, 0.0], "not all"),
        ([np.eye(2)], [1.0, np.nan], "NaN"),
        ([np.eye(2)], [1.0, [1.0, 1.0]], "ragged"),
        ([np.eye(2)], [1.0, True], "booleans"),
    ],
)
def test_bad_strategies_are_refused(factors: list[object], weights: object, message: str) -> None:
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        ProductStrategy(factors, weights)  # type: ignore[arg-type]


def test_products_of_strategies_measure_products() -> None:
    best = optimal_strategy(Product([Prefix(3), Prefix(4)]), neighbouring="add-remove")
    assert best.strategy.dimensions == (3, 4)
    assert best.strategy.shape == (12, 12)


def test_strategies_too_small_to_square_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="scale it into"):
        ProductStrategy([np.full((2, 2), 1e-170)])


def test_tiny_factors_cannot_hide_a_sensitivity() -> None:
    tiny, large = math.sqrt(1.49) * 2.0**-537, 2.0**20
    with pytest.raises(InvalidParameterError, match="scale it into"):
        ProductStrategy([[[tiny]], *([[[large]]] * 27)])
    with pytest.raises(InvalidParameterError, match="scale them towards 1"):
        ProductStrategy([[[2.0**-29]]] * 10)


def test_what_is_not_measured_is_not_answered() -> None:
    with pytest.raises(InvalidParameterError, match="leave out"):
        ProductStrategy([np.eye(2)], [1.0, 0.0]).check_supports(Identity(2))
    with pytest.raises(ShapeError, match="square"):
        ProductStrategy([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]], [1.0, 1.0, 100.0])


def test_every_query_is_held_to_its_own_size() -> None:
    queries = Dense([[1e8, 1e8, 0.0], [0.0, 0.0, 1e-4]])
    lacking = ProductStrategy([[[1.0, 1.0, 0.0]]])  # answers the first query only
    with pytest.raises(InvalidParameterError, match="does not answer"):
        lacking.check_supports(queries)
    ProductStrategy([[[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]).check_supports(queries)


def test_rows_of_different_size_are_inverted_accurately() -> None:
    rows = np.array([[2.0**20] * 4, [1e-6, -1e-6, 0.0, 0.0], [0.0, 0.0, 1e-3, -1e-3]])
    inverse = ProductStrategy([rows]).inverses[0]
    expected = np.array([[2.0**-22] * 4, [5e5, -5e5, 0.0, 0.0], [0.0, 0.0, 500.0, -500.0]]).T
    np.testing.assert_allclose(inverse, expected, rtol=1e-9, atol=1e-9)


def test_measurements_that_do_not_round_need_no_allowance() -> None:
    rough = np.array([[0.1, 0.2, 0.3]])
    total = np.full((1, 3), 2.0**20)
    strategy = ProductStrategy([np.concatenate([rough, total])])
    assert strategy.rounded_norm == pytest.approx(0.3, rel=1e-12)
    assert ProductStrategy([total]).rounded_norm == 0.0
    assert ProductStrategy([np.eye(3)]).rounded_norm == 0.0
    # 24 bits are one too many, and so is a row that spans more.
    assert ProductStrategy([[[2.0**-24 + 1.0, 1.0]]]).rounded_norm > 1.0
    counts = RNG.integers(0, 2**30 // 3, 3).astype(float)
    exact = 2**20 * sum(int(count) for count in counts)
    assert int(strategy.measure(counts)[1]) == exact
    assert ProductStrategy([np.eye(2), np.eye(2)]).rounded_norm == 0.0


def test_bits_of_exact_measurements_add_up_over_a_product_and_its_weights() -> None:
    eleven, twelve = 2.0**11 - 1.0, 2.0**12 - 1.0
    factors = [np.array([[eleven, 1.0]]), np.array([[twelve, -twelve]])]
    assert ProductStrategy(factors).rounded_norm == 0.0
    assert ProductStrategy([*factors, np.ones((1, 2))]).rounded_norm > eleven * twelve
    counts = np.array([[2.0**30 - 3.0, 1.0], [1.0, 1.0]])
    exact = [int(eleven), 1] @ counts.astype(object) @ [int(twelve), -int(twelve)]
    assert int(ProductStrategy(factors).measure(counts).item()) == exact
    bases = [np.array([[1.0, 1.0], [0.3, -0.3]])] * 2
    weights = np.array([[2.0**10, 0.5], [0.5, 0.5]])
    whole = ProductStrategy(bases, weights)
    assert whole.rounded_norm < 1.0 < whole.sensitivity("add-remove")
    weights[0, 0] *= 1.1
    assert ProductStrategy(bases, weights).rounded_norm >= 2.0**10
    # The rest is what rounds: rows with 0.3, squared and summed.
    assert whole.rounded_norm == pytest.approx(0.5 * (2 * 0.09 + 0.0081) ** 0.5, rel=1e-12)


@pytest.mark.parametrize("longest", [1, 3, 9])
def test_variances_of_ranges_equal_dense(longest: int) -> None:
    workload = Ranges(9, longest=longest)
    strategy = ProductStrategy([RNG.standard_normal((9, 9))])
    response = oracle.dense(workload) @ np.linalg.pinv(strategy.factors[0])
    expected = np.sum(np.square(response), axis=1)
    np.testing.assert_allclose(strategy.query_variances(workload), expected, rtol=1e-8)
    product = Product([workload, Prefix(2)])
    both = ProductStrategy([strategy.factors[0], np.eye(2)])
    np.testing.assert_allclose(
        both.query_variances(product), np.kron(expected, [1.0, 2.0]), rtol=1e-8
    )


def test_masked_counts_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="masked"):
        Identity(2).checked_cells(np.ma.masked_array([3, 4], mask=[True, False]))
