r"""The Rényi view of a mu-Gaussian mechanism, and its conversion to (epsilon, delta).

``D_alpha = alpha mu^2 / 2`` for every order alpha > 1 (Mironov 2017, Corollary 3), which composes
by addition. It is offered because other accountants use it; the privacy curve is tighter.
"""

import math
from fractions import Fraction

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, MU, positive_number, real_number
from matrixdp.rounding import float_up

__all__ = [
    "best_renyi_epsilon",
    "converted_epsilon",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_to_epsilon",
]

# Each term of the conversion is a few float operations without cancellation; one part in 1e13 of
# the terms' sizes covers their rounding and that of their sum.
_MARGIN = 1e-13
# For tiny mu the best order is beyond a float. Every order gives a valid epsilon, so it is capped.
_LARGEST_LOG_EXCESS = math.log(1e18)


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
