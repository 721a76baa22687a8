r"""An accountant by plain convolution, which shares nothing with the library but numpy and SciPy.

A plan of sampled steps and one Gaussian release of mu has, in each direction,

    delta(epsilon) = E_P[g(mu; epsilon - S)],   g(mu; e) = Phi(mu/2 - e/mu) - e^e Phi(-mu/2 - e/mu)

with S the sum of the losses of the sampled steps: the release is integrated in closed form, for
every real e. As g falls with e, losses that are rounded down give a lower bound. Rounded down to
multiples of ``h`` they are off by less than ``h`` in every step, so that the same atoms give an
upper bound at ``epsilon - T h``, with what mass is left out added. All terms are positive and sums
are formed directly, not by a transform: each has a relative error of the order of 1e-12.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

FloatArray = NDArray[np.float64]

_REACH = 11.0  # standard deviations; beyond lies less than 1e-27
_POINTS = 12_000  # of the mesh in the noise
_RELATIVE = 1e-9  # of the sums, and of the closed form

DIRECTIONS = {"add-remove": ("remove", "add"), "replace": ("replace",)}


@dataclass(frozen=True)
class Atoms:
    """Masses of P at losses ``h (first + k)``, each at most ``slack`` below the truth."""

    first: int
    masses: FloatArray
    slack: float
    lost: float

    def plus(self, other: "Atoms") -> "Atoms":
        """Return the sum of two independent losses."""
        return Atoms(
            self.first + other.first,
            np.convolve(self.masses, other.masses),
            self.slack + other.slack,
            self.lost + other.lost,
        )

    def times(self, count: int) -> "Atoms":
        """Return the sum of some independent losses like this one."""
        half = None if count == 1 else self.times(count // 2)
        if half is None:
            return self
        whole = half.plus(half)
        return whole.plus(self) if count % 2 else whole


def delta_between(
    relation: str,
    steps: Sequence[tuple[float, float, int]],
    mu: float,
    epsilon: float,
    h: float,
) -> tuple[float, float]:
    """Return bounds of the delta of (multiplier, rate, steps) and a release of mu, mu >= 0.1."""
    bounds = []
    for direction in DIRECTIONS[relation]:
        kinds = [step_atoms(direction, s, q, h).times(count) for s, q, count in steps]
        whole = kinds[0]
        for kind in kinds[1:]:
            whole = whole.plus(kind)
        losses: FloatArray = h * (whole.first + np.arange(len(whole.masses), dtype=np.float64))
        lower = float(np.dot(whole.masses, _gaussian(mu, epsilon - losses)))
        upper = float(np.dot(whole.masses, _gaussian(mu, epsilon - losses - whole.slack)))
        bounds.append((lower * (1.0 - _RELATIVE), upper * (1.0 + _RELATIVE) + whole.lost))
    return max(low for low, _ in bounds), max(high for _, high in bounds)


def step_atoms(direction: str, multiplier: float, rate: float, h: float) -> Atoms:
    """Return the losses of one step, with noise of variance 1 and a record that moves it by nu."""
    nu = 1.0 / multiplier
    u = np.linspace(-nu - _REACH, nu + _REACH, _POINTS)

    def log_mixture(points: FloatArray) -> FloatArray:
        tilted: FloatArray = nu * points - 0.5 * nu * nu + math.log(rate)
        mixed: FloatArray = np.logaddexp(math.log1p(-rate), tilted)
        return mixed

    # Losses rise with u. Of adding a record it is the mirror image that does.
    right = log_mixture(u) if direction != "add" else np.zeros_like(u)
    left = log_mixture(-u) if direction != "remove" else np.zeros_like(u)
    masses = _between(u)
    if direction != "add":
        masses = (1.0 - rate) * masses + rate * _between(u - nu)
    losses = right - left
    indices = np.floor(losses[:-1] / h).astype(np.int64)
    first = int(indices[0])
    widest = float(np.max(np.diff(losses)))
    atoms: FloatArray = np.bincount(indices - first, masses).astype(np.float64)
    return Atoms(first, atoms, (h + widest) * (1.0 + _RELATIVE), 2.0 * float(ndtr(-_REACH)))


def _between(u: FloatArray) -> FloatArray:
    """Return the normal masses between points, from the nearer tail, so that no digits cancel."""
    below, above = ndtr(u), ndtr(-u)
    masses: FloatArray = np.where(u[:-1] < 0.0, np.diff(below), -np.diff(above))
    return masses


def _gaussian(mu: float, epsilon: FloatArray) -> FloatArray:
    first = log_ndtr(0.5 * mu - epsilon / mu)
    second = epsilon + log_ndtr(-0.5 * mu - epsilon / mu)
    curve: FloatArray = np.exp(first) * -np.expm1(np.minimum(second - first, 0.0))
    return curve
