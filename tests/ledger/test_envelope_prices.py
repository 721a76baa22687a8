"""The price of choosing a plan later: true envelopes, paid from an account beside a release."""

from fractions import Fraction
from pathlib import Path

import pytest

from matrixdp import Budget
from matrixdp.errors import BudgetExceededError
from matrixdp.ledger import Ledger
from matrixdp.privacy import GaussianRelease, LossAccount, SampledPlan, plan_envelope

# The plans of the study, with releases of mu 0.3 together, at delta 1e-6.
PLANS = [
    SampledPlan(noise_multiplier=1.5, sampling_rate=0.017, steps=1000, neighbouring="add-remove"),
    SampledPlan(noise_multiplier=5.0, sampling_rate=0.082, steps=2500, neighbouring="add-remove"),
]
RELEASES, DELTA, LEAK = 0.3, 1e-6, 1e-7


@pytest.mark.parametrize("plan", PLANS, ids=["few", "many"])
def test_an_account_pays_at_most_three_per_cent_more(plan: SampledPlan, tmp_path: Path) -> None:
    release = GaussianRelease(mu=RELEASES, neighbouring="add-remove")
    declared = LossAccount([plan, release]).epsilon_at(DELTA).lower
    # A budget of that and 3 % pays for the plan, chosen later, and for the releases.
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        for name, factor in (("enough", 1.03), ("too little", 1.0)):
            ledger.open_account(
                name.replace(" ", "-"),
                Budget(factor * declared, DELTA),
                neighbouring="add-remove",
                claims_delta=LEAK,
            )
        account = ledger.account("enough")
        account.spend(RELEASES)
        account.run("network", delta=LEAK).counter(plan, plan="plan", mode="fast").spend()
        envelope = plan_envelope(plan, delta=LEAK)
        assert account.balance.spent.delta == Fraction(envelope.delta) <= Fraction(LEAK)
        assert account.balance.spent.mu_squared == (
            Fraction(RELEASES) ** 2 + Fraction(envelope.mu) ** 2
        )
        # Nothing is free: what was declared costs less than what may be chosen later.
        account = ledger.account("too-little")
        account.spend(RELEASES)
        refused = account.run("other", delta=LEAK).counter(plan, plan="plan", mode="fast")
        with pytest.raises(BudgetExceededError, match="does not fit"):
            refused.spend()
