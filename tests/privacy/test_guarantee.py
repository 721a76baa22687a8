"""Guarantees say what holds, and refuse to be made when it does not."""

import dataclasses
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import Budget, Guarantee, InvalidParameterError, privacy_mu
from matrixdp.privacy.guarantee import Neighbouring
from reference import ball

mus = st.floats(0.001, 10)
deltas = st.floats(1e-12, 0.1)
relations: st.SearchStrategy[Neighbouring] = st.sampled_from(["add-remove", "replace"])


@given(mus, deltas, relations)
def test_of_mu_is_the_least_true_claim(mu: float, delta: float, neighbouring: Neighbouring) -> None:
    promise = Guarantee.of_mu(mu, delta=delta, neighbouring=neighbouring)
    assert ball.delta_minus(mu, promise.epsilon, delta) <= 0
    if promise.epsilon > 1e-6:
        with pytest.raises(InvalidParameterError, match="not guaranteed"):
            dataclasses.replace(promise, epsilon=promise.epsilon * (1 - 1e-6))


@given(st.floats(0, 1e4), deltas, st.integers(1, 10**6), relations)
def test_a_budget_and_its_parts_can_be_guaranteed(
    epsilon: float,
    delta: float,
    parts: int,
    neighbouring: Neighbouring,
) -> None:
    budget = Budget(epsilon, delta)
    for part in (budget, budget.split(parts)[0]):
        claim = Guarantee.of_budget(part, mu=part.mu, neighbouring=neighbouring)
        assert (claim.mu, claim.delta) == (part.mu, part.delta)
        assert part.epsilon <= claim.epsilon
        assert ball.delta_minus(part.mu, claim.epsilon, claim.delta) <= 0
    assert Guarantee.of_budget(budget, mu=budget.mu, neighbouring=neighbouring).epsilon == epsilon


@given(mus, deltas)
def test_the_epsilon_of_a_budget_and_of_its_guarantee_enclose_the_truth(
    mu: float, delta: float
) -> None:
    budget = Budget.from_mu(mu, delta)
    claim = Guarantee.of_budget(budget, mu=mu, neighbouring="replace")
    assert claim.epsilon == pytest.approx(budget.epsilon, rel=1e-12, abs=1e-14)
    if budget.epsilon > 0.0:
        assert ball.epsilon_side(mu, budget.epsilon, budget.delta) >= 0
    assert ball.epsilon_side(mu, claim.epsilon, claim.delta) <= 0


def test_more_noise_than_a_budget_needs_is_guaranteed_what_was_asked() -> None:
    claim = Guarantee.of_budget(Budget(1.0, 1e-5), mu=0.1, neighbouring="replace")
    assert (claim.epsilon, claim.delta, claim.mu) == (1.0, 1e-5, 0.1)


@given(st.floats(0.001, 1), st.integers(1, 50), deltas)
def test_groups_multiply_mu(mu: float, records: int, delta: float) -> None:
    one = Guarantee.of_mu(mu, delta=delta, neighbouring="replace")
    several = one.for_group(records)
    assert Fraction(several.mu) >= records * Fraction(mu)
    assert several.mu == pytest.approx(records * mu, rel=1e-15)
    assert several.records == records
    assert several.epsilon >= one.epsilon
    assert ball.delta_minus(several.mu, several.epsilon, delta) <= 0
    assert several.for_group(2).records == 2 * records


def test_reading_the_curve_elsewhere() -> None:
    promise = Guarantee.of_mu(1.0, delta=1e-5, neighbouring="add-remove")
    assert promise.delta_at(1.0) == pytest.approx(0.12693674, abs=5e-9)
    assert promise.epsilon_at(promise.delta_at(1.0)) == pytest.approx(1.0)
    assert promise.renyi_divergence(8.0) == 4.0


def test_the_sentence() -> None:
    promise = Guarantee.of_mu(0.5, delta=1e-6, neighbouring="add-remove")
    assert str(promise) == (
        "(2.255, 1e-06)-differential privacy under adding or removing one record (mu = 0.5)."
    )
    assert "up to 4 records" in str(promise.for_group(4))


def test_a_false_claim_says_what_would_be_true() -> None:
    with pytest.raises(InvalidParameterError, match=r"claim at least 4\.377"):
        Guarantee(epsilon=1.0, delta=1e-5, mu=1.0, neighbouring="replace")
    allowed = privacy_mu(1.0, 1e-5)
    with pytest.raises(InvalidParameterError, match=repr(allowed)):
        Guarantee(epsilon=1.0, delta=1e-5, mu=1.0, neighbouring="replace")


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"epsilon": -1.0}, "epsilon=-1.0"),
        ({"delta": 1.0}, "delta=1.0"),
        ({"mu": math.nan}, "mu=nan"),
        ({"neighbouring": "swap"}, "neighbouring='swap'"),
        ({"neighbouring": None}, "neighbouring=None"),
        ({"records": 0}, "records=0"),
        ({"records": 1.5}, "records=1.5"),
    ],
)
def test_bad_parameters(changes: dict[str, object], name: str) -> None:
    good = {"epsilon": 1.0, "delta": 1e-5, "mu": 0.1, "neighbouring": "replace"}
    with pytest.raises(InvalidParameterError, match=name):
        Guarantee(**{**good, **changes})  # type: ignore[arg-type]


def test_a_group_too_large_for_any_protection() -> None:
    promise = Guarantee.of_mu(1.0, delta=1e-5, neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="mu"):
        promise.for_group(10**6)
    with pytest.raises(InvalidParameterError, match="records=-1"):
        promise.for_group(-1)


def test_at_epsilon_zero_the_exact_decision_is_a_proof_of_its_own() -> None:
    # One double above erf(mu/sqrt(8)) epsilon is 0, though the bound there, rounded down, is below.
    mu = 0.5
    delta = math.nextafter(math.erf(mu / math.sqrt(8)), 1)
    assert privacy_mu(0.0, delta) < mu
    assert Guarantee(epsilon=0.0, delta=delta, mu=mu, neighbouring="replace").epsilon == 0.0
