"""Bounds on the spectra of matrices that hold in exact arithmetic, from float computations.

A covariance may enter a guarantee only through proven numbers. Here a float decomposition is not
trusted but verified: its residual and its departure from orthogonality, computed with bounds on
their own rounding, turn approximate eigenvalues into bounds of the true ones.
"""

import math
import sys
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.errors import NotPositiveDefiniteError
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = [
    "InverseEnclosure",
    "eigenvalue_lower_bounds",
    "inverse_enclosure",
    "nuclear_norm_lower_bound",
    "semidefinite_eigenvalue_bounds",
    "semidefinite_root",
    "singular_value_upper_bounds",
]

FloatArray = NDArray[np.float64]

# More than a product or sum can lose by underflow: that is at most half of 2**-1074.
_UNDERFLOW = 2.0**-1070
# Terms per block of a product. The error bound grows with block size plus number of blocks, not
# with the whole length; larger blocks make the matrix products faster.
_SUMMED_TOGETHER = 256


def eigenvalue_lower_bounds(matrix: FloatArray, name: str) -> FloatArray:
    r"""Return positive lower bounds of the eigenvalues of a symmetric matrix, ascending.

    For any V and Lambda, ``lambda_k(A) >= lambda_k(V Lambda V^T) - ||A - V Lambda V^T||`` (Weyl)
    and ``lambda_k(V Lambda V^T) >= (1 - ||V^T V - I||) Lambda_k`` for Lambda > 0 (Ostrowski); both
    norms are bounded by their Frobenius norms, computed and rounded up.

    Raises
    ------
    NotPositiveDefiniteError
        If no positive bound can be proven: the matrix is indefinite, singular, or so close to
        singular that float64 cannot tell.
    """
    values, vectors = scipy.linalg.eigh(matrix)  # a guess: everything below holds for any guess
    defect = _orthonormality_defect(vectors)
    residual = _residual_norm(matrix, vectors * values, vectors.T)
    # The last factor covers the roundings of this line itself.
    bounds = (values * (1.0 - defect) - residual) * (1.0 - 4 * UNIT_ROUNDOFF)
    if not float(bounds[0]) > sys.float_info.min:
        raise NotPositiveDefiniteError(
            f"{name} is not proven positive definite: its smallest eigenvalue is about "
            f"{float(values[0]):.3g} and float64 resolves {residual:.3g}; noise without variance "
            "in some direction protects nothing there: add variance in that direction"
        )
    proven = np.asarray(bounds)
    proven.setflags(write=False)  # a covariance keeps them, and they must stay what was proven
    return proven


def semidefinite_eigenvalue_bounds(
    matrix: FloatArray, values: FloatArray, vectors: FloatArray, error: float
) -> FloatArray:
    """Return lower bounds, none below 0, of the eigenvalues of a positive semidefinite matrix.

    The matrix is known up to an error in Frobenius norm, and two roundings of its entries; values
    and vectors are the result of a float eigendecomposition, and are verified as in
    `eigenvalue_lower_bounds`.
    """
    # Any non-negative values may be tried, and the true ones are not negative.
    clipped = np.maximum(values, 0.0)
    defect = _orthonormality_defect(vectors)
    residual = _residual_norm(matrix, vectors * clipped, vectors.T) + error
    bounds = (clipped * (1.0 - defect) - residual) * (1.0 - 4 * UNIT_ROUNDOFF)
    return np.asarray(np.maximum(bounds, 0.0))


def semidefinite_root(matrix: FloatArray, error: float) -> tuple[FloatArray, float]:
    r"""Return the square root of a positive semidefinite A, and a bound of its error.

    The error is in Frobenius norm. With the float decomposition ``V Lambda V^T``, the orthogonal
    matrix O next to V, at a distance of at most ``||V^T V - I||``, and ``B = O Lambda O^T``:
    ``||A^(1/2) - B^(1/2)||_F`` is at most ``||A - B||_F / lambda_min(B)^(1/2)``, and its square at
    most the nuclear norm of ``A - B`` (Powers and Stormer, Commun. Math. Phys. 16, 1970), which is
    at most ``n^(1/2) ||A - B||_F``.

    Parameters
    ----------
    matrix : ndarray
        Symmetric, close to A.
    error : float
        How close, in Frobenius norm.
    """
    values, vectors = scipy.linalg.eigh(matrix)
    values = np.maximum(values, 0.0)
    sides = np.sqrt(values)
    root = np.asarray((vectors * sides) @ vectors.T)
    turned = _orthonormality_defect(vectors)
    turned *= 2.0 + turned
    difference = _residual_norm(matrix, vectors * values, vectors.T) + error + turned * values[-1]
    # Both bounds hold; the second is better unless the smallest eigenvalue is nearly 0.
    distance = math.sqrt(math.sqrt(len(matrix)) * difference)
    if float(sides[0]) > 0.0:
        distance = min(distance, difference / float(sides[0]))
    rounding = _residual_norm(root, vectors * sides, vectors.T) + turned * sides[-1]
    return root, float((distance + rounding) * (1.0 + 32 * UNIT_ROUNDOFF))


def nuclear_norm_lower_bound(matrix: FloatArray, left: FloatArray, right: FloatArray) -> float:
    """Return a lower bound, never below 0, of the sum of the singular values of a matrix.

    For any U and V, ``||M||_* >= tr(U^T M V) / (||U|| ||V||)``, because the spectral norm is dual
    to the nuclear one; it is attained by the singular vectors, and their errors enter only in
    the second order. The bound holds for every matrix whose entries are within one rounding
    of the given ones.

    Parameters
    ----------
    matrix : ndarray, shape (m, n)
        M.
    left, right : ndarray, shapes (m, k) and (k, n)
        U and the transpose of V, from a float decomposition.
    """
    rows, columns = matrix.shape
    # Summed exactly: the trace is the one large number here, and its error would count in full.
    trace = math.fsum(np.einsum("ij,ij->j", left, matrix @ right.T).tolist())
    sizes = np.einsum("ij,ij->j", np.abs(left), np.abs(matrix) @ np.abs(right.T))
    terms = rows + columns + 8
    rounding = 2 * terms * (UNIT_ROUNDOFF * math.fsum(sizes.tolist()) + left.size * _UNDERFLOW)
    stretch = math.sqrt(
        (1.0 + _orthonormality_defect(left)) * (1.0 + _orthonormality_defect(right.T))
    )
    return max(float((trace - rounding) / stretch) * (1.0 - 8 * UNIT_ROUNDOFF), 0.0)


def singular_value_upper_bounds(matrix: FloatArray) -> FloatArray:
    """Return upper bounds of the singular values of a matrix, descending.

    ``sigma_k(A) <= sigma_k(U S W) + ||A - U S W||`` (Weyl), and U, W stretch S by at most
    ``sqrt(1 + defect)`` each.
    """
    left, values, right = scipy.linalg.svd(matrix, full_matrices=False)
    stretch = math.sqrt(
        (1.0 + _orthonormality_defect(left)) * (1.0 + _orthonormality_defect(right.T))
    )
    residual = _residual_norm(matrix, left * values, right)
    return np.asarray((values * stretch + residual) * (1.0 + 8 * UNIT_ROUNDOFF))


class InverseEnclosure(NamedTuple):
    """An approximate inverse and a bound on the error of each of its entries."""

    matrix: FloatArray
    error: float


def inverse_enclosure(matrix: FloatArray, smallest: float) -> InverseEnclosure:
    """Return an approximate inverse X and a bound on every entry of ``|A^-1 - X|``.

    With ``E = I - A X``, ``A^-1 - X = A^-1 E``, whose entries are at most ``||E||_F / smallest``
    where smallest is a lower bound of the smallest eigenvalue of the symmetric matrix A.
    """
    inverse = np.asarray(scipy.linalg.inv(matrix))
    error = _residual_norm(np.eye(len(matrix)), matrix, inverse) / smallest
    return InverseEnclosure(inverse, error * (1.0 + 4 * UNIT_ROUNDOFF))


def _orthonormality_defect(vectors: FloatArray) -> float:
    """Return an upper bound of ``||V^T V - I||_F``."""
    return _residual_norm(np.eye(vectors.shape[1]), vectors.T, vectors)


def _residual_norm(matrix: FloatArray, left: FloatArray, right: FloatArray) -> float:
    """Return an upper bound of ``||A - L R||_F``.

    A float product of k terms per entry is off by at most ``(k + 2) u |L| |R|`` entrywise, in any
    order of summation (Higham 2002, section 3.5). Summed in blocks, k is the size of a block plus
    the number of blocks. The rounding of the columns scaled by the caller and of the subtraction is
    within twice that, and what underflows within as many tiny numbers as there are terms. The
    bound holds for every A whose entries are within two roundings of the given ones: the
    subtractions use at most ``(k - 1) u |A|`` of the ``2 (k + 2) u |A|`` that are added.
    """
    length = left.shape[1]
    terms = min(length, _SUMMED_TOGETHER) + -(-length // _SUMMED_TOGETHER)
    rest = matrix.copy()
    for start in range(0, length, _SUMMED_TOGETHER):
        block = slice(start, start + _SUMMED_TOGETHER)
        rest -= left[:, block] @ right[block]
    rounding = 2 * (terms + 2) * UNIT_ROUNDOFF * (np.abs(left) @ np.abs(right) + np.abs(matrix))
    error = np.abs(rest) + rounding + length * _UNDERFLOW
    # Divided by the largest entry, so that squares neither overflow nor vanish.
    largest = float(np.max(error))
    norm = largest * math.sqrt(float(np.sum(np.square(error / largest))))
    return float(norm * (1.0 + (error.size + 8) * UNIT_ROUNDOFF))


def __dir__() -> list[str]:
    return __all__
