r"""Plans with rare large losses: the largest ones are treated apart, in closed form.

A record that is hardly ever sampled, but reveals much when it is, makes the distribution of the
whole loss fall steeply and then rise again once tilted: no tilt puts its bulk at an epsilon in the
valley between, and what rounding changes may be more than what is there. Once losses of single
steps end a little above epsilon, there is such a tilt.

Let A be the event that the loss of some step is huge, above a loss h. Delta is ``int_A + int_A^c
(dP - e^epsilon dQ)_+``. Without A, losses end at h: that is inverted. With it, it hardly matters
what the other losses are:

    int_A (dP - e^epsilon dQ)_+ = P(A) - e^epsilon Q(A) + int_A (e^epsilon dQ - dP)_+,

and the last integral is at least 0 and at most ``e^epsilon Q(A and S < epsilon)``, S the whole
loss. Of the steps one has a huge loss then, and all others together are below ``epsilon - h``; so
``Q(A and S < epsilon) <= sum_i Q(L_i > h) eta``, where eta bounds the probability of the latter. By
Chernoff's bound it is at most ``e^(kappa(c) - c (h - epsilon))`` for each order c, kappa the sum of
``log E_Q[e^(-c L)]`` over intervals of all steps but one, and the probability that a loss is not in
its interval. The share of A falls with epsilon; so its bounds at a smaller one are bounds, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from matrixdp.privacy.loss.curve import LogDelta, Steps
from matrixdp.privacy.loss.inversion import Part, log_moment
from matrixdp.privacy.loss.one_step import (
    MASS_ROUNDING,
    log_masses_above,
    log_masses_below,
    position_of,
)
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.privacy.loss.tilting import Cumulants, Saddle
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["Apart", "Huge", "apart"]

_SMALL = math.log(1e-9)  # of eta
_REACHED, _ABOVE = (0.002, 0.02), 20.0  # of epsilon, and spreads above it: eta is still small
_ORDERS = (0.1, 12.0, 8)  # over the spread of losses: from, to, and how many
_RARE = (1e-2, 1e-4, 1e-6, 1e-8)  # of the change: the probability of losses that are too low
_ENOUGH = 0.1  # of the change, by which they may make delta larger
_ENDS = 300  # positions that are tried
_FURTHEST = 40  # rounds of the search for where huge losses begin
_NEAREST = 4.0  # spreads: with nearer huge losses eta would not be small
_MOVED = 1.0 + 1e-6
_TINY = 1e-300


@dataclass(frozen=True)
class Huge:
    """What huge losses add to delta.

    Attributes
    ----------
    least, reached : float
        The least huge loss, and up to which epsilon eta is small.
    log_mass, log_other, log_sum : float
        Logarithms of ``P(A)``, of ``Q(A)`` and of the sum of ``Q(L_i > h)``.
    rounding : float
        Of these three, relative.
    missed : float
        The probability under Q that some loss is not where ``decay`` holds.
    decay : sequence of (float, float)
        Orders c and bounds of kappa.
    """

    least: float
    reached: float
    log_mass: float
    log_other: float
    log_sum: float
    rounding: float
    missed: float
    decay: Sequence[tuple[float, float]]

    def bounds(self, epsilon: float) -> tuple[float, float]:
        """Return bounds of the share of delta."""
        most = math.exp(self.log_mass) * (1.0 + self.rounding) + _TINY
        lower = math.exp(self.log_mass) * (1.0 - self.rounding) - math.exp(
            min(epsilon + self.log_other + self.rounding, 700.0)
        )
        reached = min(epsilon, self.reached)
        taken = math.exp(reached + self.log_other - self.rounding)
        given = math.exp(reached + self.log_sum + self.rounding + self.log_eta(reached))
        return max(lower, 0.0), min(most - taken + given, most)

    def log_eta(self, epsilon: float) -> float:
        """Return the logarithm of eta."""
        margin = self.least - epsilon
        chernoff = min(log - order * margin for order, log in self.decay)
        return min(0.0, math.log(math.exp(min(chernoff, 1.0)) + self.missed + _TINY) + 1e-9)


@dataclass(frozen=True)
class Apart:
    """The curve where no loss is huge, and the share of where one is."""

    others: LogDelta
    huge: Huge

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        return _log_sum(self.others.log_upper(epsilon), self.huge.bounds(epsilon)[1], 1.0)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta."""
        return _log_sum(self.others.log_lower(epsilon), self.huge.bounds(epsilon)[0], -1.0)


def _log_sum(log: float, share: float, direction: float) -> float:
    """Return ``log(e^log + share)``, rounded up or down."""
    if not share > 0.0:
        return math.inf if math.isnan(share) and direction > 0.0 else log
    found = float(np.logaddexp(log, math.log(share)))
    return found + direction * 1e-14 * (1.0 + abs(found)) if math.isfinite(found) else found


def apart(
    steps: Steps, tail: float, saddle: Saddle, change: float
) -> tuple[list[Part], Huge | None]:
    """Return the steps up to the least huge loss, and what huge ones add.

    Parameters
    ----------
    steps : sequence of (Pair, int)
        The whole plan.
    tail : float
        Of each step at most this mass is left out.
    saddle : Saddle
        The epsilon and delta of a point of the curve.
    change : float
        The share by which bounds of delta may be apart.
    """
    parts = [Part(pair, pair.reach(tail), count) for pair, count in steps]
    found, huge = parts, None
    for share in _RARE:
        kept, tried = _apart(parts, tail, saddle.epsilon, share * change)
        if tried is None:
            break
        found, huge = kept, tried
        off = saddle.epsilon + huge.log_sum + math.log(huge.missed)
        if off <= saddle.log_delta + math.log(_ENOUGH * change):
            break
    return found, huge


def _apart(
    parts: list[Part], tail: float, epsilon: float, rare: float
) -> tuple[list[Part], Huge | None]:
    """Return both for low losses that are left out of Chernoff's bound, by how rare they are."""
    steps = [(part.pair, part.number) for part in parts]
    others = [Part(part.pair, _without_low(part, rare), part.number) for part in parts]
    lowest = max(-float(part.pair.losses(np.array(part.interval[:1]))[0]) for part in others)
    spread = max(Cumulants(steps, tail, exchanged=True, below=lowest).deviation, 0.25 * lowest)
    least, most = (share * epsilon for share in _REACHED)
    reached = epsilon + min(max(least, _ABOVE * spread), most)
    if not any(_reaches(part, reached + _NEAREST * spread) for part in parts):
        return parts, None
    huge = _eta(others, tail, reached, spread)
    found, log_sums, rounding = [], [], 0.0
    for part in parts:
        if not _reaches(part, huge.least):
            found.append(part)
            continue
        pair, (start, _), count = part
        stop = position_of(pair, huge.least * _MOVED)
        own, other = (float(log[0]) for log in log_masses_above(pair, np.array([stop])))
        log_sums.append((_log_rate(own, count), _log_rate(other, count)))
        rounding = max(rounding, _rounding(pair, stop))
        found.append(Part(pair, (start, stop), count))
    if not log_sums:
        return parts, None
    own, other = (float(np.logaddexp.reduce(logs)) for logs in zip(*log_sums, strict=True))
    return found, replace(
        huge,
        log_mass=_log_any(own),
        log_other=_log_any(other),
        log_sum=other,
        rounding=rounding,
    )


def _reaches(part: Part, loss: float) -> bool:
    """Return whether losses of sampled steps go beyond one, by far enough to end there."""
    pair, (_, stop), _ = part
    # Further up than this, no rounding moves a loss by a share of 1e-6.
    start = 0.5 * pair.mu + 1e-3 / pair.mu
    return pair.rate < 1.0 and start < position_of(pair, loss * _MOVED) < stop


def _without_low(part: Part, rare: float) -> tuple[float, float]:
    """Return the interval without losses that hardly ever are so low, where they have no bound."""
    pair, (start, stop), count = part
    if pair.one_sided:
        return start, stop
    ends = np.linspace(start, 0.0, _ENDS)
    low = log_masses_below(pair, ends)[1] <= math.log(rare / count)
    return float(ends[max(int(low.sum()) - 1, 0)]), stop


def _eta(others: Sequence[Part], tail: float, reached: float, spread: float) -> Huge:
    """Return from where on losses are huge, so that eta is small up to an epsilon."""
    missed = 0.0
    for pair, (start, _), count in others:
        missed += count * tail * (1.0 + 1e-9)
        if not pair.one_sided:
            log = float(log_masses_below(pair, np.array([start]))[1][0])
            missed += count * math.exp(log) * (1.0 + _rounding(pair, start))
    decay = []
    for order in np.geomspace(*_ORDERS) / spread:
        logs = [
            log_moment(part.pair, part.interval, float(order), exchanged=part.pair.rate < 1.0)
            for part in others
        ]
        whole = math.fsum(part.number * log for part, log in zip(others, logs, strict=True))
        decay.append((float(order), whole - min(logs) + 1e-12 * (1.0 + abs(whole))))
    found = Huge(reached, reached, 0.0, 0.0, 0.0, 0.0, missed, decay)
    for attempt in range(_FURTHEST):
        if min(log - order * (found.least - reached) for order, log in decay) <= _SMALL:
            break
        found = replace(found, least=reached + spread * 1.3**attempt)
    return found


def _rounding(pair: Pair, position: float) -> float:
    """Return a bound of the relative error of masses above and below a position."""
    return MASS_ROUNDING + 2e-15 * (abs(position) + pair.mu) ** 2


def _log_rate(log_mass: float, count: int) -> float:
    """Return ``log(-T log(1 - p))``, p the mass of each of T steps."""
    mass = min(math.exp(log_mass), 1.0 - UNIT_ROUNDOFF)
    return math.log(count) + (math.log(-math.log1p(-mass)) if mass > _TINY else log_mass)


def _log_any(log_rate: float) -> float:
    """Return the log-probability of any, given the logarithm of ``-log`` of that of none."""
    rate = math.exp(min(log_rate, 700.0))
    return math.log(-math.expm1(-rate)) if rate > _TINY else log_rate
