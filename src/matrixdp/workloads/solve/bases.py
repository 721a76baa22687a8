"""Singular vectors that stay accurate where the squares of singular values would not."""

from collections.abc import Sequence

import numpy as np
import scipy

from matrixdp.workloads.operator import FloatArray

__all__ = [
    "RANK_TOLERANCE",
    "SMALLEST_ROOT",
    "column_basis",
    "differing_directions",
    "eigenvectors",
    "gram_basis",
    "right_singular_vectors",
]

SMALLEST_ROOT = 2.0**-50
"""The share of the largest singular value below which float64 cannot distinguish one from 0."""

RANK_TOLERANCE = 2.0**-48
"""Eigenvalues of a Gram matrix below this share of the largest, per cell, are rounding errors."""

# Squares of singular values are accurate down to this share of the largest.
_SMALLEST_SQUARE = 2.0**-26
# Compared with a matrix of trace 1, one of a smaller trace consists of rounding errors.
_SMALLEST_TRACE = 2.0**-40


def column_basis(matrix: FloatArray) -> FloatArray:
    """Return B of full column rank with ``B B^T = M^T M``."""
    if matrix.shape[0] > matrix.shape[1]:
        # R has the same Gram matrix, and its decomposition costs less than that of all rows.
        matrix = scipy.linalg.qr(matrix, mode="r", check_finite=False)[0][: matrix.shape[1]]
    _, values, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    kept = values > max(matrix.shape) * SMALLEST_ROOT * values[0]
    return np.asarray(right[kept].T * values[kept])


def gram_basis(gram: FloatArray) -> FloatArray:
    """Return B of full column rank with ``B B^T = G``.

    Singular values of the queries below 1e-7 of the largest are lost: their squares are rounding.
    """
    values, vectors = eigenvectors(gram.copy())
    kept = values > len(values) * RANK_TOLERANCE * values[-1]
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def right_singular_vectors(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return singular values, ascending and positive, and their right vectors.

    They come from the squares, which is faster, unless these lose the small values.
    """
    # Columns that differ much in size show beforehand that they would.
    squares = np.sum(np.square(matrix), axis=0)
    if float(np.min(squares)) > _SMALLEST_SQUARE * float(np.max(squares)):
        values, vectors = eigenvectors(matrix.T @ matrix)
        if float(values[0]) > _SMALLEST_SQUARE * float(values[-1]):
            return np.sqrt(values), vectors
    _, roots, right = scipy.linalg.svd(matrix, full_matrices=False, check_finite=False)
    return np.maximum(roots, SMALLEST_ROOT * roots[0])[::-1], right[::-1].T


def eigenvectors(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return eigenvalues, ascending, and eigenvectors of a symmetric matrix, overwriting it."""
    # Divide and conquer is several times faster than the default driver at these sizes.
    values, vectors = scipy.linalg.eigh(matrix, driver="evd", overwrite_a=True, check_finite=False)
    return np.asarray(values), np.asarray(vectors)


def differing_directions(matrices: Sequence[FloatArray]) -> FloatArray:
    """Return orthonormal columns along which positive semidefinite matrices differ most.

    They are the eigenvectors of the first principal component of the matrices, all scaled to trace
    1. Of two matrices that is their difference.
    """
    traces = [float(np.trace(matrix)) for matrix in matrices]
    # A matrix of nothing but rounding errors has no directions: scaled up to trace 1 it would
    # decide by them, or divide by 0.
    least = _SMALLEST_TRACE * max(traces)
    parts = np.array(
        [
            matrix / trace if trace > least else np.zeros_like(matrix)
            for matrix, trace in zip(matrices, traces, strict=True)
        ]
    )
    spread = (parts - parts.mean(axis=0)).reshape(len(parts), -1)
    component = eigenvectors(spread @ spread.T)[1][:, -1]
    difference = (component @ spread).reshape(parts[0].shape)
    return eigenvectors((difference + difference.T) / 2)[1]
