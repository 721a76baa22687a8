"""The Matrix Mechanism: the error it predicts, the noise it draws, the sensitivity it claims."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from matrixdp import Budget, InvalidParameterError, MatrixMechanism, ReleaseKey
from matrixdp.errors import ShapeError
from matrixdp.mechanisms.matrix_mechanism import measured_sensitivity
from matrixdp.noise import simulation_generator
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    ProductStrategy,
    Ranges,
    StackedStrategy,
    Total,
    Union,
    Workload,
    marginals,
    optimal_strategy,
)
from reference import workloads as oracle

BUDGET = Budget(1.0, 1e-5)
CASES: list[tuple[Workload, Neighbouring]] = [
    (Prefix(12), "add-remove"),
    (Prefix(12), "replace"),
    (Ranges(7, longest=3), "add-remove"),
    (Product([Prefix(4), Total(3)]), "add-remove"),
    (marginals([2, 3, 2], [(0, 1), (2,)]), "add-remove"),
    (marginals([2, 3, 2], [(0, 1), (2,)]), "replace"),
    (Union([Product([Prefix(3), Total(4)]), Product([Total(3), Ranges(4)])]), "replace"),
    (Dense([[1.0, 0.5, 0.0], [0.0, 0.25, -1.0]]), "add-remove"),
]
ROUNDS = 400
SQUARES = 4000  # their mean is within 2 % or so; scales off by a tenth move it by 19 % at least


def counts_for(workload: Workload) -> np.ndarray:
    return np.random.default_rng(2).integers(0, 50, workload.cells)


@pytest.mark.parametrize(("workload", "neighbouring"), CASES, ids=repr)
def test_releases_have_the_error_that_was_predicted(
    workload: Workload, neighbouring: Neighbouring
) -> None:
    # Whitened by the predicted standard error, the squares of the noise in the measurements are
    # chi-square; scales of 0.9 and 1.1 are rejected. Keys are fixed, so nothing flakes.
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring=neighbouring)
    counts, bits = counts_for(workload), np.random.default_rng(11)
    exact, truth = mechanism.strategy.apply(counts), workload.apply(counts)
    noise, errors = [], []
    rounds = max(ROUNDS, SQUARES // mechanism.strategy.shape[0])
    for _ in range(rounds):
        release = mechanism.release(counts, key=ReleaseKey.from_bytes(bits.bytes(32)))
        noise.append((np.asarray(release.measurements.value).ravel() - exact.ravel()).tolist())
        errors.append(release.answers - truth)
    squares = float(np.sum(np.square(noise))) / mechanism.covariance.scale**2
    count = np.size(noise)
    assert 1e-4 < stats.chi2.cdf(squares, count) < 1 - 1e-4
    for wrong in (0.9, 1.1):
        assert not 1e-4 < stats.chi2.cdf(wrong**2 * squares, count) < 1 - 1e-4
    # The answers: unbiased, and with the standard errors that were stated for each query.
    stated = mechanism.standard_errors()
    np.testing.assert_allclose(release.standard_errors(), stated, rtol=1e-12)
    means = np.mean(errors, axis=0) / (stated / math.sqrt(rounds))
    assert np.max(np.abs(means)) < 4.5
    ratios = np.mean(np.square(errors), axis=0) / stated**2
    assert np.max(np.abs(ratios - 1.0)) < 6.0 * math.sqrt(2 / rounds)
    assert mechanism.expected_error == pytest.approx(math.sqrt(np.mean(stated**2)), rel=1e-9)


@pytest.mark.parametrize(("workload", "neighbouring"), CASES, ids=repr)
def test_standard_errors_equal_dense(workload: Workload, neighbouring: Neighbouring) -> None:
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring=neighbouring)
    matrix = oracle.dense(workload)
    response = matrix @ np.linalg.pinv(oracle.dense_strategy(mechanism.strategy))
    expected = mechanism.covariance.scale * np.linalg.norm(response, axis=1)
    np.testing.assert_allclose(mechanism.standard_errors(), expected, rtol=1e-8)


@pytest.mark.parametrize(("workload", "neighbouring"), CASES, ids=repr)
def test_floats_of_neighbours_are_within_the_claimed_sensitivity(
    workload: Workload, neighbouring: Neighbouring
) -> None:
    mechanism = MatrixMechanism(workload, BUDGET, neighbouring=neighbouring)
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.ones(workload.cells))
    counts = np.floor(shares * (2**30 - 10)).astype(np.int64)
    counts += 1
    base = mechanism.strategy.measure(counts.astype(float)).ravel().tolist()
    claimed = Fraction(mechanism.sensitivity.bound) ** 2
    largest = Fraction(0)
    for cell in range(workload.cells):
        other = counts.copy()
        other[cell] -= 1
        if neighbouring == "replace":
            other[(cell + workload.cells // 2) % workload.cells] += 1
        near = mechanism.strategy.measure(other.astype(float)).ravel().tolist()
        distance = sum(
            ((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(base, near, strict=True)),
            Fraction(0),
        )
        assert distance <= claimed
        largest = max(largest, distance)
    assert largest > claimed * Fraction(1, 4)  # a sensitivity claimed at half would be caught
    exact = mechanism.strategy.sensitivity(neighbouring)
    assert exact < mechanism.sensitivity.bound < exact * (1 + 1e-4)


def test_the_rounding_allowance_is_needed_in_principle_and_small_in_practice() -> None:
    strategy = optimal_strategy(Prefix(64), neighbouring="add-remove").strategy
    claimed = measured_sensitivity(strategy, "add-remove")
    assert claimed - strategy.sensitivity("add-remove") == pytest.approx(
        2 * 2.0**30 * 2.0**-53, rel=1e-3
    )


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e5])
def test_a_common_offset_costs_nothing_where_the_total_is_public(offset: float) -> None:
    queries = np.array([[0.0, 1.0, 3.0], [2.0, 0.0, 0.0]])
    plain = MatrixMechanism(Dense(queries + 1.0), BUDGET, neighbouring="replace")
    moved = MatrixMechanism(Dense(queries + 1.0 + offset), BUDGET, neighbouring="replace")
    assert moved.expected_error == pytest.approx(plain.expected_error, rel=1e-5)
    assert moved.sensitivity.bound < moved.strategy.sensitivity("replace") * (1 + 1e-5)


STACKED = Union([Product([Prefix(4), Total(3)]), Product([Total(4), Prefix(3)])])
STACK = StackedStrategy(
    [
        ProductStrategy([np.eye(4) * 0.7, np.ones((1, 3))]),
        ProductStrategy([np.full((1, 4), 1.3), np.tri(3)]),
    ]
)


def test_releases_of_stacks_stay_below_the_error_that_was_predicted() -> None:
    # The errors are whitened by the truth, which a dense pseudo-inverse tells; the prediction is
    # above it for every query, and neither is off so far that it would not be seen.
    mechanism = MatrixMechanism(STACKED, BUDGET, neighbouring="add-remove", strategy=STACK)
    counts, bits = counts_for(STACKED), np.random.default_rng(12)
    response = oracle.dense(STACKED) @ np.linalg.pinv(oracle.dense_strategy(STACK))
    true = mechanism.covariance.scale * np.linalg.norm(response, axis=1)
    stated = mechanism.standard_errors()
    errors = []
    for _ in range(ROUNDS):
        release = mechanism.release(counts, key=ReleaseKey.from_bytes(bits.bytes(32)))
        errors.append(release.answers - STACKED.apply(counts))
    np.testing.assert_allclose(release.standard_errors(), stated, rtol=1e-12)
    ratios = np.mean(np.square(errors), axis=0) / true**2
    assert np.max(np.abs(ratios - 1.0)) < 5.0 * math.sqrt(2 / ROUNDS)
    assert np.all(true <= stated * (1 + 1e-9))
    assert np.any(true < stated * 0.5)
    assert np.max(np.abs(np.mean(errors, axis=0) / (true / math.sqrt(ROUNDS)))) < 4.5
    assert mechanism.expected_error == pytest.approx(math.sqrt(np.mean(stated**2)), rel=1e-9)
    assert math.sqrt(np.mean(np.square(errors))) < mechanism.expected_error
    simulated = mechanism.simulate(counts, simulation_generator(3))
    assert np.all(np.abs(simulated.array - STACKED.apply(counts)) < 6 * true)


def test_answers_of_stacks_are_consistent() -> None:
    mechanism = MatrixMechanism(STACKED, BUDGET, neighbouring="replace", strategy=STACK)
    release = mechanism.release(np.full((4, 3), 7))
    assert release.estimate is not None
    np.testing.assert_allclose(STACKED.apply(release.estimate), release.answers, rtol=1e-12)
    assert release.answers[3] == pytest.approx(release.answers[-1], abs=1e-6)  # the total, twice
    assert release.guarantee.epsilon == 1.0
    alone = ProductStrategy([np.eye(4), np.ones((1, 3))])
    with pytest.raises(InvalidParameterError, match="does not answer"):
        MatrixMechanism(STACKED, BUDGET, neighbouring="replace", strategy=alone)
    with pytest.raises(ShapeError, match="one part for each product"):
        MatrixMechanism(Prefix(12), BUDGET, neighbouring="replace", strategy=STACK)


def test_the_guarantee() -> None:
    mechanism = MatrixMechanism(Prefix(9), BUDGET, neighbouring="replace")
    assert mechanism.guarantee.epsilon == 1.0
    assert mechanism.guarantee.neighbouring == "replace"
    assert mechanism.guarantee.mu <= BUDGET.mu
    release = mechanism.release(np.ones(9, int))
    assert release.guarantee == mechanism.guarantee
    assert release.measurements.covariance == mechanism.covariance
    assert "differential privacy" in repr(release)
    assert "Prefix(9)" in repr(mechanism)


def test_answers_are_consistent() -> None:
    workload = Union([Identity(6), Prefix(6), Total(6)])
    answers = MatrixMechanism(workload, BUDGET, neighbouring="add-remove").release([3] * 6).answers
    cells, prefixes, total = answers[:6], answers[6:12], answers[12]
    np.testing.assert_allclose(np.cumsum(cells), prefixes, atol=1e-9)
    assert prefixes[-1] == pytest.approx(total, abs=1e-9)


def test_keys_decide_the_noise() -> None:
    mechanism = MatrixMechanism(Prefix(5), BUDGET, neighbouring="add-remove")
    one, two = (
        mechanism.release([1] * 5, key=ReleaseKey.from_bytes(bytes(32))).answers for _ in range(2)
    )
    np.testing.assert_array_equal(one, two)
    assert np.all(mechanism.release([1] * 5).answers != one)


def test_simulations_follow_their_seed_and_are_no_releases() -> None:
    mechanism = MatrixMechanism(Prefix(8), BUDGET, neighbouring="add-remove")
    first = mechanism.simulate([2] * 8, simulation_generator(1))
    again = mechanism.simulate([2] * 8, simulation_generator(1))
    np.testing.assert_array_equal(first.array, again.array)
    np.testing.assert_allclose(first.scale, mechanism.standard_errors())
    with pytest.raises(InvalidParameterError, match="simulated"):
        np.asarray(first)


def test_a_given_strategy_is_used_if_it_answers_the_workload() -> None:
    identity = ProductStrategy([np.eye(6)])
    mechanism = MatrixMechanism(Prefix(6), BUDGET, neighbouring="add-remove", strategy=identity)
    assert mechanism.expected_error == pytest.approx(
        math.sqrt(3.5) * mechanism.covariance.scale, rel=1e-12
    )
    twice = ProductStrategy([np.ones((2, 2))])  # singular, but the total is in it
    total = MatrixMechanism(Total(2), BUDGET, neighbouring="add-remove", strategy=twice)
    assert total.expected_error == pytest.approx(total.covariance.scale / math.sqrt(2), rel=1e-9)
    with pytest.raises(InvalidParameterError, match="does not answer"):
        MatrixMechanism(Prefix(2), BUDGET, neighbouring="add-remove", strategy=twice)
    with pytest.raises(InvalidParameterError, match="does not answer"):
        MatrixMechanism(
            Prefix(6), BUDGET, neighbouring="add-remove", strategy=ProductStrategy([np.eye(6)[:5]])
        )
    with pytest.raises(ShapeError, match="make the strategy for this workload"):
        MatrixMechanism(Prefix(5), BUDGET, neighbouring="add-remove", strategy=identity)


@pytest.mark.parametrize(
    ("histogram", "message"),
    [
        ([1, 2], "4 cells"),
        ([1, 2, 3, -1], "integers"),
        ([1, 2, 3, 0.5], "integers"),
        ([1, 2, 3, np.nan], "NaN"),
        ([1, 2, 3, 2**30], "records in all"),
        (["a", "b", "c", "d"], "dtype"),
    ],
)
def test_bad_histograms_are_refused_before_anything_is_drawn(
    histogram: list[object], message: str
) -> None:
    mechanism = MatrixMechanism(Prefix(4), BUDGET, neighbouring="add-remove")
    key = ReleaseKey.from_bytes(bytes(32))
    with pytest.raises((InvalidParameterError, ShapeError), match=message):
        mechanism.release(histogram, key=key)  # type: ignore[arg-type]
    key.check_unbound()  # not spent


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (Product([Ranges(512), Ranges(512)]), "17247043584 queries"),
        (Product([Prefix(8192)] * 3), "cells"),
        (Product([Total(8192), Total(8192), Prefix(8192)]), "cells"),
    ],
    ids=repr,
)
def test_more_than_memory_holds_is_refused_before_any_work(
    workload: Workload, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matrixdp.mechanisms.matrix_mechanism.optimal_strategy", None)
    with pytest.raises(InvalidParameterError, match=message):
        MatrixMechanism(workload, BUDGET, neighbouring="add-remove")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workload": np.eye(3)}, "Dense"),
        ({"budget": 1.0}, "Budget"),
        ({"neighbouring": "swap"}, "neighbouring='swap'"),
        ({"strategy": np.eye(3)}, "Strategy"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, object], message: str) -> None:
    good = {"workload": Prefix(3), "budget": BUDGET, "neighbouring": "add-remove"}
    with pytest.raises(InvalidParameterError, match=message):
        MatrixMechanism(**(good | arguments))  # type: ignore[arg-type]


def test_threads_are_checked_and_change_nothing() -> None:
    mechanism = MatrixMechanism(marginals([2, 3], [(0,), (1,)]), BUDGET, neighbouring="add-remove")
    for release, data in (
        (mechanism.release, [1, 0, 2, 0, 1, 3]),
        (mechanism.release_records, [[0, 1], [1, 2], [1, 1]]),
    ):
        one, three = (
            release(data, key=ReleaseKey.from_bytes(bytes(32)), threads=threads).value
            for threads in (1, 3)
        )
        assert np.array_equal(one, three)
        with pytest.raises(InvalidParameterError, match="threads=0"):
            release(data, threads=0)
