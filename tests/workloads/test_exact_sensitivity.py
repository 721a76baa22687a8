"""Sensitivities and roundings of strategies against exact rationals, where floats lose most."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp import InvalidParameterError
from matrixdp.mechanisms.matrix_mechanism import measured_sensitivity
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.rounding import sqrt_up
from matrixdp.workloads import Prefix, ProductStrategy, Strategy, marginals, optimal_strategy
from matrixdp.workloads.strategies import product as strategy_module
from matrixdp.workloads.strategies.diameters import smallest_inner_product
from matrixdp.workloads.strategies.measuring import compensated_error
from reference import workloads as oracle

FloatArray = NDArray[np.float64]

# Added to 1 one by one, the squares of a thousand such entries are lost: each is below 2**-53.
LOST = 2.0**-26.6
LONG_COLUMN = np.array([1.0, *[LOST] * 1000])


def exact_products(matrix: FloatArray, counts: FloatArray) -> list[Fraction]:
    numbers = [Fraction(count) for count in counts.tolist()]
    return [
        sum((Fraction(a) * x for a, x in zip(row, numbers, strict=True)), Fraction(0))
        for row in matrix.tolist()
    ]


def relative_errors(
    found: FloatArray, exact: list[Fraction], sizes: list[Fraction]
) -> list[Fraction]:
    return [
        abs(Fraction(value) - truth) / size
        for value, truth, size in zip(found.tolist(), exact, sizes, strict=True)
    ]


@pytest.mark.parametrize("exponent", [0, -20, -60, -98])
def test_small_distances_are_not_understated(exponent: int) -> None:
    strategy = ProductStrategy([[[1.0, 1.0], [0.0, 1.2 * 2.0**exponent]]])
    truth = oracle.diameter_squared(oracle.exact_columns(strategy))
    claimed = strategy.sensitivity("replace")
    assert Fraction(claimed) ** 2 >= truth
    assert claimed <= sqrt_up(truth) * (1 + 1e-12)


@pytest.mark.parametrize("exponent", [-101, -500, -537, -560, -1073])
def test_distances_of_next_to_nothing_are_refused(exponent: int) -> None:
    strategy = ProductStrategy([[[1.0, 1.0], [0.0, 1.2 * 2.0**exponent]]])
    with pytest.raises(InvalidParameterError, match="scale up the measurements"):
        strategy.sensitivity("replace")
    assert strategy.sensitivity("add-remove") >= 1.0


@pytest.mark.parametrize(
    "strategy",
    [
        ProductStrategy([np.ones((1, 3))]),
        ProductStrategy([np.ones((1, 3)), np.full((2, 2), 0.1)]),
        ProductStrategy([np.ones((1, 91)), np.full((2, 91), 0.1)]),
        ProductStrategy([np.ones((2, 2))], [1.0, 0.5]),
        ProductStrategy([[[1.0]]]),
    ],
    ids=["total", "product", "many cells", "weighted", "one cell"],
)
def test_equal_columns_are_refused_for_replacing(strategy: Strategy) -> None:
    with pytest.raises(InvalidParameterError, match="all columns of the strategy are equal"):
        strategy.sensitivity("replace")


@pytest.mark.parametrize("exponent", [-100, -537, -538, -600, -1000])
def test_rounded_rows_count_however_small(exponent: int) -> None:
    small = 1.2 * 2.0**exponent  # of more bits than are exact
    strategy = ProductStrategy([[[1.0, 1.0], [small, small / 3]]])
    assert Fraction(strategy.rounded_norm) >= Fraction(small)


@pytest.mark.parametrize(
    "strategy",
    [
        ProductStrategy([[[2.0**-30, -(2.0**-30)]], *[[[2.0**-30]]] * 3]),
        ProductStrategy([np.diag([1.0, 2.0**-120])], [0.0, 1.0]),
    ],
    ids=["product", "weighted"],
)
@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_norms_of_next_to_nothing_are_refused(
    strategy: Strategy, neighbouring: Neighbouring
) -> None:
    with pytest.raises(InvalidParameterError, match="scale"):
        strategy.sensitivity(neighbouring)


@pytest.mark.parametrize("order", [1, -1])
def test_factors_whose_products_leave_the_range_of_floats_on_the_way_are_refused(
    order: int,
) -> None:
    # The squares of the small ones multiply to 2**-1068, of which few bits are left.
    factors = [[[1.25 * 2.0**-30]]] * 18 + [[[2.0**20]]] * 22 + [[[1.0, 0.5]]]
    with pytest.raises(InvalidParameterError, match="scale them towards 1"):
        ProductStrategy(factors[::order])


def test_sums_of_squares_that_floats_lose_are_in_the_largest_norm() -> None:
    matrix = np.stack([LONG_COLUMN, LONG_COLUMN / 2], axis=1)
    truth = oracle.norm_squared([Fraction(entry) for entry in LONG_COLUMN.tolist()])
    lost = math.sqrt(float(np.max(np.sum(np.square(matrix), axis=0)))) * (1 + 2.0**-52)
    assert Fraction(lost) ** 2 < truth
    assert Fraction(ProductStrategy([matrix]).sensitivity("add-remove")) ** 2 >= truth


def test_sums_of_squares_that_floats_lose_are_in_the_distances() -> None:
    matrix = np.stack([np.zeros_like(LONG_COLUMN), LONG_COLUMN], axis=1)
    truth = oracle.norm_squared([Fraction(entry) for entry in LONG_COLUMN.tolist()])
    lost = math.sqrt(float(np.max(np.sum(np.square(matrix), axis=0)))) * (1 + 2.0**-50)
    assert Fraction(lost) ** 2 < truth
    assert Fraction(ProductStrategy([matrix]).sensitivity("replace")) ** 2 >= truth


def test_roundings_of_products_are_in_the_distances() -> None:
    rng = np.random.default_rng(5)
    needed = 0
    for _ in range(60):
        lows = (1.0 + 2.0**-52 * rng.integers(1, 2**40, 2)).tolist()
        factors = [np.array([[low, low + 2.0**-52]]) for low in lows]
        strategy = ProductStrategy(factors)
        truth = oracle.diameter_squared(oracle.exact_columns(strategy))
        assert Fraction(strategy.sensitivity("replace")) ** 2 >= truth
        products = np.kron(*factors)
        needed += (Fraction(float(np.ptp(products))) * (1 + Fraction(1, 2**40))) ** 2 < truth
    assert needed > 0  # the distance of rounded entries would not do


def test_inner_products_that_floats_lose_are_bounded_from_below(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    column = np.array([1.0, *[LOST] * 20000])
    strategy = ProductStrategy([np.stack([column, -column], axis=1)])
    truth = -oracle.norm_squared([Fraction(entry) for entry in column.tolist()])
    # One after the other, the order that loses most; which order BLAS takes depends on the machine.
    lost = -float(np.cumsum(np.square(column))[-1])
    assert Fraction(lost * (1 + 2.0**-49)) > truth
    assert Fraction(smallest_inner_product(strategy.factors, np.ones(20001))) <= truth
    monkeypatch.setattr(strategy_module, "MOST_PAIRS", 0)
    assert Fraction(strategy.sensitivity("replace")) ** 2 >= -4 * truth


def test_weighted_strategies_of_many_cells_may_have_opposite_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("matrixdp.workloads.solve.tables._MANY_SETS", 0)
    sizes = [21, 20, 20]
    strategy = optimal_strategy(
        marginals(sizes, [(0, 1), (2,)]), neighbouring="add-remove"
    ).strategy
    assert isinstance(strategy, ProductStrategy)
    assert strategy.weights is not None
    weights = [Fraction(weight) for weight in strategy.weights.ravel().tolist()]

    def column(cell: tuple[int, int, int]) -> list[Fraction]:
        parts = [
            [Fraction(entry) for entry in factor[:, index].tolist()]
            for factor, index in zip(strategy.factors, cell, strict=True)
        ]
        products = (x * y * z for x in parts[0] for y in parts[1] for z in parts[2])
        return [w * x for w, x in zip(weights, products, strict=True)]

    pair = zip(column((0, 0, 0)), column((1, 1, 1)), strict=True)
    distance = oracle.norm_squared([x - y for x, y in pair])
    assert distance > 2 * Fraction(strategy.sensitivity("add-remove")) ** 2  # an obtuse angle
    assert Fraction(strategy.sensitivity("replace")) ** 2 >= distance


def test_measuring_many_cells_is_as_exact_as_claimed() -> None:
    rng = np.random.default_rng(6)
    matrix = rng.uniform(0.5, 1.0, (24, 3000))
    counts = np.rint(rng.uniform(0, 2**30 // 3000, 3000))
    strategy = ProductStrategy([matrix])
    exact = exact_products(matrix, counts)
    allowed = Fraction(strategy.measurement_error)
    assert max(relative_errors(strategy.measure(counts), exact, exact)) <= allowed
    assert max(relative_errors(matrix @ counts, exact, exact)) > allowed


def test_the_rounding_of_weights_is_in_the_measurement_error() -> None:
    rng = np.random.default_rng(7)
    worst = Fraction(0)
    for _ in range(10):
        matrix, weights = rng.uniform(0.5, 1.0, (20, 20)), rng.uniform(0.5, 1.0, 20)
        counts = np.rint(rng.uniform(0, 1e6, 20))
        strategy = ProductStrategy([matrix], weights)
        products = exact_products(matrix, counts)
        exact = [Fraction(w) * x for w, x in zip(weights.tolist(), products, strict=True)]
        found = max(relative_errors(strategy.measure(counts), exact, exact))
        assert found <= Fraction(strategy.measurement_error)
        worst = max(worst, found)
    assert worst > Fraction(compensated_error(20))  # without the weights it would not hold


def test_rows_are_exact_up_to_23_bits_and_no_further() -> None:
    counts = np.array([2.0**30 - 1.0, 0.0])
    for bits, exact in ((23, True), (24, False)):
        entry = 1.0 + 2.0 ** (1 - bits)
        strategy = ProductStrategy([[[entry, 1.0]]])
        truth = Fraction(entry) * (2**30 - 1)
        assert (Fraction(strategy.measure(counts)[0].item()) == truth) is exact
        assert (strategy.rounded_norm == 0.0) is exact
        assert exact or Fraction(strategy.rounded_norm) >= Fraction(entry)


def test_weights_make_exact_rows_round() -> None:
    strategy = ProductStrategy([np.eye(2)], [0.1, 0.3])
    truth = max(oracle.norm_squared(column) for column in oracle.exact_columns(strategy))
    assert Fraction(strategy.rounded_norm) ** 2 >= truth


@pytest.mark.parametrize("neighbouring", ["add-remove", "replace"])
def test_the_rounding_allowance_is_made_in_full(neighbouring: Neighbouring) -> None:
    strategies = [
        optimal_strategy(Prefix(8), neighbouring=neighbouring).strategy,
        ProductStrategy([[[0.1, 0.3], [0.7, 0.2]]]),
        ProductStrategy([np.eye(2), [[0.3, 0.1], [0.1, 0.6]]]),
        ProductStrategy([[[0.1, 0.3], [0.7, 0.2]]], [0.3, 0.9]),
    ]
    for strategy in strategies:
        allowance = 2**31 * Fraction(strategy.measurement_error) * Fraction(strategy.rounded_norm)
        claimed = Fraction(measured_sensitivity(strategy, neighbouring))
        assert allowance > 0
        assert claimed >= Fraction(strategy.sensitivity(neighbouring)) + allowance
