"""Sums of the integers of records: of columns and of products, without rounding.

Products of rows of integers are computed by BLAS in float64, which is exact while every partial sum
stays below 2**53. They are then added up in `RunningSum`.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import positive_integer
from matrixdp.queries.bounds import exact_squared_norm
from matrixdp.queries.compiled_rows import totals_loop, worth_compiling
from matrixdp.queries.grid import GRID_BITS, Whole
from matrixdp.rounding import sqrt_up

__all__ = [
    "MOST_RECORDS",
    "PRODUCT_ROWS",
    "block_rows",
    "checked_most",
    "column_sums",
    "dropped_bits",
    "for_products",
    "power_of_two_up",
    "rounded_quotients",
    "sum_rounding",
]

FloatArray = NDArray[np.float64]

MOST_RECORDS = 2**30
"""So many records at most, unless a query states another bound."""

PRODUCT_ROWS: int = 2 ** (53 - 2 * GRID_BITS)
"""Of so many records, products of two integers add up to at most 2**53."""

# The largest bound that can be stated: sums of products are rounded by at most 32 bits then.
_MOST_STATED = 2**43
# Of so many rows, integers add up to at most 2**24, which float32 holds.
_SINGLE_ROWS = 2 ** (24 - GRID_BITS)
_ONES = np.ones(_SINGLE_ROWS, dtype=np.float32)
# A megabyte of float32, two of float64.
_BLOCK_NUMBERS = 2**18
# With fewer records at once, adding up products takes longer than making them; with more numbers
# than this it does not get better.
_LEAST_PRODUCT_ROWS = 512
_PRODUCT_NUMBERS = 2**19


def checked_most(most_records: Any) -> int:
    """Return a public bound of the number of records, or raise if it is none."""
    most = positive_integer(most_records, "most_records")
    if not most <= _MOST_STATED:
        raise InvalidParameterError(f"most_records={most} is more than {_MOST_STATED}: state less")
    return most


def dropped_bits(most_records: int, bits: int) -> int:
    """Return how many bits a sum of integers has to lose so that float64 holds it.

    Parameters
    ----------
    most_records : int
        How many numbers are added up, at most.
    bits : int
        No number is above ``2**bits`` in absolute value.

    Notes
    -----
    With ``2**(c - 1) < n <= 2**c``, the sum of n numbers is at most ``2**(c + bits)``, and float64
    holds all integers up to 2**53.

    Examples
    --------
    >>> dropped_bits(2**30, 42), dropped_bits(2**30 + 1, 42), dropped_bits(2**30, 21)
    (19, 20, 0)
    """
    return max(0, (most_records - 1).bit_length() + bits - 53)


def sum_rounding(steps: FloatArray, bits: int) -> Fraction:
    """Return by how much rounding bits off lets the difference of two sums grow, in norm.

    Two numbers, each rounded to the nearest multiple of a unit, differ by at most one unit more
    than before.
    """
    return 2**bits * Fraction(sqrt_up(exact_squared_norm(steps))) if bits else Fraction(0)


def for_products(blocks: Iterable[Whole]) -> Iterator[FloatArray]:
    """Yield blocks of integers as float64, joined to so many rows that products are quick.

    Each overwrites the one before it. Products of one of them add up to at most 2**53, exactly.
    """
    space, filled = np.empty((0, 0)), 0
    for whole in blocks:
        if not space.size:
            space = np.empty((_product_rows(whole.shape[1]), whole.shape[1]))
        for start in range(0, len(whole), len(space)):
            piece = whole[start : start + len(space)]
            if filled + len(piece) > len(space):
                yield space[:filled]
                filled = 0
            np.copyto(space[filled : filled + len(piece)], piece)
            filled += len(piece)
    if filled:
        yield space[:filled]


def column_sums(whole: Whole) -> FloatArray:
    """Return the sums of the columns of at most `PRODUCT_ROWS` rows, exactly."""
    if whole.dtype == np.float64:
        return np.asarray(whole.sum(axis=0), dtype=np.float64)
    if worth_compiling(whole.size) and whole.flags.c_contiguous:
        columns = whole.shape[1]
        totals = np.zeros(columns, dtype=np.int64)
        totals_loop()(whole, np.empty(columns, dtype=np.int32), totals)
        return totals.astype(np.float64)
    # Eight numbers at a time, which are exact in float32 in any order and move half as many bytes.
    rows, columns = whole.shape
    eighth = rows // _SINGLE_ROWS
    rest = whole[eighth * _SINGLE_ROWS :].sum(axis=0)
    eights = _ONES @ whole[: eighth * _SINGLE_ROWS].reshape(_SINGLE_ROWS, -1)
    return np.asarray(eights.reshape(eighth, columns).sum(axis=0, dtype=np.float64) + rest)


def rounded_quotients(numerators: NDArray[Any], denominator: Fraction) -> FloatArray:
    """Return Python integers divided by a positive rational, rounded to nearest, halves up.

    Quotients below 2**53 are exact as floats.

    Examples
    --------
    >>> rounded_quotients(np.array([7, -7, 10], dtype=object), Fraction(2)).tolist()
    [4.0, -3.0, 5.0]
    """
    above, below = numerators * denominator.denominator, denominator.numerator
    return np.asarray((2 * above + below) // (2 * below), dtype=np.float64)


def power_of_two_up(value: Fraction) -> Fraction:
    """Return the smallest power of two that is at least a positive rational.

    Examples
    --------
    >>> power_of_two_up(Fraction(3)), power_of_two_up(Fraction(1, 3)), power_of_two_up(Fraction(4))
    (Fraction(4, 1), Fraction(1, 2), Fraction(4, 1))
    """
    # The quotient of the two lengths is at most the value, and more than a quarter of it.
    exponent = value.numerator.bit_length() - value.denominator.bit_length() - 1
    power = Fraction(2) ** exponent if exponent >= 0 else Fraction(1, 2**-exponent)
    while power < value:
        power *= 2
    return power


def block_rows(columns: int) -> int:
    """Return how many records to round at once: a block that fits a cache, where it can."""
    return min(PRODUCT_ROWS, max(1, _BLOCK_NUMBERS // columns))


def _product_rows(columns: int) -> int:
    return min(PRODUCT_ROWS, max(_LEAST_PRODUCT_ROWS, _PRODUCT_NUMBERS // columns))
