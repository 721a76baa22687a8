r"""Plans with rare large losses: one inversion for each number of them, each with its own tilt.

A record that is hardly ever sampled, but reveals much when it is, makes the distribution of the
whole loss fall steeply and then rise again once tilted: no tilt puts its bulk at an epsilon in the
valley between, and what rounding changes may be more than what is there. So the losses of one kind
of step are divided in three: small ones s, large ones l above half of epsilon, and huge ones
from a little above epsilon on. Where none is huge,

    (s + l)^T = sum_j C(T, j) s^(T-j) l^j,

and each term is inverted by itself. More large losses than are inverted are so unlikely that their
probability, at most ``C(T, j) p^j`` with p the mass of large ones, is added to delta as it is.

Let A be the event that a loss is huge. There it hardly matters what the other losses are: delta's
share ``int_A (dP - e^epsilon dQ)_+`` is at least ``P(A) - e^epsilon Q(A)``, and at most that and
``e^epsilon Q(A) eta``, where eta bounds the probability under Q that all other losses together are
below epsilon less the least huge loss; by Chernoff's bound it is tiny.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from matrixdp.privacy.loss.composition import TooManyPointsError
from matrixdp.privacy.loss.curve import LogDelta, Steps
from matrixdp.privacy.loss.inversion import Part, chernoff, inverted
from matrixdp.privacy.loss.one_step import log_masses_above, masses_above, place_of
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.points import points_of
from matrixdp.privacy.loss.tilting import Cumulants, Saddle, Split

__all__ = ["Huge", "Mixture", "mixture"]

_SHARE = 0.5  # of epsilon, where large losses begin
_MOST_LARGE = 12
_UNLIKELY = math.log(1e-9)  # over delta: more large losses than are inverted
_NEGLIGIBLE = math.log(1e-6)  # over delta: a term that is only bounded
_STEEP = 200.0  # over epsilon, a tilt that is enough to show that
_SMALL_ETA = math.log(1e-8)
_MOST_EXPECTED = 0.3  # large losses in a whole plan
_REACHED, _ABOVE = 1.2, 20.0  # of epsilon, or deviations above it: where eta is still small
_FURTHEST = 40  # rounds of the search for where huge losses begin
_ROUNDING = 1e-12  # of normal probabilities
_TINY = 1e-200  # no two of the steps are in a set of so little mass


@dataclass(frozen=True)
class Huge:
    """What losses above a huge one add to delta.

    Attributes
    ----------
    least, reached : float
        The least huge loss, and up to which epsilon eta is small.
    mass, log_other : float
        ``P(A)``, and the logarithm of ``Q(A)``, each within a share of 1e-12.
    missed : float
        The probability under Q that other losses are not where ``decay`` holds.
    decay : sequence of (float, float)
        Orders c and bounds of ``log E_Q[e^(-c S)]``, S the sum of all other losses.
    """

    least: float
    reached: float
    mass: float
    log_other: float
    missed: float
    decay: Sequence[tuple[float, float]]

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Return bounds of the share of delta, which falls with epsilon."""
        lower = self.mass - math.exp(min(epsilon + self.log_other, 700.0))
        reached = min(epsilon, self.reached)
        other = math.exp(min(reached + self.log_other, 700.0))
        rounding = 2.0 * _ROUNDING * (self.mass + other)
        upper = self.mass - other * (1.0 - math.exp(self.log_eta(reached))) + rounding
        return max(lower - rounding, 0.0), min(upper, self.mass * (1.0 + _ROUNDING))

    def log_eta(self, epsilon: float) -> float:
        """Return the logarithm of eta: each step may be the huge one, and hardly ever two are."""
        chernoff = math.exp(min(self.log_chernoff(epsilon), 1.0))
        return min(0.0, math.log(1.25 * (chernoff + self.missed)))

    def log_chernoff(self, epsilon: float) -> float:
        """Return the logarithm of Chernoff's bound for the sum of all other losses."""
        margin = self.least - epsilon - 1e-12 * (self.least + epsilon)
        return min(log - order * margin for order, log in self.decay)


@dataclass(frozen=True)
class Mixture:
    """The curves for each number of large losses.

    Attributes
    ----------
    parts : sequence of (float, LogDelta)
        For each number the logarithm of how often it occurs, and bounds of its share.
    huge : Huge
        If there is a huge one.
    rest : float
        A bound of the probability of more large losses, and of what is left out.
    """

    parts: Sequence[tuple[float, LogDelta]]
    huge: Huge
    rest: float

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        others = self.rest + self.huge.bounds(epsilon)[1]
        logs = [weight + part.log_upper(epsilon) for weight, part in self.parts]
        if others != 0.0:  # a NaN is not dropped
            logs.append(math.log(others))
        return _log_sum(logs, 1.0)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta."""
        logs = [weight + part.log_lower(epsilon) for weight, part in self.parts]
        huge = self.huge.bounds(epsilon)[0]
        return _log_sum([*logs, math.log(huge) if huge > 0.0 else -math.inf], -1.0)


def _log_sum(logs: Sequence[float], direction: float) -> float:
    """Return the logarithm of a sum, rounded up or down; a NaN is infinite on that side."""
    unknown = math.copysign(math.inf, direction)
    logs = [unknown if math.isnan(log) else log for log in logs]
    largest = max(logs)
    if math.isinf(largest):
        return largest
    found = largest + math.log(math.fsum(math.exp(log - largest) for log in logs))
    return found + direction * 1e-14 * (1.0 + abs(found))


def mixture(steps: Steps, tail: float, saddle: Saddle) -> Mixture:
    """Invert the terms for up to a few large losses, each tilted for itself.

    Parameters
    ----------
    steps : sequence of (Pair, int)
        The whole plan.
    tail : float
        Of each step at most this mass is left out.
    saddle : Saddle
        The epsilon and delta of a point of the curve.

    Raises
    ------
    TooManyPointsError
        If large losses are not rare, so that there would be too many terms.
    """
    deviation = Cumulants(steps, tail, exchanged=True).deviation
    cut = _SHARE * saddle.epsilon
    if not cut > 0.0:
        raise TooManyPointsError("every loss is large")
    above = [
        count * masses_above(pair, place_of(pair, cut))[0] if pair.rate < 1.0 else 0.0
        for pair, count in steps
    ]
    place = int(np.argmax(above))
    pair, count = steps[place]
    mass = above[place] / count * (1.0 + _ROUNDING)
    start, stop = pair.reach(tail)
    middle = place_of(pair, cut)
    if not (0.0 < above[place] <= _MOST_EXPECTED and start < middle < stop):
        raise TooManyPointsError("too many large losses")
    most = 0
    while most < min(_MOST_LARGE, count) and _log_rest(count, most, mass) > (
        _UNLIKELY + saddle.log_delta
    ):
        most += 1
    huge = _huge(steps, place, tail, saddle.epsilon, deviation)
    stop = min(stop, place_of(pair, huge.least))
    start, dropped = _left_end(steps, place, (start, middle), tail, saddle)
    others = [
        Part(other, other.reach(tail), number)
        for at, (other, number) in enumerate(steps)
        if at != place
    ]
    lost = tail * sum(number for other, number in steps if other.rate < 1.0) * (1.0 + 1e-9)
    parts: list[tuple[float, LogDelta]] = []
    for number in range(most + 1):
        divided = [Part(pair, (start, middle), count - number), Part(pair, (middle, stop), number)]
        terms = [*others, *(part for part in divided if part.number > 0)]
        split = Split(place, cut, huge.least, number)
        weight = math.log(math.comb(count, number))
        near = Cumulants(steps, tail, split=split).at_point(
            saddle.epsilon, saddle.log_delta - weight
        )
        bound = chernoff(terms, min(near.tilt, _STEEP / saddle.epsilon))
        if bound.log_upper(saddle.epsilon) <= near.log_delta + _NEGLIGIBLE:
            parts.append((weight, bound))
        else:
            parts.append((weight, inverted(terms, near, 0.0)))
    rest = math.exp(_log_rest(count, most, mass)) + lost + dropped
    return Mixture(parts, huge, rest)


def _left_end(
    steps: Steps, place: int, small: tuple[float, float], tail: float, saddle: Saddle
) -> tuple[float, float]:
    """Return where small losses of one kind begin, and a bound of what those below add to delta.

    A loss below -w adds something only if all others together are above w: at least one of this
    kind is large, or Chernoff's bound for those that are not says how unlikely it is.
    """
    pair, count = steps[place]
    start = small[0]
    if pair.one_sided:
        return start, 0.0
    parts = [
        Part(other, small, number - 1) if at == place else Part(other, other.reach(tail), number)
        for at, (other, number) in enumerate(steps)
    ]
    bound = chernoff(parts, _STEEP / saddle.epsilon)
    large = count * masses_above(pair, place_of(pair, _SHARE * saddle.epsilon))[0]
    for doubling in range(_FURTHEST):
        width = _SHARE * saddle.epsilon * 2.0**doubling
        end = -place_of(pair, width)
        if end <= start:
            break
        below = count * masses_above(pair, place_of(pair, width))[1]
        dropped = 1.01 * below * (large + math.exp(min(bound.log_upper(width), 0.0)))
        if math.log(dropped) <= _NEGLIGIBLE + saddle.log_delta:
            return end, dropped
    return start, 0.0


def _huge(steps: Steps, place: int, tail: float, epsilon: float, deviation: float) -> Huge:
    """Return huge losses of one kind, from where eta is small enough a little above epsilon."""
    pair, count = steps[place]
    # Where losses have no bound from below, others are above -epsilon, but for `missed`.
    intervals, missed = [], 0.0
    for other, number in steps:
        start, stop = other.reach(tail)
        if not other.one_sided:
            start = max(start, -place_of(other, epsilon))
            missed += number * masses_above(other, place_of(other, epsilon))[0] * (1.0 + _ROUNDING)
        missed += number * tail
        intervals.append((start, stop))
    decay = []
    for order in np.geomspace(0.1, 12.0, 8) / deviation:
        log = math.fsum(
            (number - (at == place)) * _log_moment(other, intervals[at], float(order))
            for at, (other, number) in enumerate(steps)
        )
        decay.append((float(order), log))
    reached = min(_REACHED * epsilon, epsilon + _ABOVE * deviation)
    found = Huge(reached, reached, 0.0, 0.0, missed, decay)
    for attempt in range(_FURTHEST):
        if found.log_chernoff(reached) <= _SMALL_ETA:
            break
        found = replace(found, least=reached + deviation * 1.3**attempt)
    log_mass, log_other = log_masses_above(pair, place_of(pair, found.least))
    return replace(
        found, mass=math.exp(_log_any(log_mass, count)), log_other=_log_any(log_other, count)
    )


def _log_moment(pair: Pair, interval: tuple[float, float], order: float) -> float:
    """Return a bound of ``log E_Q[e^(-c L)]`` of one step, over an interval."""
    if pair.rate == 1.0:
        return 0.5 * order * (order + 1.0) * pair.mu**2
    start, stop = interval
    # Beyond the second place e^(-c L) is below e^-40.
    points = points_of(
        pair, (start, min(stop, place_of(pair, 40.0 / order))), order, 1.0, exchanged=True
    )
    off = points.relative_error + math.exp(-40.0 - points.log)
    return points.log + math.log1p(off) + 1e-15 * abs(points.log)


def _log_any(log_mass: float, count: int) -> float:
    """Return the log-probability that any of T steps is in a set of this mass; it may be tiny."""
    if log_mass < math.log(_TINY):
        return math.log(count) + log_mass
    return math.log(-math.expm1(count * math.log1p(-math.exp(log_mass))))


def _log_rest(count: int, number: int, mass: float) -> float:
    """Return the logarithm of a bound of the probability of more large losses; rounded up."""
    if number >= count:
        return -math.inf
    return math.log(math.comb(count, number + 1)) + (number + 1) * math.log(mass) + 1e-9
