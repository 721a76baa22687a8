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
from matrixdp.queries.compiled_rows import (
    clipping_loop,
    rounding_loop,
    squared_below,
    worth_compiling,
)

__all__ = ["GRID_BITS", "RecordGrid", "squared_lengths", "whole_blocks"]

FloatArray = NDArray[np.float64]
Whole = NDArray[np.float64] | NDArray[np.float32]
"""Integers of at most 2**21 in absolute value, in floats of either size."""

GRID_BITS = 21
"""A bound has from 2**20 to 2**21 steps."""

# So many squares below 2**(2 GRID_BITS) add up to at most 2**53, exactly in any order.
_EXACT_COLUMNS = 2 ** (53 - 2 * GRID_BITS)
# Sums of squares of integers are exact if they come out below this.
_EXACT_SQUARES = 2.0**53
# Powers of two that float32 holds as normal numbers.
_SINGLE_EXPONENTS = range(-126, 128)
# A float32 operation is off by at most this share.
_SINGLE_ROUNDOFF = 2.0**-24


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

    *float32.* Their integers stay float32, where half as many bytes are moved. In whatever order
    they are added, d squares come out above ``1 - (d + 1) 2**-24`` times their sum (Higham 2002,
    section 3.1; no square underflows). So a row whose computed sum is at most that share of the
    limit is within it; the few others have the exact test.

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
            # No row is outside.
            self._most_squares, self._surely_within = math.inf, np.float32(math.inf)
        else:
            self.steps = np.full(bounds.columns, _step(bounds.norm))
            radius = Fraction(bounds.norm) / Fraction(float(self.steps[0]))
            self._most_squares = float(math.floor(radius**2))
            self._surely_within = _surely_within(self._most_squares, bounds.columns)
            self._length = _target_length(float(radius), bounds.columns)
        self.steps.setflags(write=False)  # what was proven for them must stay true
        self._inverse = 1.0 / self.steps  # exact, and so is a product with it
        if bounds.lower is not None and bounds.upper is not None:
            self._lowest = _whole(bounds.lower, self.steps, math.ceil)
            self._highest = _whole(bounds.upper, self.steps, math.floor)
        self._factor = _one_if_alike(self._inverse)
        self._ends = (
            None
            if bounds.lower is None
            else (_one_if_alike(self._lowest), _one_if_alike(self._highest))
        )
        self.keeps_single = self._fits_single()
        self._by_kind: dict[np.dtype[Any], tuple[NDArray[Any], ...]] = {}

    def __call__(self, records: NDArray[Any]) -> FloatArray:
        """Return the multiples of steps of a block of records, as a new float64 array.

        Raises
        ------
        InvalidParameterError
            If a record holds NaN or infinity.
        """
        single = records.dtype == np.float32 and self.keeps_single
        whole = np.empty(records.shape, dtype=np.float32 if single else np.float64)
        self.fill(records, whole)
        return whole.astype(np.float64, copy=False)

    def fill(self, records: NDArray[Any], whole: Whole) -> None:
        """Write the integers of a block into ``whole``: float32 for float32 that stay so."""
        if worth_compiling(records.size) and whole.flags.c_contiguous:
            # As they are kept: a product with the factor is the same in both types.
            given = np.ascontiguousarray(records, dtype=whole.dtype)
            left = self._fill_compiled(given, whole)
            if not left.size:
                return
            # A row depends on its record alone.
            rest = np.empty((len(left), whole.shape[1]), dtype=whole.dtype)
            self._fill_by_numpy(records.take(left, axis=0), rest)
            whole[left] = rest
            return
        self._fill_by_numpy(records, whole)

    def _fill_compiled(self, records: NDArray[Any], whole: Whole) -> NDArray[np.int64]:
        """Write the integers of nearly all records; return the indices of the others."""
        kind, boxed = whole.dtype, self._ends is not None
        limit = self._surely_within if kind == np.float32 else self._most_squares
        suspects = np.empty(len(whole), dtype=np.int64)
        count = rounding_loop(kind.itemsize, boxed=boxed)(
            records, *self._sides(kind), kind.type(limit), whole, suspects
        )
        if count and self.bounds.norm is not None:
            count = clipping_loop(kind.itemsize, boxed=boxed)(
                records,
                *self._sides(np.dtype(np.float64))[1:],
                float(self.steps[0]),
                kind.type(squared_below(self.bounds.columns)),
                int(self._most_squares),
                self._length,
                whole,
                suspects,
                count,
            )
        return suspects[:count]

    def _sides(self, kind: np.dtype[Any]) -> tuple[NDArray[Any], ...]:
        """Return factors and ends of the box, a number for each column, for compiled loops."""
        if kind not in self._by_kind:
            # Without a box its ends are not read.
            lowest, highest = self._ends or (self._factor, self._factor)
            shape = (self.bounds.columns,)
            self._by_kind[kind] = tuple(
                np.ascontiguousarray(np.broadcast_to(side, shape), dtype=kind)
                for side in (self._factor, lowest, highest)
            )
        return self._by_kind[kind]

    def _fill_by_numpy(self, records: NDArray[Any], whole: Whole) -> None:
        # Overflow gives infinity, which fails the test of the norm or is clamped.
        with np.errstate(all="ignore"):
            self._round(records, whole)
            if self.bounds.norm is not None:
                self._clip(records, whole)

    def _round(self, records: NDArray[Any], whole: Whole) -> None:
        """Write ``rint(records / steps)``, clamped to the box."""
        kind = whole.dtype
        # A product with a power of two is exact in float32, too; where it overflows or underflows,
        # the outcome is that of float64 all the same.
        np.multiply(records, self._factor.astype(kind), out=whole)
        np.rint(whole, out=whole)
        if self._ends is not None:
            # A finite sum of squares has finite terms; one that overflows shows nothing.
            if not np.isfinite(_squares(whole).sum()):
                _check_finite(records)
            low, high = self._ends
            np.clip(whole, low.astype(kind), high.astype(kind), out=whole)

    def _clip(self, records: NDArray[Any], whole: Whole) -> None:
        """Scale the rows of ``whole`` that are outside the norm down to it."""
        limit = self._surely_within if whole.dtype == np.float32 else self._most_squares
        suspects = np.flatnonzero(~(_squares(whole) <= limit))
        if not suspects.size:
            return
        found = records.take(suspects, axis=0).astype(np.float64, copy=False)
        exact = np.empty(found.shape)
        self._round(found, exact)
        squares = _squares(exact)
        outside = ~(squares <= self._most_squares)
        if not outside.all():
            suspects, found, squares = suspects[outside], found[outside], squares[outside]
        whole[suspects] = self._clipped(found, squares)

    def clipped(self, records: NDArray[Any]) -> NDArray[np.bool_]:
        """Return for each record whether the bounds move it by more than rounding does."""
        whole = self(records)
        with np.errstate(all="ignore"):
            moved = np.abs(records * self._inverse - whole)
        return np.asarray((moved > 1.0).any(axis=1))

    def _fits_single(self) -> bool:
        """Return whether float32 holds the factors, the ends of the box and all integers in it."""
        exponents = np.frexp(self._inverse)[1] - 1
        if not all(int(end) in _SINGLE_EXPONENTS for end in (exponents.min(), exponents.max())):
            return False
        ends = [] if self.bounds.lower is None else [self._lowest, self._highest]
        return all(bool((end.astype(np.float32) == end).all()) for end in ends)

    def _clipped(self, records: FloatArray, squares: Whole) -> FloatArray:
        """Return the integers of records that are outside the norm.

        Parameters
        ----------
        records : ndarray
            The records, which are overwritten.
        squares : ndarray
            The computed squared norms of their integers, which are exact if below 2**53.
        """
        clamped = records
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


def whole_blocks(blocks: Iterable[NDArray[Any]], *grids: RecordGrid) -> Iterator[Whole]:
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
    keep_single = all(grid.keeps_single for grid in grids)
    space: Whole = np.empty((0, ends[-1]))
    for block in blocks:
        rows, kind = len(block), np.dtype(np.float64)
        if keep_single and block.dtype == np.float32:
            kind = block.dtype
        # Space is kept from block to block: fresh memory would take longer than the arithmetic.
        if rows > len(space) or space.dtype != kind:
            space = np.empty(block.shape, dtype=kind)
        for grid, start, end in parts:
            grid.fill(block[:, start:end], space[:rows, start:end])
        yield space[:rows]


def squared_lengths(whole: FloatArray) -> FloatArray:
    """Return the sum of squares of each row of integers up to 2**21; the same in every layout."""
    if whole.shape[1] <= _EXACT_COLUMNS:
        return np.asarray(_squares(whole), dtype=np.float64)
    # Each group of columns is exact in any order, and the groups are added in a fixed one.
    total = np.zeros(len(whole))
    for start in range(0, whole.shape[1], _EXACT_COLUMNS):
        part = whole[:, start : start + _EXACT_COLUMNS]
        total += _squares(part)
    return total


def _squares(whole: Whole) -> Whole:
    """Return the sum of squares of each row: twice as fast as einsum."""
    return np.asarray(np.matmul(whole[:, None, :], whole[:, :, None])[:, 0, 0])


def _one_if_alike(numbers: FloatArray) -> FloatArray:
    """Return one number in place of equal ones: numpy broadcasts it much faster."""
    return np.asarray(numbers[0] if bool((numbers == numbers[0]).all()) else numbers)


def _step(bound: float) -> float:
    """Return the power of two that is from 2**-21 to 2**-20 of a bound."""
    return math.ldexp(1.0, math.frexp(bound)[1] - GRID_BITS)


def _surely_within(most: float, columns: int) -> np.float32:
    """Return what the squares of a row add up to in float32, at most, only if they are within."""
    # One operation more than there are covers the roundings of this line.
    share = max(0.0, 1.0 - (columns + 2) * _SINGLE_ROUNDOFF)
    return np.float32(np.nextafter(np.float32(most * share), np.float32(0.0)))


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
