r"""The largest distance of two columns: over every pair, or through the factors of a product.

For ``A = F_1 x .. x F_k`` the columns j and k have squared norms a, b and inner product c that are
products of the factors' own, and their squared distance ``a + b - 2 c`` is linear in each factor's
triple (a_i, b_i, c_i) while the others are fixed. Hence it is largest at triples that no other of
the same factor beats: none has a_i and b_i at least as large and c_i at most as small (or, where
the rest of c is negative, at least as large).
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.strategies.measuring import run_starts

__all__ = [
    "columns_are_equal",
    "pairwise_diameter",
    "product_diameter_squared",
    "smallest_inner_product",
]

# Up to this many different squared norms are distinguished; more are rounded up to some of them.
_MOST_LEVELS = 256
# The same where two factors have so many corners that their products would not fit in memory.
_COARSE = 32
_MOST_CORNERS = 2**18
# Two numbers per run make 4**runs corners, so that few runs are all that can be tried.
_MOST_RUNS = 4
# Numbers that differ by this many roundings are taken to be equal; the margin below covers it.
_SAME = 64
# Columns compared with all others at once: 512 x 8,192 products are 32 megabytes.
_TOGETHER = 512


def columns_are_equal(matrix: FloatArray) -> bool:
    """Return whether all columns of a matrix are the same."""
    return bool(np.all(matrix == matrix[:, :1]))


def pairwise_diameter(matrix: FloatArray, roundings: int) -> float:
    """Return an upper bound of the largest distance of two columns; 0 if all are equal.

    Parameters
    ----------
    matrix : ndarray
        Whose columns are compared, every one with every other.
    roundings : int
        How often its entries may have been rounded.
    """
    # The first column is subtracted, so that what all columns share cancels before it is squared:
    # |d_j - d_k|^2 = d_j^T d_j + d_k^T d_k - 2 d_j^T d_k.
    differences = matrix - matrix[:, :1]
    if not differences.any():
        return 0.0
    # A power of two brings them to about 1 without rounding, so that no square underflows.
    exponent = math.frexp(float(np.max(np.abs(differences))))[1]
    differences = np.ldexp(differences, -exponent)
    squares = np.sum(np.square(differences), axis=0)
    largest = 0.0
    for start in range(0, matrix.shape[1], _TOGETHER):
        block = slice(start, start + _TOGETHER)
        products = differences[:, block].T @ differences
        largest = max(largest, float(np.max(squares[block, None] + squares - 2.0 * products)))
    # Inner products and norms are off by rows * u of the norms, the differences by u of themselves.
    margin = 8 * (len(matrix) + 16) * UNIT_ROUNDOFF * float(squares.max())
    entries = 8 * roundings * UNIT_ROUNDOFF * float(np.linalg.norm(matrix, axis=0).max())
    diameter = math.ldexp(math.sqrt(largest + margin) * (1.0 + 4 * UNIT_ROUNDOFF), exponent)
    return (diameter + entries) * (1.0 + 2 * UNIT_ROUNDOFF)


def product_diameter_squared(grams: Sequence[FloatArray]) -> float:
    """Return the largest ``G_jj + G_kk - 2 G_jk`` of a Kronecker product G of Gram matrices.

    It is right to float accuracy. Where there are more than 256 different norms they are rounded
    up, and so is the result.

    Examples
    --------
    >>> import numpy as np
    >>> product_diameter_squared([np.eye(3), 2.0 * np.eye(50)])
    4.0
    """
    corners = np.ones((1, 3))
    for gram in grams:
        own = _corners_of_gram(gram)
        if len(corners) * len(own) > _MOST_CORNERS:
            # Rounding norms up only makes distances larger: the result stays an upper bound.
            corners, own = (_unbeaten(*_as_grid(part, _COARSE)) for part in (corners, own))
        joined = (corners[:, None, :] * own).reshape(-1, 3)
        corners = _unbeaten(*_as_grid(joined, _MOST_LEVELS))
    return max(0.0, float(np.max(corners[:, 0] + corners[:, 1] - 2.0 * corners[:, 2])))


def _corners_of_gram(gram: FloatArray) -> FloatArray:
    """Return the triples of a Gram matrix that no other beats."""
    norms = np.diagonal(gram)
    levels = _levels(norms, _MOST_LEVELS)
    # Columns of the same level lie next to each other, so that blocks of the matrix can be reduced.
    level = np.searchsorted(levels, norms)
    order = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[order], np.arange(len(levels)))
    sorted_gram = gram[np.ix_(order, order)]
    lows = np.minimum.reduceat(np.minimum.reduceat(sorted_gram, starts, 0), starts, 1)
    highs = np.maximum.reduceat(np.maximum.reduceat(sorted_gram, starts, 0), starts, 1)
    return _unbeaten(levels, lows, highs)


def _levels(values: FloatArray, most: int) -> FloatArray:
    """Return the different values, ascending; if they are too many, some of them and the last."""
    levels = np.unique(values)
    # Counted from the largest, which must be kept: everything is rounded up to some level.
    step = -(-len(levels) // most)
    return np.asarray(levels[::-1][::step][::-1])


def _as_grid(triples: FloatArray, most: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return levels of a and b, rounded up, and the least and the largest c for each two."""
    levels = _levels(triples[:, :2].ravel(), most)
    indices = tuple(np.searchsorted(levels, triples[:, :2]).T)
    lows = np.full((len(levels), len(levels)), math.inf)
    highs = -lows
    np.minimum.at(lows, indices, triples[:, 2])
    np.maximum.at(highs, indices, triples[:, 2])
    return levels, lows, highs


def _unbeaten(levels: FloatArray, lows: FloatArray, highs: FloatArray) -> FloatArray:
    """Return the triples that no other beats: with larger a or b, and a c at least as extreme."""
    # The factor's c may meet a negative rest of c, so that its largest values count as well.
    kept = [_staircase(lows), _staircase(-highs)]
    found = [
        np.stack([levels[row], levels[column], values[row, column]], axis=1)
        for values, (row, column) in zip((lows, highs), kept, strict=True)
    ]
    return np.concatenate(found)


def _staircase(values: FloatArray) -> tuple[NDArray[np.intp], ...]:
    """Return where an entry is below all entries that are further on in rows and columns."""
    beyond = np.minimum.accumulate(np.minimum.accumulate(values[::-1, ::-1], 0), 1)[::-1, ::-1]
    next_row = np.pad(beyond[1:], ((0, 1), (0, 0)), constant_values=math.inf)
    next_column = np.pad(beyond[:, 1:], ((0, 0), (0, 1)), constant_values=math.inf)
    return np.nonzero(values < np.minimum(next_row, next_column))


def smallest_inner_product(factors: Sequence[FloatArray], weights: FloatArray) -> float:
    """Return a lower bound of ``a_j . a_k`` over all columns of ``diag(weights) (F_1 x .. x F_k)``.

    Where runs of a factor's rows have the same weights, with Gram matrices C_g, it is
    ``sum over runs of w^2 prod C_g[j, k]``: linear in each factor's numbers, hence least at a
    corner of the boxes that contain them, one for j = k and one for the rest. Rounding is allowed
    for. Where there are too many corners the bound is minus infinity.

    Examples
    --------
    >>> import numpy as np
    >>> round(smallest_inner_product([np.eye(3), np.eye(2)], np.ones((3, 2))), 12)
    -0.0
    """
    starts = [run_starts(weights, axis) for axis in range(weights.ndim)]
    boxes = [_boxes(factor, ends) for factor, ends in zip(factors, starts, strict=True)]
    if math.prod(len(corners) for corners in boxes) > _MOST_CORNERS:
        return -math.inf
    values = sizes = np.square(weights[np.ix_(*starts)])
    for corners in boxes:
        values = np.tensordot(values, corners, axes=(0, 1))
        sizes = np.tensordot(sizes, np.max(np.abs(corners), axis=0), axes=(0, 0))
    margin = 8 * UNIT_ROUNDOFF * sum(len(factor) + _SAME for factor in factors) * float(sizes)
    return float(np.min(values)) - margin


def _ends(values: FloatArray, size: float) -> tuple[float, float]:
    """Return the least and the largest of numbers, or one twice if they differ by rounding."""
    low, high = float(np.min(values)), float(np.max(values))
    return (low, low) if high - low <= _SAME * UNIT_ROUNDOFF * size else (low, high)


def _boxes(factor: FloatArray, starts: NDArray[np.intp]) -> FloatArray:
    """Return the corners of the boxes that contain the runs' inner products, one per row."""
    if len(starts) > _MOST_RUNS:
        # More corners than are allowed, so that the caller gives up without trying them.
        return np.empty((_MOST_CORNERS + 1, 0))
    others = ~np.eye(factor.shape[1], dtype=bool)
    ends = []
    for rows in np.split(factor, starts[1:]):
        gram = rows.T @ rows
        norms = np.diagonal(gram)
        products = gram[others] if others.any() else norms
        ends.append([_ends(part, float(norms.max())) for part in (norms, products)])
    corners = [corner for box in zip(*ends, strict=True) for corner in product(*box)]
    return np.unique(np.array(corners), axis=0)
