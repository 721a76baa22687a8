"""The norm of the noise of a symmetric release, and a spectrum raised to it."""

import numpy as np
from numpy.typing import NDArray

from matrixdp.mechanisms.release import Release

__all__ = ["noise_norm", "raised_spectrum"]

FloatArray = NDArray[np.float64]


def noise_norm(release: Release, size: int) -> float:
    """Return about how large the spectral norm of the noise in a square block of a release is.

    Symmetric noise with variance ``s^2`` off the diagonal and a block of ``size`` rows has a
    spectral norm close to ``2 s sqrt(size)``, the edge of the semicircle (Bai and Yin, Necessary
    and sufficient conditions for almost sure convergence of the largest eigenvalue of a Wigner
    matrix, 1988). It is a public number.
    """
    # The smallest of its scales is that off the diagonal; a matrix of one entry has no other.
    scale = float(release.covariance.entry_scales(release.shape).min())
    return float(2.0 * scale * np.sqrt(size))


def raised_spectrum(matrix: FloatArray, least: float) -> FloatArray:
    """Return a symmetric matrix whose eigenvalues below a positive number are raised to it.

    It is the nearest matrix, in Frobenius norm, among those with no eigenvalue below ``least``
    (Higham, Computing a nearest symmetric positive semidefinite matrix, 1988, for ``least`` 0).
    Eigenvalues below the norm of the noise say nothing about the data, and their inverses would
    multiply it.

    Examples
    --------
    >>> import numpy as np
    >>> raised_spectrum(np.diag([3.0, -1.0]), least=0.5).tolist()
    [[3.0, 0.0], [0.0, 0.5]]
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
