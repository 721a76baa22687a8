"""The privacy curve of a plan between two bounds: what is proven, and how far the truth can be."""

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, MU, positive_number
from matrixdp.privacy.bound import privacy_delta, privacy_epsilon
from matrixdp.privacy.events import Event, GaussianRelease, SampledPlan, TooLittleNoiseError
from matrixdp.privacy.loss.curve import SMALLEST_DELTA, Interval, Steps
from matrixdp.privacy.loss.curves import (
    ChernoffCurve,
    CoarselySmoothedCurve,
    InvertedCurve,
    OneStepCurve,
    SmoothedCurve,
)
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.points import TooManyPointsError
from matrixdp.privacy.loss.tilting import Cumulants
from matrixdp.rounding import float_up, quotient_up, sqrt_up

__all__ = ["LossAccount", "steps_of"]

_WIDTH = 1e-4
_LOST = 1e-7  # of delta, that may be in no loss
_FAR_APART = 0.01  # relatively: bounds that do not say well where an epsilon is
_FLATTEST = 1e-3  # of epsilon times the slope of ``-log delta``
# What is tried in turn until bounds are narrow enough; and whether near where delta is if only one
# loss matters, as long as that is possible, or from what was found before.
_WAYS = (
    (InvertedCurve, False),
    (ChernoffCurve, True),
    (InvertedCurve, True),
    (InvertedCurve, False),
    (SmoothedCurve, True),
    (SmoothedCurve, False),
    (InvertedCurve, False),
    (CoarselySmoothedCurve, True),
)
# What the closed form of the Gaussian curve may be off where mu is so large that no epsilon is
# close to 0, and far into its tail: 1e-14 times its condition number, which for epsilons up to 1e6
# is below 1e5, and some of the smallest doubles. Otherwise inversion gives the lower bound.
_CLOSED_FORM, _FAR = 1e-10, 2e-9
_TINY = 1e-300
_HOPELESS = 2.0  # times the largest epsilon, where not even an estimate of it is below that
_MOST_RESOLVED_MU = 100.0
_LEAST_RESOLVED_MU = 1e-12
"""A release of less is accounted for as one of that."""

_SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER = 0.02, 1e12
_SMALLEST_RATE = 1e-12
_MOST_STEPS = 10**9


class LossAccount:
    """The exact privacy of a list of Gaussian steps and releases, fixed in advance.

    Parameters
    ----------
    events : sequence of SampledPlan and GaussianRelease
        What is done, all under one neighbouring relation.
    width : float, optional
        How far apart the bounds of an epsilon may be, relatively. It is aimed at, and missed by
        some plans of a few steps, or with a delta below 1e-50. The bounds are proven in any case.

    Raises
    ------
    InvalidParameterError
        If there are no events, or they are under different relations.
    CalibrationError
        If an event is outside of what can be resolved.

    Notes
    -----
    *Guarantee:* the plan is (epsilon, delta)-DP with ``epsilon_at(delta).upper``, and no smaller
    epsilon than ``epsilon_at(delta).lower`` is true of its dominating pair. Delta is an integral
    over the characteristic function of the whole loss, whose errors are all bounded and added.

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
        self._steps, self._mu, self._unsampled = steps_of(events)
        self._count = sum(count for _, count in self._steps)
        # A bound of the probability that a record is sampled at all.
        sampled = (n * Fraction(pair.rate) for pair, n in self._steps if pair.rate < 1.0)
        self._chance = sum(sampled, Fraction(0))

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
        if self._mu > _MOST_RESOLVED_MU:
            return max(exact * (1.0 - _FAR) - _TINY, 0.0)
        if self._mu < _LEAST_RESOLVED_MU:
            return 0.0
        try:
            return min(by_losses(given).lower, exact)
        except CalibrationError:  # beyond what is resolved
            return 0.0

    def _epsilon_by_losses(self, delta: float) -> Interval:
        # Unless a record is sampled, the two distributions are the same. If that is at most as
        # likely as delta, nothing needs to be computed, and tilting would not resolve it either.
        if self._mu == 0.0 and self._chance <= Fraction(delta):
            return Interval(0.0, 0.0)
        self._check_provable(delta)
        # The releases without sampling alone have at least this epsilon; if it is hopeless, so is
        # the plan, and it would take millions of points to see that.
        alone = privacy_epsilon(self._mu, delta) if self._mu > 0.0 else 0.0
        if alone * (1.0 - _CLOSED_FORM) > EPSILON.largest:
            raise TooLittleNoiseError(f"mu={self._mu!r} of all releases without sampling")
        log_delta = math.log(delta)
        tail = self._tail(log_delta)
        cumulants = Cumulants(self._steps, tail)
        saddle = cumulants.for_delta(delta)
        # An estimate, far closer than that: nothing is inverted for a hopeless plan.
        if saddle.epsilon > _HOPELESS * EPSILON.largest:
            raise TooLittleNoiseError("noise with an epsilon far beyond 1e6")
        if self._one_step:
            return OneStepCurve(self._steps, tail, self._width).epsilon(delta, saddle)
        near = cumulants.at_point(max(saddle.epsilon, 0.0), log_delta)
        found, rare = Interval(0.0, math.inf), cumulants.one_step_epsilon(delta)
        for number, (kind, for_rare) in enumerate(_WAYS):
            if number > 0:
                # The saddle point is only an estimate.
                likely = rare if for_rare and found.lower <= rare <= found.upper else _middle(found)
                near = cumulants.at_point(likely if likely < math.inf else rare, log_delta)
            change = (cumulants.one_step_slope(near.epsilon) or near.tilt) * near.epsilon
            curve = kind(self._steps, tail, self._width * max(change, _FLATTEST))
            with contextlib.suppress(TooManyPointsError, TooLittleNoiseError):
                found = found.narrowed(curve.epsilon(delta, near))
            if self._narrow(found):
                break
        if math.isinf(found.upper):  # once more, for the reason
            return ChernoffCurve(self._steps, tail, self._width).epsilon(delta, near)
        return found

    def _narrow(self, found: Interval) -> bool:
        return found.upper < math.inf and found.width <= self._width * found.upper

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

    def deltas_at(self, epsilons: Sequence[float]) -> list[Interval]:
        """Return bounds of the least deltas at several epsilons; neighbours share inversions.

        Parameters
        ----------
        epsilons : sequence of float
            Each at least 0.

        Raises
        ------
        CalibrationError
            If the losses need too many points.
        """
        found: list[Interval] = []
        profile: Callable[[float], Interval] | None = None
        for given in epsilons:
            epsilon = EPSILON.number(given)
            interval = Interval(0.0, math.inf) if profile is None else profile(epsilon)
            if not self._narrow(interval):
                interval = self.delta_at(epsilon).narrowed(interval)
                profile = self._profile(epsilon, interval.upper)
            found.append(interval)
        return found

    def _profile(self, epsilon: float, delta: float) -> Callable[[float], Interval] | None:
        """Return bounds of deltas near a point, unless they need too many points."""
        if self._unsampled or self._one_step:
            return None
        log_delta = self._log_of(delta)
        tail = self._tail(log_delta)
        near = Cumulants(self._steps, tail).at_point(epsilon, log_delta)
        with contextlib.suppress(TooManyPointsError):
            return InvertedCurve(self._steps, tail, self._width).profile(near)
        return None

    def _delta_by_losses(self, epsilon: float) -> Interval:
        if self._mu > _MOST_RESOLVED_MU:
            alone = privacy_delta(self._mu, epsilon) * (1.0 - _CLOSED_FORM)
            if 1.0 - alone <= self._width:
                return Interval(alone, 1.0)
        cumulants = Cumulants(self._steps, SMALLEST_DELTA)
        near = cumulants.at_point(epsilon, 0.0)
        if self._one_step:
            return OneStepCurve(self._steps, 0.0, self._width).delta(epsilon, near)
        # Divergences are jointly convex: unless a record is sampled, delta is that of releases.
        rough = self._chance + Fraction(privacy_delta(self._mu, epsilon))
        found = Interval(0.0, float_up(min(rough, Fraction(1))))
        near = replace(near, log_delta=min(near.log_height, self._log_of(found.upper)))
        for kind, _ in _WAYS:
            curve = kind(self._steps, self._tail(near.log_delta), self._width)
            with contextlib.suppress(TooManyPointsError):
                found = found.narrowed(curve.delta(epsilon, near))
            if self._narrow(found):
                break
            log_delta = self._log_of(found.upper)
            cumulants = Cumulants(self._steps, self._tail(log_delta))
            near = cumulants.at_point(epsilon, log_delta)
        return found

    def _log_of(self, delta: float) -> float:
        return math.log(min(max(delta, self._smallest_delta), 1.0))

    def _tail(self, log_delta: float) -> float:
        """Return the mass of a step to leave out; a smaller delta than can be resolved is not."""
        least = math.log(self._smallest_delta)
        return _LOST * math.exp(min(max(log_delta, least), 0.0)) / self._count

    @property
    def _one_step(self) -> bool:
        """Whether there is a closed form of a sampled step."""
        return self._count == 1 and not self._unsampled

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


def _middle(found: Interval) -> float:
    """Return the upper bound, or the middle if that says more about where an epsilon is."""
    if found.lower > 0.0 and found.width > _FAR_APART * found.upper:
        return found.lower + 0.5 * found.width
    return found.upper


def steps_of(events: Sequence[Event]) -> tuple[Steps, float, bool]:
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
        return [(AddRemovePair(1.0, max(mu, _LEAST_RESOLVED_MU)), 1)], mu, True
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
