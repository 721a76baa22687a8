"""Accounting of Gaussian steps on Poisson samples, by loss distributions and Rényi divergences.

A step that sees each record with probability q has another privacy curve than a Gaussian one, so it
is not described by a mu. Two ways to account for a plan of T equal steps, fixed in advance:

- the *privacy loss distribution* (PLD), discretised pessimistically and composed by Fourier
  transform (Koskela, Jälkö and Honkela 2020; Doroshenko et al. 2022): tight;
- *Rényi divergences* of the subsampled step (`sampled_divergence`), which add up. With the original
  conversion this is the moments accountant (Abadi et al. 2016, Theorem 2); with the improved one of
  `renyi_to_epsilon` it is today's RDP accountant.

Loss distributions come from dp-accounting, the extra ``accounting``. Its divergences are not used:
they lose the digits of small ones, in either direction (a thousandth at a multiplier of 9449),
and a small epsilon needs larger orders than it sums up in reasonable time. With q = 1 nothing is
sampled and all are known in closed form. For comparison there is also an account that uses only the
claims of the steps: amplification and Theorem 3.4 (`sampled_gaussian_epsilon`).
"""

import contextlib
import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from scipy import optimize

from matrixdp.errors import CalibrationError, InvalidParameterError, MissingExtraError
from matrixdp.parameters import DELTA, EPSILON, MU, positive_integer, positive_number
from matrixdp.privacy.amplification import checked_sampling_rate
from matrixdp.privacy.bound import privacy_bound, privacy_epsilon
from matrixdp.privacy.claims import TooLittleNoiseError, sampled_gaussian_epsilon
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.privacy.renyi import renyi_epsilon, renyi_to_epsilon
from matrixdp.privacy.sampled_renyi import LARGEST_ORDER, sampled_divergence
from matrixdp.rounding import quotient_up, sqrt_up

__all__ = ["Accountant", "SampledPlan", "noise_multiplier_for", "plan_epsilon"]

_PLD_INTERVAL = 1e-4  # of losses, unless they spread too little or too much for it
# Of a composed distribution, roughly; the most take a few hundred megabytes.
_FEWEST_PLD_POINTS, _MOST_PLD_POINTS = 50_000, 5_000_000
_PLD_TAIL = 1e-15  # what the library cuts off a distribution, and counts as lost
# The library raises a Fourier transform, with an error of some units of 2**-53, to the power T.
# Measured against a composition that keeps those digits, up to 1.9e-16 T of mass is lost. Five
# times that is subtracted from delta, and a delta below ten times what is subtracted is refused.
_PLD_RESOLUTION = 1e-14
_SMALLEST_PLD_RATE = 1e-9
_MOST_PLD_STEPS = 2_000_000  # more take minutes
# The interpolation of an epsilon between two losses is good to about 1e-12.
_PLD_ALLOWANCE = 1e-9
_SMALLEST_ORDER_EXCESS = 2.0**-10  # of the orders that are tried, above 1
_WORSE_OCTAVES = 3  # of orders, after which no better one is looked for
_SMALLEST_MULTIPLIER, _LARGEST_MULTIPLIER = 0.05, 1e12
_TOLERANCE = 1e-6  # how close a multiplier comes to the least that suffices


class Accountant(enum.Enum):
    """A way to turn a plan into an epsilon.

    ``PLD``: the privacy loss distribution, tight. ``RDP``: Rényi divergences with the improved
    conversion. ``MOMENTS``: the same with the original one. ``CLAIMS``: the exact (epsilon, delta)
    of each step, amplified by sampling and composed by Theorem 3.4 of Kairouz et al.
    """

    PLD = "pld"
    RDP = "rdp"
    MOMENTS = "moments"
    CLAIMS = "claims"


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledPlan:
    """A number of equal Gaussian steps, each on a Poisson sample, fixed in advance.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale over sensitivity, *under the relation named here*.
    sampling_rate : float
        The probability of each record to be in a step, above 0 and at most 1.
    steps : int
        How many.
    neighbouring : {"add-remove", "replace"}
        With a sampling rate below 1 only ``"add-remove"``: the steps of data sets that differ in
        one replaced record are another pair of mixtures, whose cost is not that of a doubled
        sensitivity, so such plans are refused.

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its domain, or the relation does not go with the sampling.

    Examples
    --------
    >>> from matrixdp.privacy import SampledPlan
    >>> SampledPlan(noise_multiplier=1.0, sampling_rate=0.01, steps=100, neighbouring="replace")
    Traceback (most recent call last):
    ...
    matrixdp.errors.InvalidParameterError: neighbouring='replace' with sampling_rate=0.01 ...
    """

    noise_multiplier: float
    sampling_rate: float
    steps: int
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise if a parameter is outside its domain."""
        multiplier = positive_number(self.noise_multiplier, "noise_multiplier")
        rate = checked_sampling_rate(self.sampling_rate)
        object.__setattr__(self, "noise_multiplier", multiplier)
        object.__setattr__(self, "sampling_rate", rate)
        object.__setattr__(self, "steps", positive_integer(self.steps, "steps"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(self.neighbouring))
        if rate < 1.0 and self.neighbouring != "add-remove":
            raise InvalidParameterError(
                f"neighbouring={self.neighbouring!r} with sampling_rate={rate!r} is not accounted "
                "for: Poisson-sampled steps have their tight account under 'add-remove' only; "
                "state the multiplier for that relation, or do not sample"
            )

    @property
    def whole_mu(self) -> float:
        """The mu of all steps if each saw all of the data, rounded up; refused above 1e4."""
        mu = quotient_up(sqrt_up(Fraction(self.steps)), self.noise_multiplier)
        if not mu <= MU.largest:
            raise TooLittleNoiseError(self.noise_multiplier, self.steps)
        return mu


def plan_epsilon(plan: SampledPlan, delta: float, accountant: Accountant = Accountant.PLD) -> float:
    """Return the epsilon of a plan at a delta, by one accountant, on the safe side.

    Parameters
    ----------
    plan : SampledPlan
        The steps to account for.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    accountant : Accountant, optional
        By default the tight one.

    Raises
    ------
    MissingExtraError
        For ``PLD``, if something is sampled and dp-accounting is not installed.
    CalibrationError
        If the accountant does not apply to this plan and delta.

    Notes
    -----
    *Guarantee:* the plan is (epsilon, delta)-DP under its relation. The loss distribution is
    rounded pessimistically; every Rényi order and every split of delta is valid, so that a grid or
    a search costs tightness only.

    Examples
    --------
    >>> from matrixdp.privacy import SampledPlan, plan_epsilon
    >>> plan = SampledPlan(
    ...     noise_multiplier=20.0, sampling_rate=1.0, steps=25, neighbouring="replace"
    ... )
    >>> round(plan_epsilon(plan, 1e-5), 4)
    0.9263
    """
    _check_accountant(accountant)
    delta = DELTA.number(delta)
    if accountant is Accountant.CLAIMS:
        return sampled_gaussian_epsilon(
            plan.noise_multiplier, delta, steps=plan.steps, sampling_rate=plan.sampling_rate
        )
    if plan.sampling_rate == 1.0:
        return _whole_epsilon(plan.whole_mu, delta, accountant)
    if accountant is Accountant.PLD:
        return _pld_epsilon(plan, delta)
    return _renyi_plan_epsilon(plan, delta, accountant)


def noise_multiplier_for(
    epsilon: float,
    delta: float,
    *,
    sampling_rate: float,
    steps: int,
    neighbouring: Neighbouring,
    accountant: Accountant = Accountant.PLD,
) -> float:
    """Return the least noise multiplier, to five digits, whose plan keeps (epsilon, delta).

    Parameters
    ----------
    epsilon : float
        Above 0.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    sampling_rate, steps, neighbouring
        As in `SampledPlan`.
    accountant : Accountant, optional
        Whose account has to keep the promise.

    Returns
    -------
    float
        Never too small: its plan keeps (epsilon, delta) by that account.

    Raises
    ------
    CalibrationError
        If the multiplier would be below 0.05 or above 1e12.

    Examples
    --------
    >>> from matrixdp.privacy import noise_multiplier_for
    >>> multiplier = noise_multiplier_for(
    ...     1.0, 1e-5, sampling_rate=1.0, steps=25, neighbouring="replace"
    ... )
    >>> round(multiplier, 3)
    18.653
    """
    _check_accountant(accountant)
    target = positive_number(EPSILON.number(epsilon), "epsilon")
    plan = SampledPlan(
        noise_multiplier=1.0, sampling_rate=sampling_rate, steps=steps, neighbouring=neighbouring
    )
    if plan.sampling_rate == 1.0 and accountant is Accountant.PLD:
        # Nothing is sampled and the curve is exact: no search is needed.
        return quotient_up(sqrt_up(Fraction(plan.steps)), privacy_bound(target, delta))

    def excess(multiplier: float) -> float:
        changed = replace(plan, noise_multiplier=multiplier)
        try:
            return plan_epsilon(changed, delta, accountant) - target
        except TooLittleNoiseError:
            return 2.0 * EPSILON.largest - target  # more than any target, and finite

    # Many steps at a small rate behave roughly like Gaussian ones with mu = q sqrt(T) / s.
    start = max(1.0, plan.sampling_rate * math.sqrt(plan.steps))
    if accountant is Accountant.PLD:  # a costly one: a looser account says where to begin
        with contextlib.suppress(CalibrationError):
            start = noise_multiplier_for(
                target,
                delta,
                sampling_rate=plan.sampling_rate,
                steps=plan.steps,
                neighbouring=plan.neighbouring,
                accountant=Accountant.RDP,
            )
    low, high = _bracket(excess, start)
    found = float(optimize.brentq(excess, low, high, rtol=_TOLERANCE, xtol=_TOLERANCE * low))
    # The root finder may stop on either side; only a multiplier that keeps the promise is returned.
    while not excess(found) <= 0.0:
        found *= 1.0 + _TOLERANCE
    return found


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


def _whole_epsilon(mu: float, delta: float, accountant: Accountant) -> float:
    """Return the epsilon where nothing is sampled: the exact curve, or Rényi's two conversions."""
    if accountant is Accountant.PLD:
        return privacy_epsilon(mu, delta)
    if accountant is Accountant.RDP:
        return renyi_epsilon(mu, delta)
    # Moments: the least of order mu^2/2 + log(1/delta)/(order - 1), at its best order.
    return (0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(delta))) * (1.0 + 1e-14)


def _check_accountant(accountant: object) -> None:
    if not isinstance(accountant, Accountant):
        raise InvalidParameterError(
            f"accountant={accountant!r} is not an Accountant: pass Accountant.PLD, .RDP, "
            ".MOMENTS or .CLAIMS"
        )


def _pld_epsilon(plan: SampledPlan, delta: float) -> float:
    resolved = _PLD_RESOLUTION * max(1000, plan.steps)
    for name, given, least in (
        ("delta", delta, resolved),
        ("sampling_rate", plan.sampling_rate, _SMALLEST_PLD_RATE),
    ):
        if not given >= least:
            raise CalibrationError(
                f"{name}={given!r} is below what float arithmetic resolves in a privacy loss "
                f"distribution of {plan.steps} steps, {least!r}: use a larger {name} or RDP"
            )
    for name, given, most in (
        ("noise_multiplier", plan.noise_multiplier, _LARGEST_MULTIPLIER),
        ("steps", plan.steps, _MOST_PLD_STEPS),
    ):
        if not given <= most:
            raise CalibrationError(
                f"{name}={given!r} is above {most!r}, the most for which a privacy loss "
                "distribution is composed: use RDP"
            )
    distributions = _dp_accounting().pld.privacy_loss_distribution
    one = distributions.from_gaussian_mechanism(
        standard_deviation=plan.noise_multiplier,
        sampling_prob=plan.sampling_rate,
        pessimistic_estimate=True,
        value_discretization_interval=_interval(plan),
    )
    found = float(one.self_compose(plan.steps).get_epsilon_for_delta(delta - 0.1 * resolved))
    if not math.isfinite(found):
        raise TooLittleNoiseError(plan.noise_multiplier, plan.steps)
    return found * (1.0 + _PLD_ALLOWANCE)


def _interval(plan: SampledPlan) -> float:
    """Return the width of the intervals of losses, from how far those of the whole plan spread.

    Narrower where they spread little: losses are rounded up in every step, which adds up. Wider
    where they would fill too many intervals.
    """
    spread = _renyi_plan_epsilon(plan, _PLD_TAIL, Accountant.RDP)
    return max(min(_PLD_INTERVAL, spread / _FEWEST_PLD_POINTS), spread / _MOST_PLD_POINTS)


def _renyi_plan_epsilon(plan: SampledPlan, delta: float, accountant: Accountant) -> float:
    """Return the least epsilon over orders: octaves until it gets worse, then the best refined.

    Every order is valid, so that a search that stops early costs tightness, never privacy.
    """
    surprise = -math.log(delta)

    def epsilon_at(log_excess: float) -> float:
        order = 1.0 + math.exp(log_excess)
        step = sampled_divergence(plan.noise_multiplier, plan.sampling_rate, order)
        # Infinite where the integral would take too many points: such an order is never the best.
        if not step < math.inf:
            return math.inf
        if accountant is Accountant.RDP:
            return renyi_to_epsilon(order, plan.steps * step, delta)
        return (plan.steps * step + surprise / (order - 1.0)) * (1.0 + 1e-14)

    found: list[tuple[float, float]] = []
    octaves = math.floor(math.log2(LARGEST_ORDER / _SMALLEST_ORDER_EXCESS))
    # Epsilon falls and then rises with the order, but not strictly: one worse octave is not enough.
    for octave in range(octaves):
        log_excess = math.log(_SMALLEST_ORDER_EXCESS * 2.0**octave)
        found.append((epsilon_at(log_excess), log_excess))
        if len(found) > _WORSE_OCTAVES and min(found[-_WORSE_OCTAVES:]) > min(found):
            break
    least, best = min(found)
    if not least < math.inf:
        raise TooLittleNoiseError(plan.noise_multiplier, plan.steps)
    refined = optimize.minimize_scalar(
        epsilon_at,
        bounds=(best - math.log(2.0), best + math.log(2.0)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return min(least, float(refined.fun))


def _dp_accounting() -> Any:
    try:
        import dp_accounting  # noqa: PLC0415
        import dp_accounting.pld  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError(
            "privacy loss distributions need dp-accounting: pip install 'matrixdp[accounting]'"
        ) from None
    return dp_accounting
