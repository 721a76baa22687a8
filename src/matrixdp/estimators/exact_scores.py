"""Scores and probabilities of records that depend on one record each, to the last bit.

The products of BLAS do not: the rounding of a row depends on how many rows there are and where it
stands, so that a record which is added could move the scores of others. Nor need an exponential: a
library may compute the numbers at the end of an array in another way. What is used here is rounded
as IEEE 754 says, the same everywhere: sums, products, quotients and powers of two.
"""

import math

import numpy as np
from numpy.typing import NDArray

from matrixdp.queries.grid import GRID_BITS

__all__ = ["exact_residuals", "exact_scores", "exponentials", "probabilities"]

FloatArray = NDArray[np.float64]

# So many products of two integers of GRID_BITS bits add up to at most 2**53, exactly in any order.
_EXACT_COLUMNS = 2 ** (53 - 2 * GRID_BITS)
# The logarithm of 2: its first 32 bits, whose products with small integers are exact, and the rest.
_LOG_2 = math.log(2.0)
_LOG_2_HIGH = math.ldexp(math.floor(math.ldexp(_LOG_2, 32)), -32)
_LOG_2_LOW = 1.9082149292705877e-10
# Of Taylor's series; the next term is below 2**-57 for arguments up to half the logarithm of 2.
_COEFFICIENTS = [1.0 / math.factorial(order) for order in range(14)]
# Below this an exponential would not be a normal number; it is 0 for every purpose.
_LOWEST = -700.0


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


def exponentials(powers: FloatArray) -> FloatArray:
    """Return ``exp(x)`` of numbers that are not above 0, to a few units in the last place.

    With n the integer nearest to ``x / log 2`` and ``r = x - n log 2``, it is ``2^n`` times the
    first terms of the series ``sum r^k / k!``. Numbers below -700 give 0.

    Examples
    --------
    >>> exponentials(np.array([0.0, -1.0, -800.0])).round(15).tolist()
    [1.0, 0.367879441171442, 0.0]
    """
    near = np.maximum(powers, _LOWEST)
    whole = np.rint(near / _LOG_2)
    rest = (near - whole * _LOG_2_HIGH) - whole * _LOG_2_LOW
    series = np.full_like(near, _COEFFICIENTS[-1])
    for coefficient in reversed(_COEFFICIENTS[:-1]):
        series *= rest
        series += coefficient
    return np.where(powers < _LOWEST, 0.0, np.ldexp(series, whole.astype(np.int32)))


def probabilities(scores: FloatArray) -> FloatArray:
    """Return the softmax of each row, ``exp(s_k) / sum exp(s_j)``.

    Examples
    --------
    >>> probabilities(np.array([[0.0, 0.0], [0.0, 800.0]])).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    powers = exponentials(scores - scores.max(axis=1, keepdims=True))
    total = np.zeros(len(scores))
    # Column by column: a sum along rows may be taken in another order in another layout.
    for column in powers.T:
        total += column
    return np.asarray(powers / total[:, None])


def exact_residuals(whole: FloatArray, weights: FloatArray, indicators: FloatArray) -> FloatArray:
    """Return the probabilities of the classes of each record less the indicator of its own."""
    return probabilities(exact_scores(whole, weights)) - indicators
