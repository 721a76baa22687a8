"""Sums of integers are exact, however large and in whatever order."""

from fractions import Fraction

import numpy as np
import pytest

from matrixdp import InvalidParameterError
from matrixdp.queries import Mean, PublicBounds, SampleCovariance
from matrixdp.queries.exact_sums import (
    PRODUCT_BITS,
    PRODUCT_ROWS,
    ExactSum,
    block_rows,
    power_of_two_up,
    rounded_quotients,
)
from matrixdp.queries.grid import GRID_BITS, MOST_RECORDS


def test_sums_beyond_64_bits_are_exact() -> None:
    rng = np.random.default_rng(0)
    total, exact = ExactSum((2, 3)), np.zeros((2, 3), dtype=object)
    for _ in range(600):
        # 2**20 records in a block that claims to have so many: wider than an int64 after eight.
        block = rng.integers(-(2**53), 2**53, (2, 3))
        total.add(block.astype(np.float64), 2**20)
        exact = exact + block.astype(np.float64).astype(np.int64).astype(object)
    assert total.integers().tolist() == exact.tolist()
    for bits in (0, 1, 19):
        rounded = [[(number + 2**bits // 2) // 2**bits for number in row] for row in exact]
        assert total.rounded(bits).tolist() == rounded


def test_no_product_of_a_block_and_no_rounded_sum_exceeds_what_a_float_holds() -> None:
    assert PRODUCT_ROWS * 4**GRID_BITS <= 2**53
    assert MOST_RECORDS * 4**GRID_BITS // 2**PRODUCT_BITS <= 2**53
    assert MOST_RECORDS * 2**GRID_BITS <= 2**53
    for columns in (1, 100, 10_000, 2**24):
        assert 1 <= block_rows(columns) <= block_rows(columns, 512) <= PRODUCT_ROWS


def test_products_of_a_full_block_are_exact_in_every_order() -> None:
    # The largest odd integers: a sum of one row more would need 54 bits.
    whole = np.full((PRODUCT_ROWS, 3), 2.0**GRID_BITS - 1)
    whole[::2, 1] *= -1
    exact = [
        [
            sum(int(a) * int(b) for a, b in zip(whole[:, i], whole[:, j], strict=True))
            for j in range(3)
        ]
        for i in range(3)
    ]
    for order in (whole, whole[::-1], np.asfortranarray(whole)):
        assert (order.T @ order).tolist() == exact


def test_the_largest_sum_is_a_float_without_rounding() -> None:
    total = ExactSum((1, 1))
    for _ in range(2**10):
        # 2**20 records whose products are all 2**42; the blocks are added as parts below 2**53.
        for _ in range(4):
            total.add(np.array([[2.0**53]]), 2**11)
    assert total.integers().item() == 2**65
    assert total.rounded(19).item() == 2**46


def test_too_many_records_are_refused() -> None:
    total = ExactSum((1, 1))
    total.add(np.zeros((1, 1)), 2**30)
    with pytest.raises(InvalidParameterError, match="1073741824 records"):
        total.add(np.zeros((1, 1)), 1)


def test_quotients_are_rounded_to_the_nearest() -> None:
    numerators = np.array([-(10**30), -3, 0, 1, 3, 5, 10**30], dtype=object)
    for denominator in (Fraction(2), Fraction(3, 7), Fraction(10**18)):
        found = rounded_quotients(numerators, denominator)
        for numerator, number in zip(numerators, found, strict=True):
            if abs(number) < 2**53:
                distance = Fraction(float(number)) - Fraction(numerator) / denominator
                assert -Fraction(1, 2) < distance <= Fraction(1, 2)


@pytest.mark.parametrize("value", [Fraction(1), Fraction(5, 4), Fraction(1, 1000), Fraction(2**70)])
def test_powers_of_two(value: Fraction) -> None:
    power = power_of_two_up(value)
    assert power / 2 < value <= power
    assert power.numerator & (power.numerator - 1) == 0
    assert power.denominator & (power.denominator - 1) == 0


@pytest.mark.parametrize("count", [1, 3, 1000, 2**30, 2**62])
def test_no_quotient_exceeds_what_a_float_holds(count: int) -> None:
    bounds = PublicBounds(2, norm=1.0)
    covariance, mean = (make(bounds, "add-remove", count) for make in (SampleCovariance, Mean))
    assert 2**53 * count * covariance._unit >= MOST_RECORDS * 4**GRID_BITS
    assert 2**53 * count * mean._unit >= MOST_RECORDS * 2**GRID_BITS
