r"""Many steps at once: the privacy curve from the characteristic function of the whole loss.

With ``K(z) = log E_P[e^(z L)]`` of the whole plan and any theta > 0,

    delta(epsilon) = e^(K(theta) - theta epsilon) D(epsilon),
    D(epsilon) = 1/(2 pi) int e^(K(z) - K(theta) - i s epsilon) / (z (z + 1)) ds,   z = theta + i s.

No loss is rounded to a lattice point. What is bounded, and added to an upper bound or taken from a
lower one:

- *spacing*: a sum over s at a distance of 2 pi / P, instead of the integral, is ``sum_k D(epsilon +
  k P)`` (Poisson). All of these are positive, and Chernoff's bound says how large they are.
- *what is left out*: |s| from some S on, by `Points.log_decay`.
- *a step's characteristic function*: `points`. At all s of the sum at once it comes from a Fourier
  transform: each atom is replaced by 16 atoms on a lattice of distance h about it, so that
  polynomials up to degree 15 in the loss keep their sums. By the remainder of interpolation this
  changes ``e^(i s L)`` by at most ``c (s h)^16``, c the product of the distances over 16!.
- *powers and rounding*: as in `composition`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.loss.composition import (
    TooManyPointsError,
    size_of_window,
    transform_error,
)
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.points import Points, log_decay_of, points_of
from matrixdp.privacy.loss.tilting import Saddle
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["Chernoff", "Inverted", "Part", "chernoff", "inverted"]

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

_MOST_POINTS = 1 << 19
_ORDER = 16
_REMAINDER = (math.gamma(8.5) / math.gamma(0.5)) ** 2 / math.factorial(_ORDER)  # c
_STEP = 0.6  # of the lattice, over 1/S
_CLOSE = math.log(1e-8)  # of D: what spacing and what is left out may add
_ROUNDS = 12
_ORDERS = 16  # tried, for Chernoff's bound
_TINY = 1e-300
_TOGETHER = 1 << 15  # atoms that are replaced at a time
_CROWD = 32  # atoms about the same lattice points, whose sum is rounded once


class Part(NamedTuple):
    """Steps of one kind, as far as they are between two places."""

    pair: Pair
    interval: tuple[float, float]
    number: int


@dataclass(frozen=True)
class Inverted:
    """The integrand at all s of the sum, with what bounds the errors of D.

    Attributes
    ----------
    tilt, log_factor : float
        Theta and K(theta).
    spacing : float
        Of s.
    values : array
        Of ``e^(K(z) - K(theta)) / (z (z + 1))`` from s = 0 on; the first one halved.
    error : float
        Of D, absolute.
    relative : float
        Of delta, from rounding K(theta).
    growth : tuple of (float, float)
        Orders c with a bound of ``K(theta + c) - K(theta)``.
    lost : float
        The mass that is not in the sum.
    """

    tilt: float
    log_factor: float
    spacing: float
    values: ComplexArray
    error: float
    relative: float
    growth: tuple[tuple[float, float], ...]
    lost: float

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        value, error = self._sum(epsilon)
        return _with_lost(self._scaled(value + error, epsilon, 1.0), self.lost)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta."""
        value, error = self._sum(epsilon)
        found = value - error - self._aliases(epsilon)
        return self._scaled(found, epsilon, -1.0) if found > _TINY else -math.inf

    def _scaled(self, found: float, epsilon: float, direction: float) -> float:
        log = math.log(max(found, _TINY))
        tilted = self.tilt * epsilon
        size = abs(log) + abs(self.log_factor) + abs(tilted) + 1.0
        off = self.relative + 8.0 * UNIT_ROUNDOFF * size
        return log + self.log_factor - tilted + direction * off

    def _sum(self, epsilon: float) -> tuple[float, float]:
        """Return the sum, and a bound of what rounding and all else but spacing change in it."""
        s = self.spacing * np.arange(len(self.values))
        value = float(np.real(self.values @ np.exp(-1j * (s * epsilon))))
        sizes = np.abs(self.values)
        units = (16.0 + len(s)) * float(sizes.sum()) + 4.0 * abs(epsilon) * float(sizes @ s)
        factor = self.spacing / math.pi
        return factor * value, self.error + factor * units * UNIT_ROUNDOFF * 1.01

    def _aliases(self, epsilon: float) -> float:
        """Return a bound of ``D(epsilon + k P)`` summed over k other than 0."""
        period = 2.0 * math.pi / self.spacing
        below = self.tilt * (epsilon - period) - self.log_factor
        above = min(log - order * (epsilon + period) for order, log in self.growth)
        least = min(order for order, _ in self.growth)
        return 1.01 * (
            math.exp(min(below, 700.0)) / -math.expm1(-self.tilt * period)
            + math.exp(min(above, 700.0)) / -math.expm1(-least * period)
        )


@dataclass(frozen=True)
class Chernoff:
    """The bound ``delta(epsilon) <= e^(K(theta) - theta epsilon)``, and what is lost."""

    tilt: float
    log_factor: float
    lost: float

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        tilted = self.tilt * epsilon
        rounding = 8.0 * UNIT_ROUNDOFF * (abs(tilted) + abs(self.log_factor) + 1.0)
        return _with_lost(self.log_factor - tilted + rounding, self.lost)

    def log_lower(self, epsilon: float) -> float:
        """There is none."""
        del epsilon
        return -math.inf


def _with_lost(logarithm: float, lost: float) -> float:
    """Return ``log(e^logarithm + lost)``, rounded up."""
    if lost > 0.0:
        logarithm = float(np.logaddexp(logarithm, math.log(lost)))
    return logarithm + 4.0 * UNIT_ROUNDOFF * (1.0 + abs(logarithm))


def chernoff(
    steps: Sequence[Part], tilt: float, lost: float = 0.0, *, exchanged: bool = False
) -> Chernoff:
    """Return the bound for one tilt; other parameters are as of `inverted`."""
    log = 0.0
    for pair, interval, count in steps:
        if pair.rate == 1.0:
            log += 0.5 * count * tilt * (tilt + 1.0) * pair.mu**2 * (1.0 + 1e-12)
        else:
            points = points_of(pair, interval, tilt, 0.0, exchanged=exchanged)
            log += count * (points.log + points.relative_error)
    return Chernoff(tilt, log, lost)


def inverted(
    steps: Sequence[Part], saddle: Saddle, lost: float, *, exchanged: bool = False
) -> Inverted:
    """Return the curve of a plan near a saddle point.

    Parameters
    ----------
    steps : sequence of Part
        All steps.
    saddle : Saddle
        Says how to tilt, and where delta is wanted; errors are kept small against its delta.
    lost : float
        The mass that is not within the intervals, in all.
    exchanged : bool
        Whether P and Q are exchanged.

    Raises
    ------
    TooManyPointsError
        If the plan has so few steps that S would be too large.
    """
    whole = _resolved(steps, saddle, exchanged=exchanged)
    size, growth = whole.size(saddle), whole.growth()
    if size > _MOST_POINTS:
        raise TooManyPointsError(f"a transform of {size} points")
    tilt, step = whole.tilt, _STEP / whole.largest
    spacing = 2.0 * math.pi / (step * size)
    s: FloatArray = spacing * np.arange(math.floor(whole.largest / spacing) + 1.0)
    z = np.asarray(tilt + 1j * s, dtype=np.complex128)
    logs = 0.5 * whole.square * np.asarray(1j * s * (2.0 * tilt + 1.0) - s * s, np.complex128)
    log_most, log_gap = logs.real.copy(), UNIT_ROUNDOFF * (16.0 + 8.0 * np.abs(logs))
    for part, count in whole.parts:
        change, errors = _change(part, step, size, s)
        found = _log_sizes(change)
        log = count * (found + 1j * np.arctan2(change.imag, 1.0 + change.real))
        logs += log
        sizes = np.exp(found)
        errors += 8.0 * UNIT_ROUNDOFF * np.abs(change)
        log_gap += count * np.log1p(errors / sizes) + 8.0 * UNIT_ROUNDOFF * np.abs(log)
        log_most += count * np.log(sizes + errors)
    values = np.exp(logs) / (z * (z + 1.0))
    values[0] *= 0.5
    errors = np.exp(log_most) * -np.expm1(-log_gap) / np.abs(z * (z + 1.0))
    # Beyond the largest s: the sum of 1 / s^2 is below twice 1 / s at that.
    beyond = 2.0 * math.exp(whole.log_decay) / max(float(s[-1]), spacing) / math.pi
    relative = math.fsum(count * part.relative_error for part, count in whole.parts)
    return Inverted(
        tilt=tilt,
        log_factor=whole.log_factor,
        spacing=spacing,
        values=values,
        error=1.01 * (spacing / math.pi * float(errors.sum()) + beyond),
        relative=relative + UNIT_ROUNDOFF * (8.0 * tilt * (tilt + 1.0) * whole.square + 8.0),
        growth=growth,
        lost=lost,
    )


def _log_sizes(change: ComplexArray) -> FloatArray:
    """Return ``log |1 + c|``, off by what some units of c are."""
    square = 2.0 * change.real + np.abs(change) ** 2
    apart = np.log(np.maximum(np.abs(1.0 + change), _TINY))
    found: FloatArray = np.where(square > -0.75, 0.5 * np.log1p(np.maximum(square, -0.75)), apart)
    return found


@dataclass(frozen=True)
class _Whole:
    """All steps tilted, for s up to a largest one; ``square`` is the mu^2 of releases."""

    parts: Sequence[tuple[Points, int]]
    square: float
    tilt: float
    largest: float

    @property
    def log_factor(self) -> float:
        """K(theta)."""
        own = 0.5 * self.tilt * (self.tilt + 1.0) * self.square
        return math.fsum([own, *(count * part.log for part, count in self.parts)])

    @property
    def log_decay(self) -> float:
        """A bound of ``Re K(z) - K(theta)`` from the largest s on."""
        own = -0.5 * self.square * self.largest**2
        return math.fsum([own, *(count * part.log_decay for part, count in self.parts)])

    def log_value(self, saddle: Saddle) -> float:
        """Return about the logarithm of D."""
        return saddle.log_delta + self.tilt * saddle.epsilon - self.log_factor

    def growth(self) -> tuple[tuple[float, float], ...]:
        """Return orders c and bounds of ``K(theta + c) - K(theta)``."""
        found = []
        for order in np.geomspace(1e-3, 1.0, _ORDERS) * self.largest:
            log = 0.5 * order * (order + 2.0 * self.tilt + 1.0) * self.square * (1.0 + 1e-12)
            log += sum(count * part.log_moment(float(order)) for part, count in self.parts)
            found.append((float(order), float(log)))
        return tuple(found)

    def size(self, saddle: Saddle) -> int:
        """Return how many points the lattice needs, so that D repeats itself far enough away."""
        log_error = _CLOSE + self.log_value(saddle)
        below = (self.tilt * saddle.epsilon - self.log_factor - log_error) / self.tilt
        above = min((log - log_error) / order for order, log in self.growth()) - saddle.epsilon
        return size_of_window(max(below, above) * self.largest / _STEP)


def _resolved(steps: Sequence[Part], saddle: Saddle, *, exchanged: bool) -> _Whole:
    """Return the steps for an s that is so large that hardly anything is beyond it."""
    sampled = [step for step in steps if step.pair.rate < 1.0]
    square = math.fsum(step.number * step.pair.mu**2 for step in steps if step.pair.rate == 1.0)

    def at(largest: float) -> _Whole:
        parts = [
            (points_of(pair, interval, saddle.tilt, largest, exchanged=exchanged), count)
            for pair, interval, count in sampled
        ]
        return _Whole(parts, square, saddle.tilt, largest)

    def log_decay(largest: float) -> float:
        return -0.5 * square * largest**2 + sum(
            count * log_decay_of(pair, interval, saddle.tilt, largest, exchanged=exchanged)
            for pair, interval, count in sampled
        )

    largest = 1.0 / max(saddle.deviation, _TINY)
    rough = at(largest)
    close = _CLOSE + rough.log_value(saddle)
    for _ in range(_ROUNDS):
        missing = (close + math.log(largest)) / min(log_decay(largest), -1e-3)
        if missing <= 1.0:
            break
        largest *= min(1.02 * math.sqrt(missing), 4.0)
    if replace(rough, largest=largest).size(saddle) > _MOST_POINTS:
        raise TooManyPointsError("a transform of too many points")
    return at(1.01 * largest)


def _change(
    points: Points, step: float, size: int, s: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """Return a step's characteristic function less 1 at all s, and bounds of its errors.

    The mass at the lattice's loss of 0 is left out, and with it most rounding, since few losses of
    rarely sampled steps are far from there: all masses add up to 1.
    """
    circle, total = np.zeros(size), 0.0
    for first in range(0, len(points.losses), _TOGETHER):
        chosen = slice(first, first + _TOGETHER)
        total += _deposit(points.losses[chosen] / step, points.weights[chosen], circle)
    circle[0] = 0.0
    values = np.conj(np.fft.rfft(circle)[: len(s)]) - np.complex128(math.fsum(circle))
    # Of each mass; of those that neighbours have at one lattice point; and of what is added there.
    rounds = len(points.losses) / _TOGETHER + float(np.ptp(points.losses)) / (step * size) + 2.0
    units = 4.0 * _ORDER + _CROWD + 2.0 * _ORDER + 2.0 * rounds
    rounding = transform_error(size) + UNIT_ROUNDOFF * (units + 4.0)
    errors = points.error(s) + 2.02 * rounding * total + 1.01 * _REMAINDER * (s * step) ** _ORDER
    return values, errors


def _deposit(places: FloatArray, weights: FloatArray, circle: FloatArray) -> float:
    """Add the masses that replace atoms at these places, and return their total size.

    Places are in order, so those between the same lattice points are neighbours; they are summed
    without rounding where there are many.
    """
    before = _ORDER // 2 - 1
    first = np.floor(places).astype(np.int64)
    breaks = np.flatnonzero(np.diff(first)) + 1
    ends = np.concatenate(([0], breaks, [len(first)]))
    crowded = np.flatnonzero(np.diff(ends) > _CROWD)
    alone = np.ones(len(first), dtype=bool)
    for crowd in crowded:
        alone[ends[crowd] : ends[crowd + 1]] = False
    distances = [places - (first + (k - before)) for k in range(_ORDER)]
    lower = [weights]
    for distance in distances[:-1]:
        lower.append(lower[-1] * distance)
    total, upper = 0.0, np.ones_like(places)
    low = int(first.min()) - before
    here = np.zeros(int(first.max()) + _ORDER - before - low)
    for k in reversed(range(_ORDER)):
        number = first + (k - before)
        scale = (-1.0) ** (_ORDER - 1 - k) * math.factorial(k) * math.factorial(_ORDER - 1 - k)
        masses = np.where(number == 0, 0.0, lower[k] * upper / scale)
        total += float(np.abs(masses).sum())
        here += np.bincount(number[alone] - low, masses[alone], minlength=len(here))
        for crowd in crowded:
            chosen = slice(ends[crowd], ends[crowd + 1])
            here[number[ends[crowd]] - low] += math.fsum(masses[chosen])
        upper = upper * distances[k]
    np.add.at(circle, (low + np.arange(len(here))) % len(circle), here)
    return total
