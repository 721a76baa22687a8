"""The privacy curve between two bounds, from the atoms of one lattice."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import scipy

from matrixdp.parameters import EPSILON
from matrixdp.privacy.events import TooLittleNoiseError
from matrixdp.privacy.loss.composition import Composed, composed
from matrixdp.privacy.loss.lattice import (
    Lattice,
    cells_of,
    coarsened,
    contracted,
    exchanged,
    spread,
)
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.splitting import Mixture, cut_of, mixture
from matrixdp.privacy.loss.tilting import Cumulants, Saddle, Split

__all__ = ["SMALLEST_DELTA", "CurveBounds", "Interval", "Steps"]


class Interval(NamedTuple):
    """Two bounds that a number is proven to lie between."""

    lower: float
    upper: float

    @property
    def width(self) -> float:
        """How far apart they are."""
        return self.upper - self.lower

    def narrowed(self, other: "Interval") -> "Interval":
        """Return what this and other bounds of the same number have in common."""
        return Interval(max(self.lower, other.lower), min(self.upper, other.upper))


Steps = Sequence[tuple[Pair, int]]

_BELOW_DELTA = 5.0  # on the logarithmic scale
_LEAST_STEP = 1e-300  # of a search; doubled, it is soon as large as any epsilon
# Twice coarsened, e^-step still leaves all masses of a step's lowest losses normal floats.
_WIDEST_STEP = 128.0
SMALLEST_DELTA = 1e-250
"""Over the number of steps: below it masses of atoms would not be normal floats."""


class CurveBounds:
    """Bounds of the privacy curve from the atoms of one lattice, which decide the lower bound.

    The upper bound is closer by itself, so that a lattice with twice the step will do for it; and
    one with four times for the direction that nearly always costs less.
    """

    def __init__(self, steps: Steps, step: float, tail: float) -> None:
        if not step <= _WIDEST_STEP:
            raise TooLittleNoiseError(f"noise whose losses are resolved in steps of {step!r} only")
        self._steps, self._tail = steps, tail
        cells = [(cells_of(pair, step, tail), count) for pair, count in steps]
        self._upper = [(coarsened(spread(part)), count) for part, count in cells]
        self._lower = [(contracted(part), count) for part, count in cells]
        self._symmetric = all(pair.symmetric for pair, _ in steps)

    def epsilon(self, delta: float, cumulants: Cumulants, saddle: Saddle) -> Interval:
        """Return bounds of the epsilon at a delta, near a saddle point."""
        log_delta = math.log(delta)
        tilted = cumulants.softened(saddle)
        upper = composed(self._upper, tilted)
        lower = composed(self._lower, tilted, for_lower=True)
        most = _least_safe(lambda e: upper.log_upper(e) - log_delta, saddle)
        least = _largest_unsafe(lambda e: lower.log_lower(e) - log_delta, saddle)
        if not self._symmetric:
            most = self._exchanged_epsilon(most, log_delta, saddle)
        return Interval(min(least, most), most)

    def split_epsilon(self, delta: float, near: Saddle) -> Interval:
        """Return bounds of the epsilon at a delta, near an estimate, with large losses apart."""
        log_delta = math.log(delta)
        split = self._split_at(delta)
        upper = mixture(self._upper, self._steps, split, near.epsilon)
        lower = mixture(self._lower, self._steps, split, near.epsilon, for_lower=True)
        most = _least_safe(lambda e: upper.log_upper(e) - log_delta, near)
        least = _largest_unsafe(lambda e: lower.log_lower(e) - log_delta, near)
        if not self._symmetric:
            most = self._exchanged_epsilon(most, log_delta, near)
        return Interval(min(least, most), most)

    def _split_at(self, delta: float) -> Split:
        """Return how to divide the losses of the kind of step with the largest ones."""
        cuts = [cut_of(lattice, count, delta) for lattice, count in self._upper]
        rates = [pair.rate for pair, _ in self._steps]
        # The kind that is sampled most rarely has the most to gain.
        index = rates.index(min(rates))
        return Split(index, cuts[index])

    def _exchanged_epsilon(self, epsilon: float, log_delta: float, saddle: Saddle) -> float:
        """Return an epsilon that also holds for adding a record, where P and Q are exchanged."""
        coarse = self._exchanged(epsilon, log_delta, coarse=True)
        if coarse is None or coarse.log_upper(epsilon) <= log_delta:
            return epsilon
        fine = self._exchanged(epsilon, log_delta, coarse=False)
        if fine is None or fine.log_upper(epsilon) <= log_delta:
            return epsilon
        near = replace(saddle, epsilon=epsilon)
        return _least_safe(lambda e: fine.log_upper(e) - log_delta, near)

    def delta(self, epsilon: float, cumulants: Cumulants, saddle: Saddle) -> Interval:
        """Return bounds of the delta at an epsilon, near its saddle point."""
        tilted = cumulants.softened(saddle)
        upper = composed(self._upper, tilted)
        lower = composed(self._lower, tilted, for_lower=True)
        return self._delta_between(upper, lower, epsilon)

    def split_delta(self, epsilon: float, delta: float) -> Interval:
        """Return bounds of the delta at an epsilon with large losses apart, given a rough one."""
        split = self._split_at(min(max(delta, SMALLEST_DELTA), 1.0))
        upper = mixture(self._upper, self._steps, split, epsilon)
        lower = mixture(self._lower, self._steps, split, epsilon, for_lower=True)
        return self._delta_between(upper, lower, epsilon)

    def _delta_between(
        self, above: Composed | Mixture, below: Composed | Mixture, epsilon: float
    ) -> Interval:
        most, least = above.log_upper(epsilon), below.log_lower(epsilon)
        if not self._symmetric:
            for coarse in (True, False):
                other = self._exchanged(epsilon, most, coarse=coarse)
                exchanged_log = -math.inf if other is None else other.log_upper(epsilon)
                if exchanged_log <= most:
                    break
            most = max(most, exchanged_log)
        # exp is off by less than a part in 1e12 for exponents above -700.
        upper = min(1.0, math.exp(min(most, 0.0)) * (1.0 + 1e-12))
        return Interval(min(upper, math.exp(least) * (1.0 - 1e-12)), upper)

    def _exchanged(self, epsilon: float, log_delta: float, *, coarse: bool) -> Composed | None:
        """Return the atoms of the other direction, composed, or None if no loss reaches epsilon.

        There the loss of a sampled step is at most ``-log(1 - q)``, and delta is nearly always far
        smaller. The tilt for a delta a little below the one in question is enough to show that.
        """
        most = sum(-count * pair.least_loss for pair, count in self._steps)
        if all(pair.rate < 1.0 for pair, _ in self._steps) and most * (1.0 + 1e-12) <= epsilon:
            return None
        cumulants = Cumulants(self._steps, self._tail, exchanged=True)
        own = cumulants.for_epsilon(epsilon)
        enough = cumulants.for_delta(
            math.exp(min(max(log_delta - _BELOW_DELTA, -690.0), -_BELOW_DELTA))
        )
        saddle = replace(min(own, enough, key=lambda one: one.tilt), epsilon=epsilon)
        lattices = [
            (_exchanged(pair, coarsened(lattice) if coarse else lattice), count)
            for (lattice, count), (pair, _) in zip(self._upper, self._steps, strict=True)
        ]
        return composed(lattices, saddle)


def _exchanged(pair: Pair, lattice: Lattice) -> Lattice:
    """Return atoms that dominate the exchanged pair; of a symmetric pair they are the same ones.

    Those of a release could not be had by exchanging: where Q is, P may be no float.
    """
    return lattice if pair.symmetric else exchanged(lattice)


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
    reach = max(1e-3 * low, 0.1 / saddle.tilt, _LEAST_STEP)
    while bounded(low) <= 0.0:
        if low == 0.0:
            return 0.0
        low, high, reach = max(low - reach, 0.0), low, 4.0 * reach
    while bounded(high) > 0.0:
        _check_epsilon(math.nextafter(high, math.inf))
        low, high, reach = high, min(high + reach, EPSILON.largest), 4.0 * reach
    # Without an error where a hundred steps are too few: what they found is an estimate as well.
    return float(scipy.optimize.brentq(bounded, low, high, xtol=1e-300, rtol=1e-9, disp=False))
