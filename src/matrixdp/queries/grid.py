r"""Records as integers: clamped, clipped and rounded to a public grid.

A float program that clips rows and adds them up does not have the sensitivity of its formula: a
clipped norm may exceed the bound by a rounding, and a float sum moves by more than its terms.
Here every record becomes a row of integers that depends on that record alone and satisfies the
bounds in exact arithmetic. Everything after it is integer arithmetic, so no order, block size or
number of threads changes a bit of the answer, and neighbouring data differ by their own terms.
"""

import math
import sys
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import all_within
from matrixdp.queries.bounds import PublicBounds

__all__ = ["GRID_BITS", "MOST_RECORDS", "RecordGrid", "squared_lengths", "whole_blocks"]

FloatArray = NDArray[np.float64]

GRID_BITS = 21
"""A bound has from 2**20 to 2**21 steps."""

MOST_RECORDS = 2**30
"""Sums of so many records stay below 2**53 steps, where float64 holds every integer."""

# So many squares below 2**(2 GRID_BITS) add up to at most 2**53, exactly in any order.
_EXACT_COLUMNS = 2 ** (53 - 2 * GRID_BITS)
# Sums of squares of integers are exact if they come out below this.
_EXACT_SQUARES = 2.0**53
# Powers of two that float32 holds as normal numbers.
_SINGLE_EXPONENTS = range(-126, 128)


class RecordGrid:
    """Turns records into integer multiples of steps that keep the public bounds exactly.

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
        self.steps.setflags(write=False)  # what was proven for them must stay true
        self._inverse = 1.0 / self.steps  # exact, and so is a product with it
        if bounds.lower is not None and bounds.upper is not None:
            self._lowest = _whole(bounds.lower, self.steps, math.ceil)
            self._highest = _whole(bounds.upper, self.steps, math.floor)

    def __call__(self, records: NDArray[Any]) -> FloatArray:
        """Return the multiples of steps of a block of records, as a new float64 array.

        Raises
        ------
        InvalidParameterError
            If a record holds NaN or infinity.
        """
        whole = np.empty(records.shape)
        self.fill(records, whole, np.empty(records.shape, dtype=np.float32))
        return whole

    def fill(self, records: NDArray[Any], whole: FloatArray, single: NDArray[np.float32]) -> None:
        """Write the integers of a block into ``whole``; ``single`` is space to work in."""
        # Overflow gives infinity, which fails the test of the norm or is clamped.
        with np.errstate(all="ignore"):
            self._round(records, whole, single)
            if self.bounds.lower is not None:
                _check_finite(records)
                np.clip(whole, self._lowest, self._highest, out=whole)
            if self.bounds.norm is not None:
                squares = _squares(whole)
                outside = ~(squares <= self._most_squares)
                if bool(outside.any()):
                    whole[outside] = self._clipped(records[outside], squares[outside])

    def clipped(self, records: NDArray[Any]) -> NDArray[np.bool_]:
        """Return for each record whether the bounds move it by more than rounding does."""
        whole = self(records)
        with np.errstate(all="ignore"):
            moved = np.abs(records * self._inverse - whole)
        return np.asarray((moved > 1.0).any(axis=1))

    def _round(self, records: NDArray[Any], whole: FloatArray, single: NDArray[np.float32]) -> None:
        """Write ``rint(records / steps)``."""
        # One number instead of many equal ones: numpy multiplies by it much faster.
        factors = self._inverse if self.bounds.norm is None else self._inverse[0]
        # A product with a power of two is exact in float32 too, and twice as fast; where it
        # overflows or underflows, the outcome is that of float64 all the same.
        exponents = np.frexp(self._inverse)[1] - 1
        if records.dtype == np.float32 and all(
            int(end) in _SINGLE_EXPONENTS for end in (exponents.min(), exponents.max())
        ):
            np.multiply(records, factors.astype(np.float32), out=single)
            np.rint(single, out=single)
            whole[...] = single
        else:
            np.multiply(records, factors, out=whole)
            np.rint(whole, out=whole)

    def _clipped(self, records: NDArray[Any], squares: FloatArray) -> FloatArray:
        """Return the integers of records that are outside the norm.

        Parameters
        ----------
        records : ndarray
            The records.
        squares : ndarray
            The computed squared norms of their integers, which are exact if below 2**53.
        """
        clamped = records.astype(np.float64)
        if self.bounds.lower is not None:
            # To the whole steps within the box, as the rows that `squares` belong to: clamped to
            # the box itself, a row could be longer than they say, and fail the last test.
            np.clip(clamped, self._lowest * self.steps, self._highest * self.steps, out=clamped)
        far = ~(squares < _EXACT_SQUARES)
        if bool(far.any()):
            # Others are finite, because their squares are.
            _check_finite(records[far])
            clamped[far], squares[far] = self._shrunk(clamped[far])
        # Exact squares: the factors, and with them the rows, are the same in every block.
        clamped *= (self._length / np.sqrt(squares) * self._inverse[0])[:, None]
        whole = np.rint(clamped, out=clamped)
        if self.bounds.lower is not None:
            np.clip(whole, self._lowest, self._highest, out=whole)
        # True by the choice of the length. Tested all the same, because privacy rests on it.
        whole[~(squared_lengths(whole) <= self._most_squares)] = 0.0
        return whole

    def _shrunk(self, records: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return records times powers of two, and the squared norms of their integers.

        The largest number of each record then has from 2**20 to 2**21 steps.
        """
        # By exponents: the quotient itself may be beyond the largest float.
        exponents = np.frexp(np.abs(records).max(axis=1))[1] - np.frexp(self.steps[0])[1] + 1
        scaled = np.ldexp(records, (GRID_BITS - exponents)[:, None])
        return scaled, squared_lengths(np.rint(scaled * self._inverse[0]))


def whole_blocks(blocks: Iterable[NDArray[Any]], *grids: RecordGrid) -> Iterator[FloatArray]:
    """Yield the integers of blocks of records; each block overwrites the one before it.

    Parameters
    ----------
    blocks : iterable of ndarray
        Records in rows.
    grids : RecordGrid
        Of the first columns, of the next ones, and so on.
    """
    ends = np.cumsum([grid.bounds.columns for grid in grids]).tolist()
    parts = list(zip(grids, [0, *ends[:-1]], ends, strict=True))
    # Space is kept from block to block: fresh memory would take longer than the arithmetic.
    space, single = np.empty((0, ends[-1])), np.empty((0, ends[-1]), dtype=np.float32)
    for block in blocks:
        rows = len(block)
        if rows > len(space):
            space, single = np.empty(block.shape), np.empty(block.shape, dtype=np.float32)
        for grid, start, end in parts:
            grid.fill(block[:, start:end], space[:rows, start:end], single[:rows, start:end])
        yield space[:rows]


def squared_lengths(whole: FloatArray) -> FloatArray:
    """Return the sum of squares of each row of integers up to 2**21; the same in every layout."""
    # Each group of columns is exact in any order, and the groups are added in a fixed one.
    total = np.zeros(len(whole))
    for start in range(0, whole.shape[1], _EXACT_COLUMNS):
        part = whole[:, start : start + _EXACT_COLUMNS]
        total += _squares(part)
    return total


def _squares(whole: FloatArray) -> FloatArray:
    """Return the sum of squares of each row: twice as fast as einsum."""
    return np.asarray(np.matmul(whole[:, None, :], whole[:, :, None])[:, 0, 0])


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
    # Neither the record nor its index is shown: the message may end up in a public log.
    if not all_within(records, sys.float_info.max):
        raise InvalidParameterError(
            "data contains NaN or infinity: fill or drop such values by a rule that looks at one "
            "record at a time"
        )
