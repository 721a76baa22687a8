"""The empirical auditor: it passes what is right, catches what is wrong, and says how surely."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import stats

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    MatrixMechanism,
    Mechanism,
    Release,
    ReleaseKey,
    RowBounds,
    RowBox,
    SymmetricBall,
    privacy_delta,
)
from matrixdp.audit import (
    audit_mechanism,
    empirical,
    exposed_difference,
    release_sampler,
    simulation_sampler,
)
from matrixdp.audit.empirical import (
    Draw,
    EmpiricalAudit,
    _bounds,
    _epsilon_bound,
    _mu_bound,
    _Scores,
)
from matrixdp.baselines import MVG, AnalyticGaussian, ClassicGaussian
from matrixdp.errors import ShapeError
from matrixdp.noise import simulation_generator
from matrixdp.privacy.guarantee import HasGuarantee, Neighbouring
from matrixdp.sensitivity.sets import SensitivitySet
from matrixdp.workloads import Prefix
from reference import dense

SHAPE = (3, 4)
ZERO = np.zeros(SHAPE)
BALL = FrobeniusBall(1.0, neighbouring="replace")
BUDGET = Budget(1.0, 1e-5)
# MVG's noise is so large that a claim of 1 could be halved unnoticed; its formula takes any.
LARGE = Budget(300.0, 1e-5)
DIRECTIONS = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))[0]

MECHANISMS: dict[str, Mechanism[Release]] = {
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


@dataclass(frozen=True)
class Subject:
    """What is audited: a promise, two inputs, outputs with noise, and outputs without."""

    claimant: HasGuarantee
    matrix: np.ndarray
    neighbour: np.ndarray
    noisy: Callable[[np.random.Generator], Draw]
    plain: Draw = lambda matrix: matrix

    def audit(self, draw: Draw, samples: int) -> EmpiricalAudit:
        difference = self.plain(self.neighbour) - self.plain(self.matrix)
        return audit_mechanism(
            self.claimant,
            self.matrix,
            self.neighbour,
            draw,
            difference=difference,
            samples=samples,
        )


def gaussian(mechanism: Mechanism[Release]) -> Subject:
    half = 0.5 * exposed_difference(mechanism, SHAPE)
    return Subject(
        mechanism, -half, half, lambda generator: simulation_sampler(mechanism, generator)
    )


def several_releases(count: int) -> Subject:
    """Return IMGM on parts of one budget, all outputs side by side."""
    parts = [IMGM(BALL, part) for part in BUDGET.split(count)]
    half = 0.5 * exposed_difference(parts[0], SHAPE)

    def noisy(generator: np.random.Generator) -> Draw:
        draws = [simulation_sampler(part, generator) for part in parts]
        return lambda matrix: np.concatenate([draw(matrix) for draw in draws])

    return Subject(
        IMGM(BALL, BUDGET), -half, half, noisy, lambda matrix: np.tile(matrix, (count, 1))
    )


def prefix_sums(cells: int, neighbouring: Neighbouring) -> Subject:
    """Return the Matrix Mechanism on histograms that differ by a record."""
    # Its simulation is slow: with more budget, fewer samples show as much.
    mechanism = MatrixMechanism(Prefix(cells), Budget(4.0, 1e-5), neighbouring=neighbouring)
    records = np.eye(cells)
    first = np.zeros(cells) if neighbouring == "add-remove" else records[-1]

    def noisy(generator: np.random.Generator) -> Draw:
        return lambda counts: mechanism.simulate(counts[0], generator).array[None, :]

    return Subject(
        mechanism,
        first[None, :],
        records[:1],
        noisy,
        lambda counts: mechanism.workload.apply(counts[0])[None, :],
    )


SUBJECTS: dict[str, Subject] = {
    **{name: gaussian(mechanism) for name, mechanism in MECHANISMS.items()},
    "four releases": several_releases(4),
    "MatrixMechanism": prefix_sums(6, "add-remove"),
    "MatrixMechanism, replace": prefix_sums(6, "replace"),
}
Flaw = Callable[[Draw, Draw], Draw]
FLAWS: dict[str, Flaw] = {
    "noise scaled by 0.7": lambda noisy, plain: (
        lambda matrix: plain(matrix) + 0.7 * (noisy(matrix) - plain(matrix))
    ),
    "noise forgotten on one row": lambda noisy, plain: (
        lambda matrix: forgotten(noisy(matrix), plain(matrix))
    ),
    # The query moves twice as far as it was said to.
    "sensitivity off by two": lambda noisy, plain: lambda matrix: noisy(matrix) + plain(matrix),
}


def forgotten(noisy: np.ndarray, plain: np.ndarray) -> np.ndarray:
    """Return the noisy rows, the last of them without noise; of one row the first entry."""
    if len(noisy) > 1:
        return np.concatenate([noisy[:-1], plain[-1:]])
    return np.concatenate([plain[:, :1], noisy[:, 1:]], axis=1)


# Each takes seconds, and they are made of the mechanisms above.
COMPOSED = ("four releases", "MatrixMechanism", "MatrixMechanism, replace")
# Theirs is independent noise of one scale, like IMGM's.
ALIKE = ("AnalyticGaussian", "ClassicGaussian")


def each_subject(*thorough: str) -> pytest.MarkDecorator:
    """Return a parameter for every subject, some of them only for thorough tests."""
    parameters = [
        pytest.param(subject, id=name, marks=[pytest.mark.thorough] * (name in thorough))
        for name, subject in SUBJECTS.items()
    ]
    return pytest.mark.parametrize("subject", parameters)


def samples_for(subject: Subject) -> int:
    """Return what the smallest mu here (0.206, made 0.295 by 0.7) needs; see the docstring."""
    return 30_000 if subject.claimant.guarantee.mu < 0.3 else 8000


@each_subject(*COMPOSED)
def test_every_mechanism_passes(subject: Subject) -> None:
    found = subject.audit(subject.noisy(simulation_generator(5)), 8000)
    assert not found.refuted
    # And the audit is not idle: it finds most of what there is to find.
    assert found.mu > 0.85 * subject.claimant.guarantee.mu - 0.12
    assert (found.samples, found.confidence) == (8000, 0.999)


@each_subject(*COMPOSED, *ALIKE)
@pytest.mark.parametrize("flaw", FLAWS.values(), ids=FLAWS)
def test_flaws_are_caught(subject: Subject, flaw: Flaw) -> None:
    draw = flaw(subject.noisy(simulation_generator(6)), subject.plain)
    assert subject.audit(draw, samples_for(subject)).refuted


def test_a_weakened_auditor_misses_the_flaws(monkeypatch: pytest.MonkeyPatch) -> None:
    # So the tests above can fail: a blunt direction misses the forgotten row, and bounds by the
    # general epsilon alone miss the noise that is too small and the sensitivity that is.
    subject, generator = SUBJECTS["IMGM"], simulation_generator(6)
    draws = {name: flaw(subject.noisy(generator), subject.plain) for name, flaw in FLAWS.items()}
    with monkeypatch.context() as blunt:
        blunt.setattr(empirical, "_direction", lambda _before, _after, difference: difference)
        assert not subject.audit(draws["noise forgotten on one row"], 30_000).refuted
    with monkeypatch.context() as general:
        general.setattr(empirical, "_mu_bound", _epsilon_bound(BUDGET.delta))
        for name in ("noise scaled by 0.7", "sensitivity off by two"):
            assert subject.audit(draws[name], 30_000).epsilon < BUDGET.epsilon


def test_size_is_no_matter() -> None:
    # The smallest and the largest differences that floats have room for.
    for bound in (1e-300, 1e300):
        mechanism = IMGM(FrobeniusBall(bound, neighbouring="replace"), Budget(4.0, 1e-5))
        subject = gaussian(mechanism)
        noisy = subject.noisy(simulation_generator(5))
        assert not subject.audit(noisy, 8000).refuted
        scaled = FLAWS["noise scaled by 0.7"](noisy, subject.plain)
        assert subject.audit(scaled, 8000).refuted


def test_a_difference_too_small_for_floats_is_refused() -> None:
    mechanism = IMGM(BALL, Budget(4.0, 1e-5))
    draw = simulation_sampler(mechanism, simulation_generator(5))
    with pytest.raises(InvalidParameterError, match="differ by at most"):
        audit_mechanism(mechanism, np.zeros((2, 2)), 1e-320 * np.eye(2), draw, samples=1000)


def test_what_is_chosen_and_what_is_bounded_are_other_samples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Two bounds, each on two sides: a quarter of the risk for each; the direction and the events
    # are chosen on the first quarter, which no bound sees.
    risks: list[float] = []
    learned: list[int] = []
    counted: list[int] = []
    best, direction, bounds = empirical._best_bound, empirical._direction, empirical._bounds

    def spied_best(scores: _Scores, choosing: int, miss: float, bound: Any) -> float:
        risks.append(miss)
        return best(scores, choosing, miss, bound)

    def spied_direction(before: Any, after: Any, difference: Any) -> Any:
        learned.extend((len(before), len(after)))
        return direction(before, after, difference)

    def spied_bounds(scores: _Scores, *arguments: Any, **options: Any) -> Any:
        counted.append(len(scores.before))
        return bounds(scores, *arguments, **options)

    monkeypatch.setattr(empirical, "_best_bound", spied_best)
    monkeypatch.setattr(empirical, "_direction", spied_direction)
    monkeypatch.setattr(empirical, "_bounds", spied_bounds)
    mechanism = IMGM(BALL, Budget(4.0, 1e-5))
    neighbour = exposed_difference(mechanism, (2, 2))
    draw = simulation_sampler(mechanism, simulation_generator(5))
    audit_mechanism(mechanism, np.zeros((2, 2)), neighbour, draw, samples=2000, confidence=0.9)
    assert risks == pytest.approx([0.1 / 4] * 2)
    assert learned == [500, 500]
    assert set(counted) == {500, 1500}


def test_exact_releases_pass_and_their_flaws_are_caught() -> None:
    mechanism = IMGM(BALL, Budget(10.0, 1e-5))
    bits = np.random.default_rng(8)

    def draw(matrix: np.ndarray) -> np.ndarray:
        key = ReleaseKey.from_bytes(bits.bytes(32))
        return np.asarray(mechanism.release(matrix, key=key).value)

    subject = gaussian(mechanism)
    assert not subject.audit(draw, 1000).refuted
    for flaw in FLAWS.values():
        assert subject.audit(flaw(draw, subject.plain), 1000).refuted


def test_fresh_releases_can_be_drawn() -> None:
    mechanism = IMGM(BALL, BUDGET)
    draw = release_sampler(mechanism)
    assert np.all(draw(ZERO) != draw(ZERO))


@pytest.mark.parametrize(
    "sensitivity",
    [
        SymmetricBall(1.0, neighbouring="replace"),
        RowBounds([1.0, 2.0, 0.5], neighbouring="replace"),
        RowBox([0.1, 5.0, 1.0], neighbouring="replace"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_sets_with_a_pair_of_ones_own(sensitivity: SensitivitySet) -> None:
    mechanism = IMGM(sensitivity, Budget(4.0, 1e-5))
    zero = np.zeros((3, 3))
    worst = dense.worst_member(sensitivity, mechanism.covariance, (3, 3))
    draw = simulation_sampler(mechanism, simulation_generator(7))
    assert not audit_mechanism(mechanism, zero, worst, draw, samples=6000).refuted
    assert audit_mechanism(mechanism, zero, 2 * worst, draw, samples=6000).refuted
    with pytest.raises(InvalidParameterError, match=type(sensitivity).__name__):
        exposed_difference(mechanism, (3, 3))


def test_a_bound_where_floats_end_is_refused() -> None:
    mechanism = IMGM(FrobeniusBall(5e-324, neighbouring="replace"), BUDGET)
    with pytest.raises(InvalidParameterError, match="sensitivity=5e-324"):
        exposed_difference(mechanism, SHAPE)


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
    draw = simulation_sampler(mechanism, generator)
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
    ("change", "error", "message"),
    [
        ({"neighbour": np.zeros((2, 2))}, ShapeError, r"\(2, 2\)"),
        ({"neighbour": ZERO}, ShapeError, "not be equal"),
        ({"neighbour": np.full(SHAPE, np.nan)}, InvalidParameterError, "neighbour"),
        ({"samples": 10}, InvalidParameterError, "samples=10"),
        ({"samples": 10**9}, InvalidParameterError, "samples=1000000000"),
        ({"difference": np.zeros(12)}, InvalidParameterError, "difference is zero"),
        ({"difference": np.ones(13)}, ShapeError, "12 numbers where 13 differ"),
        ({"difference": [[1.0], [1.0, 2.0]]}, ShapeError, "difference is ragged"),
        ({"difference": np.ones((60, 60))}, InvalidParameterError, "3600 entries are too large"),
        ({"draw": lambda matrix: matrix + np.inf}, InvalidParameterError, "range of a float"),
        ({"confidence": 1.0}, InvalidParameterError, r"confidence=1\.0"),
        ({"confidence": float("nan")}, InvalidParameterError, "confidence=nan"),
    ],
)
def test_bad_parameters(change: dict[str, object], error: type[Exception], message: str) -> None:
    mechanism = IMGM(BALL, BUDGET)
    arguments: dict[str, object] = {
        "neighbour": exposed_difference(mechanism, SHAPE),
        "draw": simulation_sampler(mechanism, simulation_generator(1)),
        **change,
    }
    with pytest.raises(error, match=message):
        audit_mechanism(mechanism, ZERO, **arguments)  # type: ignore[arg-type]
