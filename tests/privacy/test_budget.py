"""Budgets, filters and guarantees: exact worth, nothing lost, nothing over-spent."""

import math
import pickle
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import (
    Budget,
    InvalidParameterError,
    privacy_mu,
)

epsilons = st.floats(0.001, 50)
deltas = st.floats(1e-12, 0.1)
budgets = st.builds(Budget, epsilons, deltas)


def test_a_budget_is_worth_its_bound() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    assert (budget.epsilon, budget.delta) == (1.0, 1e-5)
    assert budget.mu == privacy_mu(1.0, 1e-5)
    assert budget.mu_squared == Fraction(budget.mu) ** 2


@given(st.floats(1e-6, 100), deltas)
def test_a_zcdp_budget_holds_two_rho(rho: float, delta: float) -> None:
    budget = Budget.from_zcdp(rho, delta)
    assert budget.mu_squared == 2 * Fraction(rho)
    assert Fraction(budget.mu) ** 2 <= 2 * Fraction(rho)
    # The largest mu that fits is the float below the root, whose rho is within an ulp of the whole.
    assert budget.mu**2 / 2 == pytest.approx(rho, rel=1e-15)


def test_budgets_are_ordered_by_worth_and_immutable() -> None:
    small, large = Budget(0.5, 1e-5), Budget(1.0, 1e-5)
    assert small < large
    assert large > small
    assert small <= Budget(0.5, 1e-5) >= small
    assert Budget.from_mu(1.0, 1e-5) == Budget.from_mu(1.0, 1e-9)
    assert hash(Budget.from_mu(1.0, 1e-5)) == hash(Budget.from_mu(1.0, 1e-9))
    assert small != "small"
    assert sorted([large, small]) == [small, large]
    with pytest.raises(AttributeError):
        small.epsilon = 2.0  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(large)) == large  # noqa: S301
    with pytest.raises(TypeError):
        _ = small < 1


@given(budgets, st.integers(1, 1000))
def test_equal_parts_add_up_exactly(budget: Budget, parts: int) -> None:
    shares = budget.split(parts)
    assert len(shares) == parts
    assert sum((share.mu_squared for share in shares), start=Fraction(0)) == budget.mu_squared
    assert shares[0].delta == budget.delta or shares[0].epsilon == 0.0 < shares[0].delta
    assert shares[0].mu == pytest.approx(budget.mu / math.sqrt(parts), rel=1e-15)


@given(budgets, st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20))
def test_weighted_parts_add_up_exactly(budget: Budget, weights: list[float]) -> None:
    shares = budget.split(weights)
    assert sum((share.mu_squared for share in shares), start=Fraction(0)) == budget.mu_squared
    for share, weight in zip(shares, weights, strict=True):
        expected = budget.mu_squared * Fraction(weight) / sum(map(Fraction, weights))
        assert share.mu_squared == expected
        assert Fraction(share.mu) ** 2 <= share.mu_squared


def test_the_whole_of_a_budget_is_itself() -> None:
    budget = Budget(1.0, 1e-5)
    assert budget.split(1)[0] is budget
    assert budget.split([3.0])[0].epsilon == 1.0
    assert budget.split(np.array([1.0, 2.0])) == budget.split([1.0, 2.0])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Budget(-1.0, 1e-5), "epsilon=-1.0"),
        (lambda: Budget(1.0, 0.0), "delta=0.0"),
        (lambda: Budget(math.nan, 1e-5), "epsilon=nan"),
        (lambda: Budget.from_mu(0.0, 1e-5), "mu=0.0"),
        (lambda: Budget.from_mu(2e4, 1e-5), "mu=20000.0"),
        (lambda: Budget.from_zcdp(0.0, 1e-5), "rho=0.0"),
        (lambda: Budget.from_zcdp(1e9, 1e-5), "rho=1000000000.0"),
        (lambda: Budget(1.0, 1e-5).split(0), "shares=0"),
        (lambda: Budget(1.0, 1e-5).split(2.5), "shares=2.5"),  # type: ignore[arg-type]
        (lambda: Budget(1.0, 1e-5).split(True), "shares=True"),
        (lambda: Budget(1.0, 1e-5).split([]), "shares"),
        (lambda: Budget(1.0, 1e-5).split([1.0, -1.0]), "shares=-1.0"),
        (lambda: Budget(1.0, 1e-5).split([1.0, math.nan]), "shares=nan"),
        (lambda: Budget(1.0, 1e-5).split("ab"), "shares='a'"),  # type: ignore[arg-type]
        (lambda: Budget(1.0, 1e-5).split(10**9), "shares=1000000000"),
        (lambda: Budget(0.0, 1e-300).split([1e-300, 1e300]), "shares"),
    ],
)
def test_bad_budgets(make: Callable[[], object], name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name.replace("(", r"\(")):
        make()
