"""Pseudo-inverses that stay accurate where rows are of very different size."""

from contextlib import suppress

import numpy as np
import scipy

from matrixdp.workloads.operator import FloatArray

__all__ = ["pseudo_inverse"]


def pseudo_inverse(matrix: FloatArray) -> FloatArray:
    """Return ``A^+``; independent rows are brought to one size first.

    If the rows are independent, ``(S A)^+ = A^+ S^-1`` for a diagonal S. A heavy total beside
    light contrasts would otherwise push these below the tolerance for the rank.
    """
    rows, columns = matrix.shape
    norms = np.linalg.norm(matrix, axis=1)
    if rows > columns or not norms.all():
        return np.asarray(scipy.linalg.pinv(matrix))
    even = matrix / norms[:, None]
    if rows == columns:
        # A singular matrix is no error here: the general way below finds its rank.
        with suppress(np.linalg.LinAlgError):
            return np.asarray(np.linalg.inv(even) / norms)
    inverse, rank = scipy.linalg.pinv(even, return_rank=True)
    # With dependent rows the scaling would change the least-squares estimate.
    return np.asarray(inverse / norms) if rank == rows else np.asarray(scipy.linalg.pinv(matrix))
