r"""Many steps at once: the privacy curve from the characteristic function of the whole loss.

With ``K(z) = log E_P[e^(z L)]`` of the whole plan and any theta > 0,

    delta(epsilon) = e^(K(theta) - theta epsilon) D(epsilon),
    D(epsilon) = 1/(2 pi) int e^(K(z) - K(theta) - i s epsilon) / (z (z + 1)) ds,   z = theta + i s.

No loss is rounded to a lattice point. What is bounded, and added to an upper bound or taken from a
lower one:

- *spacing*: a sum over s at a distance of 2 pi / P, instead of the integral, is ``sum_k D(epsilon +
  k P)`` (Poisson). All of these are positive, and Chernoff's bound says how large they are.
- *what is left out*: |s| from some S on, by `Points.log_decay`.
- *low losses*: those of single steps below some loss w are left out. Let B be the event that there
  is one. ``int_B (dP - e^epsilon dQ)_+ <= E_P[e^(theta (L - epsilon)); B]`` is at most ``prod (1 +
  r) - 1`` of D, over all steps, r the share that losses below w have in a step's ``E_P[e^(theta
  L)]``: at most ``e^(theta w)`` times their probability over that.
- *a step's characteristic function*: `points` and `transform`.
- *powers*: if ``|z' - z| <= e`` then ``|z'^T - z^T| <= (|z'| + e)^T - |z'|^T``, and likewise for
  products of powers.
- *rounding* of all of these, each elementary function by up to eight units.
"""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.loss.one_step import log_masses_above, log_masses_below
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.points import Points, TooManyPointsError, log_decay_of, points_of
from matrixdp.privacy.loss.tilting import Saddle
from matrixdp.privacy.loss.transform import characteristic_change, size_of_window
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["Chernoff", "Inverted", "Part", "chernoff", "inverted", "log_moment"]

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

_MOST_POINTS = 1 << 21
_STEP = 0.6  # of the lattice, over 1/S
_CLOSE = math.log(1e-8)  # of D: what spacing and what is left out may add
_NEARLY = 4.0  # an exponent, by which that may be missed
_ROUNDS, _RETRIES = 12, 5
_ORDERS = 20  # tried, for Chernoff's bound
_REST = -40.0  # an exponent
_TINY = 1e-300
_MOST_OFF = 100.0  # an exponent; K(theta) is known less well than this by no account of use
_ENDS = 300  # positions, to choose where low losses begin


class Part(NamedTuple):
    """Steps of one kind, as far as they are between two positions."""

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
    dropped : float
        What low losses that were left out add to D, at most.
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
    dropped: float
    relative: float
    growth: tuple[tuple[float, float], ...]
    lost: float

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        value, error = self._sum(epsilon)
        found = self._scaled(value + error + self.dropped, epsilon, 1.0)
        return _with_lost(found, self.lost)

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
        units = (32.0 + len(s)) * float(sizes.sum()) + 8.0 * abs(epsilon) * float(sizes @ s)
        factor = self.spacing / math.pi
        return factor * value, self.error + factor * units * UNIT_ROUNDOFF * 1.01

    def _aliases(self, epsilon: float) -> float:
        """Return a bound of ``D(epsilon + k P)`` summed over k other than 0."""
        if self.relative > _MOST_OFF:
            return math.inf
        period = 2.0 * math.pi / self.spacing
        below = self.tilt * (epsilon - period) - self.log_factor
        above = min(log - order * (epsilon + period) for order, log in self.growth)
        least = min(order for order, _ in self.growth)
        return math.exp(2.0 * self.relative + 0.01) * (
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
    """Return ``log(e^logarithm + lost)``, rounded up; infinite if it is not a number."""
    if math.isnan(logarithm) or math.isnan(lost):
        return math.inf
    if lost > 0.0:
        logarithm = float(np.logaddexp(logarithm, math.log(lost)))
    return logarithm + 4.0 * UNIT_ROUNDOFF * (1.0 + abs(logarithm))


def chernoff(
    steps: Sequence[Part], tilt: float, lost: float = 0.0, *, exchanged: bool = False
) -> Chernoff:
    """Return the bound for one tilt; other parameters are as of `inverted`."""
    log = math.fsum(
        count * log_moment(pair, interval, tilt, exchanged=exchanged)
        for pair, interval, count in steps
    )
    return Chernoff(tilt, log, lost)


def log_moment(
    pair: Pair, interval: tuple[float, float], order: float, *, exchanged: bool = False
) -> float:
    """Return a bound of ``log E_P[e^(c L)]`` of one step, over an interval and all lower losses."""
    if pair.rate == 1.0:
        return 0.5 * order * (order + 1.0) * pair.mu**2 * (1.0 + 1e-12)
    above, low = _above_low(pair, interval, order, _REST, exchanged=exchanged)
    points = points_of(pair, above, order, 0.0, exchanged=exchanged)
    log = points.log + points.relative_error
    return float(np.logaddexp(log, low)) + 8.0 * UNIT_ROUNDOFF * (1.0 + abs(log))


def _above_low(
    pair: Pair, interval: tuple[float, float], order: float, enough: float, *, exchanged: bool
) -> tuple[tuple[float, float], float]:
    """Return an interval without low losses, and a bound of the logarithm of their moment.

    Their moment is at most their probability times that of the largest of them; as long as that is
    below what is enough, they are left out.
    """
    start, stop = interval
    if pair.rate == 1.0 or (pair.one_sided and not exchanged):
        return interval, -math.inf
    ends = np.linspace(*((max(0.0, start), stop) if exchanged else (min(0.0, stop), start)), _ENDS)
    if exchanged:
        logs = log_masses_above(pair, ends)[1] - order * pair.losses(ends)
    else:
        logs = log_masses_below(pair, ends)[0] + order * pair.losses(ends)
    low = logs <= enough
    chosen = int(np.argmax(low)) if low.any() else _ENDS - 1
    end = float(ends[chosen])
    # Masses and losses are off by far less.
    bound = float(logs[chosen]) + 1e-9 + 1e-12 * order * abs(float(pair.losses(ends[chosen])))
    return ((start, end) if exchanged else (end, stop)), bound


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
    steps, lows = _without_low_losses(steps, saddle, exchanged=exchanged)
    lows = [low for low, step in zip(lows, steps, strict=True) if step.pair.rate < 1.0]
    whole = _resolved(steps, saddle, exchanged=exchanged)
    size, growth = whole.size(saddle), whole.growth()
    tilt, step = whole.tilt, _STEP / whole.largest
    spacing = 2.0 * math.pi / (step * size)
    s: FloatArray = spacing * np.arange(math.floor(whole.largest / spacing) + 1.0)
    z = np.asarray(tilt + 1j * s, dtype=np.complex128)
    logs = 0.5 * whole.square * np.asarray(1j * s * (2.0 * tilt + 1.0) - s * s, np.complex128)
    log_most, log_gap = logs.real.copy(), UNIT_ROUNDOFF * (32.0 + 16.0 * np.abs(logs))
    for points, (_, _, count) in whole.parts:
        change, errors = characteristic_change(points, step, size, s)
        found = _log_sizes(change)
        log = count * (found + 1j * np.arctan2(change.imag, 1.0 + change.real))
        logs += log
        sizes = np.exp(found)
        errors += 32.0 * UNIT_ROUNDOFF * np.abs(change)
        log_gap += count * np.log1p(errors / sizes) + 8.0 * UNIT_ROUNDOFF * np.abs(log)
        log_most += count * np.log(sizes + errors)
    values = np.exp(logs) / (z * (z + 1.0))
    values[0] *= 0.5
    with np.errstate(over="ignore"):  # then nothing is known
        errors = np.exp(log_most) * -np.expm1(-log_gap) / np.abs(z * (z + 1.0))
    # Beyond the largest s: the sum of 1 / s^2 is below twice 1 / s at that.
    beyond = 2.0 * math.exp(whole.log_decay) / max(float(s[-1]), spacing) / math.pi
    relative = math.fsum(part.number * points.relative_error for points, part in whole.parts)
    return Inverted(
        tilt=tilt,
        log_factor=whole.log_factor,
        spacing=spacing,
        values=values,
        error=1.01 * (spacing / math.pi * float(errors.sum()) + beyond),
        dropped=_dropped(whole, lows),
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


def _without_low_losses(
    steps: Sequence[Part], saddle: Saddle, *, exchanged: bool
) -> tuple[list[Part], list[float]]:
    """Return the steps without losses that hardly matter, and logarithms of what these may add."""
    log_factor = math.fsum(
        part.number * log_moment(part.pair, part.interval, saddle.tilt, exchanged=exchanged)
        for part in steps
    )
    log_value = min(saddle.log_delta + saddle.tilt * saddle.epsilon - log_factor, 0.0)
    kept, lows = [], []
    for pair, interval, count in steps:
        # All of a step's tilted mass is hardly ever below 1.
        enough = _CLOSE + log_value - math.log(count)
        above, low = _above_low(pair, interval, saddle.tilt, enough, exchanged=exchanged)
        kept.append(Part(pair, above, count))
        lows.append(low)
    return kept, lows


def _dropped(whole: "_Whole", lows: Sequence[float]) -> float:
    """Return a bound of what low losses that were left out add to D."""
    total = math.fsum(
        part.number * math.exp(min(low - points.log + points.relative_error, 700.0))
        for (points, part), low in zip(whole.parts, lows, strict=True)
    )
    return math.expm1(total) * (1.0 + 1e-12) if total < 700.0 else math.inf


@dataclass(frozen=True)
class _Whole:
    """All steps tilted, for s up to a largest one; ``square`` is the mu^2 of releases."""

    parts: Sequence[tuple[Points, Part]]
    square: float
    tilt: float
    largest: float

    @property
    def log_factor(self) -> float:
        """K(theta)."""
        own = 0.5 * self.tilt * (self.tilt + 1.0) * self.square
        return math.fsum([own, *(part.number * points.log for points, part in self.parts)])

    @property
    def log_decay(self) -> float:
        """A bound of ``Re K(z) - K(theta)`` from the largest s on."""
        own = -0.5 * self.square * self.largest**2
        return math.fsum([own, *(part.number * points.log_decay for points, part in self.parts)])

    def log_value(self, saddle: Saddle) -> float:
        """Return about the logarithm of D, which is at most 1."""
        return min(saddle.log_delta + self.tilt * saddle.epsilon - self.log_factor, 0.0)

    def growth(self) -> tuple[tuple[float, float], ...]:
        """Return orders c and bounds of ``K(theta + c) - K(theta)``."""
        found = []
        least = min(1e-3 * self.largest, 0.02 * (1.0 + self.tilt))
        for order in np.geomspace(least, self.largest, _ORDERS):
            log = 0.5 * order * (order + 2.0 * self.tilt + 1.0) * self.square * (1.0 + 1e-12)
            log += sum(part.number * points.log_moment(float(order)) for points, part in self.parts)
            found.append((float(order), float(log)))
        return tuple(found)

    def size(self, saddle: Saddle) -> int:
        """Return how many points the lattice needs, so that D repeats itself far enough away."""
        log_error = _CLOSE + self.log_value(saddle)
        below = (self.tilt * saddle.epsilon - self.log_factor - log_error) / self.tilt
        above = min((log - log_error) / order for order, log in self.growth()) - saddle.epsilon
        points = max(below, above) * self.largest / _STEP
        if not points <= _MOST_POINTS:  # nor a NaN
            raise TooManyPointsError("a transform of too many points")
        return size_of_window(points)


def _resolved(steps: Sequence[Part], saddle: Saddle, *, exchanged: bool) -> _Whole:
    """Return the steps for an s that is so large that hardly anything is beyond it."""
    sampled = [step for step in steps if step.pair.rate < 1.0]
    square = math.fsum(step.number * step.pair.mu**2 for step in steps if step.pair.rate == 1.0)

    def at(largest: float) -> _Whole:
        parts = [
            (points_of(*part[:2], saddle.tilt, largest, exchanged=exchanged), part)
            for part in sampled
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
    replace(rough, largest=largest).size(saddle)  # if there are not too many
    whole = at(1.01 * largest)
    # What was found on a rough mesh may be wrong.
    with contextlib.suppress(TooManyPointsError):
        for _ in range(_RETRIES):
            if whole.log_decay <= close + math.log(largest) + _NEARLY:
                break
            largest *= 1.5
            replace(rough, largest=largest).size(saddle)
            whole = at(1.01 * largest)
    return whole
