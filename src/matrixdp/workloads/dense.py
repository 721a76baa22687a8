"""Queries given as a matrix."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import LARGEST_EXACT_INTEGER, checked_matrix
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import LARGEST_EXPLICIT, Factor, FloatArray

__all__ = ["Dense"]

# Within these limits squares of entries, and their sums, neither overflow nor underflow.
_SMALLEST_SIZE = 2.0**-100
_LARGEST_SIZE = 2.0**100


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Factor):
    """The rows of a matrix as queries.

    Parameters
    ----------
    matrix : array_like, shape (queries, cells)
        Finite, at most 8,192 columns; no row may be all zeros.

    Examples
    --------
    >>> from matrixdp.workloads import Dense
    >>> Dense([[1, 1, 0], [0, 1, 1]]).apply([5, 2, 1]).tolist()
    [7.0, 3.0]
    """

    matrix: FloatArray

    def __init__(self, matrix: ArrayLike) -> None:
        array = checked_matrix(matrix, "matrix")
        if not array.shape[1] <= LARGEST_EXPLICIT:
            raise InvalidParameterError(
                f"matrix has {array.shape[1]} columns, more than the {LARGEST_EXPLICIT} cells that "
                "one attribute may have: merge cells, or make it a Product of smaller attributes"
            )
        # Zeros stay zeros; any other entry could overflow or underflow when it is squared.
        sizes = np.abs(array[array != 0.0])
        if sizes.size and not (sizes.min() >= _SMALLEST_SIZE and sizes.max() <= _LARGEST_SIZE):
            raise InvalidParameterError(
                f"matrix has entries from {sizes.min():.3g} to {sizes.max():.3g} in size: scale "
                f"them into {_SMALLEST_SIZE:.3g} to {_LARGEST_SIZE:.3g}, or leave tiny ones out"
            )
        # Its answer is 0 without any noise; such a row is more likely a mistake than a question.
        empty = ~np.any(array, axis=1)
        if empty.any():
            raise InvalidParameterError(
                f"matrix has a row of zeros at index {int(np.argmax(empty))}, which asks nothing: "
                "leave it out"
            )
        object.__setattr__(self, "matrix", array)

    @property
    def name(self) -> str:
        """The kind and the shape."""
        return f"Dense({self.rows}, {self.cells})"

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of columns."""
        return (self.matrix.shape[1],)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.matrix.shape[0])

    def along(self, array: FloatArray) -> FloatArray:
        """Return the matrix product over the first axis."""
        return np.tensordot(self.matrix, array, axes=1)

    def transpose_along(self, array: FloatArray) -> FloatArray:
        """Return the product with the transpose over the first axis."""
        return np.tensordot(self.matrix.T, array, axes=1)

    @property
    def sums_cells(self) -> bool:
        """No: entries may be of any size."""
        return False

    def magnitudes_along(self, array: FloatArray) -> FloatArray:
        """Return the product with the sizes of the entries."""
        return np.tensordot(np.abs(self.matrix), array, axes=1)

    def matrix_of_queries(self) -> FloatArray:
        """Return the matrix."""
        return self.matrix

    def gram(self) -> FloatArray:
        """Return ``M^T M``; exact for integers."""
        product = self.matrix.T @ self.matrix
        # BLAS need not round the two triangles alike, and decompositions read only one of them.
        return np.asarray((product + product.T) / 2)

    @property
    def gram_error(self) -> float:
        """The rounding error of the product over its trace; none for integers."""
        whole = bool(np.array_equal(self.matrix, np.rint(self.matrix)))
        # Sums of integers below 2**53 round nothing.
        if whole and float(np.sum(np.square(self.matrix))) < LARGEST_EXACT_INTEGER:
            return 0.0
        # Entry (i, j) is off by at most (rows + 2) u |w_i|^T |w_j|, and the Frobenius norm of
        # |W|^T |W| is at most the trace.
        return (self.rows + 2) * UNIT_ROUNDOFF
