"""Matrix products with a rounding error so small that the noise can cover it at no cost."""

import numpy as np
from numpy.typing import NDArray

from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["compensated_error", "compensated_product"]

FloatArray = NDArray[np.float64]

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
        places = np.flatnonzero(matrix[:, term])
        if not places.size:
            continue
        # A slice, not the places themselves: indexing by a list would copy in every step.
        rows = slice(places[0], places[-1] + 1)
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
