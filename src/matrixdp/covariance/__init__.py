"""How Gaussian noise is shaped: covariances of an m by n matrix that never become mn by mn.

A covariance here is a linear map: standard normal noise goes in, coloured noise comes out. It knows
nothing of privacy; a sensitivity set judges it, and `Covariance.rescaled_for` makes it tight.
"""

from matrixdp.covariance.independent import Diagonal, Isotropic, SymmetricIsotropic
from matrixdp.covariance.kronecker import Kronecker
from matrixdp.covariance.linear_map import Covariance
from matrixdp.covariance.one_sided import OneSided

__all__ = ["Covariance", "Diagonal", "Isotropic", "Kronecker", "OneSided", "SymmetricIsotropic"]
