"""One step: every interval encloses the closed form, in ball arithmetic."""

import pytest
from flint import arb
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from reference.loss_checks import RELATIONS, account_of, encloses, powers
from reference.loss_truth import largest_delta, one_step_epsilon

_relations = st.sampled_from(sorted(RELATIONS))
_multipliers = powers(0.2, 1e3)
_rates = powers(1e-6, 1.0) | st.floats(0.01, 1.0)


@settings(max_examples=40)
@given(_relations, _multipliers, _rates, powers(1e-6, 50.0))
@example("add-remove", 1.0, 0.01, 0.1)
@example("replace", 1.0, 0.01, 0.1)
@example("add-remove", 0.2, 1e-6, 50.0)
@example("replace", 1e3, 1.0, 1e-6)
def test_delta(relation: str, multiplier: float, rate: float, epsilon: float) -> None:
    true = largest_delta(RELATIONS[relation], multiplier, rate, epsilon)
    assume(bool(true > 1e-100))
    found = account_of(relation, [(multiplier, rate, 1)]).delta_at(epsilon)
    assert encloses(found, true)


@settings(max_examples=40)
@given(_relations, _multipliers, _rates, powers(1e-100, 0.3))
@example("add-remove", 1.0, 0.01, 1e-5)
@example("replace", 1.0, 0.01, 1e-100)
@example("add-remove", 1e3, 1e-6, 1e-5)  # less than delta even at epsilon = 0
@example("replace", 0.2, 1.0, 1e-100)
def test_epsilon(relation: str, multiplier: float, rate: float, delta: float) -> None:
    true = one_step_epsilon(RELATIONS[relation], multiplier, rate, delta)
    found = account_of(relation, [(multiplier, rate, 1)]).epsilon_at(delta)
    assert encloses(found, true)


@pytest.mark.parametrize(
    ("relation", "multiplier", "rate", "delta"),
    [
        ("replace", 0.040043590030114616, 0.9965244620347722, 8.776928232169825e-41),
        ("add-remove", 0.054427055799342934, 6.572740176021971e-6, 1.209320768660548e-94),
    ],
)
def test_other_masses_too_small_for_a_float(
    relation: str, multiplier: float, rate: float, delta: float
) -> None:
    true = one_step_epsilon(RELATIONS[relation], multiplier, rate, delta)
    assert encloses(account_of(relation, [(multiplier, rate, 1)]).epsilon_at(delta), true)


def test_a_delta_too_small_for_a_float_is_not_nothing() -> None:
    found = account_of("add-remove", [(1.0, 0.5, 1)]).delta_at(39.0)
    assert found.lower == 0.0
    assert 0.0 < found.upper <= 1e-200


@pytest.mark.parametrize("relation", sorted(RELATIONS))
@pytest.mark.parametrize("delta", [1e-3, 1e-12, 1e-100])
def test_there_and_back(relation: str, delta: float) -> None:
    account = account_of(relation, [(0.8, 0.05, 1)])
    lower, upper = account.epsilon_at(delta)
    assert arb(account.delta_at(upper).lower) <= arb(delta) <= arb(account.delta_at(lower).upper)
