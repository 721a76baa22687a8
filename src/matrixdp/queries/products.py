"""Sums of products of records: their integers, and what one record changes in them."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.integer_sums import Integers, Part, RunningSum
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries.bounds import PublicBounds, exact_squared_norm
from matrixdp.queries.exact_sums import (
    block_rows,
    dropped_bits,
    for_products,
)
from matrixdp.queries.grid import GRID_BITS, RecordGrid, whole_blocks
from matrixdp.queries.names import Columns
from matrixdp.queries.sources import record_blocks
from matrixdp.rounding import inflated, sqrt_up

__all__ = [
    "cross_change",
    "gram_change",
    "gram_part",
    "product_bits",
    "product_rounding",
    "product_values",
]

FloatArray = NDArray[np.float64]
Interval = tuple[FloatArray, FloatArray]


def gram_part(data: Any, *grids: RecordGrid) -> Part:
    """Return the part of the records of a source in a Gram matrix, in products of steps."""
    read = Columns.together(*(grid.bounds.read for grid in grids))
    total, records = RunningSum((read.width, read.width)), 0
    product = np.empty((read.width, read.width))
    blocks = record_blocks(data, read, block_rows(read.width))
    for whole in for_products(whole_blocks(blocks, *grids)):
        total.add(np.matmul(whole.T, whole, out=product))
        records += len(whole)
    return Part(records, (total.total(),))


def product_bits(most_records: int) -> int:
    """Return how many bits are rounded off a sum of products of two integers of records."""
    return dropped_bits(most_records, 2 * GRID_BITS)


def product_values(total: Integers, left: FloatArray, right: FloatArray, bits: int) -> FloatArray:
    """Return sums of products of integers in float64, rounded to multiples of 2**bits steps²."""
    # At most 2**53 such units; the factors are powers of two, so that nothing else is rounded.
    units = (left * 2.0**bits)[:, None] * right
    return np.asarray(total.rounded(bits) * units)


def product_rounding(left: FloatArray, right: FloatArray, unit: Fraction) -> Fraction:
    """Return by how much rounding to units lets the difference of two matrices grow, in norm.

    Two numbers, each rounded to the nearest multiple of a unit, differ by at most one unit more
    than before. The norm of the matrix of units is ``unit |left| |right|``.
    """
    lengths = [Fraction(sqrt_up(exact_squared_norm(steps))) for steps in (left, right)]
    return unit * lengths[0] * lengths[1]


def gram_change(parts: tuple[PublicBounds, ...], neighbouring: Neighbouring) -> Fraction:
    """Return a bound of the norm of ``z z^T``, or of the difference of two, for rows z = [x y ..].

    Derived in the docstring of `Gram`.
    """
    square = sum((part.squared_radius for part in parts), start=Fraction(0))
    if neighbouring == "add-remove":
        return square
    whole = Fraction(sqrt_up(2 * square**2))
    # With one norm for several columns the ranges of single entries say less.
    if len(parts) == 1 and parts[0].lower is None and parts[0].columns > 1:
        return whole
    interval = (
        np.concatenate([part.intervals[0] for part in parts]),
        np.concatenate([part.intervals[1] for part in parts]),
    )
    return min(whole, _entrywise(interval, interval, same=True))


def cross_change(x: PublicBounds, y: PublicBounds, neighbouring: Neighbouring) -> Fraction:
    """Return a bound of the norm of ``x y^T``, or of the difference of two.

    Derived in the docstring of `CrossMoment`.
    """
    product = Fraction(sqrt_up(x.squared_radius * y.squared_radius))
    if neighbouring == "add-remove":
        return product
    # Likewise: two norms alone say more than the ranges of the entries.
    if x.lower is None and y.lower is None:
        return 2 * product
    return min(2 * product, _entrywise(x.intervals, y.intervals, same=False))


def _entrywise(x: Interval, y: Interval, *, same: bool) -> Fraction:
    """Return the norm of the matrix of the lengths of the ranges of ``x_i y_j``, rounded up.

    Parameters
    ----------
    x, y : pair of ndarray
        The ranges of the entries.
    same : bool
        Whether y is x, so that the entries on the diagonal are squares.
    """
    corners = [np.multiply.outer(a, b) for a in x for b in y]
    lengths = np.maximum.reduce(corners) - np.minimum.reduce(corners)
    if same:
        squares = np.square(x)
        least = np.where((x[0] <= 0.0) & (x[1] >= 0.0), 0.0, squares.min(axis=0))
        np.fill_diagonal(lengths, squares.max(axis=0) - least)
    # Each length is a difference of two rounded products, which may cancel: the error is a share
    # of the larger one, so that it is added and not multiplied.
    largest = np.maximum.reduce([np.abs(corner) for corner in corners])
    lengths += largest * 2.0**-50
    scale = float(lengths.max())
    norm = scale * math.sqrt(float(np.sum(np.square(lengths / scale))))
    return Fraction(inflated(norm, lengths.size + 16))
