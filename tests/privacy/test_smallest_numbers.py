"""Numbers that claim privacy, where floats underflow: never on the wrong side of the truth."""

import itertools
import math
from fractions import Fraction

import pytest
from flint import arb, ctx

from matrixdp import InvalidParameterError
from matrixdp.privacy import (
    Accountant,
    SampledPlan,
    amplified,
    before_amplification,
    composed_epsilon,
    plan_epsilon,
)

TINY = 5e-324  # the smallest float above 0
NORMAL = 2.0**-1022  # the smallest that has all of its digits
LOSSES = [0.0, TINY, 1.5e-323, 1e-320, NORMAL, 1e-300, 1e-160, 1e-16, 1.0]
LARGE_LOSSES = [699.0, 700.5, 720.0, 744.0, 745.5, 1000.0, 1e6]
RATES = [TINY, 1e-323, 1e-320, NORMAL, 1e-300, 1e-160, 1e-16, 0.01, 0.3, math.nextafter(1.0, 0.0)]
DELTAS = [NORMAL, 1e-307, 1e-200, 1e-5]


@pytest.fixture(autouse=True)
def _bits() -> None:
    ctx.prec = 3000


def true_amplified(epsilon: float, rate: float) -> arb:
    """Return log(1 + q (e^epsilon - 1)) in a form that overflows for no epsilon."""
    loss, share = arb(epsilon), arb(rate)
    if epsilon < 1.0:
        return (share * loss.expm1()).log1p()
    return loss + (share + (1 - share) * (-loss).exp()).log()


@pytest.mark.parametrize("epsilon", LOSSES + LARGE_LOSSES)
def test_an_amplified_claim_is_not_below_the_truth(epsilon: float) -> None:
    for rate, delta in itertools.product(RATES, DELTAS):
        claim = amplified(epsilon, delta, sampling_rate=rate, sampling="poisson")
        true = true_amplified(epsilon, rate)
        assert not bool(arb(claim.epsilon) < true), (rate, claim)
        # Close, too: one ten-trillionth of the two terms that are added up, or a few tiny floats.
        assert bool(
            arb(claim.epsilon) <= true + 1e-13 * (true + (epsilon > 600) * epsilon) + 1e-322
        )
        assert Fraction(claim.delta) >= Fraction(rate) * Fraction(delta)


def test_an_amplified_claim_of_no_loss_has_none() -> None:
    assert amplified(0.0, 1e-5, sampling_rate=0.3, sampling="poisson").epsilon == 0.0


@pytest.mark.parametrize("epsilon", LOSSES + LARGE_LOSSES)
def test_a_claim_before_amplification_is_not_above_the_truth(epsilon: float) -> None:
    for rate, delta in itertools.product([*RATES, 1.0], DELTAS):
        if Fraction(delta) > (1 - Fraction(1, 10**12)) * Fraction(rate):
            with pytest.raises(InvalidParameterError, match="sampling_rate="):
                before_amplification(epsilon, delta, sampling_rate=rate, sampling="poisson")
            continue
        base = before_amplification(epsilon, delta, sampling_rate=rate, sampling="poisson")
        assert base.epsilon >= epsilon
        assert not bool(true_amplified(base.epsilon, rate) > arb(epsilon)), (rate, base)
        assert Fraction(base.delta) * Fraction(rate) <= Fraction(delta)


@pytest.mark.parametrize("epsilon", LOSSES)
def test_composed_claims_are_not_below_the_truth(epsilon: float) -> None:
    loss = arb(epsilon)
    for steps, slack in itertools.product([1, 2, 1000, 10**9, 2**63], [TINY, NORMAL, 1e-5, 0.5]):
        count, rest = arb(steps), arb(slack)
        drift, spread = count * loss * (loss / 2).tanh(), count.sqrt() * loss
        logs = [(arb(1).exp() + spread / rest).log(), -rest.log()]
        true = [count * loss, *(drift + spread * (2 * log).sqrt() for log in logs)]
        found = arb(composed_epsilon(epsilon, steps, slack))
        # Theorem 3.4 is the least of the three, so some of them must be covered.
        assert any(not bool(found < each) for each in true), (steps, slack)


@pytest.mark.parametrize("multiplier", [1e10, 1e160, 1e300, 1e308, 1.7e308])
@pytest.mark.parametrize("steps", [1, 3, 10**6])
def test_the_moments_of_hardly_any_loss_are_not_below_the_truth(
    multiplier: float, steps: int
) -> None:
    plan = SampledPlan(
        noise_multiplier=multiplier, sampling_rate=1.0, steps=steps, neighbouring="replace"
    )
    mu, surprise = arb(steps).sqrt() / arb(multiplier), -arb(1e-5).log()
    true = mu * mu / 2 + mu * (2 * surprise).sqrt()
    assert not bool(arb(plan_epsilon(plan, 1e-5, Accountant.MOMENTS)) < true)
