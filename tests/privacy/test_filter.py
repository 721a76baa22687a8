"""Filters: what was spent is never more than the budget, and what is refused changes nothing."""

import copy
import math
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import (
    IMGM,
    Budget,
    BudgetExceededError,
    FrobeniusBall,
    Guarantee,
    InvalidParameterError,
    PrivacyFilter,
    privacy_epsilon,
)
from matrixdp.privacy import composed_mu
from reference import ball

BUDGET = Budget(1.0, 1e-5)
budgets = st.builds(Budget, st.floats(0.001, 50), st.floats(1e-12, 0.1))


def purse_of(budget: Budget) -> PrivacyFilter:
    return PrivacyFilter(budget, neighbouring="replace")


@given(budgets, st.integers(1, 60))
def test_the_parts_of_a_budget_fit_its_filter(budget: Budget, parts: int) -> None:
    purse = purse_of(budget)
    for share in budget.split(parts):
        purse.spend(share.mu)
    assert purse.spent <= budget.mu
    with pytest.raises(BudgetExceededError):
        purse.spend(budget.mu * 1e-3)


@given(budgets, st.lists(st.floats(0, 2), min_size=1, max_size=30))
def test_a_filter_never_exceeds_its_budget(budget: Budget, wishes: Sequence[float]) -> None:
    purse = purse_of(budget)
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


@given(budgets, st.integers(2, 1000))
def test_the_guarantee_covers_everything_that_can_be_spent(budget: Budget, parts: int) -> None:
    part = budget.split(parts)[0]  # worth a rational that is the square of no float
    purse = purse_of(part)
    promise = purse.guarantee
    assert Fraction(promise.mu) ** 2 >= part.mu_squared
    purse.spend(part.mu)
    purse.spend(purse.remaining)
    assert promise.mu >= purse.spent
    assert ball.delta_minus(promise.mu, promise.epsilon, promise.delta) <= 0


@given(budgets, st.integers(2, 1000))
def test_the_next_float_after_what_remains_is_refused(budget: Budget, parts: int) -> None:
    # After each step less than a rounding error is left of the budget, and less than that again.
    purse = purse_of(budget.split(parts)[0])
    for _ in range(3):
        with pytest.raises(BudgetExceededError):
            purse.spend(math.nextafter(purse.remaining, math.inf))
        purse.spend(purse.remaining)


def test_a_filter_guarantees_its_budget_whatever_was_spent() -> None:
    # An analyst who stops when the outputs look good makes any smaller claim false.
    purse = PrivacyFilter(BUDGET, neighbouring="add-remove")
    for mu in (0.1, 0.2):
        purse.spend(mu)
        promise = purse.guarantee
        assert (promise.epsilon, promise.delta, promise.mu) == (1.0, 1e-5, BUDGET.mu)
        assert promise.neighbouring == purse.neighbouring == "add-remove"
    assert purse.spent == composed_mu([0.1, 0.2])
    assert "spent=0.223607" in repr(purse)
    assert "neighbouring='add-remove'" in repr(purse)


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


def test_a_guarantee_and_a_mechanism_cost_their_mu() -> None:
    purse = purse_of(BUDGET)
    part = BUDGET.split(4)[0]
    purse.spend(Guarantee.of_mu(part.mu, delta=1e-9, neighbouring="replace"))
    assert purse.spent == part.mu
    mechanism = IMGM(FrobeniusBall(1.0, neighbouring="replace"), part)
    purse.spend(mechanism)
    assert purse.spent == composed_mu([part.mu, mechanism.guarantee.mu])


def test_a_filter_can_pay_for_another_filter() -> None:
    purse = purse_of(BUDGET)
    purse.spend(purse_of(BUDGET.split([1, 3])[0]))
    assert purse.spent == pytest.approx(BUDGET.mu / 2, rel=1e-15)


def test_another_relation_is_refused_and_costs_nothing() -> None:
    purse = purse_of(BUDGET)
    other = Guarantee.of_mu(0.1, delta=1e-5, neighbouring="add-remove")
    for cost in (other, IMGM(FrobeniusBall(1.0, neighbouring="add-remove"), BUDGET)):
        with pytest.raises(InvalidParameterError, match=r"'add-remove'.*'replace'"):
            purse.spend(cost)
    assert purse.spent == 0.0


def test_a_guarantee_for_a_group_is_refused_and_costs_nothing() -> None:
    purse = purse_of(BUDGET)
    group = Guarantee.of_mu(0.01, delta=1e-5, neighbouring="replace").for_group(3)
    with pytest.raises(InvalidParameterError, match="records=3"):
        purse.spend(group)
    assert purse.spent == 0.0


class Odd:
    """Has an attribute of the right name and the wrong kind."""

    guarantee = 0.1


def test_what_has_no_mu_is_refused_and_changes_nothing() -> None:
    purse = purse_of(BUDGET)
    for bad in (-0.1, math.nan, math.inf, "0.1", None):
        with pytest.raises(InvalidParameterError, match="mu="):
            purse.spend(bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="guarantee is a float"):
        purse.spend(Odd())  # type: ignore[arg-type]
    assert purse.spent == 0.0
    assert purse.remaining == purse.budget.mu


def test_a_filter_needs_a_budget_and_a_relation() -> None:
    with pytest.raises(InvalidParameterError, match="budget is a float"):
        PrivacyFilter(1.0, neighbouring="replace")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="neighbouring='swap'"):
        PrivacyFilter(BUDGET, neighbouring="swap")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="neighbouring"):
        PrivacyFilter(BUDGET)  # type: ignore[call-arg]


def test_a_filter_cannot_be_duplicated() -> None:
    purse = purse_of(BUDGET)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or pickled"):
            duplicate(purse)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.parametrize("number", ["its own", "the parent's"])
def test_a_fork_is_no_second_budget(number: str, monkeypatch: pytest.MonkeyPatch) -> None:
    purse = purse_of(BUDGET)
    # Another thread may hold the lock at the moment of the fork; in the child it stays held.
    with purse._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(5)  # a child that waits for the lock must not wait for ever
            if number == "the parent's":  # another namespace may use the same number again
                parent = os.getppid()
                monkeypatch.setattr(os, "getpid", lambda: parent)
            refused = 0
            for cost in (0.2, 0.0, Guarantee.of_mu(0.1, delta=1e-5, neighbouring="replace")):
                try:
                    purse.spend(cost)
                except InvalidParameterError as error:
                    refused += "process" in str(error)
            os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    purse.spend(BUDGET.mu)  # the parent still has it all


def test_threads_cannot_overspend_together() -> None:
    mu = BUDGET.split(200)[0].mu
    purse, granted, lock = purse_of(BUDGET), [0], threading.Lock()

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


def test_spending_holds_a_lock() -> None:
    purse, held = purse_of(BUDGET), []

    class Recorder:
        def __enter__(self) -> None:
            held.append(purse.spent)

        def __exit__(self, *_: object) -> None:
            held.append(purse.spent)

    purse._lock = Recorder()  # type: ignore[assignment]
    purse.spend(0.1)
    assert held == [0.0, 0.1]
