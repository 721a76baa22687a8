"""Shapes of Gaussian noise: covariances of an m by n matrix that never become mn by mn.

A covariance here is a linear map: standard normal noise goes in, coloured noise comes out. It knows
nothing about privacy. A sensitivity set computes its radius under a covariance, and
`Covariance.rescaled_for` scales a covariance until that radius is what a budget allows.
"""

from matrixdp.covariance.independent import (
    Diagonal,
    Isotropic,
    SymmetricDiagonal,
    SymmetricIsotropic,
)
from matrixdp.covariance.kronecker import Directional, Kronecker
from matrixdp.covariance.linear_map import Covariance

__all__ = [
    "Covariance",
    "Diagonal",
    "Directional",
    "Isotropic",
    "Kronecker",
    "SymmetricDiagonal",
    "SymmetricIsotropic",
]


def __dir__() -> list[str]:
    return __all__
