"""The empirical auditor: it passes what is right, catches what is wrong, and says how surely."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from matrixdp import (
    IMGM,
    MVG,
    AnalyticGaussian,
    Box,
    Budget,
    ClassicGaussian,
    FrobeniusBall,
    InvalidParameterError,
    Mechanism,
    ReleaseKey,
    RowBounds,
    ShapeError,
    SymmetricBall,
    audit_mechanism,
    exposed_difference,
    privacy_delta,
    released,
    simulated,
)
from matrixdp.audit.empirical import Draw, _bounds, _epsilon_bound, _mu_bound, _Scores
from matrixdp.noise import simulation_generator
from matrixdp.sensitivity.sets import SensitivitySet
from reference import dense

SHAPE = (3, 4)
ZERO = np.zeros(SHAPE)
BALL = FrobeniusBall(1.0, neighbouring="replace")
BUDGET = Budget(1.0, 1e-5)
# MVG's noise is so large that a claim of 1 could be halved unnoticed; its formula takes any.
LARGE = Budget(300.0, 1e-5)
DIRECTIONS = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]

MECHANISMS: dict[str, Mechanism] = {
    "IMGM": IMGM(BALL, BUDGET),
    "AnalyticGaussian": AnalyticGaussian(BALL, BUDGET),
    "ClassicGaussian": ClassicGaussian(BALL, BUDGET),
    "MVG": MVG(BALL, LARGE, shape=SHAPE, norm_bound=2.0),
    "MVG, columns": MVG(
        BALL, LARGE, shape=SHAPE, norm_bound=2.0, side="columns", precision=[0.1, 0.2, 0.3, 0.4]
    ),
    "MVG, directions": MVG(
        BALL,
        LARGE,
        shape=SHAPE,
        norm_bound=2.0,
        directions=DIRECTIONS,
        precision=[0.6, 0.3, 0.1],
    ),
}
FLAWS: dict[str, Callable[[Draw], Draw]] = {
    "noise scaled by 0.7": lambda draw: lambda matrix: matrix + 0.7 * (draw(matrix) - matrix),
    "noise forgotten on one row": lambda draw: (
        lambda matrix: np.concatenate([draw(matrix)[:2], matrix[2:]])
    ),
    # The query moves twice as far as it was said to.
    "sensitivity off by two": lambda draw: lambda matrix: draw(matrix) + matrix,
}

all_mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


@all_mechanisms
def test_every_mechanism_passes(mechanism: Mechanism) -> None:
    neighbour = exposed_difference(mechanism, SHAPE)
    draw = simulated(mechanism, simulation_generator(5))
    found = audit_mechanism(mechanism, ZERO, neighbour, draw, samples=8000)
    assert not found.refuted
    # And the audit is not idle: it finds most of what there is to find.
    assert found.mu > 0.85 * mechanism.guarantee.mu - 0.12
    assert (found.samples, found.confidence) == (8000, 0.999)


@all_mechanisms
@pytest.mark.parametrize("flaw", FLAWS.values(), ids=FLAWS)
def test_flaws_are_caught(mechanism: Mechanism, flaw: Callable[[Draw], Draw]) -> None:
    neighbour = exposed_difference(mechanism, SHAPE)
    draw = flaw(simulated(mechanism, simulation_generator(6)))
    # What the smallest mu here (0.206, made 0.295 by 0.7) needs; see the docstring.
    samples = 30_000 if mechanism.guarantee.mu < 0.3 else 8000
    found = audit_mechanism(mechanism, ZERO, neighbour, draw, samples=samples)
    assert found.refuted


def test_exact_releases_pass_and_their_flaws_are_caught() -> None:
    mechanism = IMGM(BALL, Budget(10.0, 1e-5))
    neighbour = exposed_difference(mechanism, SHAPE)
    bits = np.random.default_rng(8)

    def draw(matrix: np.ndarray) -> np.ndarray:
        key = ReleaseKey.from_bytes(bits.bytes(32))
        return np.asarray(mechanism.release(matrix, key=key).value)

    assert not audit_mechanism(mechanism, ZERO, neighbour, draw, samples=1000).refuted
    for flaw in FLAWS.values():
        assert audit_mechanism(mechanism, ZERO, neighbour, flaw(draw), samples=1000).refuted


def test_fresh_releases_can_be_drawn() -> None:
    mechanism = IMGM(BALL, BUDGET)
    draw = released(mechanism)
    assert np.all(draw(ZERO) != draw(ZERO))


@pytest.mark.parametrize(
    "sensitivity",
    [
        SymmetricBall(1.0, neighbouring="replace"),
        RowBounds([1.0, 2.0, 0.5], neighbouring="replace"),
        Box([0.1, 5.0, 1.0], neighbouring="replace"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_sets_with_a_pair_of_ones_own(sensitivity: SensitivitySet) -> None:
    mechanism = IMGM(sensitivity, Budget(4.0, 1e-5))
    zero = np.zeros((3, 3))
    worst = dense.worst_member(sensitivity, mechanism.covariance, (3, 3))
    draw = simulated(mechanism, simulation_generator(7))
    assert not audit_mechanism(mechanism, zero, worst, draw, samples=6000).refuted
    assert audit_mechanism(mechanism, zero, 2 * worst, draw, samples=6000).refuted
    with pytest.raises(InvalidParameterError, match=type(sensitivity).__name__):
        exposed_difference(mechanism, (3, 3))


def test_exposed_differences_are_in_the_ball_and_nearly_worst() -> None:
    for mechanism in MECHANISMS.values():
        difference = exposed_difference(mechanism, SHAPE)
        assert np.linalg.norm(difference) <= BALL.bound
        assert np.all(np.linalg.norm(difference, axis=1) > 0)
        whitened = float(np.linalg.norm(mechanism.covariance.whiten(difference)))
        assert 0.98 * mechanism.guarantee.mu <= whitened <= mechanism.guarantee.mu * (1 + 1e-9)


def test_right_mechanisms_are_refuted_no_more_often_than_said() -> None:
    # 200 audits at confidence 0.7: at most 60 false alarms are expected, 78 are three standard
    # deviations more. A mechanism whose mu is 1.5 times its claim must be caught more often.
    mechanism = IMGM(BALL, Budget(8.0, 1e-3))
    generator = simulation_generator(9)
    draw = simulated(mechanism, generator)
    matrix, neighbour = np.zeros((1, 2)), np.array([[0.6, 0.8]])

    def alarms(pair: np.ndarray) -> int:
        return sum(
            audit_mechanism(mechanism, matrix, pair, draw, samples=200, confidence=0.7).refuted
            for _ in range(200)
        )

    assert alarms(neighbour * (1 - 1e-9)) <= 78
    assert alarms(neighbour * 1.5) > 150


def test_the_intervals_are_clopper_and_pearsons() -> None:
    before = np.array([0.0] * 90 + [1.0] * 10)
    after = np.array([0.0] * 40 + [1.0] * 60)
    scores = _Scores(before, after)
    low = stats.binomtest(60, 100).proportion_ci(0.98, "exact").low
    high = stats.binomtest(10, 100).proportion_ci(0.98, "exact").high
    half = np.array([0.5])
    found = _bounds(scores, half, 0.01, _epsilon_bound(1e-5), above=True)
    assert found == pytest.approx(np.log((low - 1e-5) / high), rel=1e-9)
    mu = _bounds(scores, half, 0.01, _mu_bound, above=True)
    assert mu == pytest.approx(stats.norm.ppf(low) - stats.norm.ppf(high), rel=1e-9)
    # The other side: below the threshold, the first input is likelier.
    low = stats.binomtest(90, 100).proportion_ci(0.98, "exact").low
    high = stats.binomtest(40, 100).proportion_ci(0.98, "exact").high
    other = _bounds(scores, half, 0.01, _mu_bound, above=False)
    assert other == pytest.approx(stats.norm.ppf(low) - stats.norm.ppf(high), rel=1e-9)
    # Events that never or always happen.
    edges = _bounds(scores, np.array([-1.0, 2.0]), 0.01, _mu_bound, above=True)
    assert np.all(edges < 0)


def test_the_bounds_are_what_the_curve_says_of_exact_probabilities() -> None:
    # With infinitely many samples of a Gaussian mechanism no event shows more than its mu, and the
    # best event shows its epsilon.
    mu, epsilon = 1.3, 2.0
    delta = privacy_delta(mu, epsilon)
    thresholds = np.linspace(-5, 7, 20_001)
    after, before = stats.norm.sf(thresholds - mu), stats.norm.sf(thresholds)
    assert np.max(_epsilon_bound(delta)(after, before)) == pytest.approx(epsilon, abs=1e-6)
    np.testing.assert_allclose(_mu_bound(after, before)[2000:18_000], mu, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"neighbour": np.zeros((2, 2))}, ShapeError, r"\(2, 2\)"),
        ({"neighbour": ZERO}, ShapeError, "not be equal"),
        ({"neighbour": np.full(SHAPE, np.nan)}, InvalidParameterError, "neighbour"),
        ({"samples": 10}, InvalidParameterError, "samples=10"),
        ({"samples": 10**9}, InvalidParameterError, "samples=1000000000"),
        ({"confidence": 1.0}, InvalidParameterError, r"confidence=1\.0"),
        ({"confidence": float("nan")}, InvalidParameterError, "confidence=nan"),
    ],
)
def test_bad_parameters(change: dict[str, object], error: type[Exception], told: str) -> None:
    mechanism = IMGM(BALL, BUDGET)
    arguments: dict[str, object] = {
        "neighbour": exposed_difference(mechanism, SHAPE),
        "draw": simulated(mechanism, simulation_generator(1)),
        **change,
    }
    with pytest.raises(error, match=told):
        audit_mechanism(mechanism, ZERO, **arguments)  # type: ignore[arg-type]
