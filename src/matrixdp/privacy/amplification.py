"""Amplification by sampling: what a claim becomes when its release sees a random part of the data.

A release that is (epsilon, delta)-DP on the data it sees is ``(log(1 + q (e^epsilon - 1)), q
delta)``-DP when each record is in that data with probability q. This holds for one relation per
kind of sampling: Poisson sampling and adding or removing a record, or sampling a fixed number
without replacement and replacing a record (Balle, Barthe and Gaboardi 2018, Theorems 8 and 9). Data
that is shuffled and passed through in turn, or released once, is not amplified.
"""

import math
from fractions import Fraction
from typing import Literal, NamedTuple, get_args

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, positive_number
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.rounding import product_up, quotient_down

__all__ = [
    "SampledClaim",
    "Sampling",
    "amplified",
    "before_amplification",
    "checked_sampling_rate",
    "claim_before_sampling",
    "sampled_loss",
]

Sampling = Literal["poisson", "without-replacement"]

_RELATIONS: dict[str, Neighbouring] = {"poisson": "add-remove", "without-replacement": "replace"}
# Each formula is some ten float operations; this rounds their result to the private side. What is
# inverted is given three times as much, so that amplifying it again does not exceed the promise.
_MARGIN = 1e-14
# A relative margin is lost on subnormal numbers; four roundings to one are off by at most this.
_SUBNORMAL_ROUNDING = 4 * math.ulp(0.0)
_LARGEST_EXPONENT = 700.0  # exp overflows above 709


class SampledClaim(NamedTuple):
    """An (epsilon, delta) claim and the neighbouring relation that it is for."""

    epsilon: float
    delta: float
    neighbouring: Neighbouring


def amplified(
    epsilon: float, delta: float, *, sampling_rate: float, sampling: Sampling
) -> SampledClaim:
    """Return the claim of a release on a random sample: ``(log(1 + q (e^eps - 1)), q delta)``.

    Parameters
    ----------
    epsilon, delta : float
        The claim of the release on the whole data, *for the relation that is returned*.
    sampling_rate : float
        The probability q of a record to be in the sample, above 0 and at most 1.
    sampling : {"poisson", "without-replacement"}
        Each record independently, which holds for adding or removing a record; or a set of fixed
        size, which holds for replacing one.

    Returns
    -------
    SampledClaim
        Rounded up, with the relation it holds for.

    Notes
    -----
    *Guarantee:* holds for one release, on a sample that is drawn afresh and kept secret, and for
    the relation that is returned and no other.

    Examples
    --------
    >>> from matrixdp.privacy import amplified
    >>> amplified(1.0, 1e-5, sampling_rate=0.01, sampling="poisson").neighbouring
    'add-remove'
    >>> round(amplified(1.0, 1e-5, sampling_rate=0.01, sampling="poisson").epsilon, 5)
    0.01704
    """
    loss, delta = EPSILON.number(epsilon), DELTA.number(delta)
    rate, relation = checked_sampling_rate(sampling_rate), _relation(sampling)
    return SampledClaim(sampled_loss(loss, rate), min(delta, product_up(rate, delta)), relation)


def sampled_loss(loss: float, rate: float) -> float:
    """Return the epsilon of `amplified`, rounded up; nothing is checked."""
    # Not sampling at all is a bound as well; it is the exact one for epsilon = 0 and for q = 1.
    return min(loss, _sampled_loss(loss, rate))


def _sampled_loss(loss: float, rate: float) -> float:
    """Return ``log(1 + q (e^loss - 1))``, rounded up."""
    if loss < _LARGEST_EXPONENT:
        return math.log1p(rate * math.expm1(loss)) * (1.0 + _MARGIN) + _SUBNORMAL_ROUNDING
    # loss + log(q + (1 - q) e^-loss), where e^loss would overflow. With q taken out of the
    # logarithm nothing in it is subnormal. The terms cancel for a small q, so the margin is that of
    # a term.
    log_rate = math.log(rate)
    rest = math.log1p((1.0 - rate) * math.exp(-loss - log_rate))
    return loss + log_rate + rest + _MARGIN * loss


def before_amplification(
    epsilon: float, delta: float, *, sampling_rate: float, sampling: Sampling
) -> SampledClaim:
    """Return the claim whose amplification is (epsilon, delta): the inverse of `amplified`.

    ``(log(1 + (e^eps - 1)/q), delta/q)``, rounded down. The linear rule (eps/q, delta/q) that is
    sometimes used instead is far from it.

    Raises
    ------
    InvalidParameterError
        If ``delta/q`` is not below 1: such a rate needs no privacy from the release at all, and
        none is calibrated.

    Examples
    --------
    >>> from matrixdp.privacy import before_amplification
    >>> rate = 256 / 55000
    >>> base = before_amplification(1.0, 1e-5, sampling_rate=rate, sampling="poisson")
    >>> round(base.epsilon, 2), round(1.0 / rate, 1)
    (5.91, 214.8)
    """
    loss, delta = EPSILON.number(epsilon), DELTA.number(delta)
    rate, relation = checked_sampling_rate(sampling_rate), _relation(sampling)
    found = claim_before_sampling(loss, delta, rate)
    if found is None:
        raise InvalidParameterError(
            f"delta={delta!r} is not below sampling_rate={rate!r}: choose a smaller delta"
        )
    return SampledClaim(*found, relation)


def claim_before_sampling(loss: float, delta: float, rate: float) -> tuple[float, float] | None:
    """Return the claim of `before_amplification`, or None where it refuses; nothing is checked."""
    # As rationals: a float quotient could be rounded down to the largest delta that is allowed.
    if not Fraction(delta) <= Fraction(DELTA.largest) * Fraction(rate):
        return None
    # A sample never needs a stricter claim than the whole, which is the exact answer for q = 1.
    base = max(loss, min(_loss_before_sampling(loss, rate), EPSILON.largest))
    return base, max(delta, quotient_down(delta, rate))


def _loss_before_sampling(loss: float, rate: float) -> float:
    """Return ``log(1 + (e^loss - 1)/q)``, rounded down."""
    if loss == 0.0:
        return 0.0
    log_quotient = _log_expm1(loss) - math.log(rate)
    # A large quotient may overflow, and adding 1 to it changes nothing.
    overflows = not log_quotient < _LARGEST_EXPONENT
    base = log_quotient if overflows else math.log1p(math.expm1(loss) / rate)
    return base * (1.0 - 3.0 * _MARGIN) - _SUBNORMAL_ROUNDING


def _log_expm1(loss: float) -> float:
    return math.log(math.expm1(loss)) if loss < _LARGEST_EXPONENT else loss


def checked_sampling_rate(sampling_rate: float) -> float:
    """Return a probability above 0 and at most 1, or raise if it is not one."""
    rate = positive_number(sampling_rate, "sampling_rate")
    if not rate <= 1.0:
        raise InvalidParameterError(
            f"sampling_rate={rate!r} is outside its domain: it is a probability, above 0 and at "
            "most 1"
        )
    return rate


def _relation(sampling: object) -> Neighbouring:
    if sampling not in get_args(Sampling):
        raise InvalidParameterError(
            f"sampling={sampling!r} is not known to amplify: use 'poisson' or "
            "'without-replacement'; data that is shuffled and passed through in turn is not "
            "amplified by this rule"
        )
    return _RELATIONS[str(sampling)]
