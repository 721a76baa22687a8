r"""Records as whole numbers: clamped, clipped and rounded to a public grid.

A float program that clips rows and adds them up does not have the sensitivity of its formula: a
clipped norm may exceed the bound by a rounding, and a float sum moves by more than its terms.
Here every record becomes a row of integers that depends on that record alone and satisfies the
bounds in exact arithmetic. Everything after it is integer arithmetic, so no order, block size or
number of threads changes a bit of the answer, and neighbouring data differ by their own terms.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.queries.bounds import PublicBounds

__all__ = ["GRID_BITS", "MOST_RECORDS", "RecordGrid", "squared_lengths"]

FloatArray = NDArray[np.float64]

GRID_BITS = 21
"""A bound has from 2**20 to 2**21 steps."""

MOST_RECORDS = 2**30
"""Sums of so many records stay below 2**53 steps, where float64 holds every integer."""

# So many squares below 2**(2 GRID_BITS) add up to at most 2**53, exactly in any order.
_EXACT_COLUMNS = 2 ** (53 - 2 * GRID_BITS)
# Powers of two that float32 holds as normal numbers.
_SINGLE_EXPONENTS = range(-126, 128)


class RecordGrid:
    """Turns records into whole numbers of steps that keep the public bounds exactly.

    Parameters
    ----------
    bounds : PublicBounds
        What every record is to satisfy.

    Attributes
    ----------
    steps : ndarray, shape (columns,)
        The step of each column: a power of two. One for all columns if there is a norm, otherwise
        from 2**-21 to 2**-20 of the largest absolute value in each column's range.

    Notes
    -----
    *Guarantee:* with q the row that `__call__` returns for a record, ``steps * q`` is within the
    bounds in exact arithmetic, and q depends on nothing but the record.

    *Norm.* The sum of the squares of integers is exact in float64 whenever it is below 2**53,
    whatever the order. If it is not, some partial sum reaches 2**53 and, because rounding is
    monotone, the computed sum does not fall below that again. So comparing the computed sum with
    ``floor((norm / step)**2)``, which is at most 2**42, is an exact test. Rows that fail it are
    scaled (see `_clipped`) and tested again; a row that failed twice would count as zero.

    *Box.* Rounded numbers are clamped to the integers from ``ceil(lower / step)`` to
    ``floor(upper / step)``, which are exact rationals.

    *Error.* A number within the bounds moves by at most half a step, and by at most one step where
    clamping to the integers within the box moves it once more. A clipped row is shorter than the
    bound by a share of at most ``sqrt(columns) 2**-19``.
    """

    def __init__(self, bounds: PublicBounds) -> None:
        self.bounds = bounds
        if bounds.norm is None:
            self.steps = np.array([_step(float(bound)) for bound in bounds.largest_entries])
        else:
            self.steps = np.full(bounds.columns, _step(bounds.norm))
            radius = Fraction(bounds.norm) / Fraction(float(self.steps[0]))
            self._most_squares = float(math.floor(radius**2))
            self._length = _target_length(float(radius), bounds.columns)
        self._inverse = 1.0 / self.steps  # exact, and so is a product with it
        if bounds.lower is not None and bounds.upper is not None:
            self._lowest = _whole(bounds.lower, self.steps, math.ceil)
            self._highest = _whole(bounds.upper, self.steps, math.floor)

    def __call__(self, records: NDArray[Any]) -> FloatArray:
        """Return the whole numbers of steps of a block of records, as a new float64 array.

        Raises
        ------
        InvalidParameterError
            If a record holds NaN or infinity.
        """
        # Overflow gives infinity, which fails the test of the norm or is clamped.
        with np.errstate(all="ignore"):
            whole = self._rounded(records)
            if self.bounds.lower is not None:
                _check_finite(records)
                np.clip(whole, self._lowest, self._highest, out=whole)
            if self.bounds.norm is not None:
                squares = np.einsum("ij,ij->i", whole, whole)
                outside = ~(squares <= self._most_squares)
                if bool(outside.any()):
                    whole[outside] = self._clipped(records[outside])
        return whole

    def touched(self, records: NDArray[Any]) -> NDArray[np.bool_]:
        """Return for each record whether the bounds move it by more than rounding does."""
        whole = self(records)
        with np.errstate(all="ignore"):
            moved = np.abs(records * self._inverse - whole)
        return np.asarray((moved > 1.0).any(axis=1))

    def _rounded(self, records: NDArray[Any]) -> FloatArray:
        """Return ``rint(records / steps)``."""
        # A product with a power of two is exact in float32 too, and twice as fast; where it
        # overflows or underflows, the outcome is that of float64 all the same.
        exponents = np.frexp(self._inverse)[1] - 1
        single = records.dtype == np.float32 and all(
            int(end) in _SINGLE_EXPONENTS for end in (exponents.min(), exponents.max())
        )
        factors = self._inverse.astype(np.float32) if single else self._inverse
        # One number instead of many equal ones: numpy multiplies by it much faster.
        scaled = records * (factors[0] if self.bounds.norm is not None else factors)
        np.rint(scaled, out=scaled)
        return scaled.astype(np.float64, copy=False)

    def _clipped(self, records: NDArray[Any]) -> FloatArray:
        """Return whole numbers of records that are outside the norm.

        Each record is first scaled by a power of two such that its largest number is from 2**20 to
        2**21; then the norm of its rounded numbers is exact up to the square root, and so the same
        in every block.
        """
        _check_finite(records)
        clamped = records.astype(np.float64)
        if self.bounds.lower is not None:
            clamped = np.clip(clamped, self.bounds.lower, self.bounds.upper)
        exponents = np.frexp(np.abs(clamped).max(axis=1))[1]
        scaled = np.ldexp(clamped, (GRID_BITS - exponents)[:, None])
        norms = np.sqrt(squared_lengths(np.rint(scaled)))
        whole = np.rint(scaled * (self._length / norms)[:, None])
        if self.bounds.lower is not None:
            np.clip(whole, self._lowest, self._highest, out=whole)
        # True by the choice of the length. Tested all the same, because privacy rests on it.
        inside = squared_lengths(whole) <= self._most_squares
        return np.asarray(np.where(inside[:, None], whole, 0.0))


def squared_lengths(whole: FloatArray) -> FloatArray:
    """Return the sum of squares of each row of integers up to 2**21; the same in every layout."""
    # Each group of columns is exact in any order, and the groups are added in a fixed one.
    total = np.zeros(len(whole))
    for start in range(0, whole.shape[1], _EXACT_COLUMNS):
        part = whole[:, start : start + _EXACT_COLUMNS]
        total += np.einsum("ij,ij->i", part, part)
    return total


def _step(bound: float) -> float:
    """Return the power of two that is from 2**-21 to 2**-20 of a bound."""
    return math.ldexp(1.0, math.frexp(bound)[1] - GRID_BITS)


def _target_length(radius: float, columns: int) -> float:
    """Return the length, in steps, to which rows are scaled before they are rounded.

    With d columns, rounding the scaled row moves it by at most ``sqrt(d) / 2``. The norm that it is
    divided by is that of a rounded row of at least 2**20, so it is off by a share of at most
    ``sqrt(d) 2**-21``. The last factor covers the float operations in between.
    """
    root = math.sqrt(columns)
    return (radius - root / 2.0) / (1.0 + root * 2.0**-GRID_BITS) * (1.0 - 2.0**-40)


def _whole(ends: FloatArray, steps: FloatArray, rounding: Any) -> FloatArray:
    pairs = zip(ends.tolist(), steps.tolist(), strict=True)
    return np.array([float(rounding(Fraction(end) / Fraction(step))) for end, step in pairs])


def _check_finite(records: NDArray[Any]) -> None:
    # Neither the record nor its place is shown: the message may end up in a public log.
    if not bool(np.isfinite(records).all()):
        raise InvalidParameterError(
            "data contains NaN or infinity: fill or drop such values by a rule that looks at one "
            "record at a time"
        )
