"""The three functions against ball arithmetic: safe at every point, and as accurate as promised."""

import math
from typing import TypeAlias

import numpy as np
import pytest
from flint import arb, ctx
from scipy import special

from matrixdp import privacy_delta, privacy_epsilon, privacy_mu
from matrixdp.privacy import bound as bound_module
from reference import ball, domain

Points: TypeAlias = list[tuple[float, float]]
Failures: TypeAlias = list[tuple[float, float, float]]

RANDOM_POINTS = 2500
# "1 + 1e-14" as an exact decimal: g increases in mu, so a sign there locates the true bound.
JUST_ABOVE = "1.00000000000001"


def bound_errors(points: Points, values: list[float]) -> tuple[Failures, Failures]:
    """Return the points where a bound is unsafe, and those where it is too low."""
    unsafe: Failures = []
    loose: Failures = []
    for (epsilon, delta), value in zip(points, values, strict=True):
        if ball.delta_minus(value, epsilon, delta) > 0:
            unsafe.append((epsilon, delta, value))
        if ball.delta_minus(value, epsilon, delta, JUST_ABOVE) < 0:
            loose.append((epsilon, delta, value))
    return unsafe, loose


@pytest.fixture(scope="module")
def budgets() -> Points:
    golden = [(epsilon, delta) for epsilon, delta, _ in domain.vectors()]
    return golden + domain.corners() + domain.budgets(RANDOM_POINTS, seed=2026)


@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_bound_is_never_above_the_truth_and_within_1e_14(budgets: Points, kind: str) -> None:
    if kind == "scalar":
        values = [privacy_mu(*point) for point in budgets]
    else:
        values = np.asarray(privacy_mu(*np.array(budgets).T)).tolist()
    assert bound_errors(budgets, values) == ([], [])


def test_the_check_above_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    points = domain.budgets(40, seed=5)
    monkeypatch.setattr(bound_module, "_BOUND_MARGIN", -4e-15)
    unsafe, _ = bound_errors(points, [privacy_mu(*point) for point in points])
    monkeypatch.setattr(bound_module, "_BOUND_MARGIN", 2e-14)
    _, loose = bound_errors(points, [privacy_mu(*point) for point in points])
    assert len(unsafe) == len(loose) == len(points)


def test_the_margins_are_several_times_the_error_of_the_computation(
    budgets: Points, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The error analysis allows 2.8e-15; without its margin the bound is within 1.5e-15 of the
    # truth on either side, so the margin of 4e-15 is neither too small nor too large for 1e-14.
    assert 2 * 1.5e-15 <= bound_module._BOUND_MARGIN <= 1e-14 - 2.8e-15
    assert 2 * bound_module._BOUND_MARGIN <= bound_module.CURVE_MARGIN <= 1e-14 - 1.5e-15
    monkeypatch.setattr(bound_module, "_BOUND_MARGIN", 0.0)
    hard = [
        (1.8082865906837518e-51, 0.5000000281614384),
        (1.0377170957784058e-208, 0.5000000893860003),
    ]
    for epsilon, delta in budgets[::3] + hard:
        value = privacy_mu(epsilon, delta)
        assert ball.delta_minus(value, epsilon, delta, "0.9999999999999985") <= 0
        assert ball.delta_minus(value, epsilon, delta, "1.0000000000000015") >= 0


@pytest.mark.parametrize(("epsilon", "delta", "expected"), domain.vectors())
def test_bound_at_the_reference_vectors(epsilon: float, delta: float, expected: str) -> None:
    relative = arb(privacy_mu(epsilon, delta)) / arb(expected) - 1
    assert bool(abs(relative) <= arb("1e-14"))


def test_bound_agrees_with_algorithm_2_of_the_paper() -> None:
    for epsilon, delta in domain.budgets(150, seed=7):
        if not 1e-6 < epsilon < 1e4 or not delta > 1e-60:
            continue
        relative = arb(privacy_mu(epsilon, delta)) / ball.true_bound(epsilon, delta) - 1
        assert bool(relative <= 0), (epsilon, delta)
        assert bool(relative >= arb("-1e-14")), (epsilon, delta)


@pytest.mark.parametrize(
    ("noise_scale", "sensitivity", "epsilon", "delta"),
    [
        # Test values of google/differential-privacy, dp_accounting/pld/
        # privacy_loss_mechanism_test.py, computed there with another formula.
        (1.0, 1.0, 1.0, 0.12693674),
        (1.0, 3.0, 1.0, 0.78760074),
        (1.0, 1.0, 2.0, 0.02092364),
        (1.0, 1.0, 0.0, 0.38292492),
    ],
)
def test_published_values_of_delta(
    noise_scale: float, sensitivity: float, epsilon: float, delta: float
) -> None:
    assert privacy_delta(sensitivity / noise_scale, epsilon) == pytest.approx(delta, abs=5e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "noise_scale", "tolerance"),
    [
        # From 150-digit arithmetic; dp_accounting 0.6.0 has 4.224678889326822 here.
        (1.0, 1e-6, 4.22467888932684, 5e-15),
        # get_sigma_gaussian of dp_accounting 0.6.0, whose tolerance is 1e-12.
        (1.0, 1e-5, 3.7306316348159374, 1e-11),
        (0.1, 1e-5, 30.74956613197769, 1e-11),
        (5.0, 1e-8, 1.1390127816042006, 1e-11),
    ],
)
def test_published_values_of_the_noise_scale(
    epsilon: float, delta: float, noise_scale: float, tolerance: float
) -> None:
    assert 1 / privacy_mu(epsilon, delta) == pytest.approx(noise_scale, rel=tolerance)


def delta_errors(points: Points, values: list[float]) -> tuple[Failures, Failures]:
    unsafe: Failures = []
    loose: Failures = []
    for (mu, epsilon), value in zip(points, values, strict=True):
        if value == 1.0:
            continue  # every delta is at most 1; looseness shows in the values just below
        truth = ball.true_delta(mu, epsilon)
        if not bool(arb(value) >= truth):
            unsafe.append((mu, epsilon, value))
        if value <= 8 * math.ulp(0.0):
            continue  # among the smallest doubles
        excess = arb(value) - truth
        allowed = arb("1e-14") * ball.delta_condition(mu, epsilon) * truth + 8 * math.ulp(0.0)
        if not bool(excess <= allowed):
            loose.append((mu, epsilon, value))
    return unsafe, loose


@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_delta_is_never_below_the_truth_and_as_accurate_as_its_condition(kind: str) -> None:
    points = domain.curve_points(RANDOM_POINTS, seed=11)
    points += [(mu, e) for mu in (1e-307, 1e-3, 1.0, 1e4) for e in (0.0, 5e-324, 1e-3, 1.0, 1e6)]
    points += domain.subnormal_points(1500, seed=12)
    if kind == "scalar":
        values = [privacy_delta(*point) for point in points]
    else:
        values = np.asarray(privacy_delta(*np.array(points).T)).tolist()
    assert min(values) >= math.ulp(0.0)
    assert sum(1e-300 < value < 1.0 for value in values) > len(points) / 4
    assert delta_errors(points, values) == ([], [])


def test_delta_of_a_vanishing_mu_is_not_zero() -> None:
    assert privacy_delta(0.0, 1.0) == 0.0
    for epsilon in (0.0, 1e6):
        assert 0.0 < privacy_delta(math.ulp(0.0), epsilon) <= 8 * math.ulp(0.0)
    none, least = np.asarray(privacy_delta([0.0, math.ulp(0.0)], 1.0)).tolist()
    assert none == 0.0
    assert 0.0 < least <= 8 * math.ulp(0.0)


def test_delta_reaches_into_the_subnormal_numbers() -> None:
    # Just below the normal range the value still has its leading digits.
    value = privacy_delta(1.0, 38.0)
    assert 0 < value < 2.3e-308
    truth = ball.true_delta(1.0, 38.0)
    assert bool(abs(arb(value) / truth - 1) < 1e-9)


def epsilon_errors(points: Points, values: list[float]) -> tuple[Failures, Failures]:
    unsafe: Failures = []
    loose: Failures = []
    for (mu, delta), value in zip(points, values, strict=True):
        if ball.epsilon_side(mu, value, delta) > 0:
            unsafe.append((mu, delta, value))
        if value == 0.0:
            continue
        lowest = value - 1e-14 * ball.epsilon_condition(mu, value, delta)
        if lowest <= 0.0:
            truth_is_zero = ball.epsilon_side(mu, 0.0, delta) < 0
            if truth_is_zero:
                loose.append((mu, delta, value))
        elif ball.epsilon_side(mu, lowest, delta) < 0:
            loose.append((mu, delta, value))
    return unsafe, loose


@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_epsilon_is_never_below_the_truth_and_as_accurate_as_its_condition(kind: str) -> None:
    points = domain.mechanism_points(RANDOM_POINTS, seed=13)
    points += [(mu, d) for mu in (1e-300, 1e-3, 1.0, 1e4) for _, d in domain.corners()]
    if kind == "scalar":
        values = [privacy_epsilon(*point) for point in points]
    else:
        values = np.asarray(privacy_epsilon(*np.array(points).T)).tolist()
    assert sum(value > 0 for value in values) > len(points) / 2
    assert epsilon_errors(points, values) == ([], [])


@pytest.mark.parametrize("kind", ["scalar", "array"])
def test_epsilon_is_zero_exactly_where_delta_covers_everything(kind: str) -> None:
    rng = np.random.default_rng(17)
    mus = np.concatenate([10.0 ** rng.uniform(-300, 0, 150), rng.uniform(0.1, 13.5, 150)])
    truths = [ball.true_delta(mu, 0.0) for mu in mus.tolist()]
    nearest = np.array([float(truth.mid()) for truth in truths])
    enough = np.where(
        [bool(arb(n) >= t) for n, t in zip(nearest.tolist(), truths, strict=True)],
        nearest,
        np.nextafter(nearest, 1),
    )
    too_little = np.nextafter(enough, 0)
    if kind == "scalar":
        at_enough = [
            privacy_epsilon(m, d) for m, d in zip(mus.tolist(), enough.tolist(), strict=True)
        ]
        below = [
            privacy_epsilon(m, d) for m, d in zip(mus.tolist(), too_little.tolist(), strict=True)
        ]
    else:
        at_enough = np.asarray(privacy_epsilon(mus, enough)).tolist()
        below = np.asarray(privacy_epsilon(mus, too_little)).tolist()
    assert set(at_enough) == {0.0}
    assert min(below) > 0.0


def test_scipy_erfcx_is_as_accurate_as_the_error_analysis_assumes() -> None:
    # The curve asks for nothing below -0.5: there delta exceeds 1/2 and the complement is used.
    points = np.concatenate([np.linspace(-0.5, 60, 8000), 10.0 ** np.linspace(-20, 3, 500)])
    ctx.prec = 300
    try:
        truths = [arb(x).erfc() * (arb(x) * arb(x)).exp() for x in points.tolist()]
        worst = max(
            abs(float((arb(value) / truth - 1).mid()))
            for value, truth in zip(special.erfcx(points).tolist(), truths, strict=True)
        )
    finally:
        ctx.prec = 53
    assert worst < 8 * 2.0**-53
