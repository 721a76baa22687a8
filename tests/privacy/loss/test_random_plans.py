"""Random plans of sampled steps beside a Gaussian release, against an accountant of its own."""

import math
import random

import pytest

from reference.loss_atoms import delta_between
from reference.loss_checks import account_of

SEED = 2026
TOGETHER = 15  # plans in a test
FEW, MANY = 4, 40  # tests


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=[] if group < FEW else pytest.mark.thorough)
        for group in range(MANY)
    ],
)
def test_the_truth_is_between_the_bounds(group: int) -> None:
    for number in range(TOGETHER * group, TOGETHER * (group + 1)):
        numbers = random.Random(SEED + number)  # noqa: S311
        relation = numbers.choice(["add-remove", "add-remove", "replace"])
        steps = [
            (
                10.0 ** numbers.uniform(-0.5, 1.5),
                min(0.99, 10.0 ** numbers.uniform(-4.0, 0.0)),
                numbers.randint(1, 8),
            )
            for _ in range(numbers.choice([1, 1, 2]))
        ]
        mu = numbers.choice([numbers.uniform(30.0, 60.0), 10.0 ** numbers.uniform(-0.5, 1.78)])
        delta = 10.0 ** numbers.uniform(-10.0, -1.0)
        account = account_of(relation, steps, [mu])
        epsilon = account.epsilon_at(delta)
        found = account.delta_at(epsilon.upper)
        case = f"{relation} {steps} mu={mu!r} delta={delta!r}: {epsilon}, {found}"
        h = 0.01 * max(1.0 / multiplier for multiplier, _, _ in steps)
        least, most = delta_between(relation, steps, mu, epsilon.upper, h)
        assert 0.0 < epsilon.upper < math.inf, case
        assert least <= min(delta, found.upper), case
        assert found.lower <= most, case
        assert delta <= delta_between(relation, steps, mu, epsilon.lower, h)[1], case
        # They say something, too.
        assert epsilon.width <= 1e-3 * epsilon.upper, case
