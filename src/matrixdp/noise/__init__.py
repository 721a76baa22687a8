"""Exact, floating-point-safe, keyed Gaussian noise."""

from matrixdp.noise.application.add import ExactNoise, add_noise
from matrixdp.noise.keys.context import NOISE_VERSION, NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey
from matrixdp.noise.keys.stream import NoiseStream
from matrixdp.noise.simulated import SimulatedValue, simulate_noise, simulation_generator

__all__ = [
    "NOISE_VERSION",
    "ExactNoise",
    "NoiseContext",
    "NoiseStream",
    "ReleaseKey",
    "SimulatedValue",
    "add_noise",
    "simulate_noise",
    "simulation_generator",
]
