"""Budgets, filters and guarantees: exact worth, nothing lost, nothing over-spent."""

import copy
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import (
    Budget,
    BudgetExceededError,
    Filter,
    InvalidParameterError,
    privacy_bound,
    privacy_epsilon,
)
from matrixdp.privacy import composed_mu
from reference import ball

epsilons = st.floats(0.001, 50)
deltas = st.floats(1e-12, 0.1)
budgets = st.builds(Budget, epsilons, deltas)


def test_a_budget_is_worth_its_bound() -> None:
    budget = Budget(epsilon=1.0, delta=1e-5)
    assert (budget.epsilon, budget.delta) == (1.0, 1e-5)
    assert budget.mu == privacy_bound(1.0, 1e-5)
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


@given(budgets, st.integers(1, 60))
def test_the_parts_of_a_budget_fit_its_filter(budget: Budget, parts: int) -> None:
    purse = Filter(budget)
    for share in budget.split(parts):
        purse.spend(share.mu)
    assert purse.spent <= budget.mu
    with pytest.raises(BudgetExceededError):
        purse.spend(budget.mu * 1e-3)


@given(budgets, st.lists(st.floats(0, 2), min_size=1, max_size=30))
def test_a_filter_never_exceeds_its_budget(budget: Budget, wishes: Sequence[float]) -> None:
    purse = Filter(budget)
    granted: list[float] = []
    for mu in wishes:
        before = (purse.spent, purse.remaining)
        fits = sum((Fraction(m) ** 2 for m in [*granted, mu]), start=Fraction(0))
        if fits <= budget.mu_squared:
            purse.spend(mu)
            granted.append(mu)
        else:
            with pytest.raises(BudgetExceededError, match=f"mu={mu!r}"):
                purse.spend(mu)
            assert (purse.spent, purse.remaining) == before
    assert purse.spent == composed_mu(granted)
    assert ball.delta_minus(max(purse.spent, 1e-300), budget.epsilon, budget.delta) <= 0
    purse.spend(purse.remaining)  # whatever is called remaining can be spent


def test_a_filter_refuses_what_is_no_mu_and_changes_nothing() -> None:
    purse = Filter(Budget(1.0, 1e-5))
    for bad in (-0.1, math.nan, math.inf, "0.1", None):
        with pytest.raises(InvalidParameterError, match="mu="):
            purse.spend(bad)  # type: ignore[arg-type]
    assert purse.spent == 0.0
    assert purse.remaining == purse.budget.mu
    with pytest.raises(InvalidParameterError, match="budget is a float"):
        Filter(1.0)  # type: ignore[arg-type]


def test_a_filter_cannot_be_duplicated() -> None:
    purse = Filter(Budget(1.0, 1e-5))
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(purse)


def test_threads_cannot_overspend_together() -> None:
    budget = Budget(1.0, 1e-5)
    mu = budget.split(200)[0].mu
    purse, granted, lock = Filter(budget), [0], threading.Lock()

    def worker() -> None:
        for _ in range(100):
            try:
                purse.spend(mu)
            except BudgetExceededError:
                return
            with lock:
                granted[0] += 1

    threads = [threading.Thread(target=worker) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert granted[0] == 200


def test_a_filter_guarantees_its_budget_whatever_was_spent() -> None:
    # An analyst who stops when the outputs look good makes any smaller claim false.
    budget = Budget(1.0, 1e-5)
    purse = Filter(budget)
    for mu in (0.1, 0.2):
        purse.spend(mu)
        promise = purse.guarantee("add-remove")
        assert (promise.epsilon, promise.delta, promise.mu) == (1.0, 1e-5, budget.mu)
    assert purse.spent == composed_mu([0.1, 0.2])
    assert "spent=0.223607" in repr(purse)


def test_a_claim_for_what_was_spent_would_be_false() -> None:
    # Two releases of mu; stop after the first if its privacy loss exceeds its own epsilon. The
    # failure of "epsilon of what was spent" is then the first's plus the second's on the rest: more
    # than delta. Simulated on the privacy losses themselves, 2e6 of them.
    delta, mu = 0.01, 0.5
    epsilons = [privacy_epsilon(composed_mu([mu] * steps), delta) for steps in (1, 2)]
    rng = np.random.default_rng(0)
    first, second = rng.normal(mu**2 / 2, mu, (2, 2_000_000))
    stop = first > epsilons[0]
    loss = np.where(stop, first, first + second)
    allowed = np.where(stop, epsilons[0], epsilons[1])
    failure = float(np.mean(np.maximum(0.0, 1.0 - np.exp(allowed - loss))))
    assert failure > 1.3 * delta


def test_spending_holds_a_lock() -> None:
    purse, held = Filter(Budget(1.0, 1e-5)), []

    class Recorder:
        def __enter__(self) -> None:
            held.append(purse.spent)

        def __exit__(self, *_: object) -> None:
            held.append(purse.spent)

    purse._lock = Recorder()  # type: ignore[assignment]
    purse.spend(0.1)
    assert held == [0.0, 0.1]


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
