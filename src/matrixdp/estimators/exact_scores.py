"""Scores and probabilities of records that depend on one record each, to the last bit.

The products of BLAS do not: the rounding of a row depends on how many rows there are and where it
stands, so that a record which is added could move the scores of others.
"""

import math

import numpy as np
from numpy.typing import NDArray

from matrixdp.queries.grid import GRID_BITS

__all__ = ["exact_residuals", "exact_scores", "probabilities"]

FloatArray = NDArray[np.float64]

# So many products of two integers of GRID_BITS bits add up to at most 2**53, exactly in any order.
_EXACT_COLUMNS = 2 ** (53 - 2 * GRID_BITS)


def exact_scores(whole: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the product of rows of integers and weights that are rounded to a grid.

    Parameters
    ----------
    whole : ndarray, shape (records, columns)
        Integers of at most 2**21 in absolute value.
    weights : ndarray, shape (columns, outputs)
        Rounded to multiples of a power of two that is from 2**-21 to 2**-20 of the largest of them.

    Notes
    -----
    Sums of up to 2048 products are integers below 2**53, so that no order of summation rounds them;
    those of further columns are added in the order of the columns.

    Examples
    --------
    >>> exact_scores(np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([[0.5], [0.25]])).tolist()
    [[1.0], [1.5]]
    """
    largest = float(np.abs(weights).max())
    # Below this the unit would not be a normal number; such weights are 0 for every purpose.
    if not largest > 1e-290:
        return np.zeros((len(whole), weights.shape[1]))
    unit = math.ldexp(1.0, math.frexp(largest)[1] - GRID_BITS)
    rounded = np.rint(weights / unit)
    total = np.zeros((len(whole), weights.shape[1]))
    for start in range(0, len(weights), _EXACT_COLUMNS):
        columns = slice(start, start + _EXACT_COLUMNS)
        total += whole[:, columns] @ rounded[columns]
    return np.asarray(total * unit)


def probabilities(scores: FloatArray) -> FloatArray:
    """Return the softmax of each row, ``exp(s_k) / sum exp(s_j)``.

    Examples
    --------
    >>> probabilities(np.array([[0.0, 0.0], [0.0, 800.0]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    total = np.zeros(len(scores))
    # Column by column: a sum along rows may be taken in another order in another layout.
    for column in powers.T:
        total += column
    return np.asarray(powers / total[:, None])


def exact_residuals(whole: FloatArray, weights: FloatArray, indicators: FloatArray) -> FloatArray:
    """Return the probabilities of the classes of each record less the indicator of its own."""
    return probabilities(exact_scores(whole, weights)) - indicators
