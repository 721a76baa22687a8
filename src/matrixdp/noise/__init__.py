"""Exact, floating-point-safe, keyed Gaussian noise."""

from matrixdp.noise.apply import ExactNoise, add_noise
from matrixdp.noise.context import NOISE_VERSION, NoiseContext
from matrixdp.noise.keys import NoiseStream, ReleaseKey

__all__ = [
    "NOISE_VERSION",
    "ExactNoise",
    "NoiseContext",
    "NoiseStream",
    "ReleaseKey",
    "add_noise",
]
