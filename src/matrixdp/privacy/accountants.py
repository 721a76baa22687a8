"""Accounting of Gaussian steps on Poisson samples, by loss distributions and Rényi divergences.

A step that sees each record with probability q has another privacy curve than a Gaussian one, so it
is not described by a mu. Two ways to account for a plan of T equal steps, fixed in advance:

- the *privacy loss distribution* (PLD), a `LossAccount`: tight, and the default;
- *Rényi divergences* of the subsampled step (`sampled_divergence`), which add up. With the original
  conversion this is the moments accountant (Abadi et al. 2016, Theorem 2); with the improved one of
  `renyi_to_epsilon` it is today's RDP accountant.

With q = 1 nothing is sampled and all are known in closed form. For comparison there is also an
account that uses only the claims of the steps: amplification and Theorem 3.4
(`sampled_gaussian_epsilon`).
"""

import enum
import math

import scipy

from matrixdp.errors import CalibrationError
from matrixdp.parameters import DELTA, checked_choice
from matrixdp.privacy.bound import epsilon_bounds
from matrixdp.privacy.claims import sampled_gaussian_epsilon
from matrixdp.privacy.events import SampledPlan, TooLittleNoiseError
from matrixdp.privacy.loss import LossAccount
from matrixdp.privacy.renyi import (
    LARGEST_ORDER,
    best_renyi_epsilon,
    converted_epsilon,
    sampled_divergence,
)

__all__ = ["Accountant", "accounted_epsilon", "checked_accountant", "plan_epsilon"]

_SMALLEST_ORDER_EXCESS = 2.0**-10  # of the orders that are tried, above 1
_WORSE_OCTAVES = 3  # of orders, after which no better one is looked for


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


def plan_epsilon(
    plan: SampledPlan, delta: float, accountant: Accountant | str = Accountant.PLD
) -> float:
    """Return the epsilon of a plan at a delta, by one accountant, on the safe side.

    Parameters
    ----------
    plan : SampledPlan
        The steps to account for.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    accountant : Accountant or str, optional
        By default the tight one, ``"pld"``.

    Raises
    ------
    CalibrationError
        If the accountant does not apply to this plan and delta.

    Notes
    -----
    *Guarantee:* the plan is (epsilon, delta)-DP under its relation. The loss distribution gives a
    proven upper bound; every Rényi order and every split of delta is valid, so that a grid or a
    search costs tightness only.

    Examples
    --------
    >>> from matrixdp.privacy import SampledPlan, plan_epsilon
    >>> plan = SampledPlan(
    ...     noise_multiplier=20.0, sampling_rate=1.0, steps=25, neighbouring="replace"
    ... )
    >>> round(plan_epsilon(plan, 1e-5), 4)
    0.9263
    """
    return accounted_epsilon(plan, DELTA.number(delta), checked_accountant(accountant))


def accounted_epsilon(plan: SampledPlan, delta: float, accountant: Accountant) -> float:
    """Return the epsilon of `plan_epsilon`; neither delta nor the accountant is checked."""
    if accountant is not Accountant.PLD:
        _check_relation(plan, accountant)
    if accountant is Accountant.CLAIMS:
        return sampled_gaussian_epsilon(
            plan.noise_over_difference, delta, steps=plan.steps, sampling_rate=plan.sampling_rate
        )
    if plan.sampling_rate == 1.0:
        return _unsampled_epsilon(plan.whole_mu, delta, accountant)
    if accountant is Accountant.PLD:
        return LossAccount([plan]).epsilon_at(delta).upper
    return _renyi_plan_epsilon(plan, delta, accountant)


def _unsampled_epsilon(mu: float, delta: float, accountant: Accountant) -> float:
    """Return the epsilon where nothing is sampled: the exact curve, or Rényi's two conversions."""
    if accountant is Accountant.PLD:
        return epsilon_bounds(mu, delta)[1]
    if accountant is Accountant.RDP:
        return best_renyi_epsilon(mu, delta)
    # Moments: the least of order mu^2/2 + log(1/delta)/(order - 1), at its best order.
    return (0.5 * mu * mu + mu * math.sqrt(-2.0 * math.log(delta))) * (1.0 + 1e-14)


def checked_accountant(accountant: object) -> Accountant:
    """Return an accountant, or raise if it is neither one nor the string of one."""
    return checked_choice(accountant, Accountant, "accountant")


def _check_relation(plan: SampledPlan, accountant: Accountant) -> None:
    if plan.sampling_rate < 1.0 and plan.neighbouring == "replace":
        raise CalibrationError(
            f"{accountant.name} does not account for a replaced record in Poisson samples: use "
            "PLD, or account under 'add-remove'"
        )


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
            return converted_epsilon(order, plan.steps * step, delta)
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
        raise TooLittleNoiseError(
            f"noise_multiplier={plan.noise_multiplier!r} in steps={plan.steps}"
        )
    refined = scipy.optimize.minimize_scalar(
        epsilon_at,
        bounds=(best - math.log(2.0), best + math.log(2.0)),
        method="bounded",
        options={"xatol": 1e-6},
    )
    return min(least, float(refined.fun))
