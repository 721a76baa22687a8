"""The privacy curve of a plan between two bounds: what is proven, and how far the truth can be."""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from matrixdp.errors import CalibrationError
from matrixdp.parameters import DELTA, EPSILON, positive_number
from matrixdp.privacy.bound import privacy_delta, privacy_epsilon
from matrixdp.privacy.events import Event, TooLittleNoiseError
from matrixdp.privacy.loss.composition import MOST_POINTS, TooManyPointsError
from matrixdp.privacy.loss.curve import SMALLEST_DELTA, Interval
from matrixdp.privacy.loss.events_as_pairs import LEAST_LATTICE_MU, steps_of
from matrixdp.privacy.loss.inverted_curve import InvertedCurve, SmoothedCurve, SplitCurve
from matrixdp.privacy.loss.lattice_curve import LatticeCurve
from matrixdp.privacy.loss.one_step import OneStepCurve
from matrixdp.privacy.loss.tilting import Cumulants, Saddle

__all__ = ["LossAccount"]

_WIDTH = 1e-4
_LOST = 1e-7  # of delta, that may be in no atom
_MOST_CELLS = 1 << 19
_ATTEMPTS = 4
_COARSER = (1.0, 4.0, 16.0)  # times the step; powers of two, so that multiples stay exact
_WIDEST_STEP = 0.25
_FINER = 0.2  # of a width, so that one lattice serves for several epsilons
_FEW_STEPS, _FEWEST_STEPS = 100, 3  # a lattice may do; and does, nearly always
# What the closed form of the Gaussian curve may be off where mu is so large that no epsilon is
# close to 0; it is checked against ball arithmetic. Otherwise the lattice gives the lower bound.
_CLOSED_FORM = 1e-10
_HOPELESS = 2.0  # times the largest epsilon, where not even an estimate of it is below that
_MOST_LATTICE_MU = 100.0


class LossAccount:
    """The exact privacy of a list of Gaussian steps and releases, fixed in advance.

    Parameters
    ----------
    events : sequence of SampledPlan and GaussianRelease
        What is done, all under one neighbouring relation.
    width : float, optional
        How far apart the bounds of an epsilon may be, relatively. It is aimed at, and missed by
        some plans of a few steps that sample very rarely; the bounds are proven whatever it is.

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
    over the characteristic function of the whole loss; for a few steps losses may be discretised so
    that the result dominates (and is dominated by) the truth. All errors are bounded and added.

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
        if self._mu < LEAST_LATTICE_MU:
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
        if self._one_step:
            return OneStepCurve(self._steps, tail).epsilon(delta, saddle)
        ways = [
            lambda: self._inverted_epsilon(delta, cumulants, saddle, tail),
            lambda: self._lattice_epsilon(delta, cumulants, saddle, tail),
            lambda: self._smoothed_epsilon(delta, cumulants, tail),
        ]
        return self._first_narrow(ways)

    def _inverted_epsilon(
        self, delta: float, cumulants: Cumulants, saddle: Saddle, tail: float
    ) -> Interval:
        """Return bounds by inversion, or between 0 and infinity if that takes too many points."""
        found = Interval(0.0, math.inf)
        near = cumulants.at_point(max(saddle.epsilon, 0.0), saddle.log_delta)
        for kind in (InvertedCurve, InvertedCurve, SplitCurve):
            # Bounds with large losses apart are not close to all epsilons.
            with contextlib.suppress(TooManyPointsError, TooLittleNoiseError):
                found = found.narrowed(kind(self._steps, tail).epsilon(delta, near))
            if self._narrow(found):
                break
            # The saddle point is only an estimate: go on from what was found.
            known = found.upper < math.inf
            epsilon = found.upper if known else cumulants.one_step_epsilon(delta)
            near = cumulants.at_point(epsilon, math.log(delta))
        return found

    def _lattice_epsilon(
        self, delta: float, cumulants: Cumulants, saddle: Saddle, tail: float
    ) -> Interval:
        wanted = self._width * max(saddle.epsilon, 1e-3 / saddle.tilt)
        found = Interval(0.0, math.inf)
        for _ in range(_ATTEMPTS):
            former = found
            found = self._resolved(
                former, saddle, tail, wanted, lambda curve, near: curve.epsilon(delta, near)
            ).narrowed(former)
            # Where rounding decides, a finer lattice does not help.
            if self._narrow(found) or found.width > 0.7 * former.width:
                break
            wanted *= 0.25
            saddle = replace(cumulants.for_epsilon(found.upper), epsilon=found.upper)
        return found

    def _narrow(self, found: Interval) -> bool:
        return found.upper < math.inf and found.width <= self._width * found.upper

    def _first_narrow(self, ways: list[Callable[[], Interval]]) -> Interval:
        """Return bounds by inversion, and by other ways for a few steps, as far as needed."""
        if self._count <= _FEWEST_STEPS:
            ways = [ways[1], ways[0], *ways[2:]]
        found = Interval(0.0, math.inf)
        for way in ways:
            found = found.narrowed(way())
            if self._narrow(found) or (self._count > _FEW_STEPS and found.upper < math.inf):
                break
        return found

    def _smoothed_epsilon(self, delta: float, cumulants: Cumulants, tail: float) -> Interval:
        near = cumulants.at_point(cumulants.one_step_epsilon(delta), math.log(delta))
        with contextlib.suppress(TooManyPointsError, TooLittleNoiseError):
            curve = SmoothedCurve(self._steps, tail, self._width * near.epsilon)
            return curve.epsilon(delta, near)
        return Interval(0.0, math.inf)

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
        """Return bounds of the least deltas at several epsilons; neighbours share compositions.

        Parameters
        ----------
        epsilons : sequence of float
            Each at least 0.

        Raises
        ------
        CalibrationError
            If the losses need too many points.
        """
        if self._unsampled:
            return [self.delta_at(epsilon) for epsilon in epsilons]
        found: list[Interval] = []
        profile: Callable[[float], Interval] | None = None
        for given in epsilons:
            epsilon = EPSILON.number(given)
            interval = Interval(0.0, math.inf) if profile is None else profile(epsilon)
            if not self._narrow(interval):
                interval = self.delta_at(epsilon).narrowed(interval)
                profile = None if self._one_step else self._profile(epsilon, interval.upper)
            found.append(interval)
        return found

    def _profile(self, epsilon: float, delta: float) -> Callable[[float], Interval] | None:
        """Return bounds of deltas near a point, unless they need too many points."""
        log_delta = math.log(min(max(delta, self._smallest_delta), 1.0))
        tail = self._tail(log_delta)
        near = Cumulants(self._steps, tail).at_point(epsilon, log_delta)
        with contextlib.suppress(TooManyPointsError):
            if self._count > _FEWEST_STEPS:
                return InvertedCurve(self._steps, tail).profile(near)
            step = self._step(near, tail, _FINER * self._width * max(epsilon, 1.0 / near.tilt))
            return LatticeCurve(self._steps, step, tail).profile(near)
        return None

    def _delta_by_losses(self, epsilon: float) -> Interval:
        if self._mu > _MOST_LATTICE_MU:
            alone = privacy_delta(self._mu, epsilon) * (1.0 - _CLOSED_FORM)
            if 1.0 - alone <= self._width:
                return Interval(alone, 1.0)
        saddle = Cumulants(self._steps, SMALLEST_DELTA).for_epsilon(epsilon)
        if self._one_step:
            return OneStepCurve(self._steps, 0.0).delta(epsilon, saddle)
        return self._first_narrow(
            [
                lambda: self._inverted_delta(epsilon, saddle),
                lambda: self._lattice_delta(epsilon, saddle),
            ]
        )

    def _tail(self, log_delta: float) -> float:
        """Return the mass of a step to leave out; a smaller delta than can be resolved is not."""
        least = math.log(self._smallest_delta)
        return _LOST * math.exp(min(max(log_delta, least), 0.0)) / self._count

    def _inverted_delta(self, epsilon: float, saddle: Saddle) -> Interval:
        """Return bounds by inversion, or 0 and infinity if that takes too many points."""
        found = Interval(0.0, math.inf)
        cumulants = Cumulants(self._steps, self._tail(saddle.log_delta))
        near = cumulants.at_point(epsilon, saddle.log_delta)
        for kind in (InvertedCurve, InvertedCurve, SplitCurve):
            tail = self._tail(near.log_delta)
            with contextlib.suppress(TooManyPointsError):
                found = found.narrowed(kind(self._steps, tail).delta(epsilon, near))
            if self._narrow(found):
                break
            log_delta = math.log(min(max(found.upper, self._smallest_delta), 1.0))
            cumulants = Cumulants(self._steps, self._tail(log_delta))
            near = cumulants.at_point(epsilon, log_delta)
        return found

    def _lattice_delta(self, epsilon: float, saddle: Saddle) -> Interval:
        tail = self._tail(saddle.log_delta)
        saddle = Cumulants(self._steps, tail).for_epsilon(epsilon)
        # As far apart as bounds of epsilon would be there.
        wanted = self._width * max(epsilon, 1.0 / saddle.tilt)
        relative = wanted * max(saddle.tilt, 1.0)
        found = Interval(0.0, math.inf)
        for _ in range(_ATTEMPTS):
            former = found
            found = self._resolved(
                former, saddle, tail, wanted, lambda curve, near: curve.delta(epsilon, near)
            ).narrowed(former)
            if found.width <= relative * found.upper or found.width > 0.7 * former.width:
                break
            wanted *= 0.25
        return found

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

    def _resolved(
        self,
        former: Interval,
        saddle: Saddle,
        tail: float,
        wanted: float,
        answer: Callable[[LatticeCurve, Saddle], Interval],
    ) -> Interval:
        """Return bounds on the lattice for a width; if that is too large, the former ones.

        If there are none yet, they are from a coarser lattice: wider, and proven as well.
        """
        step = self._step(saddle, tail, wanted)
        for coarser in _COARSER:
            with contextlib.suppress(TooManyPointsError):
                return answer(LatticeCurve(self._steps, coarser * step, tail), saddle)
            if former.upper < math.inf:
                return former
        return answer(LatticeCurve(self._steps, 4.0 * _COARSER[-1] * step, tail), saddle)

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
