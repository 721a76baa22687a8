"""Options that several commands share."""

import pytest

from matrixdp import Budget, InvalidParameterError
from matrixdp.cli.shared.options import budget_from


def test_a_budget_comes_from_epsilon_or_from_mu() -> None:
    assert budget_from(1.0, 1e-5, None) == Budget(1.0, 1e-5)
    assert budget_from(None, 1e-5, 0.25) == Budget.from_mu(0.25, 1e-5)


@pytest.mark.parametrize(("epsilon", "mu"), [(None, None), (1.0, 0.25), (0.0, 0.25)])
def test_neither_and_both_are_refused(epsilon: float | None, mu: float | None) -> None:
    with pytest.raises(InvalidParameterError, match="exactly one of --epsilon and --mu"):
        budget_from(epsilon, 1e-5, mu)


@pytest.mark.parametrize("part", Budget(1.0, 1e-5).split([1, 2, 3, 0.1]))
def test_a_part_is_spent_exactly_by_its_mu(part: Budget) -> None:
    assert budget_from(None, part.delta, part.mu).mu == part.mu
