"""Privacy loss distributions: on the safe side of their own rounding, and refused beyond it."""

import math
from typing import Any

import numpy as np
import pytest

from matrixdp import privacy_delta, privacy_epsilon
from matrixdp.errors import CalibrationError
from matrixdp.privacy import Accountant, SampledPlan, accountants, plan_epsilon, renyi_epsilon
from reference.plans import needs_accounting, sampled


def composed_delta(pmf: Any, steps: int, epsilon: float) -> float:
    """Return the delta of a discrete loss distribution after many quiet steps, precisely.

    With p the distribution of one step, ``p^T = delta_0 + ifft(expm1(T log1p(fft(p - delta_0))))``:
    what a plain power rounds against 1 is kept.
    """
    losses = dict(enumerate(pmf._probs.tolist(), start=pmf._lower_loss))
    half = math.ceil(40.0 / pmf._discretization)
    near = {place: mass for place, mass in losses.items() if abs(place) < half}
    lost = pmf._infinity_mass + math.fsum(losses[place] for place in losses.keys() - near.keys())
    change = np.zeros(1 << (2 * half).bit_length())
    for place, mass in near.items():
        change[place] = mass  # negative places count from the end
    change[0] = 0.0
    change[0] = -(math.fsum(change) + lost)
    after = np.fft.ifft(np.expm1(steps * np.log1p(np.fft.fft(change)))).real[:half]
    loss = np.arange(half) * pmf._discretization
    above = loss > epsilon
    return math.fsum(after[above] * -np.expm1(epsilon - loss[above])) - math.expm1(
        steps * math.log1p(-lost)
    )


@needs_accounting
@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(0.4, 2e-6, 10_000), (0.4, 1e-6, 5_000)])
def test_fourier_transforms_give_no_privacy_away(
    multiplier: float, rate: float, steps: int
) -> None:
    # At the smallest delta that is accepted the rounding of the library's power is the largest.
    import dp_accounting.pld.privacy_loss_distribution as distributions  # noqa: PLC0415

    plan, delta = sampled(multiplier, rate, steps), 1e-14 * steps * (1 + 1e-9)
    epsilon = plan_epsilon(plan, delta)
    one: Any = distributions.from_gaussian_mechanism(
        standard_deviation=multiplier,
        sampling_prob=rate,
        pessimistic_estimate=True,
        value_discretization_interval=accountants._interval(plan),
    )
    for pmf in (one._pmf_remove, one._pmf_add):
        assert composed_delta(pmf, steps, epsilon) <= delta
    assert composed_delta(one._pmf_remove, steps, 0.9 * epsilon) > delta
    with pytest.raises(CalibrationError, match="delta="):
        plan_epsilon(plan, 0.99e-14 * steps)


@needs_accounting
def test_a_delta_that_cannot_be_resolved_is_refused() -> None:
    with pytest.raises(CalibrationError, match="resolves"):
        plan_epsilon(sampled(1.0, 0.1, 10), 1e-13)
    assert plan_epsilon(sampled(1.0, 0.1, 10), 1e-13, Accountant.RDP) > 0


@needs_accounting
def test_little_noise_is_accounted_for_in_bounded_memory() -> None:
    # Losses of thousands, in intervals that widen with them: still an upper bound, and close.
    plan = sampled(0.1, 0.9, 50)
    tight = plan_epsilon(plan, 1e-5)
    assert tight <= privacy_epsilon(plan.whole_mu, 1e-5) * 1.001
    assert tight >= 0.8 * privacy_epsilon(plan.whole_mu, 1e-5)


@needs_accounting
@pytest.mark.parametrize(("multiplier", "rate", "steps"), [(162.47, 0.02, 1000), (1e3, 0.1, 100)])
def test_much_noise_is_not_drowned_in_rounding(multiplier: float, rate: float, steps: int) -> None:
    # Many small losses add up to nearly a normal one, with mu = rate sqrt(steps) / multiplier.
    limit = privacy_epsilon(rate * math.sqrt(steps) / multiplier, 1e-5)
    assert limit <= plan_epsilon(sampled(multiplier, rate, steps), 1e-5) <= 1.002 * limit


@needs_accounting
def test_many_quiet_steps_are_accounted_closely() -> None:
    # A million steps, nearly normal: mu = rate sqrt(steps) / multiplier.
    plan = sampled(2764.0, 0.01, 10**6)
    limit = privacy_epsilon(0.01 * 1000 / 2764, 1e-5)
    assert limit <= plan_epsilon(plan, 1e-5) <= 1.01 * limit
    renyi = plan_epsilon(plan, 1e-5, Accountant.RDP)
    assert renyi == pytest.approx(renyi_epsilon(0.01 * 1000 / 2764, 1e-5), rel=1e-4)


@needs_accounting
@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (sampled(1.0, 1e-320, 10), "sampling_rate=1e-320"),
        (sampled(1e300, 0.5, 10), r"noise_multiplier=1e\+300"),
        (sampled(1e5, 0.5, 10**9), "steps=1000000000"),
    ],
)
def test_what_loss_distributions_do_not_resolve_is_refused(plan: SampledPlan, message: str) -> None:
    with pytest.raises(CalibrationError, match=message):
        plan_epsilon(plan, 1e-5)
    assert plan_epsilon(plan, 1e-5, Accountant.RDP) >= 0.0


@needs_accounting
@pytest.mark.parametrize(
    ("multiplier", "steps", "delta"),
    [(30.0, 1000, 1e-11), (100.0, 10_000, 1.1e-10), (100.0, 10_000, 1e-9)],
)
def test_composed_losses_are_on_the_safe_side_at_small_deltas(
    multiplier: float, steps: int, delta: float
) -> None:
    # At a sampling rate of 1 - 1e-12 the truth is the exact curve, less at most 1e-8 of delta.
    plan = SampledPlan(
        noise_multiplier=multiplier,
        sampling_rate=1.0 - 1e-12,
        steps=steps,
        neighbouring="add-remove",
    )
    epsilon = plan_epsilon(plan, delta, Accountant.PLD)
    mu = math.sqrt(steps) / multiplier
    assert privacy_delta(mu, epsilon) * (1 - 1e-7) <= delta
