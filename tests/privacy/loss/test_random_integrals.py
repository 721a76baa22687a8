"""Random plans of many steps, against an integral in long doubles."""

import math
import random

import pytest

from matrixdp.privacy.loss import Interval, LossAccount
from matrixdp.privacy.loss.tilting import Cumulants
from reference.loss_atoms import DIRECTIONS
from reference.loss_checks import account_of
from reference.loss_integral import PRECISE, LogDelta, Step, log_delta

SEED = 1129
TOGETHER = 4  # plans in a test
FEW, MANY = 1, 150  # tests

Steps = list[tuple[float, float, int]]


def random_plan(numbers: random.Random) -> tuple[str, Steps, list[float], float]:
    """Return a relation, steps, the mu of releases and a delta."""

    def between(low: float, high: float) -> float:
        return math.exp(numbers.uniform(math.log(low), math.log(high)))

    relation = numbers.choice(["add-remove", "replace"])
    rare = numbers.random() < 0.3
    steps = [
        (
            between(0.6, 5.0) if rare else between(0.3, 20.0),
            between(1e-6, 1e-3) if rare else between(1e-4, 0.9),
            int(between(3e3, 1e6) if rare else between(30.0, 1e5)),
        )
        for _ in range(numbers.choice([1, 1, 2]))
    ]
    mu = [between(1e-4, 10.0)] if numbers.random() < 0.4 else []
    exponent = numbers.choice([numbers.uniform(-12.0, -0.3), numbers.uniform(-200.0, -12.0)])
    return relation, steps, mu, 10.0**exponent


def truth(
    relation: str, steps: Steps, mu: list[float], epsilon: float, account: LossAccount
) -> LogDelta | None:
    """Return the larger of both directions, or None if it would take too long."""
    found = []
    for direction in DIRECTIONS[relation]:
        exchanged = direction == "add"
        # Only where the integral is taken; any tilt will do.
        tilt = Cumulants(account._steps, 1e-200, exchanged=exchanged).flattest(epsilon)
        kinds = [Step(rate, 1.0 / multiplier, count) for multiplier, rate, count in steps]
        most = -sum(kind.number * math.log1p(-kind.rate) for kind in kinds)
        if exchanged and not mu and most <= epsilon:
            continue
        found.append(log_delta(kinds, sum(mu), epsilon, direction, tilt))
    known = [each for each in found if each is not None and each.off < 1e-6]
    return max(known) if len(known) == len(found) else None


def violations(case: random.Random) -> tuple[list[str], int]:
    """Return which bounds of a plan are wrong, and how many were compared."""
    relation, steps, mu, delta = random_plan(case)
    if not mu and sum(rate * count for _, rate, count in steps) <= delta:
        return [], 0
    account = account_of(relation, steps, mu)
    least, most = account.epsilon_at(delta)
    away = most * case.choice([0.0, 0.01, 0.5, 1.1])
    if not max(most, away) < 1e6:
        return [], 0
    questions = [
        ("delta", away, account.delta_at(away)),
        ("epsilon, upper", most, Interval(0.0, delta)),
        ("epsilon, lower", least, Interval(delta, 1.0)),
    ]
    wrong, compared = [], 0
    for name, epsilon, (low, high) in questions:
        true = (
            truth(relation, steps, mu, epsilon, account)
            if epsilon > 0.0 or name == "delta"
            else None
        )
        if true is None:
            continue
        compared += 1
        above = high < 1.0 and true.value - true.off > math.log(high)
        below = low > 0.0 and true.value + true.off < math.log(low)
        if above or below:
            wrong.append(f"{name}: {relation} {steps} {mu} {delta!r} at {epsilon!r}: {true}")
    return wrong, compared


@pytest.mark.skipif(not PRECISE, reason="long doubles are doubles here")
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[] if group < FEW else pytest.mark.thorough)
        for group in range(MANY)
    ],
)
def test_the_truth_is_between_the_bounds(group: int) -> None:
    compared = 0
    for number in range(TOGETHER * group, TOGETHER * (group + 1)):
        wrong, count = violations(random.Random(SEED + number))  # noqa: S311
        assert not wrong, f"seed {SEED + number}: {wrong}"
        compared += count
    if not compared:
        pytest.skip("of none of these plans could the truth be computed")
