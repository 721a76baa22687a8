"""Theorem 3.4 and amplification, forwards and backwards, against ball arithmetic."""

import math
from collections.abc import Callable

import pytest
from flint import arb, ctx
from hypothesis import example, given
from hypothesis import strategies as st

from matrixdp import InvalidParameterError, privacy_mu
from matrixdp.baselines.gaussian import classic_noise_scale
from matrixdp.errors import CalibrationError
from matrixdp.privacy.amplification import Sampling, amplified, before_amplification
from matrixdp.privacy.claims import (
    Claim,
    best_equal_claims,
    composed_delta,
    composed_epsilon,
    equal_claims,
    sampled_gaussian_epsilon,
    unequal_claims_epsilon,
)

losses = st.floats(-8, 2.5).map(lambda power: 10.0**power)
deltas = st.floats(-300, -0.31).map(lambda power: 10.0**power)
counts = st.one_of(st.integers(1, 50), st.integers(1, 10**6))
shares = st.floats(1e-6, 1 - 1e-6)


@pytest.fixture(autouse=True)
def _bits() -> None:
    ctx.prec = 1200


def true_composed(epsilon: arb, steps: int, slack: arb) -> arb:
    """Return the least of the three terms of Theorem 3.4, as printed."""
    drift = steps * epsilon * (epsilon.exp() - 1) / (epsilon.exp() + 1)
    spread = (arb(steps) * epsilon**2).sqrt()
    logs = [(arb(1).exp() + spread / slack).log(), (1 / slack).log()]
    return (steps * epsilon).min(
        (drift + epsilon * (2 * arb(steps) * logs[0]).sqrt()).min(
            drift + epsilon * (2 * arb(steps) * logs[1]).sqrt()
        )
    )


def at_least(found: float, true: arb) -> bool:
    """Return whether a float is not below the truth; equality, too, is beyond an enclosure."""
    return bool(arb(found) * (1 + arb("1e-250")) >= true)


def true_amplified(epsilon: arb, rate: arb) -> arb:
    return (1 + rate * (epsilon.exp() - 1)).log()


@given(losses, counts, deltas)
def test_composition_is_rounded_up(epsilon: float, steps: int, slack: float) -> None:
    found = composed_epsilon(epsilon, steps, slack)
    true = true_composed(arb(epsilon), steps, arb(slack))
    assert at_least(found, true)
    assert bool(arb(found) <= true * (1 + arb(3e-14)))


@given(deltas, counts, deltas)
def test_composed_delta_is_rounded_up(delta: float, steps: int, slack: float) -> None:
    found = composed_delta(delta, steps, slack)
    true = -(steps * (-arb(delta)).log1p() + (-arb(slack)).log1p()).expm1()
    assert at_least(found, true)
    assert bool(arb(found) <= true * (1 + arb(3e-14)))


@given(losses, deltas, counts, st.one_of(st.just(0.0), shares))
def test_the_inverse_keeps_the_promise_and_wastes_nothing(
    epsilon: float, delta: float, steps: int, share: float
) -> None:
    delta = max(delta, 1e-290)
    each = equal_claims(epsilon, delta, steps, share)
    slack = arb(each.slack)
    total = 1 - (1 - arb(each.delta)) ** steps * (1 - slack)
    assert bool(total <= arb(delta))
    assert bool(total >= arb(delta) * (1 - arb(1e-13)))
    bigger = arb(each.epsilon) * (1 + arb(1e-12))
    if each.slack == 0.0:
        assert bool(arb(each.epsilon) * steps <= arb(epsilon))
        assert bool(bigger * steps > arb(epsilon))
    else:
        assert bool(true_composed(arb(each.epsilon), steps, slack) <= arb(epsilon))
        assert bool(true_composed(bigger, steps, slack) > arb(epsilon))


@given(losses, deltas, counts, st.one_of(st.just(0.0), shares))
@example(1.0, 1e-5, 3, 0.5)
def test_there_and_back_does_not_exceed_the_promise(
    epsilon: float, delta: float, steps: int, share: float
) -> None:
    delta = max(delta, 1e-290)
    each = equal_claims(epsilon, delta, steps, share)
    assert composed_epsilon(each.epsilon, steps, each.slack) <= epsilon
    assert composed_delta(each.delta, steps, each.slack) <= delta


def test_a_delta_shared_too_finely_is_shown_as_given() -> None:
    with pytest.raises(CalibrationError, match=r"delta=1e-300 shared by steps=1000000000000"):
        equal_claims(1.0, 1e-300, 10**12, 0.5)
    with pytest.raises(CalibrationError, match=r"delta=1e-300 shared by steps=1000000000000"):
        sampled_gaussian_epsilon(1.0, 1e-300, steps=10**12, sampling_rate=0.1)


@pytest.mark.parametrize("multiplier", [5e-5, 5e-4])
def test_too_little_noise_is_shown_as_given(multiplier: float) -> None:
    # Not as the mu, or the epsilon of one step, that it makes.
    with pytest.raises(CalibrationError, match=f"noise_multiplier={multiplier!r} in steps=7"):
        sampled_gaussian_epsilon(multiplier, 1e-5, steps=7, sampling_rate=0.1)


NOISES: dict[str, Callable[[float, float], float]] = {
    "classic": lambda epsilon, delta: classic_noise_scale(1.0, epsilon, delta),
    "analytic": lambda epsilon, delta: 1.0 / privacy_mu(epsilon, delta),
}


@pytest.mark.parametrize(
    ("epsilon", "steps", "classic", "analytic"),
    [(1.0, 10, 4.60, 3.21), (1.0, 1000, 7.87, 5.30), (0.1, 1000, 8.36, 4.99),
     (0.01, 1000, 9.08, 4.68)],
)  # fmt: skip
def test_noise_relative_to_exact_composition(
    epsilon: float, steps: int, classic: float, analytic: float
) -> None:
    exact = math.sqrt(steps) / privacy_mu(epsilon, 1e-5)
    half = equal_claims(epsilon, 1e-5, steps, 0.5)
    for name, ratio in (("classic", classic), ("analytic", analytic)):
        noise = NOISES[name]
        wasted = noise(half.epsilon, half.delta) / exact
        assert wasted == pytest.approx(ratio, abs=6e-3)
        best = best_equal_claims(epsilon, 1e-5, steps, noise)
        gained = noise(best.epsilon, best.delta) / exact / wasted
        assert 0.95 < gained <= 1.0
    if steps == 10:
        for name, ratio in (("classic", 4.49), ("analytic", 3.08)):
            best = best_equal_claims(epsilon, 1e-5, steps, NOISES[name])
            assert NOISES[name](best.epsilon, best.delta) / exact == pytest.approx(ratio, abs=6e-3)


@given(losses.filter(lambda e: e < 10), st.floats(1e-12, 0.1), st.integers(1, 300))
def test_the_best_split_beats_every_split_on_a_grid(
    epsilon: float, delta: float, steps: int
) -> None:
    noise = NOISES["analytic"]
    best = best_equal_claims(epsilon, delta, steps, noise)
    for share in (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99):
        each = equal_claims(epsilon, delta, steps, share)
        assert noise(best.epsilon, best.delta) <= noise(each.epsilon, each.delta) * (1 + 1e-6)


def test_one_release_is_not_composed() -> None:
    each = best_equal_claims(1.0, 1e-5, 1, NOISES["analytic"])
    assert (each.epsilon, each.delta, each.slack) == (1.0, 1e-5, 0.0)


rates = st.one_of(st.floats(1e-6, 1.0), st.floats(-250, 0).map(lambda power: 10.0**power))
kinds = st.sampled_from(["poisson", "without-replacement"])


@given(st.floats(-8, 3.2).map(lambda power: 10.0**power), deltas, rates, kinds)
def test_amplification_is_rounded_up(
    epsilon: float, delta: float, rate: float, kind: Sampling
) -> None:
    found = amplified(epsilon, delta, sampling_rate=rate, sampling=kind)
    ctx.prec = 6000
    true = true_amplified(arb(epsilon), arb(rate))
    assert at_least(found.epsilon, true)
    assert bool(arb(found.epsilon) <= true * (1 + arb(3e-14)) + arb(3e-14) * epsilon)
    assert at_least(found.delta, arb(rate) * arb(delta))
    assert found.delta <= rate * delta * (1 + 1e-15) + 1e-323
    assert found.neighbouring == {"poisson": "add-remove"}.get(kind, "replace")


@given(st.floats(-8, 3.2).map(lambda power: 10.0**power), deltas, st.floats(1e-6, 1.0), kinds)
def test_the_inverse_of_amplification_is_rounded_down(
    epsilon: float, delta: float, rate: float, kind: Sampling
) -> None:
    if delta / rate > 0.99:
        with pytest.raises(InvalidParameterError, match="delta="):
            before_amplification(epsilon, delta, sampling_rate=rate * 1e-3, sampling=kind)
        return
    base = before_amplification(epsilon, delta, sampling_rate=rate, sampling=kind)
    ctx.prec = 6000
    assert bool(true_amplified(arb(base.epsilon), arb(rate)) <= arb(epsilon) * (1 + arb(1e-40)))
    bigger = arb(base.epsilon) * (1 + arb(1e-13))
    assert bool(true_amplified(bigger, arb(rate)) > arb(epsilon))
    assert bool(arb(base.delta) * arb(rate) <= arb(delta))


@given(st.floats(-8, 3.2).map(lambda power: 10.0**power), deltas, st.floats(1e-6, 1.0), kinds)
def test_amplification_there_and_back_does_not_exceed_the_promise(
    epsilon: float, delta: float, rate: float, kind: Sampling
) -> None:
    delta = min(delta, 0.9 * rate)
    base = before_amplification(epsilon, delta, sampling_rate=rate, sampling=kind)
    back = amplified(base.epsilon, base.delta, sampling_rate=rate, sampling=kind)
    assert back.epsilon <= epsilon
    assert back.delta <= math.nextafter(delta, 1.0)


def test_the_linear_rule_is_not_the_inverse() -> None:
    rate = 256 / 55000
    base = before_amplification(1.0, 1e-5, sampling_rate=rate, sampling="poisson")
    assert base.epsilon == pytest.approx(5.91, abs=5e-3)
    linear = amplified(1.0 / rate, 1e-5 / rate, sampling_rate=rate, sampling="poisson")
    assert linear.epsilon == pytest.approx(209.5, abs=0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: composed_epsilon(-1.0, 2, 0.0), r"epsilon=-1\.0"),
        (lambda: composed_epsilon(1.0, 0, 0.0), "steps=0"),
        (lambda: composed_epsilon(1.0, 2, 1.0), r"slack=1\.0"),
        (lambda: composed_epsilon(1.0, 2, math.nan), "slack=nan"),
        (lambda: composed_delta(0.0, 2, 0.0), r"delta=0\.0"),
        (lambda: equal_claims(0.0, 1e-5, 2, 0.5), r"epsilon=0\.0"),
        (lambda: equal_claims(1.0, 1e-5, 2, 1.0), r"slack_share=1\.0"),
        (lambda: amplified(1.0, 1e-5, sampling_rate=0.0, sampling="poisson"), "sampling_rate"),
        (lambda: amplified(1.0, 1e-5, sampling_rate=1.5, sampling="poisson"), "sampling_rate"),
        (
            lambda: amplified(1.0, 1e-5, sampling_rate=0.5, sampling="shuffled"),  # type: ignore[arg-type]
            "not known to amplify",
        ),
        (
            lambda: before_amplification(1.0, 0.1, sampling_rate=0.01, sampling="poisson"),
            r"delta=0\.1",
        ),
    ],
)
def test_bad_parameters(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        call()


def true_unequal(claims: list[tuple[Claim, int]], delta: float) -> arb:
    """Return the least of the three terms of Theorem 3.5, as printed, at the slack that is left."""
    kept = arb(1)
    for one, count in claims:
        kept *= (1 - arb(one.delta)) ** count
    slack = 1 - (1 - arb(delta)) / kept
    plain = drift = squares = arb(0)
    for one, count in claims:
        loss = arb(one.epsilon)
        plain += count * loss
        drift += count * loss * (loss.exp() - 1) / (loss.exp() + 1)
        squares += count * loss**2
    first = (2 * squares * (arb(1).exp() + squares.sqrt() / slack).log()).sqrt()
    second = (2 * squares * (1 / slack).log()).sqrt()
    return plain.min((drift + first).min(drift + second))


@given(
    st.lists(st.tuples(losses, st.floats(1e-6, 1.0), counts), min_size=1, max_size=4),
    st.floats(-12, -1).map(lambda power: 10.0**power),
    st.floats(1e-3, 0.999),
)
def test_unequal_claims_are_rounded_up(
    parts: list[tuple[float, float, int]], delta: float, share: float
) -> None:
    # Deltas that take a share of the total, in unequal parts.
    whole = sum(weight for _, weight, _ in parts)
    claims = [
        (Claim(loss, share * delta * weight / whole / count), count)
        for loss, weight, count in parts
    ]
    found = unequal_claims_epsilon(claims, delta)
    true = true_unequal(claims, delta)
    assert at_least(found, true)
    assert bool(arb(found) <= true * (1 + arb(1e-9)))


def test_unequal_claims_that_are_equal() -> None:
    each = equal_claims(1.0, 1e-5, 100, slack_share=0.3)
    found = unequal_claims_epsilon([(each, 60), (each, 40)], 1e-5)
    assert found == pytest.approx(composed_epsilon(each.epsilon, 100, each.slack), rel=1e-9)
    # Without anything left for the slack, epsilons add up.
    assert unequal_claims_epsilon([(Claim(0.25, 0.125), 2), (Claim(0.5, 0.25), 1)], 0.5) <= 1.0


def test_unequal_claims_whose_deltas_are_too_large() -> None:
    with pytest.raises(CalibrationError, match="3 releases exceed delta=1e-05"):
        unequal_claims_epsilon([(Claim(0.1, 4e-6), 3)], 1e-5)
