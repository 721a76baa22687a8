"""The privacy curve of one sampled step, in closed form, and the masses beside a position.

The loss rises with u, so ``delta(epsilon) = P(u > t) - e^epsilon Q(u > t)`` with t where the loss
is epsilon. Rounding that moves t changes this difference, which is largest at t, in the second
order only.

If a record is there or not, this is ``q delta_G(nu, tau)`` with ``e^tau = 1 + (e^epsilon - 1)/q``
and ``delta_G`` the Gaussian curve. With P and Q exchanged it is ``(q - (1-q) (e^epsilon - 1))
delta_G(nu, tau')`` with ``e^-tau' = 1 - (1 - e^-epsilon)/q``. Since ``(1-q) (e^epsilon - 1) >= 0``,
tau' is at least tau; so it is nowhere larger.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.parameters import EPSILON
from matrixdp.privacy.bound import privacy_delta
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["MASS_ROUNDING", "OneStep", "log_masses_above", "log_masses_below", "position_of"]

FloatArray = NDArray[np.float64]

MASS_ROUNDING = 1e-11
"""Of normal probabilities, far into the tails, and of sums of them; relative."""

_CLOSED_FORM = 1e-10  # what `privacy_delta` may be too large by
_MOVED = 1e-13  # by rounding, of tau
_TINY = 1e-300


@dataclass(frozen=True)
class OneStep:
    """Bounds of the curve of one step, in both directions at once."""

    pair: Pair

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        return self._log_bound(epsilon, 1.0)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta."""
        return self._log_bound(epsilon, -1.0)

    def _log_bound(self, epsilon: float, direction: float) -> float:
        if isinstance(self.pair, AddRemovePair):
            value, off = self._amplified(self.pair, epsilon, direction)
        else:
            value, off = self._replaced(epsilon)
        value += direction * (off + _TINY)
        return math.log(value) if value > 0.0 else -math.inf

    @staticmethod
    def _amplified(pair: AddRemovePair, epsilon: float, direction: float) -> tuple[float, float]:
        tau = float(pair.exponents(np.array([epsilon]))[0])
        moved = min(tau * (1.0 - direction * _MOVED), EPSILON.largest)
        found = pair.rate * privacy_delta(pair.mu, moved)
        return found, found * _CLOSED_FORM

    def _replaced(self, epsilon: float) -> tuple[float, float]:
        pair, end = self.pair, -position_of(self.pair, epsilon)
        logs = scipy.special.log_ndtr(np.array([end, end + pair.mu, end - pair.mu]))
        grown = math.log(pair.rate) + epsilon + float(logs[2])
        rest = math.log1p(-pair.rate) + float(logs[0])
        rest += epsilon + math.log(-math.expm1(-epsilon)) if epsilon > 0.0 else -math.inf
        terms = [math.log(pair.rate) + float(logs[1]), grown, rest]
        first, *others = (math.exp(min(log, 700.0)) for log in terms)
        size = abs(epsilon) + (abs(end) + pair.mu) ** 2 + abs(math.log(pair.rate))
        off = (MASS_ROUNDING + 16.0 * UNIT_ROUNDOFF * size) * (first + math.fsum(others))
        return first - math.fsum(others), off


def position_of(pair: Pair, loss: float) -> float:
    """Return where a loss is reached."""
    return float(pair.positions(np.array([loss]))[0])


def log_masses_above(pair: Pair, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logarithms of the masses of P and of Q above positions."""
    return _logs(pair, -positions, pair.mu)


def log_masses_below(pair: Pair, positions: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the logarithms of the masses of P and of Q below positions."""
    return _logs(pair, positions, -pair.mu)


def _logs(pair: Pair, ends: FloatArray, shift: float) -> tuple[FloatArray, FloatArray]:
    """Return the logarithms of normal masses below ends, mixed with those of a shift."""
    plain = scipy.special.log_ndtr(ends)
    rest, rate = math.log1p(-pair.rate), math.log(pair.rate)
    own, opposite = (
        np.logaddexp(rest + plain, rate + scipy.special.log_ndtr(ends + moved))
        for moved in (shift, -shift)
    )
    return own, plain if pair.one_sided else opposite
