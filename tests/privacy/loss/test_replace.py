"""Replacing a record whose contribution is bounded: two opposite contributions are the worst."""

import math

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from matrixdp import privacy_epsilon
from reference.loss_checks import account_of, powers
from reference.loss_truth import Direction, Pair, delta_ball

FloatArray = NDArray[np.float64]

_QUADRATURE = 1e-10  # far above the error of the sum below, which is smooth and falls like a normal


def divergence(first: FloatArray, second: FloatArray, rate: float, order: float) -> float:
    """Return ``H_order`` of the mixtures of N(0, I) with N(first, I) and with N(second, I).

    It depends on the plane of both vectors only. With x along the first and y across, the positive
    part is a half-line of y, whose integral is known. A sum over x is left.
    """
    size = float(np.linalg.norm(first))
    axis = first / size
    along = float(second @ axis)
    across = float(np.linalg.norm(second - along * axis))
    x = np.linspace(-14.0, 14.0 + size, 4_001)
    kept = np.exp(size * x - size**2 / 2) - (order - 1) * (1 - rate) / rate
    lost = math.log(order) + along * x - along**2 / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        end = np.where(kept > 0, (np.log(kept) - lost + across**2 / 2) / across, -np.inf)
    inner = kept * special.ndtr(end) - np.exp(lost) * special.ndtr(end - across)
    density = np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return float(rate * np.sum(np.where(kept > 0, inner, 0.0) * density) * (x[1] - x[0]))


def one_dimension(direction: Direction, multiplier: float, rate: float, order: float) -> float:
    with ctx.workprec(200):
        return float(delta_ball(Pair(multiplier, rate, direction), arb(order).log()).mid())


@st.composite
def contributions(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    """Return two vectors of the unit ball in two to four dimensions, not on one line."""
    size = draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    vectors = rng.normal(size=(2, size))
    # Half of them nearly opposite and long, where the inequality is the closest.
    vectors[1] += draw(st.sampled_from([0.0, 5.0])) * -vectors[0]
    lengths = draw(st.sampled_from([1.0, 0.1])) * rng.random(2)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors[0] * (1 - lengths[0]), vectors[1] * (1 - lengths[1])


@settings(max_examples=200)
@given(contributions(), powers(0.3, 10.0), powers(1e-3, 0.99), st.floats(-3.0, 3.0))
def test_no_two_contributions_cost_more_than_opposite_ones(
    pair: tuple[FloatArray, FloatArray], multiplier: float, rate: float, log_order: float
) -> None:
    order = math.exp(log_order)
    found = divergence(pair[0] / multiplier, pair[1] / multiplier, rate, order)
    assert found <= one_dimension("replace", multiplier, rate, order) + _QUADRATURE


def test_the_sum_is_that_of_the_closed_form_and_exceeds_a_weaker_pair() -> None:
    # Nearly opposite vectors: the limit is the closed form, and far above that of removing.
    first, second = np.array([1.0, 0.0]), np.array([-1.0, 1e-3])
    found = divergence(first, second, 0.2, 1.5)
    assert found == pytest.approx(one_dimension("replace", 1.0, 0.2, 1.5), abs=1e-6)
    assert found > 1.2 * one_dimension("remove", 1.0, 0.2, 1.5)


@settings(max_examples=8)
@given(powers(0.5, 20.0), powers(1e-3, 0.99), st.integers(1, 100), powers(1e-30, 1e-3))
def test_between_add_remove_and_all_of_the_data(
    multiplier: float, rate: float, steps: int, delta: float
) -> None:
    lower, upper = account_of("replace", [(multiplier, rate, steps)]).epsilon_at(delta)
    assert account_of("add-remove", [(multiplier, rate, steps)]).epsilon_at(delta).lower <= upper
    assert lower <= privacy_epsilon(2 * math.sqrt(steps) / multiplier, delta) * (1 + 1e-9)


@settings(max_examples=8)
@given(powers(0.5, 20.0), powers(1e-3, 0.99), st.integers(1, 100), powers(0.05, 3.0))
def test_not_above_removing_and_then_adding(
    multiplier: float, rate: float, steps: int, epsilon: float
) -> None:
    plan = [(multiplier, rate, steps)]
    once = account_of("add-remove", plan).delta_at(epsilon).upper
    twice = account_of("replace", plan).delta_at(2 * epsilon).lower
    assert twice <= (1 + math.exp(epsilon)) * once * (1 + 1e-9)
