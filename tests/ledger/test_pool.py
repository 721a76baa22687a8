"""The worth of an account beside its declared plans and claims, against bounds from both sides."""

import pytest
from flint import arb, ctx

from matrixdp import Budget
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.ledger.costs import gaussian_worth
from matrixdp.privacy import GaussianRelease, LossAccount, SampledPlan
from matrixdp.rounding import sqrt_down


def delta_of(mu: float, epsilon: float) -> arb:
    """Return g(mu; epsilon) in ball arithmetic."""
    ctx.prec = 200
    try:
        half, ratio = arb(mu) / 2, arb(epsilon) / arb(mu)
        root = arb(2).sqrt()
        first, second = ((ratio - half) / root).erfc() / 2, ((ratio + half) / root).erfc() / 2
        return first - arb(epsilon).exp() * second
    finally:
        ctx.prec = 53


PLAN = SampledPlan(noise_multiplier=1.5, sampling_rate=0.017, steps=1000, neighbouring="add-remove")


def test_without_plans_and_claims_a_budget_is_worth_what_it_is() -> None:
    share = Budget(1.0, 1e-5).split(3)[0]
    assert gaussian_worth(share, [], 0.0) == share.mu_squared


@pytest.mark.parametrize("claims", [1e-9, 1e-6, 9e-6])
def test_what_claims_may_use_is_taken_off_delta(claims: float) -> None:
    worth = gaussian_worth(Budget(1.0, 1e-5), [], claims)
    mu = sqrt_down(worth)
    assert delta_of(mu, 1.0) + arb(claims) <= arb(1e-5)
    assert delta_of(1.001 * mu, 1.0) + arb(claims) > arb(1e-5)


def test_declared_plans_and_releases_fill_the_budget_together() -> None:
    budget, claims = Budget(3.0, 1e-6), 1e-7
    mu = sqrt_down(gaussian_worth(budget, [PLAN], claims))
    delta = 1e-6 - 1e-7

    def needed(times: float) -> LossAccount:
        release = GaussianRelease(mu=times * mu, neighbouring="add-remove")
        return LossAccount([PLAN, release])

    assert needed(1.0).epsilon_at(delta).upper <= 3.0
    # No more than a thousandth is left unused.
    assert needed(1.001).epsilon_at(delta).lower > 3.0
    # A plan costs something, and far less than if it were not sampled.
    assert 0.5 * Budget(3.0, delta).mu < mu < Budget(3.0, delta).mu


def test_plans_that_exceed_the_budget_are_refused() -> None:
    with pytest.raises(BudgetExceededError, match="declared plans alone need epsilon=1"):
        gaussian_worth(Budget(0.5, 1e-6), [PLAN], 0.0)


def test_claims_cannot_use_all_of_delta() -> None:
    with pytest.raises(InvalidParameterError, match="leaves nothing of delta"):
        gaussian_worth(Budget(0.5, 1e-6), [], 1e-6)
