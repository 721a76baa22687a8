"""The privacy curve between two bounds: what is searched for on it, and in which directions."""

import abc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import scipy

from matrixdp.parameters import EPSILON
from matrixdp.privacy.events import TooLittleNoiseError
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.tilting import Saddle

__all__ = ["SMALLEST_DELTA", "CurveBounds", "Interval", "LogDelta", "Steps"]


class Interval(NamedTuple):
    """Two bounds that a number is proven to lie between."""

    lower: float
    upper: float

    @property
    def width(self) -> float:
        """How far apart they are."""
        return self.upper - self.lower

    def narrowed(self, other: "Interval") -> "Interval":
        """Return the intersection with other bounds of the same number."""
        return Interval(max(self.lower, other.lower), min(self.upper, other.upper))


Steps = Sequence[tuple[Pair, int]]

_LEAST_STEP = 1e-300  # of a search; doubled, it is soon as large as any epsilon
SMALLEST_DELTA = 1e-250
"""Over the number of steps: below it masses of atoms would not be normal floats."""


class LogDelta(Protocol):
    """Bounds of the logarithm of delta in one direction."""

    def log_upper(self, epsilon: float) -> float:
        """Return an upper bound at an epsilon."""

    def log_lower(self, epsilon: float) -> float:
        """Return a lower bound at an epsilon."""


class CurveBounds(abc.ABC):
    """Bounds of the privacy curve of steps, near a point of it."""

    def __init__(self, steps: Steps, tail: float, change: float) -> None:
        self._steps, self._tail, self._change = steps, tail, change
        self._symmetric = all(pair.symmetric for pair, _ in steps)

    @abc.abstractmethod
    def _own(self, saddle: Saddle) -> LogDelta:
        """Return what gives bounds near a saddle point."""

    @abc.abstractmethod
    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[LogDelta]:
        """Return what gives upper bounds with P and Q exchanged, ever closer ones."""

    def epsilon(self, delta: float, saddle: Saddle) -> Interval:
        """Return bounds of the epsilon at a delta, near a saddle point."""
        log_delta = math.log(delta)
        own = self._own(saddle)
        most = _least_safe_of(own, log_delta, saddle)
        least = _largest_unsafe(lambda e: own.log_lower(e) - log_delta, saddle)
        if not self._nowhere_exchanged(most):
            most = self._safe_exchanged(most, log_delta, saddle)
        return Interval(min(least, most), most)

    def _safe_exchanged(self, epsilon: float, log_delta: float, saddle: Saddle) -> float:
        """Return an epsilon that holds with P and Q exchanged, too."""
        closest: LogDelta | None = None
        for curve in self._exchanged(epsilon, log_delta):
            if curve.log_upper(epsilon) <= log_delta:
                return epsilon
            closest = curve
        near = replace(saddle, epsilon=epsilon)
        return epsilon if closest is None else _least_safe_of(closest, log_delta, near)

    def delta(self, epsilon: float, saddle: Saddle) -> Interval:
        """Return bounds of the delta at an epsilon, near its saddle point."""
        own = self._own(saddle)
        most, least = own.log_upper(epsilon), own.log_lower(epsilon)
        other = -math.inf
        if not self._nowhere_exchanged(epsilon):
            for curve in self._exchanged(epsilon, most):
                other = curve.log_upper(epsilon)
                if other <= most:
                    break
        return _exponentials(least, max(most, other))

    def profile(self, saddle: Saddle) -> Callable[[float], Interval]:
        """Return bounds of delta as a function, close near a saddle point."""
        own = self._own(saddle)
        nowhere = self._nowhere_exchanged(0.0)
        others = [] if nowhere else list(self._exchanged(saddle.epsilon, saddle.log_delta))

        def at(epsilon: float) -> Interval:
            other = min((curve.log_upper(epsilon) for curve in others), default=-math.inf)
            return _exponentials(own.log_lower(epsilon), max(own.log_upper(epsilon), other))

        return at

    def _nowhere_exchanged(self, epsilon: float) -> bool:
        """Return whether the other direction is the same, or none of its losses reaches epsilon.

        There the loss of a sampled step is at most ``-log(1 - q)``.
        """
        if self._symmetric:
            return True
        most = sum(-count * pair.least_loss for pair, count in self._steps)
        return all(pair.rate < 1.0 for pair, _ in self._steps) and most * (1.0 + 1e-12) <= epsilon


def _exponentials(least: float, most: float) -> Interval:
    """Return bounds of delta from those of its logarithm."""
    # exp is off by less than a part in 1e12 for exponents above -700.
    upper = min(1.0, math.exp(min(most, 0.0)) * (1.0 + 1e-12))
    return Interval(min(upper, math.exp(least) * (1.0 - 1e-12)), upper)


def _least_safe_of(curve: LogDelta, log_delta: float, saddle: Saddle) -> float:
    """Return an epsilon whose delta is proven to be at most this one, close to the least."""
    return _least_safe(lambda e: curve.log_upper(e) - log_delta, saddle)


def _least_safe(excess: Callable[[float], float], saddle: Saddle) -> float:
    """Return an epsilon where a decreasing function is not positive, close to the least one."""
    found = _crossing(excess, saddle)
    step = max(1e-10 * found, _LEAST_STEP)
    while not excess(found) <= 0.0:
        found, step = found + step, 2.0 * step
        _check_epsilon(found)
    return found


def _largest_unsafe(excess: Callable[[float], float], saddle: Saddle) -> float:
    """Return an epsilon where a decreasing function is not negative, close to the largest, or 0."""
    found = _crossing(excess, saddle)
    step = max(1e-10 * found, _LEAST_STEP)
    while found > 0.0 and not excess(found) >= 0.0:
        found, step = max(found - step, 0.0), 2.0 * step
    return found


def _check_epsilon(epsilon: float) -> None:
    if not epsilon <= EPSILON.largest:
        raise TooLittleNoiseError("noise with an epsilon beyond 1e6")


def _crossing(excess: Callable[[float], float], saddle: Saddle) -> float:
    """Return where a decreasing function is about zero, or 0 if it is nowhere positive.

    It is total: a NaN counts as positive, since nothing is known there, so that the search ends at
    a sign change or beyond 1e6, where it raises. The result is an estimate; callers check it.
    """

    def bounded(epsilon: float) -> float:
        value = excess(epsilon)
        return 1e6 if math.isnan(value) else min(max(value, -1e6), 1e6)

    # In this order a NaN becomes 0.
    low = high = min(max(0.0, saddle.epsilon), EPSILON.largest)
    reach = max(1e-3 * low, min(0.1 / saddle.tilt, 0.05 * low or math.inf), _LEAST_STEP)
    while bounded(low) <= 0.0:
        if low == 0.0:
            return 0.0
        low, high, reach = max(low - reach, 0.0), low, 4.0 * reach
    while bounded(high) > 0.0:
        _check_epsilon(math.nextafter(high, math.inf))
        low, high, reach = high, min(high + reach, EPSILON.largest), 4.0 * reach
    # Without an error where a hundred steps are too few: what they found is an estimate as well.
    return float(scipy.optimize.brentq(bounded, low, high, xtol=1e-300, rtol=1e-9, disp=False))
