"""From a covariance to exact noise on a matrix.

Independent entries are drawn exactly, one by one. Full covariances exist only on the Frobenius
ball, as the exact i.i.d. floor that carries all of the privacy plus extra noise in the eigenbases,
which is post-processing: no rounding in it can hurt.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    Kronecker,
    OneSided,
    SymmetricIsotropic,
)
from matrixdp.errors import InvalidParameterError
from matrixdp.noise import ReleaseKey, add_noise
from matrixdp.rounding import quotient_up
from matrixdp.sensitivity.sets import FrobeniusBall, SensitivitySet

__all__ = ["draw"]

# With these, noise overflows with a probability below 2**-1000.
_LARGEST_SCALE = {"float64": 2.0**900, "float32": 2.0**100}


def draw(
    matrix: NDArray[Any],
    covariance: Covariance,
    sensitivity: SensitivitySet,
    mu: float,
    key: ReleaseKey,
) -> NDArray[Any]:
    """Return the matrix with noise.

    Parameters
    ----------
    matrix : ndarray
        float64 or float32, of a shape that fits; symmetric for symmetric noise.
    covariance : Covariance
        How the noise is shaped.
    sensitivity : SensitivitySet
        What one record can change.
    mu : float
        What is promised: the radius of the set under the covariance.
    key : ReleaseKey
        Unbound; it is spent.

    Raises
    ------
    InvalidParameterError
        If the covariance is full and the set is not the Frobenius ball.
    """
    match covariance:
        case Isotropic():
            return add_noise(matrix, covariance.scale, key)
        case Diagonal():
            return add_noise(matrix, covariance.scales, key)
        case SymmetricIsotropic():
            return _draw_symmetric(matrix, covariance, key)
        case Kronecker() | OneSided():
            if isinstance(sensitivity, FrobeniusBall):
                return _draw_directional(
                    matrix, covariance, quotient_up(sensitivity.bound, mu), key
                )
            raise InvalidParameterError(
                f"a {type(covariance).__name__} covariance can be judged on a "
                f"{type(sensitivity).__name__} but not released: off the Frobenius ball its "
                "weakest direction may need less noise than an i.i.d. floor has, so float "
                "rotations would carry privacy. Use Diagonal, or the set's best covariance"
            )
    raise InvalidParameterError(f"no noise can be drawn for a {type(covariance).__name__}")


def _draw_symmetric(
    matrix: NDArray[Any], covariance: SymmetricIsotropic, key: ReleaseKey
) -> NDArray[Any]:
    """Draw the upper triangle once and mirror it."""
    upper = np.triu_indices(len(matrix))
    scales = covariance.entry_scales(matrix.shape)[upper]
    noisy = add_noise(np.ascontiguousarray(matrix[upper]), scales, key)
    result = np.empty_like(matrix)
    result[upper] = noisy
    result.T[upper] = noisy
    return result


def _draw_directional(
    matrix: NDArray[Any], covariance: Kronecker | OneSided, floor: float, key: ReleaseKey
) -> NDArray[Any]:
    """Add exact noise of scale ``floor``, then ``V1 (sqrt(s_ij^2 - floor^2) G) V2^T``.

    s_ij is the standard deviation in the eigendirections i and j, which V1 and V2 hold.

    The floor carries the whole promise. It and the independent G come from one key, as the two
    halves of a matrix of twice the rows.
    """
    rows = len(matrix)
    largest = float(np.max(covariance.entry_scales((rows, matrix.shape[1]))))
    if not largest <= _LARGEST_SCALE[matrix.dtype.name]:
        raise InvalidParameterError(
            f"covariance has a standard deviation of {largest!r}, beyond what {matrix.dtype.name} "
            "can hold: rescale the query"
        )
    both = np.concatenate([matrix, np.zeros_like(matrix)])
    scales = np.concatenate([np.full((rows, 1), floor), np.ones((rows, 1))])
    drawn = add_noise(both, scales, key)
    scale = covariance.eigenbasis_scales
    # sqrt(s^2 - f^2), without the squares that underflow.
    inner = np.sqrt(np.maximum(scale - floor, 0.0)) * np.sqrt(scale + floor) * drawn[rows:]
    noise = covariance.rotated(inner)
    return np.asarray((drawn[:rows] + noise).astype(matrix.dtype))
