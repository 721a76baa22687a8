"""Huge losses apart: every term of their share is counted."""

import math
from dataclasses import replace

import numpy as np
import pytest
from flint import arb, ctx

from matrixdp.privacy.loss.curve import Steps
from matrixdp.privacy.loss.huge import Huge, apart
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.tilting import Cumulants, Saddle
from reference.ball import normal_tail

TAIL, CHANGE, EPSILON = 1e-18, 1e-4, 0.3
PAIRS: list[Pair] = [AddRemovePair(1e-4, 1.5), ReplacePair(1e-4, 1.5)]


def near(steps: Steps) -> Saddle:
    return Cumulants(steps, TAIL).at_point(EPSILON, math.log(1e-8))


def found(steps: Steps) -> Huge:
    huge = apart(steps, TAIL, near(steps), CHANGE)[1]
    assert huge is not None
    return huge


def true_masses(pair: Pair, position: float) -> tuple[arb, arb]:
    """Return the masses of P and Q above a position."""
    rate, mu, end = arb(pair.rate), arb(pair.mu), arb(position)
    plain = normal_tail(end)
    own, opposite = ((1 - rate) * plain + rate * normal_tail(end - m) for m in (mu, -mu))
    return own, plain if pair.one_sided else opposite


@pytest.mark.parametrize("pair", PAIRS)
def test_the_masses_are_those_of_any_huge_loss(pair: Pair) -> None:
    steps: Steps = [(pair, 50), (replace(pair, rate=3e-4), 20)]
    parts, huge = apart(steps, TAIL, near(steps), CHANGE)
    assert huge is not None
    none, none_other, total = arb(1), arb(1), arb(0)
    with ctx.workprec(300):
        for part in parts:
            stop = part.interval[1]
            # Losses that are not huge end there.
            assert float(part.pair.losses(np.array([stop]))[0]) >= huge.least
            own, other = true_masses(part.pair, stop)
            none, none_other = (
                none * (1 - own) ** part.number,
                none_other * (1 - other) ** part.number,
            )
            total += part.number * other
        for log, true in ((huge.log_mass, 1 - none), (huge.log_other, 1 - none_other)):
            assert bool(abs(arb(log).exp() / true - 1) <= huge.rounding)
        assert bool(arb(huge.log_sum + huge.rounding).exp() >= total)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_sum_of_all_other_losses_is_bounded(pair: Pair) -> None:
    huge = found([(pair, 50)])
    # E_Q[e^(-c L)] over u, by a plain sum, of 49 steps.
    u = np.linspace(-9.0, 9.0, 200_001)
    logs = pair.log_density(u) - pair.losses(u) + math.log(u[1] - u[0])
    for order, bound in huge.decay:
        # Losses further down are in what is missed.
        kept = pair.losses(u) > -0.02
        moment = float(np.exp(logs[kept] - order * pair.losses(u[kept])).sum())
        assert bound >= 49.0 * math.log(moment) - 1e-9
    lowest = float(np.exp(logs[pair.losses(u) <= -EPSILON]).sum())
    assert huge.missed >= 50.0 * max(lowest, TAIL)


def test_the_share_is_between_its_bounds() -> None:
    huge = found([(PAIRS[0], 50)])
    assert huge.least > huge.reached > EPSILON
    lower, upper = huge.bounds(EPSILON)
    true = math.exp(huge.log_mass) - math.exp(EPSILON + huge.log_other)
    assert 0.0 < lower <= true <= upper <= (1.0 + 1e-6) * lower
    # Where eta is not small, or beyond the least huge loss, the bound is no closer than before.
    assert huge.bounds(2.0)[1] == huge.bounds(huge.reached)[1]
    assert math.exp(huge.log_eta(huge.least)) == 1.0


def share(missed: float, decay: float) -> Huge:
    """Return a share of masses 0.1 and 0.05, with two thirds as many huge losses as steps."""
    logs = (math.log(0.1), math.log(0.05), math.log(0.06))
    return Huge(1.0, 1.0, *logs, 0.0, missed, [(1e-9, decay)])


@pytest.mark.parametrize(
    ("missed", "decay"), [(0.3, -1e3), (0.0, math.log(0.3)), (0.1, math.log(0.2))]
)
def test_what_other_losses_may_take_from_a_huge_one_counts(missed: float, decay: float) -> None:
    lower, upper = share(missed, decay).bounds(0.0)
    assert upper >= 0.1 - 0.05 + 0.06 * 0.3 * (1.0 - 1e-8)
    assert lower <= (0.1 - 0.05) * (1.0 + 1e-12)


def test_the_share_is_at_most_the_mass() -> None:
    assert share(1.0, 0.0).bounds(0.0)[1] == pytest.approx(0.1)
    assert share(0.0, -1e3).bounds(10.0)[0] == 0.0


def test_rounding_goes_both_ways() -> None:
    plain, rounded = share(0.0, -1e3), replace(share(0.0, -1e3), rounding=1e-3)
    assert rounded.bounds(0.0)[0] <= plain.bounds(0.0)[0] - 1.4e-4
    assert rounded.bounds(0.0)[1] >= plain.bounds(0.0)[1] + 1.4e-4


def test_plans_whose_losses_end_before_have_none() -> None:
    assert (
        apart(
            [(AddRemovePair(1e-3, 0.2), 10**6)],
            TAIL,
            near([(AddRemovePair(1e-3, 0.2), 10**6)]),
            CHANGE,
        )[1]
        is None
    )
