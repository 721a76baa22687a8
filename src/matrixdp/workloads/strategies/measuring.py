"""Measuring a histogram with a product of matrices: exactly, or nearly so.

A row of integer multiples of one power of two, of at most 23 bits, is measured exactly: all its
sums over at most 2**30 records are such multiples below 2**53, and privacy needs no allowance for
rounding. Totals, cells and trees are such rows. The bits of the factors of a product add up, and so
do those of a weight. Other rows are measured as if in twice the precision, so that the noise covers
the rounding error at no cost. Blocks that have no weight are not measured.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import FloatArray, along_axes

__all__ = [
    "MOST_BITS",
    "bits_of_rows",
    "bits_of_weights",
    "compensated_error",
    "compensated_product",
    "measured_blocks",
    "run_starts",
]

# Veltkamp's constant for 53 bits: it splits a float into halves whose products are exact.
_SPLITTER = 2.0**27 + 1.0


def compensated_product(matrix: FloatArray, array: FloatArray) -> FloatArray:
    """Return the product over the first axis of an array, as if in twice the precision.

    Every rounding error of a product (Veltkamp, Dekker) and of a sum (Knuth) is itself a float; the
    errors are summed alongside and added at the end: algorithm Dot2 of Ogita, Rump and Oishi
    (2005). Zeros above and below the entries of a column of the matrix are skipped.
    """
    columns = array.reshape(len(array), 1, -1)
    total = np.zeros((len(matrix), columns.shape[2]))
    errors = np.zeros_like(total)
    left_high, left_low = _split(matrix)
    right_high, right_low = _split(columns)
    for term in range(matrix.shape[1]):
        indices = np.flatnonzero(matrix[:, term])
        if not indices.size:
            continue
        # A slice, not the indices themselves: indexing by a list would copy in every step.
        rows = slice(indices[0], indices[-1] + 1)
        left, right = matrix[rows, term, None], columns[term]
        product = left * right
        # Dekker: the halves multiply exactly, in this order, so that `lost` is the exact error.
        high, low = left_high[rows, term, None], left_low[rows, term, None]
        lost = ((high * right_high[term] - product) + high * right_low[term]) + low * right_high[
            term
        ]
        lost += low * right_low[term]
        # Knuth: the exact error of the sum, whichever of the two numbers is larger.
        before = total[rows]
        grown = before + product
        part = grown - before
        errors[rows] += ((before - (grown - part)) + (product - part)) + lost
        total[rows] = grown
    return (total + errors).reshape(len(matrix), *array.shape[1:])


def compensated_error(terms: int) -> float:
    """Return a bound on the error of an entry of that product, over ``|M| |x|``.

    It is ``u + gamma^2`` with ``gamma = k u / (1 - k u)`` and k one more than the number of terms
    (Ogita, Rump and Oishi 2005, Proposition 5.5), rounded up.
    """
    gamma = (terms + 1) * UNIT_ROUNDOFF / (1.0 - (terms + 1) * UNIT_ROUNDOFF)
    return (UNIT_ROUNDOFF + gamma**2) * (1.0 + 8 * UNIT_ROUNDOFF)


def _split(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return two floats of at most 26 bits each whose sum is the value."""
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    return high, values - high


MOST_BITS = 23
"""2**23 times the most records is 2**53, up to which integers are exact."""


def bits_of_rows(matrix: FloatArray) -> FloatArray:
    """Return how many bits make every entry of a row an integer multiple of one power of two.

    More than 23 bits count as infinitely many.

    Examples
    --------
    >>> bits_of_rows(np.array([[1.0, 0.0], [0.5, 0.75], [0.1, 0.2]])).tolist()
    [1.0, 2.0, inf]
    """
    # Relative to the largest entry of the row: which power of two it is does not matter.
    _, exponents = np.frexp(np.max(np.abs(matrix), axis=1, keepdims=True))
    bits = np.full(len(matrix), math.inf)
    # From many bits to few, so that the smallest number that does is the last to be entered.
    for count in range(MOST_BITS, -1, -1):
        multiples = np.ldexp(matrix, count - exponents)
        bits[np.all(multiples == np.rint(multiples), axis=1)] = count
    return bits


def bits_of_weights(weights: FloatArray) -> FloatArray:
    """Return 1 for powers of two, 0 where nothing is measured, and infinity for the rest."""
    # Any other weight may have 53 bits, which is more than a product can have left over.
    mantissas, _ = np.frexp(weights)
    return np.where(weights == 0.0, 0.0, np.where(mantissas == 0.5, 1.0, math.inf))


# With more runs per axis the choices of one for each are too many to be worth separating.
_MOST_RUNS = 4


def run_starts(weights: FloatArray, axis: int) -> NDArray[np.intp]:
    """Return where the weights change along an axis.

    Examples
    --------
    >>> run_starts(np.array([[1.0, 2.0, 2.0], [1.0, 0.0, 0.0]]), 1).tolist()
    [0, 1]
    """
    rows = np.moveaxis(weights, axis, 0)
    changes = [not np.array_equal(one, other) for one, other in pairwise(rows)]
    return np.flatnonzero([True, *changes])


def measured_blocks(
    factors: Sequence[FloatArray], weights: FloatArray, histogram: FloatArray
) -> FloatArray:
    """Return ``(F_1 x .. x F_k) x`` where there is weight, and 0 elsewhere.

    Along each axis the rows fall into runs of the same weights. For every choice of one run for
    each axis the single rows, which sum an axis up, are applied first, and the result is shared by
    all choices that agree so far; the other rows follow when the array is small. Whatever the
    order, every axis is one compensated product, so that the error bound is the same.
    """
    result = np.zeros(weights.shape)
    runs = [list(_runs(weights, axis)) for axis in range(weights.ndim)]

    def measure(array: FloatArray, chosen: tuple[slice, ...]) -> None:
        axis = len(chosen)
        if axis == len(runs):
            result[chosen] = _applied(factors, chosen, array)
            return
        for run in runs[axis]:
            if not np.any(weights[(*chosen, run)]):
                continue  # nothing below this choice is measured
            if run.stop - run.start == 1:
                # A single row sums the axis up at once, for all choices along the later axes.
                row = factors[axis][run]
                summed = compensated_product(row, np.ascontiguousarray(np.moveaxis(array, axis, 0)))
                measure(np.moveaxis(summed, 0, axis), (*chosen, run))
            else:
                measure(array, (*chosen, run))

    measure(histogram, ())
    return result


def _applied(
    factors: Sequence[FloatArray], chosen: tuple[slice, ...], array: FloatArray
) -> FloatArray:
    """Return the products with runs of several rows, once single rows have been applied."""
    maps = [
        lambda part, m=factor[run]: compensated_product(m, np.ascontiguousarray(part))
        for factor, run in zip(factors, chosen, strict=True)
    ]
    # Single rows have been applied already, on the way down.
    several = [axis for axis, run in enumerate(chosen) if run.stop - run.start > 1]
    return along_axes(maps, array, several)


def _runs(weights: FloatArray, axis: int) -> Iterator[slice]:
    """Return the runs along an axis, or all of it where there are too many."""
    starts = run_starts(weights, axis).tolist()
    ends = [*starts[1:], weights.shape[axis]]
    if len(starts) > _MOST_RUNS:
        starts, ends = [0], [weights.shape[axis]]
    return (slice(start, end) for start, end in zip(starts, ends, strict=True))
