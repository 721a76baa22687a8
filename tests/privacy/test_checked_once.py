"""Accounts check what enters them at their door, and not again in the loops within."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from matrixdp import Budget
from matrixdp.audit import Comparison, audit_claim, compare
from matrixdp.cli.commands.account import account
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
    solve,
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
    # Where the question is asked; loss distributions have a door of their own.
    assert checks["delta"] == (2 if accountant is Accountant.PLD else 1)
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
    assert checks["epsilon"] == 2  # in its domain, and above 0
    assert checks["mu"] == 0
    # Loss distributions are asked at a door of their own.
    if sampling_rate == 1.0 or accountant is not Accountant.PLD:
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


def test_a_budget_checks_its_arguments_once(checks: Counter[str]) -> None:
    Budget(1.0, 1e-5)
    assert checks == {"epsilon": 1, "delta": 1}


def test_an_audit_of_a_claim_checks_its_arguments_once(checks: Counter[str]) -> None:
    audit_claim(3.0, 1.0, epsilon=1.0, delta=1e-5, steps=3)
    assert checks == {"noise_scale": 1, "sensitivity": 1, "epsilon": 1, "delta": 1}


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_the_command_for_accounts_checks_its_arguments_once(
    epsilon: float | None, checks: Counter[str]
) -> None:
    account(
        sampling_rate=1.0,
        steps=10,
        neighbouring="add-remove",
        delta=1e-5,
        epsilon=epsilon,
        noise_multiplier=1.0 if epsilon is None else None,
        as_json=True,
    )
    assert checks["sampling_rate"] == checks["noise_multiplier"] == 1
    assert checks["epsilon"] == (0 if epsilon is None else 2)  # in its domain, and above 0


# The numbers of the setting, and the sampling rate and a noise multiplier of its plan.
_SETTING = Counter(
    epsilon=2, delta=1, sensitivity=1, norm_bound=1, sampling_rate=2, noise_multiplier=1
)
# What says why a claim is refused is asked at its doors, once: before sampling, and the formula.
_REFUSAL = Counter(epsilon=3, delta=2, sampling_rate=1, sensitivity=1)


def test_a_comparison_checks_its_setting_once(checks: Counter[str]) -> None:
    found = compare(Comparison(rows=10, columns=10, epsilon=1.0, delta=1e-5, steps=10))
    assert not any(one.refusal for one in found)
    assert checks == _SETTING


def test_a_comparison_checks_a_refused_claim_once(checks: Counter[str]) -> None:
    found = compare(Comparison(rows=10, columns=10, epsilon=100.0, delta=1e-5, steps=10))
    assert [one.mechanism for one in found if one.refusal] == ["classic"]
    assert checks == _SETTING + _REFUSAL


def test_a_comparison_solves_each_root_once(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: Counter[tuple[object, ...]] = Counter()

    def spied(name: str) -> None:
        real = getattr(solve, name)

        def spy(first: float, second: float, functions: object) -> object:
            solved[name, first, second] += 1
            return real(first, second, functions)

        monkeypatch.setattr(solve, name, spy)

    for name in ("solve_bound_low", "solve_bound_high", "solve_epsilon_low", "solve_epsilon_high"):
        spied(name)
    found = compare(Comparison(rows=10, columns=10, epsilon=1.0, delta=1e-5, steps=10))
    assert set(solved.values()) == {1}
    # One epsilon for each noise, and bounds in the search over claims alone.
    epsilons = sum(name == "solve_epsilon_low" for name, *_ in solved)
    assert epsilons == len({one.noise_scale for one in found})
