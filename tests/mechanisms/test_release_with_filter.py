"""A release paid from a filter: after every check of its input, before anything is drawn."""

import os
import signal
import sys
import threading
from contextlib import suppress
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Budget,
    BudgetExceededError,
    Diagonal,
    FrobeniusBall,
    InvalidParameterError,
    Kronecker,
    MatrixMechanism,
    PrivacyFilter,
    ReleaseKey,
    RowBox,
    SymmetricBall,
)
from matrixdp.errors import KeyStateError, MatrixDPError
from matrixdp.mechanisms.proof import kept_proof
from matrixdp.noise import kernels
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-5)
PART = BUDGET.split(3)[0]
BALL = FrobeniusBall(1.0, neighbouring="replace")
MATRIX = np.arange(6.0).reshape(2, 3)


def mechanisms() -> list[tuple[Any, Any]]:
    return [
        (IMGM(BALL, PART), MATRIX),
        (MatrixMechanism(Prefix(4), PART, neighbouring="replace"), [3, 1, 4, 1]),
    ]


def purse_of(budget: Budget) -> PrivacyFilter:
    return PrivacyFilter(budget, neighbouring="replace")


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_releases_are_paid_until_the_budget_is_spent(mechanism: Any, value: Any) -> None:
    purse = purse_of(BUDGET)
    for _ in range(3):
        release = mechanism.release(value, privacy_filter=purse)
        assert release.guarantee == mechanism.guarantee
    assert purse.spent == pytest.approx(BUDGET.mu, rel=1e-12)
    with pytest.raises(BudgetExceededError, match="does not fit"):
        mechanism.release(value, privacy_filter=purse)


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_paying_does_not_change_the_noise(mechanism: Any, value: Any) -> None:
    plain = mechanism.release(value, key=ReleaseKey.from_bytes(bytes(32)))
    key = ReleaseKey.from_bytes(bytes(32))
    paid = mechanism.release(value, key=key, privacy_filter=purse_of(BUDGET))
    one, other = (getattr(release, "measurements", release).value for release in (plain, paid))
    assert np.array_equal(one, other)
    assert repr(key) == "ReleaseKey(bound)"


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_refused_payment_leaves_the_key(mechanism: Any, value: Any) -> None:
    purse = purse_of(BUDGET)
    purse.spend(purse.remaining)
    key = ReleaseKey.generate()
    with pytest.raises(BudgetExceededError):
        mechanism.release(value, key=key, privacy_filter=purse)
    key.check_unbound()


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_filter_for_another_relation_leaves_the_key(mechanism: Any, value: Any) -> None:
    purse, key = PrivacyFilter(BUDGET, neighbouring="add-remove"), ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="neighbouring"):
        mechanism.release(value, key=key, privacy_filter=purse)
    key.check_unbound()
    assert purse.spent == 0.0


def test_a_refused_input_costs_nothing() -> None:
    purse = purse_of(BUDGET)
    directional = Kronecker(np.diag([1.0, 2.0]), np.eye(3))
    box = RowBox(np.ones(3), neighbouring="replace")
    matrix, workload = (mechanism for mechanism, _ in mechanisms())
    bad: list[tuple[Any, Any]] = [
        (matrix, [[np.nan, 1.0]]),
        (matrix, np.zeros(3)),
        (matrix, np.full((2, 2), 1e300)),  # so large that no noise would be left of it
        (IMGM(box, BUDGET, directional.rescaled_for(box, BUDGET)), MATRIX),  # cannot be drawn
        (workload, [1, 2, 3]),
        (workload, [1, 2, 3, -4]),
    ]
    for mechanism, value in bad:
        with pytest.raises(MatrixDPError):
            mechanism.release(value, privacy_filter=purse)
    assert purse.spent == 0.0


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_spent_key_costs_nothing(mechanism: Any, value: Any) -> None:
    purse, key = purse_of(BUDGET), ReleaseKey.generate()
    mechanism.release(value, key=key)
    with pytest.raises(KeyStateError):
        mechanism.release(value, key=key, privacy_filter=purse)
    assert purse.spent == 0.0


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_filter_must_be_one(mechanism: Any, value: Any) -> None:
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="privacy_filter is a Budget"):
        mechanism.release(value, key=key, privacy_filter=BUDGET)
    key.check_unbound()


def test_threads_share_one_filter() -> None:
    mechanism = IMGM(BALL, BUDGET.split(20)[0])
    purse, outcomes = purse_of(BUDGET), []

    def worker() -> None:
        for _ in range(10):
            try:
                outcomes.append(mechanism.release(MATRIX, privacy_filter=purse).guarantee.mu)
            except BudgetExceededError:
                return

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 20


@pytest.mark.parametrize("kind", ["float64", "float32"])
@pytest.mark.parametrize("size", [1e-290, 1e290])
def test_noise_beyond_the_range_of_a_type_costs_nothing(kind: str, size: float) -> None:
    ball = FrobeniusBall(size, neighbouring="replace")
    for mechanism in (
        IMGM(ball, PART),
        IMGM(ball, PART, Diagonal([[20.0 * size, 30.0 * size]])),
        IMGM(SymmetricBall(size, neighbouring="replace"), PART),
    ):
        purse, key = purse_of(BUDGET), ReleaseKey.generate()
        with pytest.raises(InvalidParameterError, match="scale must be"):
            mechanism.release(np.zeros((2, 2), dtype=kind), key=key, privacy_filter=purse)
        assert purse.spent == 0.0
        key.check_unbound()


def test_a_floor_beyond_the_range_of_a_type_costs_nothing() -> None:
    # 1e-35 is below the smallest scale of float32, and well within the range of float64.
    weak = Kronecker(rows=1e-70 * np.eye(2))
    mechanism = IMGM(FrobeniusBall(1e-37, neighbouring="replace"), PART, weak)
    purse = purse_of(BUDGET)
    with pytest.raises(InvalidParameterError, match="scale must be"):
        mechanism.release(np.zeros((2, 2), dtype=np.float32), privacy_filter=purse)
    assert purse.spent == 0.0
    assert mechanism.release(np.zeros((2, 2)), privacy_filter=purse).shape == (2, 2)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_compiler_that_fails_or_is_interrupted_costs_nothing(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    kept_proof.cache_clear()  # and with it all noise that has been prepared
    mechanism, purse, key = IMGM(BALL, PART), purse_of(BUDGET), ReleaseKey.generate()
    monkeypatch.setattr(kernels, "available_kernels", lambda: {"compiled": interrupted})
    with pytest.raises(KeyboardInterrupt):
        mechanism.release(MATRIX.astype(kind), privacy_filter=purse, key=key)
    assert purse.spent == 0.0
    key.check_unbound()


def interrupt_at_line(interrupts: Any, line: int) -> Any:
    """Return a trace function that raises KeyboardInterrupt at a line of the given functions."""
    codes, seen = {function.__code__ for function in interrupts}, [0]

    def local(_: Any, event: str, __: Any) -> Any:
        if event in {"line", "return"}:
            seen[0] += 1
            if seen[0] == line:
                raise KeyboardInterrupt
        return local

    return lambda frame, _, __: local if frame.f_code in codes else None


def test_an_interrupt_anywhere_in_the_payment_errs_on_the_private_side() -> None:
    mechanism, line = IMGM(BALL, PART), 0
    mechanism.release(MATRIX)  # whatever is compiled once is compiled here
    outcomes = set()
    while True:
        line += 1
        purse, key = purse_of(BUDGET), ReleaseKey.generate()
        sys.settrace(interrupt_at_line((PrivacyFilter.spend, ReleaseKey.bind), line))
        try:
            mechanism.release(MATRIX, key=key, privacy_filter=purse)
        except KeyboardInterrupt:
            pass
        else:
            break
        finally:
            sys.settrace(None)
        paid, bound = purse.spent > 0.0, repr(key) == "ReleaseKey(bound)"
        # What was paid for cannot be released with that key any more, nor can what was not.
        assert bound or not paid
        outcomes.add((paid, bound))
        if bound:
            with pytest.raises(KeyStateError):
                mechanism.release(MATRIX, key=key)
        else:
            assert mechanism.release(MATRIX, key=key, privacy_filter=purse).shape == MATRIX.shape
            assert purse.spent == pytest.approx(mechanism.guarantee.mu)
    assert outcomes == {(False, False), (False, True), (True, True)}


def test_losers_of_a_race_on_one_key_pay_nothing() -> None:
    mechanism = IMGM(BALL, Budget(1e-3, 1e-5).split(1000)[0])
    purse, outcomes = purse_of(BUDGET), []
    start = threading.Barrier(4)
    keys = [ReleaseKey.generate() for _ in range(100)]

    def worker() -> None:
        for key in keys:
            start.wait()
            try:
                outcomes.append(
                    mechanism.release(MATRIX, key=key, privacy_filter=purse).guarantee.mu
                )
            except KeyStateError:
                outcomes.append(0.0)

    threads = [threading.Thread(target=worker) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 400
    assert sum(mu > 0.0 for mu in outcomes) == 100
    assert purse._spent == sum(Fraction(mu) ** 2 for mu in outcomes)


def test_a_key_that_is_bound_after_the_checks_is_not_paid_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mechanism, purse, key = IMGM(BALL, PART), purse_of(BUDGET), ReleaseKey.generate()
    checks = ReleaseKey.check_unbound

    def another_thread_is_faster(key: ReleaseKey) -> None:
        checks(key)
        monkeypatch.setattr(ReleaseKey, "check_unbound", checks)
        mechanism.release(MATRIX, key=key)

    monkeypatch.setattr(ReleaseKey, "check_unbound", another_thread_is_faster)
    with pytest.raises(KeyStateError, match="already bound"):
        mechanism.release(MATRIX, key=key, privacy_filter=purse)
    assert purse.spent == 0.0


def test_two_keys_and_two_filters_do_not_wait_for_each_other() -> None:
    mechanism = IMGM(BALL, Budget(1e-3, 1e-5).split(1000)[0])
    purses, done = (purse_of(BUDGET), purse_of(BUDGET)), []

    def worker(first: int) -> None:
        for number in range(200):
            mechanism.release(
                MATRIX, key=ReleaseKey.generate(), privacy_filter=purses[(first + number) % 2]
            )
        done.append(first)

    threads = [threading.Thread(target=worker, args=(first,), daemon=True) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(done) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_amid_a_payment_leaves_the_child_able_to_refuse_and_to_release() -> None:
    mechanism, purse, key = IMGM(BALL, PART), purse_of(BUDGET), ReleaseKey.generate()
    paying, go_on = threading.Event(), threading.Event()
    spend = purse.spend

    def slow_spend(cost: Any) -> None:
        spend(cost)
        paying.set()
        go_on.wait(30.0)

    purse.spend = slow_spend  # type: ignore[method-assign]
    thread = threading.Thread(
        target=lambda: mechanism.release(MATRIX, key=key, privacy_filter=purse)
    )
    thread.start()
    assert paying.wait(30.0)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        refused = 0
        for options in ({"key": key}, {"key": key, "privacy_filter": purse}):
            try:
                mechanism.release(MATRIX, **options)
            except KeyStateError:
                refused += 1
        fresh = mechanism.release(MATRIX, privacy_filter=purse_of(BUDGET))
        os._exit(0 if refused == 2 and fresh.shape == MATRIX.shape else 1)
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_an_interrupt_that_numba_swallows_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def loading() -> bool:
        with suppress(KeyboardInterrupt):  # as callbacks from C do
            signal.raise_signal(signal.SIGINT)
        return False

    kept_proof.cache_clear()  # and with it all noise that has been prepared
    mechanism, purse, key = IMGM(BALL, PART), purse_of(BUDGET), ReleaseKey.generate()
    monkeypatch.setattr(kernels, "_numba_works", loading)
    kernels.available_kernels.cache_clear()
    try:
        with pytest.raises(KeyboardInterrupt):
            mechanism.release(MATRIX, privacy_filter=purse, key=key)
        assert purse.spent == 0.0
        key.check_unbound()
    finally:
        kernels.available_kernels.cache_clear()
