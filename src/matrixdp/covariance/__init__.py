"""How Gaussian noise is shaped: covariances of an m by n matrix that never become mn by mn.

A covariance here is a linear map: standard normal noise goes in, coloured noise comes out. It knows
nothing about privacy. A sensitivity set computes its radius under a covariance, and
`Covariance.rescaled_for` scales a covariance until that radius is what a budget allows.
"""

from matrixdp.covariance.directional import Directional
from matrixdp.covariance.independent import Diagonal, Isotropic, SymmetricIsotropic
from matrixdp.covariance.kronecker import Kronecker
from matrixdp.covariance.linear_map import Covariance
from matrixdp.covariance.one_sided import OneSided

__all__ = [
    "Covariance",
    "Diagonal",
    "Directional",
    "Isotropic",
    "Kronecker",
    "OneSided",
    "SymmetricIsotropic",
]
