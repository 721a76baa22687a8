"""A matrix as singular values and vectors, or as eigenvalues and vectors if it is symmetric."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.postprocess.step import FloatArray

__all__ = ["Spectrum", "eigenvalues_of_symmetric", "is_symmetric"]


class Spectrum(NamedTuple):
    """The factors of ``left @ diag(values) @ right``, the values falling in absolute value.

    Values are singular values, or eigenvalues with their signs if the matrix is symmetric.
    """

    left: FloatArray
    values: FloatArray
    right: FloatArray
    symmetric: bool

    @classmethod
    def of(cls, matrix: FloatArray) -> "Spectrum":
        """Decompose a matrix."""
        if is_symmetric(matrix):
            values, vectors = eigenvalues_of_symmetric(matrix)
            order = np.argsort(-np.abs(values), kind="stable")
            vectors = vectors[:, order]
            return cls(vectors, values[order], vectors.T, symmetric=True)
        left, values, right = linalg.svd(matrix, full_matrices=False, check_finite=False)
        return cls(left, values, right, symmetric=False)

    @property
    def sizes(self) -> FloatArray:
        """The absolute values."""
        return np.abs(self.values)

    def with_sizes(self, sizes: FloatArray) -> FloatArray:
        """Return the matrix with other absolute values, whose signs and vectors are kept."""
        kept = sizes > 0.0
        signed = np.copysign(sizes[kept], self.values[kept])
        matrix = (self.left[:, kept] * signed) @ self.right[kept]
        # The product rounds differently on the two sides of the diagonal.
        return (matrix + matrix.T) / 2.0 if self.symmetric else matrix


def is_symmetric(matrix: FloatArray) -> bool:
    """Return whether a matrix is exactly symmetric."""
    return matrix.shape[0] == matrix.shape[1] and bool(np.array_equal(matrix, matrix.T))


def eigenvalues_of_symmetric(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the eigenvalues, rising, and the vectors in columns."""
    values, vectors = linalg.eigh(matrix, check_finite=False)
    return values, vectors
