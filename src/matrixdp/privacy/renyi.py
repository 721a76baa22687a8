r"""Rényi divergences of Gaussian releases and sampled steps, and their (epsilon, delta).

A mu-Gaussian release has ``D_alpha = alpha mu^2 / 2`` for every order alpha > 1 (Mironov 2017,
Corollary 3), which composes by addition. It is offered because other accountants use it; the
privacy curve is tighter.

*Sampling.* A step with noise multiplier s that sees each record with probability q has, for adding
or removing a record and every order alpha > 1, the divergence ``D = log(A) / (alpha - 1)`` with

    A = E[(1 + q w)^alpha],      w = exp(z/s - 1/(2 s^2)) - 1,      z standard normal

(Mironov, Talwar and Zhang 2019, Theorems 4 and 5). A series for A loses the digits of a small
divergence, since A is then close to 1. But ``E[w] = 0``, hence

    A - 1 = E[(1 + q w)^alpha - 1 - alpha q w],

whose integrand is nowhere negative (Bernoulli's inequality). It is entire up to branch points at a
distance of pi s from the real line, so that the trapezoidal rule converges faster than any power.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, MU, positive_number, real_number
from matrixdp.rounding import float_up, inflated

__all__ = [
    "LARGEST_ORDER",
    "best_renyi_epsilon",
    "converted_epsilon",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_to_epsilon",
    "sampled_divergence",
]

# Each term of the conversion is a few float operations without cancellation; one part in 1e13 of
# the terms' sizes covers their rounding and that of their sum.
_MARGIN = 1e-13
# For tiny mu the best order is beyond a float. Every order gives a valid epsilon, so it is capped.
_LARGEST_LOG_EXCESS = math.log(1e18)
FloatArray = NDArray[np.float64]

LARGEST_ORDER = 1e9
# The rule's error is about exp(-2 pi d / step) for a strip of half-width d on which the integrand
# is hardly larger than on the line; d is 1 here, or half of the distance of the branch points.
_WIDEST_STEP = 0.1
_BRANCH_STEP = 0.15  # over s
_TAIL = 14.0  # the normal density beyond it is below 1e-43
_MOST_POINTS = 100_000
# Where alpha q w is below this, sixteen terms of the binomial series are exact to 2**-53.
_SERIES_BELOW = 0.1
_SERIES_TERMS = 16
_LARGEST_EXPONENT = 30.0  # far from where an exponential overflows
# What was measured against ball arithmetic is below 1e-11; this many units of 2**-53 are 1e-9.
_UNITS = 9_007_200


def renyi_divergence(mu: float, order: float) -> float:
    """Return the Rényi divergence ``order * mu^2 / 2`` of a mu-Gaussian mechanism, rounded up.

    Parameters
    ----------
    mu : float
        From 0 to 1e4; of several releases together, their `composed_mu`.
    order : float
        The order alpha, above 1.

    Examples
    --------
    >>> from matrixdp.privacy import renyi_divergence
    >>> renyi_divergence(mu=0.5, order=8.0)
    1.0
    """
    order = _checked_order(order)
    return _divergence(MU.number(mu), order)


def renyi_to_epsilon(order: float, divergence: float, delta: float) -> float:
    """Return an epsilon that a Rényi divergence of one order guarantees at a delta, rounded up.

    ``epsilon = D + log((alpha - 1)/alpha) - (log delta + log alpha) / (alpha - 1)``, at least 0
    (Canonne, Kamath and Steinke 2020, Proposition 12; Balle et al. 2020, Theorem 21).

    Parameters
    ----------
    order : float
        The order alpha, above 1.
    divergence : float
        ``D_alpha``, at least 0.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    """
    order, delta = _checked_order(order), DELTA.number(delta)
    divergence = real_number(divergence, "divergence")
    if not 0.0 <= divergence < math.inf:
        raise InvalidParameterError(
            f"divergence={divergence!r} is outside its domain: it must be finite and at least 0"
        )
    return converted_epsilon(order, divergence, delta)


def renyi_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of a mu-Gaussian mechanism by way of Rényi divergences, at the best order.

    Every order gives a valid epsilon, so a search that stops early costs tightness, never privacy.

    Parameters
    ----------
    mu : float
        From 0 to 1e4.
    delta : float
        From the smallest normal double to 1 - 1e-12.

    Notes
    -----
    *Guarantee:* an upper bound of `privacy_epsilon`, under the relation that mu was computed for.

    Examples
    --------
    >>> from matrixdp import privacy_epsilon
    >>> from matrixdp.privacy import renyi_epsilon
    >>> round(privacy_epsilon(0.268, 1e-5), 3), round(renyi_epsilon(0.268, 1e-5), 3)
    (1.0, 1.092)
    """
    return best_renyi_epsilon(MU.number(mu), DELTA.number(delta))


def best_renyi_epsilon(mu: float, delta: float) -> float:
    """Return the epsilon of `renyi_epsilon`; nothing is checked."""
    if mu == 0.0:
        return 0.0
    from scipy import optimize  # noqa: PLC0415 - a fifth of a second that few calls need

    # The best order of the simpler conversion D + log(1/delta)/(alpha - 1) is close to the best.
    centre = min(math.log(-2.0 * math.log(delta)) / 2 - math.log(mu), _LARGEST_LOG_EXCESS - 8.0)

    def epsilon_at(log_excess: float) -> float:
        # The order as rounded is the one that is converted, so its rounding does no harm.
        order = 1.0 + math.exp(log_excess)
        return converted_epsilon(order, _divergence(mu, order), delta)

    best = optimize.minimize_scalar(
        epsilon_at, bounds=(centre - 8.0, centre + 8.0), method="bounded", options={"xatol": 1e-10}
    )
    return float(best.fun)


def converted_epsilon(order: float, divergence: float, delta: float) -> float:
    """Return the epsilon of `renyi_to_epsilon`; nothing is checked."""
    excess = order - 1.0
    terms = (
        divergence,
        # log((alpha - 1)/alpha); each form is accurate on its side of 2.
        math.log(excess / order) if order < 2.0 else math.log1p(-1.0 / order),
        -math.log(delta) / excess,
        -math.log(order) / excess,
    )
    # The terms cancel, so the margin is relative to their sizes and not to their sum.
    return max(0.0, math.fsum(terms) + _MARGIN * math.fsum(map(abs, terms)))


def _divergence(mu: float, order: float) -> float:
    return float_up(Fraction(order) * Fraction(mu) ** 2 / 2)


def _checked_order(order: float) -> float:
    order = positive_number(order, "order")
    if not order > 1.0:
        raise InvalidParameterError(
            f"order={order!r} is outside its domain: a Rényi order here must be above 1"
        )
    return order


def sampled_divergence(noise_multiplier: float, sampling_rate: float, order: float) -> float:
    """Return the Rényi divergence of one sampled step at an order, rounded up by a part in 1e9.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale over sensitivity, positive.
    sampling_rate : float
        Above 0 and below 1.
    order : float
        Above 1 and at most 1e9.

    Returns
    -------
    float
        Infinite where it would take too many points to find out: such an order has so large a
        divergence that no account has a use for it.
    """
    step = min(_WIDEST_STEP, _BRANCH_STEP * noise_multiplier)
    # The integrand is a mixture of normal densities centred from 0 to alpha / s.
    width = 2.0 * _TAIL + order / noise_multiplier
    if not width <= _MOST_POINTS * step:  # a product, for the step may underflow
        return math.inf
    points = -_TAIL + step * np.arange(math.ceil(width / step) + 1, dtype=np.float64)
    shift = points / noise_multiplier - 0.5 / noise_multiplier / noise_multiplier
    logs = _log_excess(shift, sampling_rate, order) - 0.5 * points * points
    largest = float(np.max(logs))
    if largest == -math.inf:
        return inflated(0.0, _UNITS)
    total = math.fsum(np.exp(logs - largest)) * step / math.sqrt(2.0 * math.pi)
    log_of_excess = largest + math.log(total)
    # log(1 + e^x), which is e^x where that is small and x where it is large.
    return inflated(float(np.logaddexp(0.0, log_of_excess)) / (order - 1.0), _UNITS)


def _log_excess(shift: FloatArray, rate: float, order: float) -> FloatArray:
    """Return ``log((1 + x)^alpha - 1 - alpha x)`` for ``x = q (e^shift - 1)``."""
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # log|x|, where e^shift may be beyond a float.
        log_size = math.log(rate) + np.where(
            shift < _LARGEST_EXPONENT, np.log(np.abs(np.expm1(shift))), shift
        )
        change = np.copysign(np.exp(log_size), shift)
        product = order * change
        narrow = np.abs(product) < _SERIES_BELOW
        small = np.where(narrow, change, 0.0)
        front = math.log(0.5 * order) + math.log(order - 1.0)
        series = front + 2.0 * log_size + np.log(_series(small, order))
        rise = np.where(
            change < 1.0, np.log1p(change), np.logaddexp(math.log1p(-rate), math.log(rate) + shift)
        )
        power = order * rise
        near = np.log(np.expm1(np.minimum(power, _LARGEST_EXPONENT)) - product)
        # (1 + alpha x) / (1 + x)^alpha, without the product.
        rest = order * np.exp((1.0 - order) * rise) - (order - 1.0) * np.exp(-power)
        wide = np.where(power < _LARGEST_EXPONENT, near, power + np.log1p(-rest))
    return np.where(narrow, series, wide)


def _series(small: FloatArray, order: float) -> FloatArray:
    """Return ``((1 + x)^alpha - 1 - alpha x) / (alpha (alpha - 1) x^2 / 2)`` for a small x."""
    term = np.ones_like(small)
    total = np.ones_like(small)
    for index in range(3, 3 + _SERIES_TERMS):
        term = term * (order - index + 1.0) / index * small
        total = total + term
    return total
