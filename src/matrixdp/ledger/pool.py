"""The worth of an account for Gaussian releases, beside the plans that it declares.

Everything paid is post-processing of a pool that is fixed when the account is opened: the steps of
all declared plans, each used at most once, and a Brownian path of length ``B^2``, of which a
release of mu takes the next ``mu^2``. Claims and envelopes may beside that fail with probabilities
that add up to at most D. So the account is ``(epsilon, delta_pool(epsilon) + D)``-private, whatever
is paid in whatever order and however adaptively: ``B`` is such that ``delta_pool(epsilon)`` is at
most ``delta - D``. The privacy loss of what was really paid so far is *no* valid test: an analyst
who chooses by earlier outputs can exceed it.
"""

from collections.abc import Sequence
from fractions import Fraction

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.events import GaussianRelease, SampledPlan
from matrixdp.privacy.loss import LossAccount
from matrixdp.rounding import float_down, sqrt_up

__all__ = ["gaussian_worth", "is_worth"]

# Halvings of the range of B: to a thousandth of a per cent of the largest.
_HALVINGS = 16
# Other processors round bounds differently, each of them to the private side.
_ROUNDING = 1e-9


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
