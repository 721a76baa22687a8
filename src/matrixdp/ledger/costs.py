r"""Payments and what accounts are worth for them: exact rationals, of mu squared and of delta.

*Costs.* Under a unit of up to k records, neighbours differ in k records. A release of mu costs
``(k mu)^2`` (group privacy of Gaussian differential privacy). A claim (epsilon, delta) becomes

    (k epsilon, delta (e^(k epsilon) - 1) / (e^epsilon - 1)),

(Vadhan 2017, Lemma 2.2; at epsilon 0 the delta is ``k delta``). With probability delta such
a claim says everything, and otherwise it is a randomised response of that epsilon (Kairouz, Oh and
Viswanath 2017, Theorem 3.1), which a Gaussian release of

    mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)) = 2 sqrt(2) erfinv(tanh(epsilon / 2))

dominates: its trade-off curve is below that of every epsilon-private mechanism (Dong, Roth and Su
2022, Proposition 2.5, and the convexity of the curve).

*Worth.* Everything paid is post-processing of a pool that is fixed when the account is opened: the
steps of all declared plans, each used at most once, and a Brownian path of length ``B^2``, of which
a release of mu takes the next ``mu^2``. Claims and envelopes may beside that fail with
probabilities that add up to at most D. So the account is ``(epsilon, delta_pool(epsilon) +
D)``-private, whatever is paid in whatever order and however adaptively: ``B`` is such that
``delta_pool(epsilon)`` is at most ``delta - D``. The privacy loss of what was really paid so far is
*no* valid test: an analyst who chooses by earlier outputs can exceed it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import scipy

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.parameters import MU
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.events import GaussianRelease, SampledPlan
from matrixdp.privacy.loss import LossAccount
from matrixdp.rounding import float_down, sqrt_up

__all__ = [
    "Spending",
    "claim_spending",
    "gaussian_worth",
    "is_worth",
    "pure_mu",
    "release_spending",
]

# Each formula is a few float operations on functions that are good to some units in the last place.
_MARGIN = 1e-12
_ERFINV_UP_TO = 1.0  # beyond it, tanh is too close to 1 for erfinv to resolve
# Subnormal numbers would be rounded by more than the margin.
_SMALLEST_EPSILON = 1e-300
_LARGEST_GROUP_EPSILON = 700.0
# Halvings of the range of B: to a thousandth of a per cent of the largest.
_HALVINGS = 16
# Other processors round bounds differently, each of them to the private side.
_ROUNDING = 1e-9


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


def gaussian_worth(budget: Budget, plans: Sequence[SampledPlan], claims_delta: float) -> Fraction:
    """Return the largest ``B^2`` that the budget has beside plans and claims, rounded down.

    Parameters
    ----------
    budget : Budget
        What the account guarantees.
    plans : sequence of SampledPlan
        Declared plans, all under the relation of the account.
    claims_delta : float
        The D of claims and envelopes, from 0 to below the budget's delta.

    Raises
    ------
    BudgetExceededError
        If the declared plans alone exceed the budget.
    """
    if not plans and claims_delta == 0.0:
        return budget.mu_squared
    delta = _left(budget, claims_delta)
    if not plans:
        return Budget(budget.epsilon, delta).mu_squared
    if not LossAccount(plans).epsilon_at(delta).upper <= budget.epsilon:
        raise BudgetExceededError(
            f"the declared plans alone need epsilon={LossAccount(plans).epsilon_at(delta).upper!r} "
            f"at delta={delta!r}, more than {budget!r}: declare less, or open a larger account"
        )
    low, high = 0.0, Budget(budget.epsilon, delta).mu
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        if _epsilon(plans, middle, delta) <= budget.epsilon:
            low = middle
        else:
            high = middle
    return Fraction(low) ** 2


def is_worth(
    budget: Budget, plans: Sequence[SampledPlan], claims_delta: float, mu_squared: Fraction
) -> bool:
    """Return whether a budget has a ``B^2`` that was once found for it.

    In much less time than it took to find it.
    """
    if not plans:
        worth = gaussian_worth(budget, plans, claims_delta)
        return mu_squared <= worth * Fraction(1.0 + _ROUNDING)
    needed = _epsilon(plans, sqrt_up(mu_squared), _left(budget, claims_delta))
    return needed <= budget.epsilon * (1.0 + _ROUNDING)


def _left(budget: Budget, claims_delta: float) -> float:
    """Return the part of delta that is not for claims."""
    delta = float_down(Fraction(budget.delta) - Fraction(claims_delta))
    if not delta > 0.0:
        raise InvalidParameterError(
            f"claims_delta={claims_delta!r} leaves nothing of delta={budget.delta!r}: it is the "
            "part that claims may use, so choose less"
        )
    return delta


def _epsilon(plans: Sequence[SampledPlan], mu: float, delta: float) -> float:
    """Return an upper bound of the epsilon of plans beside Gaussian releases of a mu in all."""
    releases = [GaussianRelease(mu=mu, neighbouring=plans[0].neighbouring)] if mu > 0.0 else []
    return LossAccount([*plans, *releases]).epsilon_at(delta).upper
