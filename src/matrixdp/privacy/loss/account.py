"""The privacy curve of a plan between two bounds: what is proven, and how far the truth can be."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, MU, positive_number
from matrixdp.privacy.bound import privacy_delta, privacy_epsilon
from matrixdp.privacy.events import Event, GaussianRelease, SampledPlan, TooLittleNoiseError
from matrixdp.privacy.loss.composition import MOST_POINTS, TooManyPointsError
from matrixdp.privacy.loss.curve import SMALLEST_DELTA, CurveBounds, Interval, Steps
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.tilting import Cumulants, Saddle
from matrixdp.rounding import quotient_up, sqrt_up

__all__ = ["LossAccount"]

_WIDTH = 1e-4
_LOST = 1e-7  # of delta, that may be in no atom
_SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER = 0.02, 1e12
_SMALLEST_RATE = 1e-12
_MOST_STEPS = 10**9
_MOST_CELLS = 1 << 19
_ATTEMPTS = 4
_COARSER = (1.0, 4.0, 16.0)  # times the step; powers of two, so that multiples stay exact
_WIDEST_STEP = 0.25
_MOST_SPLIT = 10**6  # steps; with more, rounding decides the width, not rare losses
# What the closed form of the Gaussian curve may be off where mu is so large that no epsilon is
# close to 0; it is checked against ball arithmetic. Otherwise the lattice gives the lower bound.
_CLOSED_FORM = 1e-10
_HOPELESS = 2.0  # times the largest epsilon, where not even an estimate of it is below that
_MOST_LATTICE_MU, _LEAST_LATTICE_MU = 100.0, 1e-12


class LossAccount:
    """The exact privacy of a list of Gaussian steps and releases, fixed in advance.

    Parameters
    ----------
    events : sequence of SampledPlan and GaussianRelease
        What is done, all under one neighbouring relation.
    width : float, optional
        How far apart the bounds of an epsilon may be, relatively. It is aimed at, and missed by
        some plans that sample very rarely; the bounds are proven whatever it is.

    Raises
    ------
    InvalidParameterError
        If there are no events, or they are under different relations.
    CalibrationError
        If an event is outside of what can be resolved.

    Notes
    -----
    *Guarantee:* the plan is (epsilon, delta)-DP with ``epsilon_at(delta).upper``, and no smaller
    epsilon than ``epsilon_at(delta).lower`` is true of its dominating pair. Losses are discretised
    so that the result dominates (and is dominated by) the truth, tilted, and composed by Fourier
    transform; truncation, wrap-around and rounding are bounded and added.

    Examples
    --------
    >>> from matrixdp.privacy import GaussianRelease, LossAccount, SampledPlan
    >>> steps = SampledPlan(
    ...     noise_multiplier=1.0, sampling_rate=0.01, steps=1000, neighbouring="add-remove"
    ... )
    >>> found = LossAccount([steps]).epsilon_at(1e-5)
    >>> round(found.upper, 3), (found.upper - found.lower) / found.upper < 1e-4
    (1.828, True)
    >>> both = LossAccount([steps, GaussianRelease(mu=0.5, neighbouring="add-remove")])
    >>> round(both.epsilon_at(1e-5).upper, 2)
    2.76
    """

    def __init__(self, events: Sequence[Event], *, width: float = _WIDTH) -> None:
        self._width = positive_number(width, "width")
        self._steps, self._mu, self._unsampled = _steps_of(events)
        self._count = sum(count for _, count in self._steps)

    def epsilon_at(self, delta: float) -> Interval:
        """Return bounds of the least epsilon at a delta.

        Parameters
        ----------
        delta : float
            At least 1e-250 times the number of steps.

        Raises
        ------
        CalibrationError
            If it is smaller, or the losses need too many points.
        """
        delta = DELTA.number(delta)
        if self._unsampled:
            exact = privacy_epsilon(self._mu, delta)
            return Interval(self._lower(self._epsilon_by_losses, delta, exact), exact)
        return self._epsilon_by_losses(delta)

    def _lower(self, by_losses: Callable[[float], Interval], given: float, exact: float) -> float:
        """Return a lower bound of what a closed form gives as an upper one, without sampling."""
        if self._mu > _MOST_LATTICE_MU:
            return exact * (1.0 - _CLOSED_FORM)
        if self._mu < _LEAST_LATTICE_MU:
            return 0.0
        try:
            return min(by_losses(given).lower, exact)
        except CalibrationError:  # beyond what is resolved
            return 0.0

    def _epsilon_by_losses(self, delta: float) -> Interval:
        # Unless a record is sampled, the two distributions are the same. If that is at most as
        # likely as delta, nothing needs to be computed, and tilting would not resolve it either.
        if sum(count * Fraction(pair.rate) for pair, count in self._steps) <= Fraction(delta):
            return Interval(0.0, 0.0)
        self._check_provable(delta)
        # The releases without sampling alone have at least this epsilon; if it is hopeless, so is
        # the plan, and it would take millions of points to see that.
        alone = privacy_epsilon(self._mu, delta) if self._mu > 0.0 else 0.0
        if alone * (1.0 - _CLOSED_FORM) > EPSILON.largest:
            raise TooLittleNoiseError(f"mu={self._mu!r} of all releases without sampling")
        tail = _LOST * delta / self._count
        cumulants = Cumulants(self._steps, tail)
        saddle = cumulants.for_delta(delta)
        # An estimate, far closer than that: nothing is composed for a hopeless plan.
        if saddle.epsilon > _HOPELESS * EPSILON.largest:
            raise TooLittleNoiseError("noise with an epsilon far beyond 1e6")
        if not saddle.epsilon > 0.0:
            saddle = cumulants.for_epsilon(0.0)
        wanted = self._width * max(saddle.epsilon, 1e-3 / saddle.tilt)
        found = Interval(0.0, math.inf)
        for _ in range(_ATTEMPTS):
            former = found
            found = self._resolved(
                former,
                saddle,
                tail,
                wanted,
                lambda bounds, near: bounds.epsilon(delta, cumulants, near),
            ).narrowed(former)
            # Where rounding decides, a finer lattice does not help.
            if found.width <= self._width * found.upper or found.width > 0.7 * former.width:
                break
            # The saddle point is only an estimate: go on from what was found.
            wanted *= 0.25
            saddle = replace(cumulants.for_epsilon(found.upper), epsilon=found.upper)
        if found.width > self._width * found.upper and self._count <= _MOST_SPLIT:
            found = self._split_epsilon(found, delta, saddle, tail)
        return found

    def delta_at(self, epsilon: float) -> Interval:
        """Return bounds of the least delta at an epsilon.

        Parameters
        ----------
        epsilon : float
            At least 0.

        Raises
        ------
        CalibrationError
            If the losses need too many points.

        Notes
        -----
        A delta below 1e-250 times the number of steps is only known to be below that.
        """
        epsilon = EPSILON.number(epsilon)
        if self._unsampled:
            exact = privacy_delta(self._mu, epsilon)
            return Interval(self._lower(self._delta_by_losses, epsilon, exact), exact)
        return self._delta_by_losses(epsilon)

    def _delta_by_losses(self, epsilon: float) -> Interval:
        if self._mu > _MOST_LATTICE_MU:
            alone = privacy_delta(self._mu, epsilon) * (1.0 - _CLOSED_FORM)
            if 1.0 - alone <= self._width:
                return Interval(alone, 1.0)
        saddle = Cumulants(self._steps, SMALLEST_DELTA).for_epsilon(epsilon)
        # A smaller delta than can be resolved is bounded by what can.
        least = math.log(self._smallest_delta)
        delta = math.exp(min(max(saddle.log_delta, least), 0.0))
        tail = _LOST * delta / self._count
        cumulants = Cumulants(self._steps, tail)
        saddle = cumulants.for_epsilon(epsilon)
        # As far apart as bounds of epsilon would be there.
        wanted = self._width * max(epsilon, 1.0 / saddle.tilt)
        relative = wanted * max(saddle.tilt, 1.0)
        found = Interval(0.0, math.inf)
        for _ in range(_ATTEMPTS):
            former = found
            found = self._resolved(
                former,
                saddle,
                tail,
                wanted,
                lambda bounds, near: bounds.delta(epsilon, cumulants, near),
            ).narrowed(former)
            if found.width <= relative * found.upper or found.width > 0.7 * former.width:
                break
            wanted *= 0.25
        if found.width > relative * found.upper and self._count <= _MOST_SPLIT:
            step = self._step(saddle, tail, self._width * max(epsilon, 1.0 / saddle.tilt))
            with contextlib.suppress(TooManyPointsError):
                bounds = CurveBounds(self._steps, step, tail)
                found = found.narrowed(bounds.split_delta(epsilon, found.upper))
        return found

    @property
    def _smallest_delta(self) -> float:
        return SMALLEST_DELTA * self._count

    def _check_provable(self, delta: float) -> None:
        least = self._smallest_delta
        if not delta >= least:
            raise CalibrationError(
                f"delta={delta!r} is below {least!r}, the least for which {self._count} steps are "
                "accounted for: use a larger delta, or RDP"
            )

    def _resolved(
        self,
        former: Interval,
        saddle: Saddle,
        tail: float,
        wanted: float,
        answer: "Callable[[CurveBounds, Saddle], Interval]",
    ) -> Interval:
        """Return bounds on the lattice for a width; if that is too large, the former ones.

        If there are none yet, they are from a coarser lattice: wider, and proven as well.
        """
        step = self._step(saddle, tail, wanted)
        for coarser in _COARSER:
            with contextlib.suppress(TooManyPointsError):
                return answer(CurveBounds(self._steps, coarser * step, tail), saddle)
            if former.upper < math.inf:
                return former
        return answer(CurveBounds(self._steps, 4.0 * _COARSER[-1] * step, tail), saddle)

    def _split_epsilon(
        self, found: Interval, delta: float, saddle: Saddle, tail: float
    ) -> Interval:
        """Return closer bounds, with large losses treated apart; none that are further."""
        wanted = self._width * found.upper
        for _ in range(_ATTEMPTS):
            near = replace(saddle, epsilon=found.upper)
            with contextlib.suppress(TooManyPointsError):
                bounds = CurveBounds(self._steps, self._step(near, tail, wanted), tail)
                former, found = found, found.narrowed(bounds.split_epsilon(delta, near))
                if found.width <= self._width * found.upper:
                    break
                if found.width > 0.7 * former.width:
                    wanted *= 0.25
        return found

    def _step(self, saddle: Saddle, tail: float, wanted: float) -> float:
        """Return the distance of losses for which bounds of epsilon are so far apart, roughly.

        Replacing one of T steps by atoms moves delta by ``c h^2 p(epsilon)``, p the density of the
        whole loss and c about 1/3 from above, with twice the step, and 2/3 from below; and epsilon
        by that over ``-delta'``. At the saddle point ``p / -delta'`` is about ``1 + theta``.
        """
        fine = 0.9 * math.sqrt(wanted / (self._count * (1.0 + saddle.tilt)))
        reached = 8.0 * saddle.deviation + min(25.0 / saddle.tilt, 10.0 * saddle.deviation)
        losses = [pair.losses(np.array(pair.reach(tail))) for pair, _ in self._steps]
        widest = max(float(ends[1] - ends[0]) for ends in losses)
        step = max(min(fine, _WIDEST_STEP), 1.25 * reached / MOST_POINTS, widest / _MOST_CELLS)
        mantissa, exponent = math.frexp(step)
        # Few bits, so that multiples are exact.
        return math.ldexp(math.floor(mantissa * 64.0) / 64.0, exponent)


def _steps_of(events: Sequence[Event]) -> tuple[Steps, float, bool]:
    """Return the pairs and how often each occurs, the mu of releases, and whether all are such."""
    listed = list(events) if isinstance(events, list | tuple) else []
    if not listed or not all(isinstance(event, Event) for event in listed):
        raise InvalidParameterError(
            "events must be a list of at least one SampledPlan or GaussianRelease, and of nothing "
            "else"
        )
    relations = {event.neighbouring for event in events}
    if len(relations) > 1:
        raise InvalidParameterError(
            "events are under different neighbouring relations: state all of them under one"
        )
    pairs: Counter[Pair] = Counter()
    squares = Fraction(0)
    for event in events:
        if isinstance(event, GaussianRelease):
            squares += Fraction(event.mu) ** 2
        elif event.sampling_rate == 1.0:
            squares += event.steps * Fraction(event.mu_of_step) ** 2
        else:
            pairs[_pair_of(event)] += event.steps
    mu = sqrt_up(squares)
    if not mu <= MU.largest:
        raise TooLittleNoiseError(f"mu={mu!r} of all releases without sampling")
    if not pairs:
        return [(AddRemovePair(1.0, max(mu, _LEAST_LATTICE_MU)), 1)], mu, True
    if mu > 0.0:
        pairs[AddRemovePair(1.0, mu)] += 1
    return list(pairs.items()), mu, False


def _pair_of(plan: SampledPlan) -> Pair:
    """Return the pair of a step, or raise if it is outside of what is resolved."""
    for name, given, least, most in (
        ("noise_multiplier", plan.noise_multiplier, _SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER),
        ("sampling_rate", plan.sampling_rate, _SMALLEST_RATE, 1.0),
        ("steps", plan.steps, 1, _MOST_STEPS),
    ):
        if not least <= given <= most:
            raise CalibrationError(
                f"{name}={given!r} is outside of {least!r} to {most!r}, for which losses are "
                "resolved: change it, or use RDP"
            )
    mu = quotient_up(1.0, plan.noise_multiplier)
    kind = ReplacePair if plan.neighbouring == "replace" else AddRemovePair
    return kind(plan.sampling_rate, mu)
