r"""Distances between two records' measurements, by the attributes in which the records differ.

Let the component of each set S of attributes be measured with the squared weight q_S, as
orthonormal contrasts of the table of S. Then a record's measurements have the squared norm
``sum of p_S q_S``, ``p_S = prod_(i in S) (1 - 1 / n_i)``, and those of two records that differ in
the attributes T the squared distance

    D(T) = 2 sum over S of p_S q_S (1 - prod_(i in S and T) r_i),      r_i = -1 / (n_i - 1),

because the inner product of two different columns of the projection on contrasts is ``-1 / n``,
and that of a column with itself ``1 - 1 / n``. The sum over S for all T at once is a product of one
2 x 2 matrix per attribute, ``(1, 1; 1, r_i)``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import FloatArray

__all__ = ["MOST_VARIED", "SetDistances", "diameter_squared", "largest_ratio", "shares"]

MOST_VARIED = 20
"""The most attributes for which every set of differing ones is tried: a million sets."""


def shares(sets: NDArray[np.int64], sizes: Sequence[int]) -> FloatArray:
    """Return p_S, off by at most three units of 2**-53 for each attribute.

    Examples
    --------
    >>> shares(np.array([0b00, 0b01, 0b11]), [2, 5]).round(3).tolist()
    [1.0, 0.5, 0.4]
    """
    found = np.ones(len(sets))
    for index, size in enumerate(sizes):
        found = np.where(sets >> index & 1, found * ((size - 1.0) / size), found)
    return found


def largest_ratio(sets: NDArray[np.int64], sizes: Sequence[int]) -> FloatArray:
    """Return the largest ``1 / (n_i - 1)`` over i in S; 0 for the empty set.

    ``-prod_(i in S and T) r_i`` is at most that, for every T: the product is negative only if some
    r_i is in it, and no r_i is above 1 in size.
    """
    found = np.zeros(len(sets))
    for index, size in enumerate(sizes):
        if size > 1:
            found = np.where(sets >> index & 1, np.maximum(found, 1.0 / (size - 1.0)), found)
    return found


@dataclass(frozen=True, eq=False, init=False)
class SetDistances:
    """The matrix ``E_TS = 1 - prod_(i in S and T) r_i`` of all sets T, as an operator.

    Parameters
    ----------
    sets : ndarray of int
        The sets S.
    sizes : sequence of int
        Of the attributes; at most 20 of them may be in some set.
    """

    indices: NDArray[np.int64]  # of each S among all sets of the attributes that are in some S
    halves: tuple[FloatArray, FloatArray]

    def __init__(self, sets: NDArray[np.int64], sizes: Sequence[int]) -> None:
        varied = [index for index in range(len(sizes)) if np.any(sets >> index & 1)]
        # Sets renumbered by these attributes; cells that differ in others only do not differ here.
        indices = sum(
            ((sets >> index & 1) << at for at, index in enumerate(varied)),
            start=np.zeros(len(sets), dtype=np.int64),
        )
        ratios = [-1.0 / (sizes[index] - 1.0) for index in varied]
        # The product of all 2 x 2 matrices as one of two matrices, each for half the attributes:
        # two matrix products are quicker than one step for each attribute.
        middle = len(ratios) // 2
        object.__setattr__(self, "indices", indices)
        object.__setattr__(
            self, "halves", (_product(ratios[middle:][::-1]), _product(ratios[:middle][::-1]))
        )

    @property
    def count(self) -> int:
        """The number of sets T, the empty one included; its distances are 0."""
        return len(self.halves[0]) * len(self.halves[1])

    @property
    def rounding(self) -> float:
        """A bound of the error of either map, over the sum of the absolute numbers it is given."""
        # An inner product of n terms is off by n units of the sum of the terms' sizes, and entries
        # of the halves, products of up to ten ratios that are off by one unit each, by 20 more.
        return (len(self.halves[0]) + len(self.halves[1]) + 64) * UNIT_ROUNDOFF

    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``E x``: a number for each T, from one for each S."""
        laid_out = np.zeros(self.count)
        laid_out[self.indices] = values
        return np.asarray(float(np.sum(values)) - self._inner(laid_out))

    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``E^T y``: a number for each S, from one for each T."""
        return np.asarray(float(np.sum(values)) - self._inner(values)[self.indices])

    def _inner(self, values: FloatArray) -> FloatArray:
        first, second = self.halves
        return np.asarray(first @ values.reshape(len(first), len(second)) @ second).ravel()


def _product(ratios: Sequence[float]) -> FloatArray:
    """Return the Kronecker product of ``(1, 1; 1, r)``, which is symmetric."""
    matrix: FloatArray = np.ones((1, 1))
    for ratio in ratios:
        matrix = np.asarray(np.kron(matrix, [[1.0, 1.0], [1.0, ratio]]), dtype=np.float64)
    return matrix


def diameter_squared(
    sets: NDArray[np.int64], precisions: FloatArray, sizes: Sequence[int]
) -> float:
    """Return an upper bound of the largest D(T), exact up to rounding for at most 20 attributes.

    With more attributes every component counts with its own worst T: ``2 p_S q_S (1 + max of
    1 / (n_i - 1))``.

    Parameters
    ----------
    sets : ndarray of int
        The sets S that are measured.
    precisions : ndarray
        q.
    sizes : sequence of int
        Of the attributes.
    """
    # The empty set is the number of records, which does not change.
    kept = sets != 0
    if not kept.any():
        return 0.0
    terms = shares(sets[kept], sizes) * precisions[kept]
    margin = 1.0 + (4 * len(sizes) + 16) * UNIT_ROUNDOFF
    varied = sum(bool(np.any(sets >> index & 1)) for index in range(len(sizes)))
    if varied > MOST_VARIED:
        worst = terms * (1.0 + largest_ratio(sets[kept], sizes))
        return 2.0 * math.fsum(worst.tolist()) * margin
    distances = SetDistances(sets[kept], sizes)
    # The sum of p_S q_S is rounded where distances are; all terms are positive.
    error = (distances.rounding + len(terms) * UNIT_ROUNDOFF) * math.fsum(terms.tolist())
    return 2.0 * (float(np.max(distances.apply(terms))) + 2.0 * error) * margin
