"""A release paid from a filter: after every check of its input, before anything is drawn."""

import threading
from typing import Any

import numpy as np
import pytest

from matrixdp import (
    IMGM,
    Box,
    Budget,
    BudgetExceededError,
    Diagonal,
    Filter,
    FrobeniusBall,
    InvalidParameterError,
    Kronecker,
    MatrixMechanism,
    ReleaseKey,
    SymmetricBall,
)
from matrixdp.covariance import OneSided
from matrixdp.errors import KeyStateError, MatrixDPError
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


def purse_of(budget: Budget) -> Filter:
    return Filter(budget, neighbouring="replace")


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_releases_are_paid_until_the_budget_is_spent(mechanism: Any, value: Any) -> None:
    purse = purse_of(BUDGET)
    for _ in range(3):
        release = mechanism.release(value, filter=purse)
        assert release.guarantee == mechanism.guarantee
    assert purse.spent == pytest.approx(BUDGET.mu, rel=1e-12)
    with pytest.raises(BudgetExceededError, match="does not fit"):
        mechanism.release(value, filter=purse)


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_paying_does_not_change_the_noise(mechanism: Any, value: Any) -> None:
    plain = mechanism.release(value, key=ReleaseKey.from_bytes(bytes(32)))
    key = ReleaseKey.from_bytes(bytes(32))
    paid = mechanism.release(value, key=key, filter=purse_of(BUDGET))
    one, other = (getattr(release, "measurements", release).value for release in (plain, paid))
    assert np.array_equal(one, other)
    assert repr(key) == "ReleaseKey(bound)"


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_refused_payment_leaves_the_key(mechanism: Any, value: Any) -> None:
    purse = purse_of(BUDGET)
    purse.spend(purse.remaining)
    key = ReleaseKey.generate()
    with pytest.raises(BudgetExceededError):
        mechanism.release(value, key=key, filter=purse)
    key.check_unbound()


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_filter_for_another_relation_leaves_the_key(mechanism: Any, value: Any) -> None:
    purse, key = Filter(BUDGET, neighbouring="add-remove"), ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="neighbouring"):
        mechanism.release(value, key=key, filter=purse)
    key.check_unbound()
    assert purse.spent == 0.0


def test_a_refused_input_costs_nothing() -> None:
    purse = purse_of(BUDGET)
    directional = Kronecker(np.diag([1.0, 2.0]), np.eye(3))
    box = Box(np.ones(3), neighbouring="replace")
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
            mechanism.release(value, filter=purse)
    assert purse.spent == 0.0


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_spent_key_costs_nothing(mechanism: Any, value: Any) -> None:
    purse, key = purse_of(BUDGET), ReleaseKey.generate()
    mechanism.release(value, key=key)
    with pytest.raises(KeyStateError):
        mechanism.release(value, key=key, filter=purse)
    assert purse.spent == 0.0


@pytest.mark.parametrize(("mechanism", "value"), mechanisms())
def test_a_filter_must_be_one(mechanism: Any, value: Any) -> None:
    key = ReleaseKey.generate()
    with pytest.raises(InvalidParameterError, match="filter is a Budget"):
        mechanism.release(value, key=key, filter=BUDGET)
    key.check_unbound()


def test_threads_share_one_filter() -> None:
    mechanism = IMGM(BALL, BUDGET.split(20)[0])
    purse, outcomes = purse_of(BUDGET), []

    def worker() -> None:
        for _ in range(10):
            try:
                outcomes.append(mechanism.release(MATRIX, filter=purse).guarantee.mu)
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
            mechanism.release(np.zeros((2, 2), dtype=kind), key=key, filter=purse)
        assert purse.spent == 0.0
        key.check_unbound()


def test_a_floor_beyond_the_range_of_a_type_costs_nothing() -> None:
    # 1e-35 is below the smallest scale of float32, and well within the range of float64.
    weak = OneSided(1e-70 * np.eye(2), "rows")
    mechanism = IMGM(FrobeniusBall(1e-37, neighbouring="replace"), PART, weak)
    purse = purse_of(BUDGET)
    with pytest.raises(InvalidParameterError, match="scale must be"):
        mechanism.release(np.zeros((2, 2), dtype=np.float32), filter=purse)
    assert purse.spent == 0.0
    assert mechanism.release(np.zeros((2, 2)), filter=purse).shape == (2, 2)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_a_compiler_that_fails_or_is_interrupted_costs_nothing(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    mechanism, purse, key = IMGM(BALL, PART), purse_of(BUDGET), ReleaseKey.generate()
    monkeypatch.setattr(kernels, "available_kernels", lambda: {"compiled": interrupted})
    with pytest.raises(KeyboardInterrupt):
        mechanism.release(MATRIX.astype(kind), filter=purse, key=key)
    assert purse.spent == 0.0
    key.check_unbound()
