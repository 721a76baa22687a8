"""One step's characteristic function at Gauss points, against ball arithmetic."""

import math

import numpy as np
import pytest
from flint import arb, ctx

from matrixdp.privacy.loss import points as module
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.points import Points, log_decay_of, points_of
from reference import loss_truth
from reference.loss_composition import generating_function
from reference.loss_truth import Direction

TAIL = 1e-200  # the reference leaves nothing out
CASES: list[tuple[Pair, Direction]] = [
    (AddRemovePair(0.01, 1.25), "remove"),
    (AddRemovePair(0.01, 1.25), "add"),
    (ReplacePair(0.01, 1.25), "replace"),
    (AddRemovePair(0.3, 0.5), "remove"),
    (AddRemovePair(0.3, 0.5), "add"),
    (ReplacePair(0.3, 0.5), "replace"),
    (AddRemovePair(1e-5, 1.6), "remove"),
    (ReplacePair(1e-5, 1.6), "replace"),
]
_IDS = [f"{direction}, q {pair.rate}" for pair, direction in CASES]


def found_points(pair: Pair, tilt: float, s: float, *, exchanged: bool) -> Points:
    return points_of(pair, pair.reach(TAIL), tilt, s, exchanged=exchanged)


@pytest.mark.parametrize(("pair", "direction"), CASES, ids=_IDS)
@pytest.mark.parametrize(("tilt", "s"), [(1.5, 40.0), (6.0, 3.0)])
def test_the_error_of_the_characteristic_function_is_bounded(
    pair: Pair, direction: Direction, tilt: float, s: float
) -> None:
    exchanged = direction == "add"
    points = found_points(pair, tilt, s, exchanged=exchanged)
    count, truth = 5, loss_truth.Pair(1.0 / pair.mu, pair.rate, direction)
    orders = np.linspace(0.0, s, count)
    errors = points.error(orders)
    with ctx.workprec(200):
        values = generating_function(truth, tilt, arb(s) / (count - 1), count)
        at_tilt = values[0].real
        assert abs(float(at_tilt.log().mid()) - points.log) <= 1e-13
        for order, value, error in zip(orders, values, errors, strict=True):
            own = complex(points.weights @ np.expm1(1j * order * points.losses))
            true = value / at_tilt - 1
            off = complex(float(true.real.mid()), float(true.imag.mid())) - own
            assert abs(off) <= error
            # Bounds that say nothing would always hold.
            assert error <= 1e-11


@pytest.mark.parametrize(("pair", "direction"), CASES, ids=_IDS)
def test_the_decay_bounds_all_that_is_beyond(pair: Pair, direction: Direction) -> None:
    exchanged = direction == "add"
    tilt, least = 1.5, 0.3 / (pair.rate * pair.mu)
    truth = loss_truth.Pair(1.0 / pair.mu, pair.rate, direction)
    interval = pair.reach(1e-14)
    bound = points_of(pair, interval, tilt, least, exchanged=exchanged).log_decay
    with ctx.workprec(200):
        values = generating_function(truth, tilt, arb(least), 8)
        sizes = [float((abs(value) / abs(values[0])).log().mid()) for value in values[1:]]
    assert all(size <= bound for size in sizes)
    # It is of the order of the size itself.
    assert bound <= 0.2 * sizes[0]
    estimate = log_decay_of(pair, interval, tilt, least, exchanged=exchanged)
    assert estimate == pytest.approx(bound, rel=1e-2, abs=1e-12)


def test_a_replaced_record_costs_the_same_in_both_directions() -> None:
    pair = ReplacePair(0.01, 1.25)
    for tilt in (0.3, 4.0):
        own, other = (
            found_points(pair, tilt, 4.0, exchanged=exchanged) for exchanged in (False, True)
        )
        assert other.log == pytest.approx(own.log, rel=1e-9)
        assert other.log_decay == pytest.approx(own.log_decay, rel=1e-9)
        assert other.log_moment(2.0) == pytest.approx(own.log_moment(2.0), rel=1e-9)


def test_moments_are_bounded_by_ball_arithmetic() -> None:
    pair, tilt = AddRemovePair(0.01, 1.25), 1.5
    points = found_points(pair, tilt, 4.0, exchanged=False)
    with ctx.workprec(200):
        for order in (0.1, 1.0, 4.0):
            low, high = (
                generating_function(loss_truth.Pair(0.8, 0.01, "remove"), each, arb(1), 1)[0].real
                for each in (tilt, tilt + order)
            )
            true = float((high / low).log().mid())
            assert true - 1e-12 <= points.log_moment(order) <= true + 1e-9


def test_the_error_of_the_rule_is_what_its_bound_says() -> None:
    # An exponential that grows at the steepest rate that parts allow.
    steepest = arb(module._STEEPEST)
    with ctx.workprec(200):
        roots = [arb.legendre_p_root(module._RULE, k, weight=True) for k in range(module._RULE)]
        rule = sum((weight * (steepest * node).exp() for node, weight in roots), arb(0))
        off = abs(rule - 2 * steepest.sinh() / steepest)
        assert bool(off <= module._RULE_ERROR)
        assert bool(off >= 1e-12 * module._RULE_ERROR)


def test_parts_are_short_enough_for_the_bound() -> None:
    for pair in (AddRemovePair(1e-4, 1.6), ReplacePair(0.2, 3.0)):
        integrand = module._Integrand(pair, exchanged=False, tilt=20.0)
        middle, half = module._parts(integrand, pair.reach(TAIL), 300.0)
        reach = half * module._REACH + module._highest(pair)
        assert float(np.max(integrand.steepness(middle, reach, 300.0) * half)) <= 20.0
        assert float(np.max(pair.mu * reach)) <= 0.5 * math.pi
        # And that bound is one: compared with differences on circles of that radius.
        angles = np.exp(1j * np.linspace(0.0, math.pi, 7))
        chosen = slice(None, None, max(len(middle) // 20, 1))
        for centre, radius in zip(middle[chosen], reach[chosen], strict=True):
            u = centre + radius * angles
            terms = pair.rate * np.exp(pair.mu * u - 0.5 * pair.mu**2)
            slope = pair.mu * terms / (1.0 - pair.rate + terms)
            most = float(pair.steepest(np.array([centre + radius]))[0])
            assert float(np.max(np.abs(slope))) <= most * (1.0 + 1e-12)
