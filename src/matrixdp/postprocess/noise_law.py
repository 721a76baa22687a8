"""Independent noise of one scale, on all matrices or on the symmetric ones, perhaps in units."""

import math
from dataclasses import dataclass

import numpy as np

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    SymmetricDiagonal,
    SymmetricIsotropic,
)
from matrixdp.errors import InvalidParameterError
from matrixdp.postprocess.step import FloatArray, Shape

__all__ = ["NoiseLaw", "in_noise_units", "noise_law"]


@dataclass(frozen=True, slots=True)
class NoiseLaw:
    """Noise that has the same standard deviation ``scale`` along every direction.

    Symmetric noise does so within the symmetric matrices: it has the scale on the diagonal and
    scale / sqrt(2) elsewhere, which is the Gaussian orthogonal ensemble.
    """

    scale: float
    symmetric: bool

    def dimension(self, shape: Shape) -> int:
        """Return the dimension of the space that the noise is spread over."""
        rows, columns = shape
        return rows * (rows + 1) // 2 if self.symmetric else rows * columns

    def unit(self, shape: Shape) -> float:
        """Return the unit in which the noise alone has singular values up to 1 + sqrt(beta).

        With beta the ratio of the sides, at most 1: ``scale * sqrt(longer side)``. For symmetric
        noise of off-diagonal scale ``tau`` it is ``tau * sqrt(n)``, and the edge of the semicircle
        is at 2 units.
        """
        tau = self.scale * math.sqrt(0.5) if self.symmetric else self.scale
        return tau * math.sqrt(max(shape))


def in_noise_units(
    value: FloatArray, covariance: Covariance
) -> tuple[FloatArray, Covariance, FloatArray | float]:
    """Return a matrix in units in which symmetric noise has one scale, its noise, and the units.

    Rows and columns that are in units of their own are divided by these, so that a column in other
    units changes only the unit of what comes out. Other noise stays as it is.
    """
    if not isinstance(covariance, SymmetricDiagonal):
        return value, covariance, 1.0
    units = np.multiply.outer(covariance.scales, covariance.scales)
    return value / units, SymmetricIsotropic(1.0), units


def noise_law(covariance: Covariance, step: str) -> NoiseLaw:
    """Return the law of noise that has one scale, or raise on behalf of a step."""
    match covariance:
        case Isotropic() | SymmetricIsotropic():
            return NoiseLaw(covariance.scale, isinstance(covariance, SymmetricIsotropic))
        case Diagonal() if np.all(covariance.scales == covariance.scales.flat[0]):
            return NoiseLaw(float(covariance.scales.flat[0]), symmetric=False)
    raise InvalidParameterError(
        f"{step} needs independent noise of one scale, and the release has "
        f"{type(covariance).__name__} noise of several: release on a FrobeniusBall or "
        "SymmetricBall, or use EntryThreshold, which takes every scale for itself"
    )
