"""Accounts of sampled plans: published values, closed forms, and the safe side."""

import math
import subprocess
import sys

import pytest
from flint import arb, ctx
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from matrixdp import InvalidParameterError, privacy_bound, privacy_epsilon
from matrixdp.errors import CalibrationError, MissingExtraError
from matrixdp.privacy import (
    Accountant,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
    renyi_epsilon,
)
from matrixdp.privacy.amplification import before_amplification
from matrixdp.privacy.claims import best_equal_claims
from reference.plans import needs_accounting, sampled


@needs_accounting
@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "pld", "rdp"),
    [
        (1.0, 0.01, 100, 0.71804, 1.2141),
        (1.0, 0.01, 1_000, 1.82824, 2.1014),
        (1.0, 0.01, 10_000, 6.18774, 6.7127),
        (1.5, 0.04, 2_250, 6.765, 7.329),
    ],
)
def test_known_values(multiplier: float, rate: float, steps: int, pld: float, rdp: float) -> None:
    plan = sampled(multiplier, rate, steps)
    assert plan_epsilon(plan, 1e-5) == pytest.approx(pld, abs=1e-4 if multiplier == 1 else 0.015)
    assert plan_epsilon(plan, 1e-5, Accountant.RDP) == pytest.approx(rdp, abs=1e-3)


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


@needs_accounting
@pytest.mark.parametrize(
    ("multiplier", "rate", "delta"), [(0.7, 0.3, 1e-4), (1.3, 0.05, 1e-5), (2.0, 0.9, 1e-6)]
)
def test_one_step_against_an_integral(multiplier: float, rate: float, delta: float) -> None:
    epsilon = plan_epsilon(sampled(multiplier, rate, 1), delta)
    assert one_step_delta(multiplier, rate, epsilon) <= delta
    assert one_step_delta(multiplier, rate, epsilon - 3e-4) > delta


@needs_accounting
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
    exact = math.sqrt(1000) / privacy_bound(epsilon, 1e-5)
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


@needs_accounting
@pytest.mark.parametrize("accountant", Accountant)
@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(0.7, 0.013, 500), (1.5, 0.05, 100)])
def test_the_multiplier_is_on_the_safe_side_and_no_larger_than_needed(
    accountant: Accountant, epsilon: float, rate: float, steps: int
) -> None:
    multiplier = noise_multiplier_for(
        epsilon,
        1e-6,
        sampling_rate=rate,
        steps=steps,
        neighbouring="add-remove",
        accountant=accountant,
    )
    assert plan_epsilon(sampled(multiplier, rate, steps), 1e-6, accountant) <= epsilon
    smaller = sampled(multiplier * (1 - 1e-4), rate, steps)
    assert plan_epsilon(smaller, 1e-6, accountant) > epsilon


@pytest.mark.parametrize(("epsilon", "rate", "steps"), [(1.0, 0.02, 200), (3.0, 1.0, 25)])
def test_the_account_of_claims_is_the_inverse_of_their_best_split(
    epsilon: float, rate: float, steps: int
) -> None:
    def noise(loss: float, delta: float) -> float:
        base = before_amplification(loss, delta, sampling_rate=rate, sampling="poisson")
        return 1.0 / privacy_bound(base.epsilon, base.delta)

    each = best_equal_claims(epsilon, 1e-5, steps, noise)
    multiplier = noise_multiplier_for(
        epsilon,
        1e-5,
        sampling_rate=rate,
        steps=steps,
        neighbouring="add-remove",
        accountant=Accountant.CLAIMS,
    )
    assert multiplier == pytest.approx(noise(each.epsilon, each.delta), rel=1e-4)


def test_without_sampling_the_multiplier_is_the_bound() -> None:
    multiplier = noise_multiplier_for(
        1.0, 1e-5, sampling_rate=1.0, steps=49, neighbouring="replace"
    )
    assert multiplier == pytest.approx(7 / privacy_bound(1.0, 1e-5), rel=1e-15)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"noise_multiplier": 0.0}, r"noise_multiplier=0\.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier=nan"),
        ({"sampling_rate": 0.0}, r"sampling_rate=0\.0"),
        ({"sampling_rate": 1.5}, r"sampling_rate=1\.5"),
        ({"steps": 0}, "steps=0"),
        ({"neighbouring": "swap"}, "neighbouring='swap'"),
        ({"neighbouring": "replace"}, r"neighbouring='replace' with sampling_rate=0\.1"),
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


@pytest.mark.parametrize(
    ("accountant", "rate"),
    [(each, 1.0) for each in Accountant]
    + [(each, 0.1) for each in Accountant if each is not Accountant.PLD]
    + [pytest.param(Accountant.PLD, 0.1, marks=needs_accounting)],
)
def test_too_little_noise_is_shown_as_given(accountant: Accountant, rate: float) -> None:
    with pytest.raises(CalibrationError, match=r"noise_multiplier=1e-05 in steps=100 is too"):
        plan_epsilon(sampled(1e-5, rate, 100), 1e-5, accountant)


def test_targets_that_no_multiplier_meets() -> None:
    with pytest.raises(CalibrationError, match="larger epsilon"):
        noise_multiplier_for(
            1e-9,
            1e-9,
            sampling_rate=1.0,
            steps=10**6,
            neighbouring="add-remove",
            accountant=Accountant.MOMENTS,
        )


def test_a_missing_extra_is_reported_with_the_install_line() -> None:
    code = (
        "import sys; sys.modules['dp_accounting'] = None\n"
        "import matrixdp as mdp\n"
        "plan = mdp.privacy.SampledPlan(noise_multiplier=1.0, sampling_rate=0.1, steps=10,"
        " neighbouring='add-remove')\n"
        "try:\n    mdp.privacy.plan_epsilon(plan, 1e-5)\n"
        "except mdp.errors.MissingExtraError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'matrixdp[accounting]'" in done.stdout
    assert issubclass(MissingExtraError, ImportError)


def test_an_accountant_is_not_a_string() -> None:
    plan = SampledPlan(
        noise_multiplier=20.0, sampling_rate=1.0, steps=25, neighbouring="add-remove"
    )
    with pytest.raises(InvalidParameterError, match="accountant='pld'"):
        plan_epsilon(plan, 1e-5, "pld")  # type: ignore[arg-type]
