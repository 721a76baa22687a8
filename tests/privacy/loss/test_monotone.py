"""More of what costs privacy never costs less, up to the width of the intervals."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.loss_checks import account_of, powers

_relations = st.sampled_from(["add-remove", "replace"])
_multipliers, _rates, _steps = powers(0.4, 100.0), powers(1e-4, 1.0), st.integers(1, 300)
_deltas = powers(1e-60, 0.05)
_factors = st.floats(1.0, 2.0)


def epsilons(
    relation: str, multiplier: float, rate: float, steps: int, delta: float
) -> tuple[float, float]:
    found = account_of(relation, [(multiplier, rate, steps)]).epsilon_at(delta)
    assert 0.0 <= found.lower <= found.upper < math.inf
    return found


@settings(max_examples=15)
@given(_relations, _multipliers, _rates, _steps, _deltas, _factors, st.integers(0, 3))
def test_epsilon(
    relation: str,
    multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    factor: float,
    position: int,
) -> None:
    cheap, _ = epsilons(relation, multiplier, rate, steps, delta)
    dearer = [
        (multiplier / factor, rate, steps, delta),
        (multiplier, min(1.0, rate * factor), steps, delta),
        (multiplier, rate, math.ceil(steps * factor), delta),
        (multiplier, rate, steps, delta / factor),
    ]
    _, dear = epsilons(relation, *dearer[position])
    assert cheap <= dear


@settings(max_examples=5)
@given(_multipliers, _rates, _steps, powers(1e-3, 10.0), _factors)
def test_delta(multiplier: float, rate: float, steps: int, epsilon: float, factor: float) -> None:
    account = account_of("add-remove", [(multiplier, rate, steps)])
    assert account.delta_at(epsilon).upper >= account.delta_at(epsilon * factor).lower
    more = account_of("add-remove", [(multiplier, rate, steps)], [0.01 * factor])
    assert account.delta_at(epsilon).lower <= more.delta_at(epsilon).upper
