"""Sums of integers that are exact whatever their order: small ones in floats, large in pairs.

Products of rows of integers are computed by BLAS in float64, which is exact while every partial sum
stays below 2**53. They are then added up in 64-bit integers, and those in pairs of integers.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.queries.grid import GRID_BITS, MOST_RECORDS

__all__ = [
    "LEAST_PRODUCT_ROWS",
    "PRODUCT_BITS",
    "PRODUCT_ROWS",
    "ExactSum",
    "block_rows",
    "power_of_two_up",
    "rounded_quotients",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PRODUCT_ROWS: int = 2 ** (53 - 2 * GRID_BITS)
"""Of so many records, products of two integers add up to at most 2**53."""

LEAST_PRODUCT_ROWS = 512
"""With fewer records at once, adding up products would take longer than making them."""

PRODUCT_BITS = 19
"""Bits that are rounded off a sum of products: of 2**30 records it is then below 2**53."""

# Of so many records the sum of products is at most 2**62, and fits an int64.
_NARROW_RECORDS = 2 ** (62 - 2 * GRID_BITS)
_LOW_BITS = 32
# Two megabytes of float64.
_BLOCK_NUMBERS = 2**18


class ExactSum:
    """The sum of arrays of integers, each of the records of one block.

    Parameters
    ----------
    shape : tuple of int
        Of the arrays.

    Attributes
    ----------
    records : int
        How many records have been added up.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.records = 0
        self._narrow = np.zeros(shape, dtype=np.int64)
        self._whole = np.empty(shape, dtype=np.int64)
        self._in_narrow = 0
        # The sum is narrow + low + 2**32 high.
        self._low: IntArray | None = None
        self._high: IntArray | None = None

    def add(self, block: FloatArray, records: int) -> None:
        """Add the sum of a block of at most `PRODUCT_ROWS` records: integers of at most 2**53.

        Raises
        ------
        InvalidParameterError
            If there are too many records.
        """
        self.records += records
        # How many there are is private, and not shown.
        if not self.records <= MOST_RECORDS:
            raise InvalidParameterError(
                f"data has more than {MOST_RECORDS} records: split it by a public rule, and the "
                "budget too where a record could be in two parts"
            )
        if self._in_narrow + records > _NARROW_RECORDS:
            self._widen()
        np.copyto(self._whole, block, casting="unsafe")
        self._narrow += self._whole
        self._in_narrow += records

    def integers(self) -> NDArray[Any]:
        """Return the sum as an array of Python integers."""
        low, high = self._split()
        return np.asarray(high.astype(object) * 2**_LOW_BITS + low.astype(object))

    def rounded(self, bits: int) -> IntArray:
        """Return the sum divided by ``2**bits``, rounded to the nearest integer, halves up."""
        low, high = self._split()
        # `low` is below 2**32 and at least 0, so that nothing is carried into `high`.
        return (high << (_LOW_BITS - bits)) + ((low + (1 << bits >> 1)) >> bits)

    def _widen(self) -> None:
        """Move the narrow sum into the pair."""
        self._low, self._high = self._split()
        self._narrow[...] = 0
        self._in_narrow = 0

    def _split(self) -> tuple[IntArray, IntArray]:
        """Return the lowest 32 bits of the whole sum, and the rest of it."""
        low = self._narrow & ((1 << _LOW_BITS) - 1)
        high = self._narrow >> _LOW_BITS
        if self._low is not None and self._high is not None:
            low, high = low + self._low, high + self._high
            high += low >> _LOW_BITS
            low &= (1 << _LOW_BITS) - 1
        return low, high


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


def block_rows(columns: int, least: int = 1) -> int:
    """Return how many records to work on at once: a block that fits a cache, where it can."""
    return min(PRODUCT_ROWS, max(least, _BLOCK_NUMBERS // columns))
