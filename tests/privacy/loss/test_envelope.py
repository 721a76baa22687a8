"""The cost of a sampled plan that is chosen later; and why its history is no such cost."""

import math

import numpy as np
import pytest
from flint import arb, ctx
from scipy import integrate, stats

from matrixdp import InvalidParameterError
from matrixdp.privacy import (
    GaussianRelease,
    LossAccount,
    PlanEnvelope,
    SampledPlan,
    plan_envelope,
    privacy_delta,
    privacy_epsilon,
)
from matrixdp.privacy.loss.envelope import covers
from reference.ball import curve
from reference.loss_checks import RELATIONS, steps_of
from reference.loss_composition import composed_delta
from reference.loss_truth import Pair, largest_delta


def sampled(rate: float, steps: int, multiplier: float) -> SampledPlan:
    return SampledPlan(
        noise_multiplier=multiplier, sampling_rate=rate, steps=steps, neighbouring="add-remove"
    )


def of_envelope(envelope: PlanEnvelope, epsilon: float) -> arb:
    """Return the curve of a leak and a release, in ball arithmetic."""
    with ctx.workprec(200):
        leak = arb(envelope.delta)
        return leak + (1 - leak) * curve(arb(envelope.mu), arb(epsilon))


@pytest.mark.parametrize("relation", sorted(RELATIONS))
@pytest.mark.parametrize(("multiplier", "rate"), [(0.8, 0.01), (2.0, 0.3)])
@pytest.mark.parametrize("leak", [1e-3, 1e-9])
def test_the_envelope_of_one_step_is_above_its_closed_form(
    relation: str, multiplier: float, rate: float, leak: float
) -> None:
    envelope = plan_envelope(steps_of(relation, multiplier, rate, 1), delta=leak)
    with ctx.workprec(200):
        for epsilon in np.linspace(0.0, 12.0, 60):
            true = largest_delta(RELATIONS[relation], multiplier, rate, float(epsilon))
            assert bool(true <= of_envelope(envelope, float(epsilon)))


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.1, 1.7, 2.1])
def test_the_envelope_of_many_steps_is_above_ball_arithmetic(epsilon: float) -> None:
    envelope = plan_envelope(sampled(0.017, 1000, 1.5), delta=1e-7)
    parts = [(Pair(1.5, 0.017, "remove"), 1000)]
    with ctx.workprec(200):
        assert bool(composed_delta(parts, epsilon) <= of_envelope(envelope, epsilon))


def test_the_least_mu_is_found() -> None:
    # Somewhere the plan reaches the envelope: with a little less it would be above it.
    plan, leak = sampled(0.017, 1000, 1.5), 1e-7
    envelope = plan_envelope(plan, delta=leak)
    account = LossAccount([plan])
    less = 0.99 * envelope.mu
    gaps = [
        account.delta_at(epsilon).lower - leak - (1 - leak) * privacy_delta(less, epsilon)
        for epsilon in np.linspace(0.0, 2.5, 40)
    ]
    assert max(gaps) > 0.0


@pytest.mark.parametrize("mu", [0.05, 1.0, 4.0])
def test_the_envelope_of_a_release_is_the_release(mu: float) -> None:
    envelope = plan_envelope(GaussianRelease(mu=mu, neighbouring="add-remove"), delta=1e-12)
    assert mu * (1.0 - 1e-4) <= envelope.mu <= mu * (1.0 + 1e-2)
    assert envelope.delta == 1e-12


def test_a_plan_that_is_hardly_ever_sampled_needs_no_release() -> None:
    assert plan_envelope(sampled(1e-6, 3, 1.0), delta=1e-5) == PlanEnvelope(0.0, 1e-5)


@pytest.mark.parametrize(
    ("plan", "most"),
    [(sampled(0.017, 1000, 1.5), 1.03), (sampled(0.082, 2500, 5.0), 1.03)],
)
def test_choosing_later_costs_little_more_than_declaring(plan: SampledPlan, most: float) -> None:
    releases = GaussianRelease(mu=0.3, neighbouring="add-remove")
    declared = LossAccount([plan, releases]).epsilon_at(1e-6).lower
    envelope = plan_envelope(plan, delta=1e-7)
    later = privacy_epsilon(math.hypot(envelope.mu, 0.3), 1e-6 - 1e-7)
    assert 1.0 < later / declared < most


def test_a_chord_above_the_curve_is_not_covered() -> None:
    # Both ends are on the Gaussian curve itself, and between them the chord is above it.
    ends = np.array([0.0, 1.0])
    uppers = np.array([privacy_delta(1.0, 0.0), privacy_delta(1.0, 1.0)])
    assert not covers(ends, uppers, 1e-9, 1.0)
    assert covers(ends, uppers, 1e-9, 1.3)
    # Nor is one that is close enough, by less than rounding.
    close = np.array([0.0, 1e-9])
    assert not covers(close, uppers[[0, 0]] * (1.0 + 1e-6), 1e-9, 1.0)


def test_probabilities_that_a_float_loses_are_not_taken_for_zero() -> None:
    # Phi(-40) is below every float, but e^600 times it is half of what the release has there.
    mu, ends = 20.0, np.array([600.0, 600.0 + 1e-9])
    above = 1.5 * privacy_delta(mu, 600.0)
    assert above < stats.norm.cdf(mu / 2 - 600.0 / mu)
    assert not covers(ends, np.array([above, above]), 1e-95, mu)


@pytest.mark.parametrize("delta", [0.0, 1.0, math.nan])
def test_a_leak_is_a_probability(delta: float) -> None:
    with pytest.raises(InvalidParameterError, match="delta"):
        plan_envelope(sampled(0.01, 10, 1.0), delta=delta)


# Why the account of a realised history is no filter.

EPSILON, DELTA = 4.0, 1e-6
FIRST, SECOND = 0.701, 0.459
RARE = (1e-4, 0.297)  # rate and multiplier of one step


def gaussian_curve(mu: float, epsilon: float) -> float:
    """Return delta at any real epsilon, from its definition by two tails."""
    return float(
        stats.norm.sf(epsilon / mu - mu / 2)
        - math.exp(epsilon) * stats.norm.sf(epsilon / mu + mu / 2)
    )


def rare_curve(epsilon: float) -> float:
    """Return delta of one rare step at any real epsilon: where its loss is above that."""
    rate, multiplier = RARE
    change = math.expm1(epsilon) / rate
    if change <= -1.0:
        return -math.expm1(epsilon)
    position = multiplier * math.log1p(change) + 0.5 / multiplier
    above = stats.norm.sf(position)
    mixed = (1.0 - rate) * above + rate * stats.norm.sf(position - 1.0 / multiplier)
    return float(mixed - math.exp(epsilon) * above)


def test_the_account_of_a_history_is_not_a_filter() -> None:
    # Each of two histories just keeps (4, 1e-6). Which of them becomes true may depend on the first
    # output; then the whole has nearly twice that delta.
    first = GaussianRelease(mu=FIRST, neighbouring="add-remove")
    rate, multiplier = RARE
    histories: list[list[GaussianRelease | SampledPlan]] = [
        [first, GaussianRelease(mu=SECOND, neighbouring="add-remove")],
        [first, sampled(rate, 1, multiplier)],
    ]
    for history in histories:
        found = LossAccount(history).delta_at(EPSILON)
        assert 0.98 * DELTA < found.lower <= found.upper <= 1.01 * DELTA

    def adaptive(x: float) -> float:
        left = EPSILON - (FIRST * x + 0.5 * FIRST**2)  # of epsilon, for what follows
        return float(stats.norm.pdf(x)) * max(gaussian_curve(SECOND, left), rare_curve(left))

    whole, error = integrate.quad(adaptive, -9.0, 12.0, limit=2000, epsabs=1e-14)
    assert error < 1e-10
    assert whole == pytest.approx(1.97e-6, rel=5e-3)
    # What a ledger adds up instead is the envelope of the step, beside the two releases.
    envelope = plan_envelope(sampled(rate, 1, multiplier), delta=1e-7)
    assert privacy_delta(math.hypot(FIRST, envelope.mu), EPSILON) + 1e-7 > DELTA
