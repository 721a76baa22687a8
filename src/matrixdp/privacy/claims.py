r"""Composition of mere (epsilon, delta) claims, whatever mechanism made them.

If all that is known of each release is that it is (epsilon, delta)-DP, they compose by Theorem 3.4
of Kairouz, Oh and Viswanath (2017). T of them are ``(eps, 1 - (1 - delta)^T (1 - slack))``-DP for
every slack in [0, 1), with eps the least of

    T epsilon,
    T epsilon tanh(epsilon/2) + epsilon sqrt(2 T log(e + sqrt(T epsilon^2)/slack)),
    T epsilon tanh(epsilon/2) + epsilon sqrt(2 T log(1/slack)),

where ``tanh(epsilon/2) = (e^epsilon - 1)/(e^epsilon + 1)`` and a slack of 0 leaves the first.
Theorem 3.5 is the same for unequal claims: ``T epsilon``, ``T epsilon tanh(epsilon/2)``,
``T epsilon^2`` and ``(1 - delta)^T`` become sums and a product over the releases. For Gaussian
releases `composed_mu` is exact and needs far less noise; this is the price of not knowing that they
are.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import (
    DELTA,
    EPSILON,
    MU,
    positive_integer,
    positive_number,
    real_number,
)
from matrixdp.privacy.amplification import sampled_loss
from matrixdp.privacy.bound import epsilon_bounds
from matrixdp.privacy.events import TooLittleNoiseError
from matrixdp.rounding import float_up, product_up, quotient_down, quotient_up

__all__ = [
    "Claim",
    "best_equal_claims",
    "composed_delta",
    "composed_epsilon",
    "equal_claims",
    "least_equal_claims",
    "sampled_gaussian_epsilon",
    "unequal_claims_epsilon",
]

# Each formula is some ten float operations; this rounds their result to the private side. What is
# inverted is given three times as much, so that composing it again does not exceed the promise.
_MARGIN = 1e-14
# A relative margin is lost on subnormal numbers. There sqrt(T) epsilon is off by one unit at most,
# and sqrt(2 log(1/slack)), which multiplies it, is below 39.
_SUBNORMAL_ROUNDING = 64 * math.ulp(0.0)
_LOOKS = 49  # points of the coarse grid over shares of delta
_WIDEST_LOGIT = 15.0  # of the shares that are tried: within 3e-7 of 0 and 1
_MOST_BISECTIONS = 2200  # halving the exponent range of a float, then its digits


@dataclass(frozen=True, slots=True)
class Claim:
    """An (epsilon, delta) claim of each of several equal releases, and the slack of their sum."""

    epsilon: float
    delta: float
    slack: float = 0.0


def composed_epsilon(epsilon: float, steps: int, slack: float) -> float:
    """Return the epsilon of T releases of epsilon each by Theorem 3.4, rounded up.

    Parameters
    ----------
    epsilon : float
        Of each release, from 0 to 1e6.
    steps : int
        The number of releases.
    slack : float
        The part of the total delta that composition itself takes, from 0 to below 1.

    Notes
    -----
    *Guarantee:* T releases that are each (epsilon, delta)-DP, adaptively chosen, are together DP
    with this epsilon and the `composed_delta` of the same slack, under the relation of the claims.

    Examples
    --------
    >>> from matrixdp.privacy import composed_epsilon
    >>> round(composed_epsilon(0.1, 1000, 1e-6), 3), composed_epsilon(0.25, 4, 0.0)
    (21.618, 1.0)
    """
    loss, count = EPSILON.number(epsilon), positive_integer(steps, "steps")
    return _composed_epsilon(loss, count, _below_one(slack, "slack"))


def composed_delta(delta: float, steps: int, slack: float) -> float:
    """Return the delta of T releases by Theorem 3.4, ``1 - (1 - delta)^T (1 - slack)``, rounded up.

    Examples
    --------
    >>> from matrixdp.privacy import composed_delta
    >>> round(composed_delta(1e-8, 100, 1e-6), 12)
    1.999999e-06
    """
    each, count = DELTA.number(delta), positive_integer(steps, "steps")
    rest = _below_one(slack, "slack")
    log_kept = count * math.log1p(-each) + math.log1p(-rest)
    # The sum of all is a bound as well. It is exact, and closer where the deltas are tiny.
    added = min(Fraction(1), count * Fraction(each) + Fraction(rest))
    return min(float_up(added), -math.expm1(log_kept) * (1.0 + _MARGIN))


def equal_claims(epsilon: float, delta: float, steps: int, slack_share: float) -> Claim:
    """Return the largest claim that each of T releases may make so that all keep a promise.

    Parameters
    ----------
    epsilon, delta : float
        What all releases are to guarantee together; epsilon above 0.
    steps : int
        The number of releases.
    slack_share : float
        The share s of ``log(1 - delta)`` that goes to the slack of Theorem 3.4, from 0 to below 1;
        the releases share the rest. One half splits a small delta half and half.

    Returns
    -------
    Claim
        Rounded down: composing it gives at most (epsilon, delta).

    Notes
    -----
    *Guarantee:* releases that keep this claim are (epsilon, delta)-DP together, under the relation
    of the claims.

    Examples
    --------
    >>> from matrixdp.privacy import equal_claims
    >>> each = equal_claims(1.0, 1e-5, 100, slack_share=0.5)
    >>> round(each.epsilon, 5), round(each.delta, 10)
    (0.02118, 5e-08)
    """
    loss, delta = positive_number(EPSILON.number(epsilon), "epsilon"), DELTA.number(delta)
    count, share = positive_integer(steps, "steps"), _below_one(slack_share, "slack_share")
    return _equal_claims(loss, delta, count, share)


def _equal_claims(loss: float, delta: float, count: int, share: float) -> Claim:
    """Return the claims of `equal_claims`; nothing is checked."""
    # One release needs no composition, and no margin for it either.
    if share == 0.0 and count == 1:
        return Claim(loss, delta)
    slack, each = _shares_of_delta(delta, count, share)
    if not each >= DELTA.smallest:
        raise _too_many_steps(delta, count)
    return Claim(_epsilon_of_each(loss, count, slack), each, slack)


def best_equal_claims(
    epsilon: float, delta: float, steps: int, noise: Callable[[float, float], float]
) -> Claim:
    """Return the claims of T releases whose noise is least over all splits of delta.

    Every split is valid, so a search that stops early costs tightness, never privacy.

    Parameters
    ----------
    epsilon, delta : float
        What all releases are to guarantee together; epsilon above 0.
    steps : int
        The number of releases.
    noise : callable
        ``noise(epsilon, delta)``: the noise of one release that makes such a claim.

    Examples
    --------
    >>> from matrixdp import privacy_mu
    >>> from matrixdp.privacy import best_equal_claims
    >>> each = best_equal_claims(1.0, 1e-5, 10, lambda e, d: 1 / privacy_mu(e, d))
    >>> round(each.epsilon, 5), each.slack  # ten releases are best added up
    (0.1, 0.0)
    """
    loss, delta = positive_number(EPSILON.number(epsilon), "epsilon"), DELTA.number(delta)
    return least_equal_claims(loss, delta, positive_integer(steps, "steps"), noise)[0]


def least_equal_claims(
    loss: float, delta: float, count: int, noise: Callable[[float, float], float]
) -> tuple[Claim, float]:
    """Return the claims of `best_equal_claims`, and the noise of each; nothing is checked.

    The noise may be infinite for some claims: of them no mechanism makes one.
    """

    def noise_at(share: float) -> float:
        each = _equal_claims(loss, delta, count, share)
        return noise(each.epsilon, each.delta)

    least, share = (noise_at(0.0), 0.0) if count == 1 else _best_share(noise_at, delta, count)
    return _equal_claims(loss, delta, count, share), least


def unequal_claims_epsilon(claims: Sequence[tuple[Claim, int]], delta: float) -> float:
    """Return the epsilon of releases with unequal claims by Theorem 3.5, rounded up.

    Parameters
    ----------
    claims : sequence of (Claim, int)
        What each release claims, and how many make that claim. Their slacks are not used: there is
        one for all, which is what their deltas leave of the total.
    delta : float
        Of all releases together.

    Raises
    ------
    CalibrationError
        If the deltas of the releases exceed the total.

    Notes
    -----
    *Guarantee:* releases that keep these claims, adaptively chosen, are together DP with this
    epsilon and delta, under the relation of the claims.

    Examples
    --------
    >>> from matrixdp.privacy import Claim, unequal_claims_epsilon
    >>> claims = [(Claim(0.02, 1e-8), 100), (Claim(0.01, 5e-8), 100)]
    >>> round(unequal_claims_epsilon(claims, 1e-5), 4)
    1.0705
    """
    total = DELTA.number(delta)
    parts = [
        (EPSILON.number(one.epsilon), DELTA.number(one.delta), positive_integer(count, "count"))
        for one, count in claims
    ]
    spent = math.fsum(count * -math.log1p(-each) for _, each, count in parts)
    # Every logarithm is off by a share of at most 1e-15, and so is the sum.
    left = -math.log1p(-total) * (1.0 - 1e-15) - spent * (1.0 + 2e-15)
    slack = max(0.0, -math.expm1(-left) * (1.0 - 1e-15))
    if slack == 0.0 and sum(Fraction(each) * count for _, each, count in parts) > Fraction(total):
        raise CalibrationError(
            f"the deltas of {sum(count for *_, count in parts)} releases exceed delta={total!r}: "
            "claim smaller ones, or use a larger delta"
        )
    plain = float_up(sum((Fraction(loss) * count for loss, _, count in parts), Fraction(0)))
    drift = math.fsum(count * loss * math.tanh(loss / 2.0) for loss, _, count in parts)
    spread = math.hypot(*(math.sqrt(count) * loss for loss, _, count in parts))
    return _least_of_three(plain, drift, spread, slack)


def sampled_gaussian_epsilon(
    noise_multiplier: float, delta: float, *, steps: int, sampling_rate: float
) -> float:
    """Return the epsilon of T Gaussian steps on Poisson samples by their claims alone, rounded up.

    Each step makes its exact claim at the best delta, is `amplified` and composed by Theorem 3.4.
    The parameters are those of a `SampledPlan`, which has checked them.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale over sensitivity, under adding or removing a record if anything is sampled.
    delta : float
        Of all steps together.
    steps : int
        The number of steps.
    sampling_rate : float
        Above 0 and at most 1.
    """
    # Rounded up: a larger mu is less private, so the claims made from it hold.
    mu = quotient_up(1.0, noise_multiplier)
    if not mu <= MU.largest:
        raise TooLittleNoiseError(f"noise_multiplier={noise_multiplier!r} in steps={steps}")

    def epsilon_at(share: float) -> float:
        slack, each = _shares_of_delta(delta, steps, share)
        if not each >= DELTA.smallest:
            raise _too_many_steps(delta, steps)
        # About the largest delta whose amplification is at most `each`.
        base = max(each, min(each / sampling_rate * (1.0 - _MARGIN), DELTA.largest))
        alone = epsilon_bounds(mu, base)[1]
        if not alone <= EPSILON.largest:
            raise TooLittleNoiseError(f"noise_multiplier={noise_multiplier!r} in steps={steps}")
        return _composed_epsilon(sampled_loss(alone, sampling_rate), steps, slack)

    return _best_share(epsilon_at, delta, steps)[0]


def _too_many_steps(delta: float, steps: int) -> CalibrationError:
    return CalibrationError(
        f"delta={delta!r} shared by steps={steps} leaves each less than the smallest normal float: "
        "use a larger delta or fewer steps"
    )


def _best_share(cost: Callable[[float], float], delta: float, count: int) -> tuple[float, float]:
    """Return the least cost and the share of the slack that has it; 0 if that costs no more."""
    without = cost(0.0), 0.0
    # A share closer to 1 would leave the releases less delta than a float can hold.
    left = 4.0 * DELTA.smallest * count / delta
    if not left < 0.5:
        return without

    def cost_at(logit: float) -> float:
        return cost(float(scipy.special.expit(logit)))

    # Where adding epsilons up wins the cost is flat, so a coarse look comes before the search.
    widest = min(_WIDEST_LOGIT, -float(scipy.special.logit(left)))
    grid = np.linspace(-_WIDEST_LOGIT, widest, _LOOKS).tolist()
    near = min(range(1, _LOOKS - 1), key=lambda index: cost_at(grid[index]))
    found = scipy.optimize.minimize_scalar(
        cost_at, bounds=(grid[near - 1], grid[near + 1]), method="bounded", options={"xatol": 1e-6}
    )
    return min(without, (float(found.fun), float(scipy.special.expit(found.x))))


def _shares_of_delta(delta: float, count: int, share: float) -> tuple[float, float]:
    """Return the slack and the delta of each release whose composition is delta, rounded down."""
    log_kept = math.log1p(-delta)
    slack = -math.expm1(share * log_kept) * (1.0 - 3.0 * _MARGIN)
    # A subnormal slack has too few digits for the margin; without any it is still a valid split.
    if not slack >= DELTA.smallest:
        slack = 0.0
    return slack, -math.expm1((1.0 - share) * log_kept / count) * (1.0 - 3.0 * _MARGIN)


def _below_one(value: float, name: str) -> float:
    number = real_number(value, name)
    if not 0.0 <= number < 1.0:
        raise InvalidParameterError(f"{name}={number!r} must be from 0 to below 1")
    return number


def _composed_epsilon(loss: float, count: int, slack: float) -> float:
    drift = count * loss * math.tanh(loss / 2.0)
    return _least_of_three(product_up(count, loss), drift, math.sqrt(count) * loss, slack)


def _least_of_three(plain: float, drift: float, spread: float, slack: float) -> float:
    """Return the least of the three terms, given the sums in them, rounded up."""
    if slack == 0.0:
        return plain
    # log(e + x/slack) without overflow where the slack is tiny.
    ratio = spread / slack
    first = math.log(math.e + ratio) if ratio < 1e300 else math.log(spread) - math.log(slack)
    logs = (max(1.0, first), -math.log(slack))
    least = min(drift + spread * math.sqrt(2.0 * log) for log in logs)
    return min(plain, least * (1.0 + _MARGIN) + _SUBNORMAL_ROUNDING)


def _epsilon_of_each(loss: float, count: int, slack: float) -> float:
    """Return the largest epsilon, to a few units of the last place, whose composition fits."""
    # `low` always fits: at the start because adding epsilons up is one of the three rules.
    low, high = quotient_down(loss, count), loss
    if slack == 0.0:
        return low
    for _ in range(_MOST_BISECTIONS):
        # No float between the two means that `low` is the answer.
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if _composed_epsilon(middle, count, slack) <= loss:
            low = middle
        else:
            high = middle
    return low
