"""The Rényi view against an integral, another library's conversion, and published ratios."""

import math
from fractions import Fraction

import pytest
from flint import arb, ctx
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import integrate, optimize, stats

from matrixdp import InvalidParameterError, privacy_epsilon, privacy_mu
from matrixdp.privacy import composed_mu, renyi_divergence, renyi_epsilon, renyi_to_epsilon


@pytest.mark.parametrize(("mu", "order"), [(0.3, 2.0), (1.0, 1.5), (0.7, 8.0), (2.0, 3.0)])
def test_divergence_is_that_of_two_gaussians(mu: float, order: float) -> None:
    def integrand(x: float) -> float:
        log = order * stats.norm.logpdf(x, loc=mu) + (1 - order) * stats.norm.logpdf(x)
        return math.exp(log)

    value, _ = integrate.quad(integrand, -30, 60, limit=500, points=[order * mu])
    assert renyi_divergence(mu, order) == pytest.approx(math.log(value) / (order - 1), rel=1e-8)


@pytest.mark.parametrize(
    ("order", "divergence", "delta", "epsilon"),
    [
        # compute_epsilon of dp_accounting 0.6.0, rdp_privacy_accountant, on a single order
        (8.0, 0.5, 1e-5, 1.7141091678455336),
        (2.0, 0.1, 1e-3, 5.621460917862246),
        (64.0, 2.0, 1e-10, 2.2837273231363175),
        (1.5, 0.2, 1e-2, 7.500797867091745),
    ],
)
def test_conversion_of_one_order(
    order: float, divergence: float, delta: float, epsilon: float
) -> None:
    assert renyi_to_epsilon(order, divergence, delta) == pytest.approx(epsilon, rel=1e-11)
    assert renyi_to_epsilon(order, divergence, delta) >= epsilon * (1 - 1e-15)


@pytest.mark.parametrize(("epsilon", "ratio"), [(1.0, 1.084), (0.1, 1.105), (0.01, 1.134)])
def test_noise_that_the_conversion_wastes(epsilon: float, ratio: float) -> None:
    # How much more noise the Rényi route needs than the curve at delta = 1e-5.
    mu = optimize.brentq(lambda m: renyi_epsilon(m, 1e-5) - epsilon, 1e-6, 2.0, xtol=1e-12)
    assert privacy_mu(epsilon, 1e-5) / mu == pytest.approx(ratio, abs=6e-4)


@given(
    st.one_of(st.floats(1e-3, 100), st.floats(-308, 1).map(lambda power: 10.0**power)),
    st.floats(-300, -0.4).map(lambda power: 10.0**power),
)
@example(mu=5.086662310302069e-15, delta=1.3583142794367736e-15)
@example(mu=1e-308, delta=1e-5)
def test_it_never_promises_more_than_the_curve(mu: float, delta: float) -> None:
    assert renyi_epsilon(mu, delta) >= privacy_epsilon(mu, delta)


@given(st.floats(0.01, 5), st.floats(1e-12, 0.1))
def test_the_best_order_beats_a_grid_of_orders(mu: float, delta: float) -> None:
    grid = [1.0 + 2.0**power for power in range(-12, 20)]
    by_grid = min(renyi_to_epsilon(order, renyi_divergence(mu, order), delta) for order in grid)
    assert renyi_epsilon(mu, delta) <= by_grid * (1 + 1e-9)


@given(st.lists(st.floats(0.01, 3), min_size=1, max_size=5), st.floats(1.1, 50))
def test_divergences_of_a_composition_add(mus: list[float], order: float) -> None:
    total = sum(renyi_divergence(mu, order) for mu in mus)
    assert renyi_divergence(composed_mu(mus), order) == pytest.approx(total, rel=1e-12)


@given(st.floats(0, 18), st.floats(-15, 1), st.floats(-300, -0.1))
def test_conversion_is_never_below_the_truth(
    log_order: float, log_divergence: float, log_delta: float
) -> None:
    order, divergence, delta = 1 + 10.0**log_order, 10.0**log_divergence, 10.0**log_delta
    ctx.prec, saved = 200, ctx.prec
    try:
        a, d, t = arb(order), arb(divergence), arb(delta)
        truth = d + ((a - 1) / a).log() - (t.log() + a.log()) / (a - 1)
    finally:
        ctx.prec = saved
    assert bool(arb(renyi_to_epsilon(order, divergence, delta)) >= truth)


@given(st.floats(1e-3, 1e3), st.floats(1.001, 1e6))
def test_divergence_is_rounded_up(mu: float, order: float) -> None:
    assert Fraction(renyi_divergence(mu, order)) >= Fraction(order) * Fraction(mu) ** 2 / 2


def test_nothing_released_costs_nothing() -> None:
    assert renyi_epsilon(0.0, 1e-5) == 0.0
    assert renyi_divergence(0.0, 2.0) == 0.0
    assert renyi_to_epsilon(1e300, 0.0, 1e-5) < 1e-12


@pytest.mark.parametrize("order", [1.0, 0.5, -2.0, math.nan, math.inf, "2"])
def test_bad_orders(order: float) -> None:
    with pytest.raises(InvalidParameterError, match="order="):
        renyi_divergence(1.0, order)


def test_bad_divergence() -> None:
    with pytest.raises(InvalidParameterError, match=r"divergence=-1\.0"):
        renyi_to_epsilon(2.0, -1.0, 1e-5)
    with pytest.raises(InvalidParameterError, match="divergence=False"):
        renyi_to_epsilon(2.0, False, 1e-5)
    with pytest.raises(InvalidParameterError, match="range of a float"):
        renyi_divergence(1e4, 1e308)
