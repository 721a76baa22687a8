"""Exact, floating-point-safe, keyed Gaussian noise."""

from matrixdp.noise.apply import ExactNoise, add_noise
from matrixdp.noise.context import NOISE_VERSION, NoiseContext
from matrixdp.noise.keys import NoiseStream, ReleaseKey
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
