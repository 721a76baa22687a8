"""Exact, floating-point-safe, keyed Gaussian noise."""

from matrixdp.noise.application.add import ExactNoise, add_noise
from matrixdp.noise.keys.context import NOISE_VERSION, NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey
from matrixdp.noise.keys.stream import NoiseStream
from matrixdp.noise.simulated import SimulatedValue, simulate_noise, simulation_generator
from matrixdp.noise.specification.table import STEP_ERROR, load_table, table_digest

__all__ = [
    "NOISE_VERSION",
    "STEP_ERROR",
    "ExactNoise",
    "NoiseContext",
    "NoiseStream",
    "ReleaseKey",
    "SimulatedValue",
    "add_noise",
    "load_table",
    "simulate_noise",
    "simulation_generator",
    "table_digest",
]


def __dir__() -> list[str]:
    return __all__
