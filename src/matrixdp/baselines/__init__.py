"""Mechanisms that IMGM is compared with: the classic and analytic Gaussian mechanisms, and MVG."""

from matrixdp.baselines.gaussian import AnalyticGaussian, ClassicGaussian, classic_noise_scale
from matrixdp.baselines.mvg import MVG, binary_precision
from matrixdp.baselines.precision_budget import Zeta, mvg_precision_budget
from matrixdp.baselines.private_directions import PrivateDirections, private_directions

__all__ = [
    "MVG",
    "AnalyticGaussian",
    "ClassicGaussian",
    "PrivateDirections",
    "Zeta",
    "binary_precision",
    "classic_noise_scale",
    "mvg_precision_budget",
    "private_directions",
]


def __dir__() -> list[str]:
    return __all__
