"""Numbers that a budget shows are worth no more than the budget, however it is entered again."""

import ast
import json
import math
import re
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from matrixdp import Budget, InvalidParameterError
from matrixdp.cli.commands.budget import budget
from matrixdp.cli.shared.commands import Commands
from matrixdp.rounding import shown_down
from reference import ball

epsilons = st.floats(0, 1e3)
deltas = st.one_of(st.floats(1e-300, 1e-3), st.floats(1e-12, 1 - 1e-12))
weights = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8)
counts = st.integers(1, 10**6)


def worth(budgets: list[Budget]) -> Fraction:
    return sum((Fraction(budget.mu) ** 2 for budget in budgets), start=Fraction(0))


def shown_numbers(budget: Budget) -> dict[str, float]:
    fields = re.findall(r"(\w+)=([^,)]+)", repr(budget))
    return {name: ast.literal_eval(text) for name, text in fields}


@given(epsilons, deltas, weights)
@example(1.0, 1e-5, [1.0, 2.0])
def test_parts_entered_again_are_worth_no_more_than_the_whole(
    epsilon: float, delta: float, shares: list[float]
) -> None:
    whole = Budget(epsilon, delta)
    parts = whole.split(shares)
    assert worth([Budget(part.epsilon, part.delta) for part in parts]) <= whole.mu_squared
    assert worth([Budget.from_mu(part.mu, part.delta) for part in parts]) <= whole.mu_squared


@given(epsilons, deltas, counts, st.integers(1, 17))
@example(1.0, 1e-5, 100, 6)
@example(0.0, 1e-5, 10**6, 6)
@example(1e-9, 0.5, 2, 6)
def test_a_part_shown_to_any_digits_is_worth_no_more(
    epsilon: float, delta: float, parts: int, digits: int
) -> None:
    whole = Budget(epsilon, delta)
    part = whole.split(parts)[0]
    entered = Budget(float(shown_down(part.epsilon, digits)), float(shown_down(part.delta, digits)))
    assert entered.mu <= part.mu
    assert parts * Fraction(entered.mu) ** 2 <= whole.mu_squared
    assert float(shown_down(part.mu, digits)) <= part.mu


@given(epsilons, deltas, counts)
@example(1.0, 1e-5, 100)
def test_the_repr_of_a_part_entered_again(epsilon: float, delta: float, parts: int) -> None:
    part = Budget(epsilon, delta).split(parts)[0]
    shown = shown_numbers(part)
    assert Budget(shown["epsilon"], shown["delta"]).mu <= part.mu
    assert shown["mu"] <= part.mu


@given(st.floats(1e-300, 20), deltas)
def test_a_budget_of_a_mu_keeps_it_and_promises_no_more_than_it_is_worth(
    mu: float, delta: float
) -> None:
    budget = Budget.from_mu(mu, delta)
    assert budget.mu == mu
    assert budget.delta <= delta
    assert Budget(budget.epsilon, budget.delta).mu <= mu
    # The true curve of mu passes above what the budget shows.
    assert ball.delta_minus(mu, budget.epsilon, budget.delta) >= 0


@given(st.floats(1e-6, 20), st.floats(1e-12, 0.5))
def test_rounding_down_loses_little(mu: float, delta: float) -> None:
    budget = Budget.from_mu(mu, delta)
    assert Budget(budget.epsilon, budget.delta).mu == pytest.approx(mu, rel=1e-12)


def test_a_small_part_shows_epsilon_zero_at_a_smaller_delta() -> None:
    # At the whole's delta even epsilon = 0 would be worth more than this part.
    part = Budget(1.0, 1e-5).split(10**12 // 10**5)[0].split(10**6)[0]
    assert part.epsilon == 0.0
    assert part.delta < 1e-5
    assert part.delta == pytest.approx(math.erf(part.mu / math.sqrt(8)), rel=1e-12)


def test_a_part_too_small_for_any_delta_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="use fewer shares"):
        Budget(0.0, 1e-300).split([1e-20, 1e20])


def entered_from_json(reply: dict[str, list[dict[str, float]]]) -> Fraction:
    return sum(
        (
            int(part["count"]) * Fraction(Budget(part["epsilon"], part["delta"]).mu) ** 2
            for part in reply["parts"]
        ),
        start=Fraction(0),
    )


@pytest.mark.parametrize(
    "shares",
    [
        ["--parts", "100"],
        ["--parts", "3"],
        ["--parts", "1000000"],
        ["--weight", "1", "--weight", "0.1", "--weight", "7"],
        ["--weight", "1", "--weight", "1e-12"],
    ],
)
@pytest.mark.parametrize("promise", [(1.0, 1e-5), (0.123456789, 1.23456789e-7), (0.0, 1e-6)])
class TestTheCommand:
    def run(self, promise: tuple[float, float], *arguments: str) -> str:
        given = ["--epsilon", repr(promise[0]), "--delta", repr(promise[1]), *arguments]
        app = Commands()
        app.command()(budget)
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 0, done.output
        return done.stdout

    def test_json(self, promise: tuple[float, float], shares: list[str]) -> None:
        whole = Budget(*promise)
        reply = json.loads(self.run(promise, *shares, "--json"))
        assert entered_from_json(reply) <= whole.mu_squared
        exact = [int(part["count"]) * Fraction(part["mu"]) ** 2 for part in reply["parts"]]
        assert sum(exact) <= whole.mu_squared
        assert float(sum(exact)) == pytest.approx(whole.mu**2, rel=1e-14)

    def test_table(self, promise: tuple[float, float], shares: list[str]) -> None:
        whole = Budget(*promise)
        by_epsilon, by_mu = Fraction(0), Fraction(0)
        for line in self.run(promise, *shares).splitlines():
            cells = [cell.strip() for cell in line.split("│")[1:-1]]
            if len(cells) == 5 and cells[0].isdigit():
                count, epsilon, delta, mu = (float(cell) for cell in cells[:4])
                by_epsilon += int(count) * Fraction(Budget(epsilon, delta).mu) ** 2
                by_mu += int(count) * Fraction(mu) ** 2
        assert 0 < by_epsilon <= whole.mu_squared
        assert 0 < by_mu <= whole.mu_squared
