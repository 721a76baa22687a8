"""Sums of integers are exact, however large and in whatever order."""

from fractions import Fraction

import numpy as np
import pytest

from matrixdp import InvalidParameterError
from matrixdp.integer_sums import RunningSum
from matrixdp.queries import Mean, PublicBounds, SampleCovariance, Sum
from matrixdp.queries.exact_sums import (
    MOST_RECORDS,
    PRODUCT_ROWS,
    block_rows,
    column_sums,
    dropped_bits,
    for_products,
    power_of_two_up,
    rounded_quotients,
)
from matrixdp.queries.grid import GRID_BITS


def test_sums_beyond_64_bits_are_exact() -> None:
    rng = np.random.default_rng(0)
    total, exact = RunningSum((2, 3)), np.zeros((2, 3), dtype=object)
    for _ in range(3000):
        # Wider than an int64 after a thousand of them.
        block = rng.integers(2**52, 2**53, (2, 3)) * np.array([[1], [-1]])
        total.add(block.astype(np.float64))
        exact = exact + block.astype(object)
    found = total.total()
    assert found.exact().tolist() == exact.tolist()
    for bits in (0, 1, 19, 32):
        rounded = [[(number + 2**bits // 2) // 2**bits for number in row] for row in exact]
        if abs(exact).max() < 2 ** (62 + bits):
            assert found.rounded(bits).tolist() == rounded


def test_no_product_of_a_block_and_no_rounded_sum_exceeds_what_a_float_holds() -> None:
    assert PRODUCT_ROWS * 4**GRID_BITS <= 2**53
    for most in (1, 5, MOST_RECORDS, MOST_RECORDS + 1, 2**43):
        for bits in (GRID_BITS, 2 * GRID_BITS):
            assert most * 2**bits <= 2 ** (53 + dropped_bits(most, bits))
            assert dropped_bits(most, bits) <= 32
    for columns in (1, 100, 10_000, 2**24):
        assert 1 <= block_rows(columns) <= PRODUCT_ROWS


@pytest.mark.parametrize("rows", [1, 7, 8, 100, 2048])
def test_sums_of_columns_are_exact_in_either_float(rows: int) -> None:
    # The largest integers, so that float32 holds the sum of eight and of no more.
    whole = np.full((rows, 3), 2.0**GRID_BITS)
    whole[::2, 1] *= -1
    whole[:, 2] -= np.arange(rows) % 5
    exact = [sum(map(int, column)) for column in whole.T]
    assert column_sums(whole).tolist() == exact
    assert column_sums(whole.astype(np.float32)).tolist() == exact


@pytest.mark.parametrize("sizes", [(1, 1), (2048,), (2047, 2), (0, 5000, 3), ()])
def test_blocks_are_joined_for_products(sizes: tuple[int, ...]) -> None:
    kinds = (np.float32, np.float64)
    blocks = [np.full((rows, 2), place, kinds[place % 2]) for place, rows in enumerate(sizes)]
    joined = [block.copy() for block in for_products(iter(blocks))]
    assert all(0 < len(block) <= PRODUCT_ROWS for block in joined)
    expected = [place for place, rows in enumerate(sizes) for _ in range(rows)]
    assert [row[1] for block in joined for row in block.tolist()] == expected
    assert all(block.dtype == np.float64 for block in joined)


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
    total = RunningSum((1, 1))
    for _ in range(2**12):
        total.add(np.array([[2.0**53]]))
    assert total.total().exact().item() == 2**65
    assert total.total().rounded(19).item() == 2**46


def test_too_many_records_are_refused() -> None:
    query = Sum(PublicBounds(1, norm=1.0), "add-remove", most_records=3)
    assert query.evaluate([[1.0]] * 3).item() == 3.0
    with pytest.raises(InvalidParameterError, match="more than 3 records"):
        query.evaluate([[1.0]] * 4)


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


@pytest.mark.parametrize("most", [1, 1000, 2**30, 2**40 + 1])
@pytest.mark.parametrize("count", [1, 3, 1000, 2**30, 2**62])
def test_no_quotient_exceeds_what_a_float_holds(count: int, most: int) -> None:
    bounds = PublicBounds(2, norm=1.0)
    covariance, mean = (
        make(bounds, "add-remove", count, most) for make in (SampleCovariance, Mean)
    )
    assert 2**53 * count * covariance._unit >= most * 4**GRID_BITS
    assert 2**53 * count * mean._unit >= most * 2**GRID_BITS
