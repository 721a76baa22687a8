"""Which measurements are exact in float64, so that privacy needs no allowance for rounding.

A row of whole multiples of one power of two, of at most 23 bits, is measured exactly: all its sums
over at most 2**30 records are whole multiples below 2**53. Totals, cells and trees are such rows.
The bits of the factors of a product add up, and so do those of a weight.
"""

import math

import numpy as np

from matrixdp.workloads.operator import FloatArray

__all__ = ["MOST_BITS", "bits_of_rows", "bits_of_weights"]

MOST_BITS = 23
"""2**23 times the most records is 2**53, up to which whole numbers are exact."""


def bits_of_rows(matrix: FloatArray) -> FloatArray:
    """Return how many bits make every entry of a row a whole multiple of one power of two.

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
