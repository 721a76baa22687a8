"""From a covariance to exact noise on a matrix.

Independent entries are drawn exactly, one by one. Directional noise exists only on the Frobenius
ball: as an exact i.i.d. floor that carries all of the privacy, plus extra noise in the eigenbasis.
The extra noise is post-processing, so that no rounding in it can hurt.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Diagonal, Directional, Isotropic, SymmetricIsotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.add import noisy_copy
from matrixdp.noise.specification.scales import check_scale_range, value_limit
from matrixdp.parameters import Limit

__all__ = ["check_drawable", "draw", "largest_entries"]

# With these, noise overflows with a probability below 2**-1000.
_LARGEST_SCALE = {"float64": 2.0**900, "float32": 2.0**100}


def largest_entries(proof: NoiseProof, shape: tuple[int, int], dtype: np.dtype[Any]) -> Limit:
    """Return the limit of a matrix's entries: with larger ones, rounding would swallow the noise.

    It depends on the exact noise that carries the privacy, not on what is added to it.
    """
    return value_limit(_exact_scales(proof, shape), dtype)


def check_drawable(proof: NoiseProof, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
    """Raise if exact noise of this covariance cannot be drawn for such a matrix.

    Raises
    ------
    InvalidParameterError
        If directional noise has no floor, or a scale is beyond what the type can hold.
    """
    covariance = proof.covariance
    if not proof.can_be_drawn:
        raise InvalidParameterError(
            f"a {type(covariance).__name__} covariance can be judged on a "
            f"{type(proof.sensitivity).__name__} but not released: off the Frobenius ball its "
            "weakest direction may need less noise than an i.i.d. floor has, so privacy would rest "
            "on float rotations. Use Diagonal, or the set's best covariance"
        )
    check_scale_range(_exact_scales(proof, shape), dtype)
    if isinstance(covariance, Directional):
        largest = float(np.max(covariance.entry_scales(shape)))
        if not largest <= _LARGEST_SCALE[dtype.name]:
            raise InvalidParameterError(
                f"covariance has a standard deviation of {largest!r}, beyond what {dtype.name} can "
                "hold: rescale the query"
            )


def _exact_scales(proof: NoiseProof, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return the scales of the exact noise: of every entry, or one for all."""
    match proof.covariance:
        case Diagonal(scales=scales):
            return scales
        case SymmetricIsotropic() as symmetric:
            return symmetric.entry_scales(shape)
        case covariance:
            return np.array(proof.floor or covariance.smallest_singular_value)


def draw(matrix: NDArray[Any], proof: NoiseProof, key: ReleaseKey) -> NDArray[Any]:
    """Return the matrix with noise.

    Parameters
    ----------
    matrix : ndarray
        Checked: float64 or float32, finite, within `largest_entries`, of a shape that fits, and
        symmetric for symmetric noise.
    proof : NoiseProof
        How the noise is shaped, and the floor of directional noise; see `check_drawable`.
    key : ReleaseKey
        Unbound; it is spent.
    """
    match proof.covariance:
        case Isotropic(scale=scale):
            return noisy_copy(matrix, np.array(scale), key)
        case Diagonal(scales=scales):
            return noisy_copy(matrix, scales, key)
        case SymmetricIsotropic() as symmetric:
            return _draw_symmetric(matrix, symmetric, key)
        case Directional() as directional if proof.floor is not None:
            return _draw_directional(matrix, directional, proof.floor, key)
        case covariance:  # `check_drawable` comes first
            raise InvalidParameterError(f"{type(covariance).__name__} noise cannot be drawn")


def _draw_symmetric(
    matrix: NDArray[Any], covariance: SymmetricIsotropic, key: ReleaseKey
) -> NDArray[Any]:
    """Draw the upper triangle once and mirror it."""
    # Two draws for a mirrored pair would give a second look at the same number.
    upper = np.triu_indices(len(matrix))
    scales = covariance.entry_scales(matrix.shape)[upper]
    noisy = noisy_copy(np.ascontiguousarray(matrix[upper]), scales, key)
    result = np.empty_like(matrix)
    result[upper] = noisy
    result.T[upper] = noisy
    return result


def _draw_directional(
    matrix: NDArray[Any], covariance: Directional, floor: float, key: ReleaseKey
) -> NDArray[Any]:
    """Add exact noise of scale ``floor``, then ``V1 (sqrt(s_ij^2 - floor^2) G) V2^T``.

    s_ij is the standard deviation in the eigendirections i and j, which V1 and V2 hold.

    The floor carries the whole promise.
    """
    rows = len(matrix)
    # The floor and the independent G come from one key, as the two halves of a matrix of twice the
    # rows: a second key for the same release could be mixed up with the first.
    both = np.concatenate([matrix, np.zeros_like(matrix)])
    scales = np.concatenate([np.full((rows, 1), floor), np.ones((rows, 1))])
    drawn = noisy_copy(both, scales, key)
    scale = covariance.eigenbasis_scales
    # sqrt(s^2 - f^2), without the squares that underflow. A scale that rounding puts below the
    # floor gets no extra noise.
    inner = np.sqrt(np.maximum(scale - floor, 0.0)) * np.sqrt(scale + floor) * drawn[rows:]
    noise = covariance.rotated(inner)
    return np.asarray((drawn[:rows] + noise).astype(matrix.dtype))
