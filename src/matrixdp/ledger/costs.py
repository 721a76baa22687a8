r"""The costs of payments as exact rationals: a part of mu squared, and a part of delta.

Under a unit of up to k records, neighbours differ in k records. A release of mu costs
``(k mu)^2`` (group privacy of Gaussian differential privacy). A claim (epsilon, delta) becomes

    (k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1)),

(Vadhan 2017, Lemma 2.2; at epsilon 0 the delta is ``k delta``). With probability delta such
a claim says everything, and otherwise it is a randomised response of that epsilon (Kairouz, Oh and
Viswanath 2017, Theorem 3.1), which a Gaussian release of

    mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)) = 2 sqrt(2) erfinv(tanh(epsilon / 2))

dominates: its trade-off curve is below that of every epsilon-private mechanism (Dong, Roth and Su
2022, Proposition 2.5, and the convexity of the curve).
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import scipy

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import MU

__all__ = ["Spending", "claim_spending", "pure_mu", "release_spending"]

# Each formula is a few float operations on functions that are good to some units in the last place.
_MARGIN = 1e-12
_ERFINV_UP_TO = 1.0  # beyond it, tanh is too close to 1 for erfinv to resolve
# Subnormal numbers would be rounded by more than the margin.
_SMALLEST_EPSILON = 1e-300
_LARGEST_GROUP_EPSILON = 700.0


@dataclass(frozen=True, slots=True)
class Spending:
    """What is taken from an account; both parts are added up exactly."""

    mu_squared: Fraction
    delta: Fraction = Fraction(0)


def release_spending(mu: float, records: int) -> Spending:
    """Return the cost ``(k mu)^2`` of a Gaussian release for units of up to k records."""
    return Spending((records * Fraction(mu)) ** 2)


def claim_spending(epsilon: float, delta: float, records: int) -> Spending:
    """Return the cost of an (epsilon, delta) claim about one record, for units of up to k records.

    Raises
    ------
    InvalidParameterError
        If the claim protects no unit of so many records.
    """
    together = records * epsilon
    if not together <= _LARGEST_GROUP_EPSILON:
        raise InvalidParameterError(
            f"epsilon={epsilon!r} protects no unit of {records} records (together "
            f"{together!r}): pay for a claim with a smaller epsilon"
        )
    growth = Fraction(records)
    if records > 1 and epsilon > 0.0:
        growth = Fraction(math.expm1(together) / math.expm1(epsilon) * (1.0 + _MARGIN))
    return Spending(Fraction(pure_mu(together)) ** 2, Fraction(delta) * growth)


def pure_mu(epsilon: float) -> float:
    """Return a mu whose Gaussian releases dominate every epsilon-private mechanism, rounded up.

    Parameters
    ----------
    epsilon : float
        From 0 to 700.

    Examples
    --------
    >>> round(pure_mu(1.0), 6)
    1.232035
    """
    if epsilon == 0.0:
        return 0.0
    if epsilon <= _ERFINV_UP_TO:
        epsilon = max(epsilon, _SMALLEST_EPSILON)
        mu = 2.0 * math.sqrt(2.0) * float(scipy.special.erfinv(math.tanh(epsilon / 2.0)))
    else:
        # The same quantile seen from the other tail: log of 1 / (1 + e^epsilon).
        mu = -2.0 * float(scipy.special.ndtri_exp(-epsilon - math.log1p(math.exp(-epsilon))))
    return MU.number(mu * (1.0 + _MARGIN))
