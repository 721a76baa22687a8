"""The noise that a plan needs: the inverse of its account."""

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import scipy

from matrixdp.errors import CalibrationError
from matrixdp.parameters import DELTA, EPSILON, positive_number
from matrixdp.privacy.accountants import Accountant, accounted_epsilon, checked_accountant
from matrixdp.privacy.bound import largest_mu
from matrixdp.privacy.events import Bounded, SampledPlan, TooLittleNoiseError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.loss import LossAccount
from matrixdp.privacy.loss.points import TooManyPointsError
from matrixdp.rounding import quotient_up, sqrt_up

__all__ = ["least_multiplier", "noise_multiplier_for"]

_SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER = 0.05, 1e12
_TOLERANCE = 1e-6  # how close a multiplier comes to the least that suffices
_ROUGH_WIDTH = 1e-2  # of the bounds of epsilon, while a search is far from its end
_FINE_TOLERANCE = 2e-5
_MOST_CHANGE = 1.5  # of a multiplier, in one step along the slope
_MOST_SLOPE_STEPS = 8
_STRIDE = 1.05  # of a search for an end of the interval, relatively
# Shares of the target that an epsilon is taken for at least and at most: far enough from it, and
# steps along the slope stay finite also where the target is tiny.
_LEAST_SHARE, _LARGEST_SHARE = 1e-3, 1e100


def noise_multiplier_for(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float,
    steps: int,
    neighbouring: Neighbouring,
    bounded: Bounded = "difference",
    accountant: Accountant | str = Accountant.PLD,
) -> float:
    """Return the least noise multiplier, to four digits, whose plan keeps (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    sampling_rate, steps, neighbouring, bounded
        As in `SampledPlan`.
    accountant : Accountant or str, optional
        Whose account has to keep the promise.

    Returns
    -------
    float
        Never too small: its plan keeps (epsilon, delta) by that account. At most one part in 10,000
        above the least that does. It may be further above where a PLD would need too many points
        for less noise: what cannot be proven is not taken for enough.

    Raises
    ------
    CalibrationError
        If the multiplier would be below 0.05 or above 1e12. At a rate of 1 the PLD needs no search
        and has no such limits.

    Examples
    --------
    >>> from matrixdp.privacy import noise_multiplier_for
    >>> multiplier = noise_multiplier_for(
    ...     1.0, 1e-5, sampling_rate=0.01, steps=1000, neighbouring="add-remove"
    ... )
    >>> round(multiplier, 3)
    1.415
    """
    accountant = checked_accountant(accountant)
    target, delta = positive_number(EPSILON.number(epsilon), "epsilon"), DELTA.number(delta)
    plan = SampledPlan(
        noise_multiplier=1.0,
        sampling_rate=sampling_rate,
        steps=steps,
        neighbouring=neighbouring,
        bounded=bounded,
    )
    return least_multiplier(plan, target, delta, accountant)


def least_multiplier(
    plan: SampledPlan, target: float, delta: float, accountant: Accountant
) -> float:
    """Return the multiplier of `noise_multiplier_for` for a plan, whose own does not matter.

    Neither the target nor delta is checked.
    """
    if plan.sampling_rate == 1.0 and accountant is Accountant.PLD:
        # Nothing is sampled and the curve is exact: no search is needed.
        root = sqrt_up(Fraction(plan.steps))
        return quotient_up(root * plan.mu_of_step, largest_mu(target, delta))
    if accountant is Accountant.PLD:
        return _least_by_losses(plan, target, delta)

    @functools.cache  # a search asks for both ends of its interval again, and for what it found
    def excess(multiplier: float) -> float:
        changed = plan.with_noise(multiplier)
        try:
            return accounted_epsilon(changed, delta, accountant) - target
        except TooLittleNoiseError:
            return 2.0 * EPSILON.largest - target  # more than any target, and finite

    found = _root(excess, plan, _TOLERANCE)
    # The root finder may stop on either side; only a multiplier that keeps the promise is returned.
    while not excess(found) <= 0.0:
        found *= 1.0 + _TOLERANCE
    return found


def _least_by_losses(plan: SampledPlan, target: float, delta: float) -> float:
    """Search with rough bounds of epsilon, then go the rest of the way with fine ones."""

    @functools.cache  # as above
    def log_excess(multiplier: float, *, rough: bool) -> float:
        changed = plan.with_noise(multiplier)
        try:
            if rough:
                found = LossAccount([changed], width=_ROUGH_WIDTH).epsilon_at(delta).upper
            else:
                found = accounted_epsilon(changed, delta, Accountant.PLD)
        # As if it were too little noise: with more of it, losses reach less far.
        except (TooLittleNoiseError, TooManyPointsError):
            found = EPSILON.largest
        return math.log(min(max(found / target, _LEAST_SHARE), _LARGEST_SHARE))

    found = _root(lambda s: log_excess(s, rough=True), plan, 0.1 * _ROUGH_WIDTH)
    # How epsilon falls with the noise, on logarithmic scales; at least in some proportion.
    rise = log_excess(1.1 * found, rough=True) - log_excess(found, rough=True)
    slope = min(rise / math.log(1.1), -0.5)
    return _refined(lambda s: log_excess(s, rough=False), found, slope)


def _refined(log_excess: Callable[[float], float], start: float, slope: float) -> float:
    """Return the least multiplier that suffices, to the fine tolerance.

    A few steps along the slope are nearly always enough. Where epsilon falls too steeply, or jumps,
    the interval between too little noise and enough of it is halved.
    """
    low, high, found = 0.0, math.inf, start
    for attempt in itertools.count():
        gap = log_excess(found)
        low, high = (found, high) if not gap <= 0.0 else (low, found)
        if -_FINE_TOLERANCE <= gap <= 0.0 or high <= low * (1.0 + _FINE_TOLERANCE):
            break
        # Aim below the target by half of what is tolerated.
        aimed = found * math.exp(-(gap + 0.5 * _FINE_TOLERANCE) / slope)
        # Not far from where rough bounds led: where epsilon is flat, the slope says nothing.
        close = start / _MOST_CHANGE < aimed < start * _MOST_CHANGE
        along = attempt < _MOST_SLOPE_STEPS and low < aimed < high and close
        found = aimed if along else _between(low, high)
    return high


def _between(low: float, high: float) -> float:
    """Return a multiplier within an interval, of which one end may not be known yet."""
    if high == math.inf:
        return low * _STRIDE
    return math.sqrt(low * high) if low > 0.0 else high / _STRIDE


def _root(excess: Callable[[float], float], plan: SampledPlan, tolerance: float) -> float:
    """Return about the multiplier where a decreasing function is zero."""
    # Many steps at a small rate behave roughly like Gaussian ones with mu = q sqrt(T) / s.
    low, high = _bracket(excess, max(1.0, plan.sampling_rate * math.sqrt(plan.steps)))
    return float(scipy.optimize.brentq(excess, low, high, rtol=tolerance, xtol=tolerance * low))


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Return a multiplier that is too small, and twice that, which is not."""
    high = start
    while not excess(high) <= 0.0:
        high *= 2.0
        if not high <= _LARGEST_MULTIPLIER:
            raise CalibrationError(
                f"no noise multiplier up to {_LARGEST_MULTIPLIER:g} keeps this epsilon: allow a "
                "larger epsilon, fewer steps or a smaller sampling rate"
            )
    low = high / 2.0
    while excess(low) <= 0.0:
        low, high = low / 2.0, low
        if not low >= _SMALLEST_MULTIPLIER:
            raise CalibrationError(
                f"this epsilon is kept by noise multipliers below {2 * _SMALLEST_MULTIPLIER:g}, "
                "which protect nothing: ask for a smaller epsilon"
            )
    return low, high
