"""The account: shares that add up to the budget exactly, each with the least noise for its use."""

import pytest

from matrixdp import Budget
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp_experiments.procedural.account import Account, Descent
from matrixdp_experiments.procedural.head import SUM_BOUND
from matrixdp_experiments.procedural.releasing import ExactNoise, check_exact, mechanism_for


def test_the_shares_are_the_budget() -> None:
    whole = Budget(1.0, 1e-5)
    account = Account.of(whole, Descent())
    parts = [account.mean, *account.steps]
    assert len(parts) == 201
    assert sum(part.mu_squared for part in parts) == whole.mu_squared
    assert account.mean.mu_squared * 100 == whole.mu_squared


def test_releases_cost_no_more_than_the_budget_and_hardly_less() -> None:
    whole = Budget(1.0, 1e-5)
    account = Account.of(whole, Descent())
    privacy_filter = ExactNoise(whole).privacy_filter
    for part in (account.mean, *account.steps):
        privacy_filter.spend(mechanism_for(SUM_BOUND**2, part))
    assert privacy_filter.spent <= whole.mu
    assert privacy_filter.spent >= whole.mu * (1 - 1e-12)
    with pytest.raises(BudgetExceededError):
        privacy_filter.spend(1e-6)


def test_influences_are_those_of_the_descent() -> None:
    """Run the descent of each step's unit gradient alone."""
    descent = Descent(steps=12, averaged=0.5)
    found = []
    for step in range(12):
        weight = velocity = mean = 0.0
        for later in range(12):
            velocity = descent.momentum * velocity + (later == step)
            weight += descent.rate_at(later) * velocity
            if later >= descent.first_averaged:
                mean += weight
        found.append(mean)
    total = sum(found)
    assert descent.influences() == pytest.approx([part / total for part in found])


def test_the_rate_falls_to_its_last_share() -> None:
    descent = Descent(steps=200)
    assert descent.rate_at(0) == 14.0
    assert descent.rate_at(199) == pytest.approx(1.4)
    assert descent.first_averaged == 140


def test_no_steps_and_too_many_records_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="steps=0"):
        Descent(steps=0)
    check_exact(SUM_BOUND, 2**23)
    with pytest.raises(InvalidParameterError, match="records="):
        check_exact(SUM_BOUND, 2**23 + 1)
