"""The nearest correlation matrix, by Newton's method on the dual problem.

The matrix of ones on its diagonal and no negative eigenvalues that is nearest to A in Frobenius
norm is ``(A + diag(y))_+``, where the plus sign sets negative eigenvalues to 0 and y makes its
diagonal 1. That y minimises ``||(A + diag(y))_+||_F^2 / 2 - sum(y)``, a convex function with the
gradient ``diag((A + diag(y))_+) - 1``.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import linalg as iterative

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.postprocess.spectrum import eigenvalues_of_symmetric
from matrixdp.postprocess.step import FloatArray
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["nearest_correlation"]

# How far the diagonal may be from 1 before it is scaled to 1 exactly, plus rounding.
_TOLERANCE = 1e-11
_MOST_ROUNDING = 1e-4
_MOST_STEPS = 100
_MOST_HALVINGS = 40
_ARMIJO = 1e-4


class _Trial(NamedTuple):
    """The dual function at one y."""

    y: FloatArray
    values: FloatArray
    vectors: FloatArray
    objective: float
    slope: FloatArray

    def positive(self) -> FloatArray:
        """Return ``(A + diag(y))_+``."""
        return (self.vectors * np.maximum(self.values, 0.0)) @ self.vectors.T


def nearest_correlation(matrix: FloatArray) -> FloatArray:
    """Return the correlation matrix that is nearest to a symmetric matrix in Frobenius norm.

    Parameters
    ----------
    matrix : ndarray
        Exactly symmetric.

    Raises
    ------
    InvalidParameterError
        If the matrix is so large that its rounding hides a diagonal of ones.
    CalibrationError
        If the diagonal did not come within 1e-11 of 1, and the rounding of the eigenvalues.

    References
    ----------
    Qi and Sun, *A quadratically convergent Newton method for computing the nearest correlation
    matrix*, SIAM J. Matrix Anal. Appl. 28 (2006), with the preconditioner of Borsdorf and Higham,
    *A preconditioned Newton algorithm for the nearest correlation matrix*, IMA J. Numer. Anal. 30
    (2010). The problem is that of Higham, *Computing the
    nearest correlation matrix: a problem from finance*, IMA J. Numer. Anal. 22 (2002).
    """
    trial = _trial(matrix, 1.0 - np.diagonal(matrix))
    for _ in range(_MOST_STEPS):
        rounding = 8.0 * len(matrix) * UNIT_ROUNDOFF * float(np.max(np.abs(trial.values)))
        if not rounding <= _MOST_ROUNDING:
            raise InvalidParameterError(
                "the matrix is far too large to be near a correlation matrix: divide it by a "
                "public number that makes its diagonal about 1"
            )
        if float(np.max(np.abs(trial.slope))) <= _TOLERANCE + rounding:
            return _with_unit_diagonal(trial.positive())
        following = _descended(matrix, trial, _newton_direction(trial))
        if following is None:
            break
        trial = following
    distance = float(np.max(np.abs(trial.slope)))
    raise CalibrationError(
        "the nearest correlation matrix was not found: its diagonal is still "
        f"{distance:.3g} from 1; noise thousands of times larger does that, so use "
        "PositiveSemidefinite instead"
    )


def _trial(matrix: FloatArray, y: FloatArray) -> _Trial:
    shifted = matrix.copy()
    np.fill_diagonal(shifted, np.diagonal(matrix) + y)
    values, vectors = eigenvalues_of_symmetric(shifted)
    kept = np.maximum(values, 0.0)
    objective = float(np.sum(np.square(kept))) / 2.0 - float(np.sum(y))
    return _Trial(y, values, vectors, objective, np.square(vectors) @ kept - 1.0)


def _newton_direction(trial: _Trial) -> FloatArray:
    """Return the step that a generalised Hessian asks for, by conjugate gradients.

    It takes h to ``diag(P (W * (P^T diag(h) P)) P^T)``, with W the divided differences of the
    function that sets negative eigenvalues to 0.
    """
    values, vectors = trial.values, trial.vectors
    kept = np.maximum(values, 0.0)
    signs = values > 0.0
    mixed = signs[:, None] != signs
    weights = np.where(signs[:, None] & signs, 1.0, 0.0)
    gaps = np.where(mixed, np.abs(values[:, None]) + np.abs(values), 1.0)
    weights = np.where(mixed, np.abs(kept[:, None] - kept) / gaps, weights)
    # The diagonal of the Hessian says how steep each direction is: it damps and preconditions, as
    # Borsdorf and Higham (2010) advise. It is positive unless everything is set to 0.
    squares = np.square(vectors)
    steep = np.maximum(np.sum((squares @ weights) * squares, axis=1), _TOLERANCE)
    size = float(np.linalg.norm(trial.slope))
    damping = min(1e-3, 1e-3 * size) * steep

    def curvature(h: FloatArray) -> FloatArray:
        inner = weights * ((vectors.T * np.ravel(h)) @ vectors)
        return np.asarray(np.sum((vectors @ inner) * vectors, axis=1) + damping * np.ravel(h))

    shape = weights.shape
    solved, _ = iterative.cg(
        iterative.LinearOperator(shape=shape, matvec=curvature, dtype=np.float64),
        -trial.slope,
        rtol=min(0.1, size),
        atol=0.0,
        maxiter=200,
        M=iterative.LinearOperator(
            shape=shape, matvec=lambda h: np.ravel(h) / steep, dtype=np.float64
        ),
    )
    # Conjugate gradients that were cut short still descend; the line search decides.
    return np.asarray(solved)


def _descended(matrix: FloatArray, trial: _Trial, direction: FloatArray) -> _Trial | None:
    """Return a trial further along that lowers the dual function enough, or None."""
    steepness = float(trial.slope @ direction)
    noise = 64.0 * UNIT_ROUNDOFF * (abs(trial.objective) + float(np.sum(np.abs(trial.y))))
    for halvings in range(_MOST_HALVINGS):
        step = 0.5**halvings
        found = _trial(matrix, trial.y + step * direction)
        if found.objective <= trial.objective + _ARMIJO * step * steepness + noise:
            return found
    return None


def _with_unit_diagonal(matrix: FloatArray) -> FloatArray:
    """Return a matrix whose diagonal is nearly 1, scaled so that it is 1 exactly."""
    scales = 1.0 / np.sqrt(np.diagonal(matrix))
    scaled = matrix * scales * scales[:, None]
    scaled = (scaled + scaled.T) / 2.0
    np.fill_diagonal(scaled, 1.0)
    return scaled
