"""Points of the documented domain: its corners, and seeded samples that visit every regime."""

import csv
import math
import sys
from pathlib import Path

import numpy as np

SMALLEST_DELTA = sys.float_info.min
LARGEST_DELTA = 1.0 - 1e-12
LARGEST_EPSILON = 1e6
LARGEST_MU = 1e4

_VECTORS = Path(__file__).with_name("bound.csv")


def vectors() -> list[tuple[float, float, str]]:
    """Return (epsilon, delta, bound) of 192 points; the bound in 30 digits, from 150-digit sums."""
    with _VECTORS.open(newline="") as file:
        return [
            (float(row["epsilon"]), float(row["delta"]), row["bound"])
            for row in csv.DictReader(file)
        ]


def _random_epsilon(rng: np.random.Generator) -> float:
    choices = (
        0.0,
        10.0 ** rng.uniform(-320, -10),
        10.0 ** rng.uniform(-10, 0),
        10.0 ** rng.uniform(-2, 2),
        10.0 ** rng.uniform(1, 6),
        rng.uniform(0, 3),
    )
    return choices[rng.integers(len(choices))]


def _random_delta(rng: np.random.Generator) -> float:
    choices = (
        10.0 ** rng.uniform(-307.6, -1),
        10.0 ** rng.uniform(-20, -0.3),
        rng.uniform(0.01, 0.99),
        1.0 - 10.0 ** rng.uniform(-11.99, -0.3),
        10.0 ** rng.uniform(-307.6, -300),
    )
    return choices[rng.integers(len(choices))]


def _random_mu(rng: np.random.Generator) -> float:
    choices = (10.0 ** rng.uniform(-3, 4), 10.0 ** rng.uniform(-307, 0), rng.uniform(1e-3, 15))
    return choices[rng.integers(len(choices))]


def budgets(count: int, seed: int) -> list[tuple[float, float]]:
    """Return random (epsilon, delta), a fifth of them with delta close to epsilon."""
    rng = np.random.default_rng(seed)
    points = []
    for _ in range(count):
        epsilon, delta = _random_epsilon(rng), _random_delta(rng)
        if epsilon > 0 and rng.random() < 0.2:
            delta = epsilon * 10.0 ** rng.uniform(-5, 2)
        points.append((epsilon, min(max(delta, SMALLEST_DELTA), LARGEST_DELTA)))
    return points


def curve_points(count: int, seed: int) -> list[tuple[float, float]]:
    """Return random (mu, epsilon), most of them where delta is neither 0 nor 1."""
    rng = np.random.default_rng(seed)
    points = []
    for _ in range(count):
        mu, epsilon = _random_mu(rng), _random_epsilon(rng)
        if rng.random() < 0.7:
            epsilon = mu * (rng.uniform(-7, 39) + mu / 2)
        points.append((mu, min(max(epsilon, 0.0), LARGEST_EPSILON)))
    return points


def subnormal_points(count: int, seed: int) -> list[tuple[float, float]]:
    """Return (mu, epsilon) with mu around and below the smallest normal double."""
    rng = np.random.default_rng(seed)
    mus = 10.0 ** rng.uniform(-323, -306, count)
    ratios = np.where(rng.random(count) < 0.2, 0.0, 10.0 ** rng.uniform(-3, 1, count))
    points = list(zip(mus.tolist(), (mus * ratios).tolist(), strict=True))
    return [*points, (30 * 5e-324, 22 * 5e-324), (3.81945598890513e-310, 5.7691234232604e-311)]


def mechanism_points(count: int, seed: int) -> list[tuple[float, float]]:
    """Return random (mu, delta), a third of them with delta below but near delta(mu, 0)."""
    rng = np.random.default_rng(seed)
    points = []
    for _ in range(count):
        mu, delta = _random_mu(rng), _random_delta(rng)
        if rng.random() < 0.3:
            delta = math.erf(mu / math.sqrt(8)) * 10.0 ** rng.uniform(-12, 0)
        points.append((mu, min(max(delta, SMALLEST_DELTA), LARGEST_DELTA)))
    return points


def corners() -> list[tuple[float, float]]:
    """Return every combination of extreme epsilon and extreme delta."""
    return [
        (epsilon, delta)
        for epsilon in (0.0, 5e-324, 1e-300, 1e-12, 1.0, 1e6)
        for delta in (SMALLEST_DELTA, 1e-300, 0.5, math.nextafter(0.5, 1), LARGEST_DELTA)
    ]
