"""The privacy curve of one sampled step, in closed form.

The loss rises with u, so ``delta(epsilon) = P(u > t) - e^epsilon Q(u > t)`` with t the place of the
loss epsilon; and with P and Q exchanged ``Q(u < t) - e^epsilon P(u < t)`` with that of -epsilon.
Rounding that moves t changes this difference, which is largest at t, in the second order only.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from matrixdp.privacy.loss.curve import SMALLEST_DELTA, CurveBounds
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.tilting import Saddle
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["OneStepCurve", "log_masses_above", "masses_above", "place_of"]

_ROUNDING = 1e-12  # of normal probabilities, far into the tails, and of sums of them


@dataclass(frozen=True)
class _OneStep:
    """Bounds for one pair and direction."""

    pair: Pair
    exchanged: bool

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        return self._log_bound(epsilon, 1.0)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta."""
        return self._log_bound(epsilon, -1.0)

    def _log_bound(self, epsilon: float, direction: float) -> float:
        if self.exchanged:
            place = place_of(self.pair, -epsilon)
            if place == -math.inf:
                return -math.inf
            log_second, log_first = _logs(self.pair, place, -self.pair.mu, self.pair.mu)
        else:
            place = place_of(self.pair, epsilon)
            log_first, log_second = log_masses_above(self.pair, place)
        # In logarithms: a mass may be too small for a float where e^epsilon times it is not.
        first, other = math.exp(log_first), math.exp(min(epsilon + log_second, 700.0))
        size = abs(epsilon) + (abs(place) + self.pair.mu) ** 2
        off = (_ROUNDING + 16.0 * UNIT_ROUNDOFF * size) * (first + other) + SMALLEST_DELTA
        found = first - other + direction * off
        return math.log(found) if found > 0.0 else -math.inf


class OneStepCurve(CurveBounds):
    """Bounds for a plan of a single step."""

    def _own(self, saddle: Saddle) -> tuple[_OneStep, _OneStep]:
        del saddle  # it is exact
        found = _OneStep(self._steps[0][0], exchanged=False)
        return found, found

    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[_OneStep]:
        del epsilon, log_delta
        yield _OneStep(self._steps[0][0], exchanged=True)


def place_of(pair: Pair, loss: float) -> float:
    """Return where a loss is reached."""
    return float(pair.places(np.array([loss]))[0])


def masses_above(pair: Pair, place: float) -> tuple[float, float]:
    """Return the masses of P and of Q above a place."""
    own, other = log_masses_above(pair, place)
    return math.exp(own), math.exp(other)


def log_masses_above(pair: Pair, place: float) -> tuple[float, float]:
    """Return the logarithms of the masses of P and of Q above a place."""
    return _logs(pair, -place, pair.mu, -pair.mu)


def _logs(pair: Pair, end: float, own: float, other: float) -> tuple[float, float]:
    """Return the logarithms of the masses of mixtures whose second parts are moved by so much."""
    logs = scipy.special.log_ndtr(np.array([end, end + own, end + other]))
    plain, rest, rate = float(logs[0]), math.log1p(-pair.rate), math.log(pair.rate)
    mixed, opposite = (float(np.logaddexp(rest + plain, rate + moved)) for moved in logs[1:])
    return mixed, plain if pair.one_sided else opposite
