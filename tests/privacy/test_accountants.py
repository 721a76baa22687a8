"""Accounts of sampled plans: published values, closed forms, and the safe side."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from matrixdp import InvalidParameterError, privacy_epsilon, privacy_mu
from matrixdp.errors import CalibrationError
from matrixdp.privacy import (
    Accountant,
    GaussianRelease,
    LossAccount,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
    renyi_epsilon,
)
from reference.plans import replaced, sampled

# dp-accounting 0.6.0, PLDAccountant with a discretisation of 1e-4: its pessimistic epsilons at
# delta 1e-5. They are above the truth, up to the rounding of its transform, and close to it.
PESSIMISTIC = [
    (1.0, 0.01, 100, 0.718037),
    (1.0, 0.01, 1_000, 1.828244),
    (1.0, 0.01, 10_000, 6.187745),
    (1.5, 0.04, 2_250, 6.768788),
    (0.7, 0.3, 5, 9.451640),
]


@pytest.mark.parametrize(("multiplier", "rate", "steps", "published"), PESSIMISTIC)
def test_another_library_is_just_above(
    multiplier: float, rate: float, steps: int, published: float
) -> None:
    found = LossAccount([sampled(multiplier, rate, steps)]).epsilon_at(1e-5)
    assert found.lower < published
    assert found.upper == pytest.approx(published, rel=2e-4)
    assert found.width <= 1e-4 * found.upper


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "rdp"),
    [
        (1.0, 0.01, 100, 1.2141),
        (1.0, 0.01, 1_000, 2.1014),
        (1.0, 0.01, 10_000, 6.7127),
        (1.5, 0.04, 2_250, 7.329),
    ],
)
def test_known_values_by_renyi(multiplier: float, rate: float, steps: int, rdp: float) -> None:
    found = plan_epsilon(sampled(multiplier, rate, steps), 1e-5, Accountant.RDP)
    assert found == pytest.approx(rdp, abs=1e-3)


def test_the_published_value_is_in_the_interval() -> None:
    lower, upper = LossAccount([sampled(1.0, 0.01, 1_000)]).epsilon_at(1e-5)
    assert 1.828235 < lower < upper < 1.828245  # published as 1.82824
    assert plan_epsilon(sampled(1.0, 0.01, 1_000), 1e-5) == upper


@pytest.mark.parametrize("delta", [1e-13, 1e-30, 1e-100, 1e-240])
def test_tiny_deltas(delta: float) -> None:
    plan = sampled(1.0, 0.01, 100)
    found = LossAccount([plan]).epsilon_at(delta)
    assert found.width <= 1e-4 * found.upper
    assert found.upper < plan_epsilon(plan, delta, Accountant.RDP)
    # One step with one part in a hundred of delta at the same rate is no more than all of them.
    assert found.upper > plan_epsilon(replace(plan, steps=1), delta)


def test_a_delta_below_what_is_proven() -> None:
    with pytest.raises(CalibrationError, match=r"delta=1e-300 is below 1e-248.*or RDP"):
        plan_epsilon(sampled(1.0, 0.01, 100), 1e-300)


def one_step_delta(multiplier: float, rate: float, epsilon: float) -> float:
    """Return the delta of one sampled step by integrating both hockey-stick divergences."""

    def mixture(x: float) -> float:
        return float(
            (1 - rate) * stats.norm.pdf(x, scale=multiplier)
            + rate * stats.norm.pdf(x, loc=1, scale=multiplier)
        )

    def plain(x: float) -> float:
        return float(stats.norm.pdf(x, scale=multiplier))

    # The densities' ratio is e^epsilon at one point of each divergence.
    grow = 0.5 + multiplier**2 * math.log1p((math.exp(epsilon) - 1) / rate)
    found = [
        integrate.quad(
            lambda x: mixture(x) - math.exp(epsilon) * plain(x), grow, grow + 40 * multiplier
        )[0]
    ]
    left = 1 - math.exp(-epsilon) < rate
    if left:
        shrink = 0.5 + multiplier**2 * math.log(1 - (1 - math.exp(-epsilon)) / rate)
        found.append(
            integrate.quad(
                lambda x: plain(x) - math.exp(epsilon) * mixture(x),
                shrink - 40 * multiplier,
                shrink,
            )[0]
        )
    return float(max(found))


@pytest.mark.parametrize(
    ("multiplier", "rate", "delta"), [(0.7, 0.3, 1e-4), (1.3, 0.05, 1e-5), (2.0, 0.9, 1e-6)]
)
def test_one_step_against_an_integral(multiplier: float, rate: float, delta: float) -> None:
    epsilon = plan_epsilon(sampled(multiplier, rate, 1), delta)
    assert one_step_delta(multiplier, rate, epsilon) <= delta
    assert one_step_delta(multiplier, rate, epsilon - 3e-4) > delta


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps"),
    [(0.8, 0.01, 300), (1.7, 0.3, 12), (5.0, 0.7, 900), (18.0, 0.004, 1)],
)
def test_looser_accounts_are_looser(multiplier: float, rate: float, steps: int) -> None:
    plan = sampled(multiplier, rate, steps)
    tight = plan_epsilon(plan, 1e-5)
    improved = plan_epsilon(plan, 1e-5, Accountant.RDP)
    assert tight <= improved * (1 + 1e-6) + 1e-4
    assert improved <= plan_epsilon(plan, 1e-5, Accountant.MOMENTS)
    assert tight <= plan_epsilon(plan, 1e-5, Accountant.CLAIMS) * (1 + 1e-6) + 1e-4
    # Sampling helps: the plan on all of the data costs more.
    assert tight <= privacy_epsilon(plan.whole_mu, 1e-5) + 1e-4


@given(st.floats(0.5, 1e3), st.integers(1, 10_000), st.floats(1e-12, 0.1))
def test_without_sampling_the_curve_is_exact(multiplier: float, steps: int, delta: float) -> None:
    plan = SampledPlan(
        noise_multiplier=multiplier, sampling_rate=1.0, steps=steps, neighbouring="replace"
    )
    mu = math.sqrt(steps) / multiplier
    assert plan_epsilon(plan, delta) == pytest.approx(privacy_epsilon(mu, delta), abs=1e-9)
    assert plan_epsilon(plan, delta, Accountant.RDP) == pytest.approx(
        renyi_epsilon(mu, delta), rel=1e-9
    )
    by_grid = min(
        order * mu**2 / 2 - math.log(delta) / (order - 1)
        for order in (1 + 2.0 ** (power / 8) for power in range(-160, 160))
    )
    moments = plan_epsilon(plan, delta, Accountant.MOMENTS)
    assert moments <= by_grid * (1 + 1e-12)
    assert moments >= by_grid * 0.99


@given(st.floats(0.5, 1e3), st.integers(1, 10_000), st.floats(1e-300, 0.1))
def test_moments_against_ball_arithmetic(multiplier: float, steps: int, delta: float) -> None:
    plan = SampledPlan(
        noise_multiplier=multiplier, sampling_rate=1.0, steps=steps, neighbouring="replace"
    )
    ctx.prec = 200
    mu = arb(steps).sqrt() / arb(multiplier)
    true = mu * mu / 2 + mu * (-2 * arb(delta).log()).sqrt()
    found = arb(plan_epsilon(plan, delta, Accountant.MOMENTS))
    assert bool(found >= true)
    assert bool(found <= true * (1 + arb(3e-14)))


@pytest.mark.parametrize(
    ("epsilon", "moments", "rdp"), [(1.0, 1.31, 1.084), (0.1, 1.56, 1.105), (0.01, 1.97, 1.134)]
)
def test_noise_relative_to_the_exact_curve(epsilon: float, moments: float, rdp: float) -> None:
    exact = math.sqrt(1000) / privacy_mu(epsilon, 1e-5)
    for accountant, ratio in ((Accountant.MOMENTS, moments), (Accountant.RDP, rdp)):
        multiplier = noise_multiplier_for(
            epsilon,
            1e-5,
            sampling_rate=1.0,
            steps=1000,
            neighbouring="replace",
            accountant=accountant,
        )
        assert multiplier / exact == pytest.approx(ratio, abs=6e-3)


@pytest.mark.parametrize("accountant", Accountant)
def test_two_contributions_are_twice_as_far_apart(accountant: Accountant) -> None:
    # Without sampling mu = 2 sqrt(T) / s, as if half the noise were over the difference.
    found = plan_epsilon(replaced(30.0, 1.0, 25), 1e-5, accountant)
    halved = SampledPlan(noise_multiplier=15.0, sampling_rate=1.0, steps=25, neighbouring="replace")
    assert found == plan_epsilon(halved, 1e-5, accountant)
    assert found >= privacy_epsilon(2 * 5 / 30.0, 1e-5) * (1 - 1e-12)
    # Under adding or removing a record both words mean the same.
    alone = sampled(30.0, 1.0, 25)
    assert plan_epsilon(replace(alone, bounded="contribution"), 1e-5, accountant) == plan_epsilon(
        alone, 1e-5, accountant
    )


def test_a_replaced_record_in_samples() -> None:
    plan = replaced(1.0, 0.01, 1_000)
    found = LossAccount([plan]).epsilon_at(1e-5)
    assert found.width <= 1e-4 * found.upper
    # Replacing is removing and adding: more than either, and less than both at half of delta each
    # (group privacy of two: delta' = delta (1 + e^epsilon)).
    one = LossAccount([sampled(1.0, 0.01, 1_000)])
    assert one.epsilon_at(1e-5).upper < found.lower
    both = 2 * one.epsilon_at(1e-5 / (1 + math.exp(found.upper))).upper
    assert found.upper < both
    # As much as if nothing were sampled it never is.
    assert found.upper < plan_epsilon(replace(plan, sampling_rate=1.0), 1e-5)
    multiplier = noise_multiplier_for(
        found.upper,
        1e-5,
        sampling_rate=0.01,
        steps=1_000,
        neighbouring="replace",
        bounded="contribution",
    )
    assert multiplier == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.MOMENTS, Accountant.CLAIMS])
def test_others_do_not_know_replaced_records_in_samples(accountant: Accountant) -> None:
    with pytest.raises(CalibrationError, match=rf"{accountant.name} does not account for a repl"):
        plan_epsilon(replaced(1.0, 0.01, 10), 1e-5, accountant)


def test_different_kinds_of_steps_together() -> None:
    first, second = sampled(1.0, 0.01, 500), sampled(2.0, 0.05, 100)
    release = GaussianRelease(mu=0.3, neighbouring="add-remove")
    found = LossAccount([first, second, release]).epsilon_at(1e-5)
    assert found.width <= 1e-4 * found.upper
    assert LossAccount([second, release, first]).epsilon_at(1e-5).upper == pytest.approx(
        found.upper, rel=1e-4
    )
    parts: list[list[SampledPlan | GaussianRelease]] = [
        [first, second],
        [first, release],
        [second, release],
    ]
    for part in parts:
        assert LossAccount(part).epsilon_at(1e-5).upper < found.lower
    # The same steps in two parts are the same account.
    halves = [replace(first, steps=200), replace(first, steps=300)]
    assert LossAccount(halves).epsilon_at(1e-5) == LossAccount([first]).epsilon_at(1e-5)
    with pytest.raises(InvalidParameterError, match="different neighbouring relations"):
        LossAccount([first, GaussianRelease(mu=0.3, neighbouring="replace")])


@pytest.mark.parametrize("make", [sampled, replaced])
@pytest.mark.parametrize("multiplier", [1.0, 0.19, 0.05])
def test_hardly_anything_is_ever_sampled(
    make: Callable[[float, float, int], SampledPlan], multiplier: float
) -> None:
    # No record is in any of three steps but with a probability of 3e-6, which is within delta.
    assert LossAccount([make(multiplier, 1e-6, 3)]).epsilon_at(3e-6) == (0.0, 0.0)
    assert plan_epsilon(make(multiplier, 1e-6, 3), 1e-5) == 0.0


@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta"),
    [(1.07, 2.96e-5, 703, 4.4e-11), (0.8877634667021371, 1.8911e-5, 971, 7e-4)],
)
def test_rare_samples_are_bounded_by_a_coarser_lattice(
    multiplier: float, rate: float, steps: int, delta: float
) -> None:
    # A few large losses: on the lattice that 1e-4 needs, the window would be too large.
    plan = sampled(multiplier, rate, steps)
    found = LossAccount([plan]).epsilon_at(delta)
    assert 0.0 <= found.lower <= found.upper
    assert found.upper < 0.1 * plan_epsilon(plan, delta, Accountant.RDP)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": 0.0}, r"noise_multiplier=0\.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
        ({"sampling_rate": 0.0}, r"sampling_rate=0\.0"),
        ({"sampling_rate": 1.5}, r"sampling_rate=1\.5"),
        ({"steps": 0}, "steps=0"),
        ({"neighbouring": "swap"}, "neighbouring='swap'"),
        ({"neighbouring": "replace"}, r"sampling_rate=0\.1 .*pass bounded='contribution'"),
        ({"bounded": "sum"}, "bounded='sum'"),
    ],
)
def test_bad_plans(change: dict[str, object], message: str) -> None:
    good = {"noise_multiplier": 1.0, "sampling_rate": 0.1, "steps": 10}
    with pytest.raises(InvalidParameterError, match=message):
        SampledPlan(**{**good, "neighbouring": "add-remove", **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("accountant", [Accountant.RDP, Accountant.MOMENTS])
@pytest.mark.parametrize("epsilon", [1e-2, 1e-4, 1e-6])
def test_orders_reach_small_epsilons(accountant: Accountant, epsilon: float) -> None:
    # At a rate close to 1 the answer is that of all data, which has a closed form.
    found, whole = (
        noise_multiplier_for(
            epsilon,
            1e-5,
            sampling_rate=rate,
            steps=100,
            neighbouring="add-remove",
            accountant=accountant,
        )
        for rate in (1.0 - 1e-9, 1.0)
    )
    assert found == pytest.approx(whole, rel=1e-5)


@pytest.mark.parametrize("accountant", Accountant)
@pytest.mark.parametrize("rate", [1.0, 0.1])
@pytest.mark.parametrize("plan", [sampled, replaced])
def test_the_least_noise_of_all_is_too_little(
    accountant: Accountant, rate: float, plan: Callable[..., SampledPlan]
) -> None:
    with pytest.raises((CalibrationError, InvalidParameterError)):
        plan_epsilon(plan(5e-324, rate, 1), 1e-5, accountant)


@pytest.mark.parametrize("accountant", Accountant)
@pytest.mark.parametrize("rate", [1.0, 0.1])
def test_too_little_noise_is_shown_as_given(accountant: Accountant, rate: float) -> None:
    # A loss distribution names what it resolves; to the others the noise protects nothing.
    resolved = accountant is Accountant.PLD and rate < 1.0
    reason = "is outside of 0.02 to" if resolved else "in steps=100 is too little noise"
    with pytest.raises(CalibrationError, match=f"noise_multiplier=1e-05 {reason}"):
        plan_epsilon(sampled(1e-5, rate, 100), 1e-5, accountant)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (sampled(1e13, 0.1, 10), "noise_multiplier=1.*0 is outside"),
        (sampled(1.0, 1e-13, 10), "sampling_rate=1e-13 is outside"),
        (sampled(1.0, 0.1, 10**10), "steps=10000000000 is outside"),
    ],
)
def test_what_losses_do_not_resolve(plan: SampledPlan, message: str) -> None:
    with pytest.raises(CalibrationError, match=f"{message}.*use RDP"):
        plan_epsilon(plan, 1e-5)


def test_an_accountant_is_one_of_four() -> None:
    plan = SampledPlan(
        noise_multiplier=20.0, sampling_rate=1.0, steps=25, neighbouring="add-remove"
    )
    with pytest.raises(InvalidParameterError, match="accountant='gdp'"):
        plan_epsilon(plan, 1e-5, "gdp")
