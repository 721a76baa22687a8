"""Steps that see all of the data: the Gaussian curve, which is proven elsewhere."""

import pytest
from flint import arb, ctx
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from matrixdp import InvalidParameterError, privacy_delta, privacy_epsilon
from matrixdp.privacy import GaussianRelease, LossAccount, SampledPlan
from reference.ball import curve
from reference.loss_checks import account_of, powers


def true_mu(relation: str, multiplier: float, steps: int) -> arb:
    """Return the mu of all steps: two opposite contributions are twice as far apart as one."""
    return arb(2 if relation == "replace" else 1) * arb(steps).sqrt() / arb(multiplier)


@settings(max_examples=40)
@given(
    st.sampled_from(["add-remove", "replace"]),
    powers(0.5, 1e3),
    st.integers(1, 1000),
    powers(1e-100, 0.1),
)
def test_epsilon(relation: str, multiplier: float, steps: int, delta: float) -> None:
    with ctx.workprec(2000):
        mu = true_mu(relation, multiplier, steps)
        assume(bool(mu < 30))
        lower, upper = account_of(relation, [(multiplier, 1.0, steps)]).epsilon_at(delta)
        assert bool(curve(mu, arb(upper)) <= arb(delta))
        assert lower == 0.0 or bool(curve(mu, arb(lower)) >= arb(delta))
    # What is known in closed form is known to many digits.
    assert upper == pytest.approx(privacy_epsilon(float(mu.mid()), delta), rel=1e-3, abs=1e-9)


@settings(max_examples=40)
@given(powers(0.5, 1e3), st.integers(1, 1000), powers(1e-6, 50.0))
def test_delta(multiplier: float, steps: int, epsilon: float) -> None:
    with ctx.workprec(2000):
        mu = true_mu("add-remove", multiplier, steps)
        true = curve(mu, arb(epsilon))
        assume(bool(true > 1e-100) and bool(mu < 30))
        lower, upper = account_of("add-remove", [(multiplier, 1.0, steps)]).delta_at(epsilon)
        assert bool(arb(lower) <= true)
        assert bool(true <= arb(upper))
    assert lower <= privacy_delta(float(mu.mid()), epsilon) * (1 + 1e-9)


def test_a_release_alone_and_a_bounded_difference() -> None:
    release = LossAccount([GaussianRelease(mu=0.3, neighbouring="replace")]).epsilon_at(1e-6)
    assert release.lower <= privacy_epsilon(0.3, 1e-6) * (1 + 1e-9)
    assert release.upper >= privacy_epsilon(0.3, 1e-6) * (1 - 1e-9)
    # The default multiplier is over the difference of two contributions: 1/s, and not 2/s.
    plan = SampledPlan(noise_multiplier=20.0, sampling_rate=1.0, steps=36, neighbouring="replace")
    lower, upper = LossAccount([plan]).epsilon_at(1e-6)
    assert lower * (1 - 1e-9) <= privacy_epsilon(0.3, 1e-6) <= upper * (1 + 1e-9)


def test_a_bounded_difference_does_not_go_with_sampling() -> None:
    with pytest.raises(InvalidParameterError, match="neighbouring='replace'"):
        SampledPlan(noise_multiplier=1.0, sampling_rate=0.5, steps=1, neighbouring="replace")


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(1356.080555049394, 954901.045408896), (150.0, 20000.0), (120.0, 1e6)]
)
def test_the_lower_bound_far_into_the_tail_of_a_large_release(mu: float, epsilon: float) -> None:
    lower, upper = LossAccount([GaussianRelease(mu=mu, neighbouring="replace")]).delta_at(epsilon)
    with ctx.workprec(30_000):
        true = curve(arb(mu), arb(epsilon))
        assert bool(arb(lower) <= true)
        assert bool(true <= arb(upper))
