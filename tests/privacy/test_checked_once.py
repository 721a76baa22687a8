"""What enters an account is checked at its door, and not again in the loops within."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from matrixdp.parameters import numbers
from matrixdp.privacy import (
    Accountant,
    LossAccount,
    SampledPlan,
    best_equal_claims,
    multiplier,
    noise_multiplier_for,
    plan_epsilon,
    renyi_epsilon,
)
from matrixdp.privacy.accountants import accounted_epsilon

PLAN = SampledPlan(noise_multiplier=1.1, sampling_rate=0.01, steps=1000, neighbouring="add-remove")


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Return how often each parameter was checked."""
    found: Counter[str] = Counter()
    real = numbers.real_number

    def spy(value: Any, name: str) -> float:
        found[name] += 1
        return real(value, name)

    monkeypatch.setattr(numbers, "real_number", spy)
    return found


@pytest.mark.parametrize("accountant", Accountant)
def test_a_plan_is_checked_once(accountant: Accountant, checks: Counter[str]) -> None:
    plan_epsilon(PLAN, 1e-5, accountant)
    # Once where the question is asked, and at the door of the account that answers it.
    assert checks["delta"] <= 2
    assert checks["sampling_rate"] <= 1
    assert checks["mu"] == checks["epsilon"] == 0


@pytest.mark.parametrize("accountant", Accountant)
@pytest.mark.parametrize("sampling_rate", [0.01, 1.0])
def test_a_search_for_noise_checks_its_arguments_once(
    accountant: Accountant, sampling_rate: float, checks: Counter[str]
) -> None:
    noise_multiplier_for(
        1.0,
        1e-5,
        sampling_rate=sampling_rate,
        steps=100,
        neighbouring="add-remove",
        accountant=accountant,
    )
    assert checks["noise_multiplier"] == checks["sampling_rate"] == 1
    assert checks["epsilon"] <= 3  # in its domain, above 0, and at the door of the curve
    # Loss distributions are asked at a door of their own, and so is the Rényi view of a mu.
    if accountant in {Accountant.MOMENTS, Accountant.CLAIMS}:
        assert checks["delta"] == 1


@pytest.mark.parametrize("accountant", Accountant)
def test_a_search_for_noise_accounts_for_each_multiplier_once(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: Counter[tuple[float, object]] = Counter()

    def epsilon(plan: SampledPlan, delta: float, accountant: Accountant) -> float:
        found[plan.noise_multiplier, "fine"] += 1
        return accounted_epsilon(plan, delta, accountant)

    def losses(plans: Sequence[SampledPlan], *, width: float) -> LossAccount:
        found[plans[0].noise_multiplier, width] += 1
        return LossAccount(plans, width=width)

    monkeypatch.setattr(multiplier, "accounted_epsilon", epsilon)
    monkeypatch.setattr(multiplier, "LossAccount", losses)
    noise_multiplier_for(
        1.0,
        1e-5,
        sampling_rate=0.01,
        steps=1000,
        neighbouring="add-remove",
        accountant=accountant,
    )
    assert set(found.values()) == {1}


def test_a_search_for_an_order_checks_its_arguments_once(checks: Counter[str]) -> None:
    renyi_epsilon(0.5, 1e-5)
    assert checks == {"mu": 1, "delta": 1}


def test_a_search_for_claims_checks_its_arguments_once(checks: Counter[str]) -> None:
    best_equal_claims(1.0, 1e-5, 10, lambda epsilon, delta: 1 / (epsilon * delta))
    assert checks["epsilon"] == 2  # in its domain, and above 0
    assert checks["delta"] == 1
