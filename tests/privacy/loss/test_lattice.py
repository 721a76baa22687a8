"""Atoms on a lattice: those from above dominate the exact pair, those from below are dominated."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from flint import arb, ctx
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixdp.privacy.loss.lattice import (
    Cells,
    Lattice,
    cells_of,
    coarsened,
    contracted,
    exchanged,
    rule_error,
    spread,
)
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from reference.ball import normal_tail
from reference.loss_truth import Direction, delta_ball
from reference.loss_truth import Pair as ExactPair

TAIL = 1e-40


@pytest.fixture(autouse=True, scope="module")
def _precise() -> Iterator[None]:
    former, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = former


def exact(pair: Pair, *, swapped: bool = False) -> ExactPair:
    """Return the same pair for ball arithmetic."""
    direction: Direction = "add" if swapped else "remove"
    if isinstance(pair, ReplacePair):
        direction = "replace"
    return ExactPair(1.0 / pair.mu, pair.rate, direction)


def delta_of(lattice: Lattice, epsilon: float) -> arb:
    """Return the delta of atoms in ball arithmetic, without what is lost."""
    total = arb(0)
    for mass, offset in zip(lattice.masses.tolist(), lattice.offsets.tolist(), strict=True):
        above = arb(lattice.origin) + arb(offset) - arb(epsilon)
        if mass > 0.0 and bool(above > 0):
            total += arb(mass) * (1 - (-above).exp())
    return total


# Powers of two, so that 1 / mu is the multiplier exactly.
PAIRS = st.builds(
    lambda kind, rate, power: kind(rate, 2.0**power),
    st.sampled_from([AddRemovePair, ReplacePair]),
    st.one_of(st.just(1.0), st.floats(1e-4, 0.999)),
    st.integers(-8, 2),
)


def spacing(pair: Pair, share: float) -> float:
    """Return a lattice step that is a share of the deviation of a loss, with few bits."""
    u = np.linspace(-12.0, 12.0 + pair.mu, 2000)
    weights = np.exp(pair.log_density(u))
    deviation = math.sqrt(float(weights @ pair.losses(u) ** 2 / weights.sum()))
    mantissa, exponent = math.frexp(share * deviation)
    return math.ldexp(math.floor(16.0 * mantissa) / 16.0, exponent)


@settings(max_examples=40)
@given(PAIRS, st.floats(0.05, 0.6), st.floats(-3.0, 6.0))
def test_atoms_bound_the_curve_from_both_sides(pair: Pair, share: float, place: float) -> None:
    step = spacing(pair, share)
    cells = cells_of(pair, step, TAIL)
    epsilon = float(pair.losses(np.array([place * (1.0 + 0.3 * pair.mu)]))[0])
    truth = delta_ball(exact(pair), arb(epsilon))
    upper, lower = spread(cells), contracted(cells)
    most = delta_of(upper, epsilon - upper.displacement) + arb(upper.lost)
    assert bool(most >= truth)
    assert bool(delta_of(lower, epsilon + lower.displacement) <= truth)
    coarse = coarsened(upper)
    assert bool(delta_of(coarse, epsilon - upper.displacement) + arb(upper.lost) >= truth)


@settings(max_examples=25)
@given(PAIRS, st.floats(0.05, 0.6), st.floats(-6.0, 3.0))
def test_exchanged_atoms_dominate_the_other_direction(
    pair: Pair, share: float, place: float
) -> None:
    cells = cells_of(pair, spacing(pair, share), TAIL)
    other = exchanged(coarsened(spread(cells)))
    epsilon = -float(pair.losses(np.array([place]))[0])
    truth = delta_ball(exact(pair, swapped=True), arb(epsilon))
    found = delta_of(other, epsilon - other.displacement) + arb(other.lost)
    assert bool(found >= truth)


@pytest.mark.parametrize(
    "pair",
    [AddRemovePair(0.01, 1.0), AddRemovePair(0.3, 4.0), AddRemovePair(1.0, 0.25)],
    ids=repr,
)
def test_masses_are_what_they_should_be_to_their_errors(pair: Pair) -> None:
    # The two shares of a cell add up to the probability of the cell, which has a closed form.
    step = spacing(pair, 0.1)
    cells = cells_of(pair, step, TAIL)
    losses = cells.origin + step * np.arange(cells.first, cells.first + len(cells.low) + 1)
    places = pair.places(losses.astype(np.float64))
    for k in np.linspace(1, len(cells.low) - 2, 40).astype(int):
        ends = [arb(float(places[k])), arb(float(places[k + 1]))]
        if not (math.isfinite(float(places[k])) and places[k] > -6.0 and places[k + 1] < 6.0):
            continue
        rate, mu = arb(pair.rate), arb(pair.mu)
        whole = [(1 - rate) * normal_tail(end) + rate * normal_tail(end - mu) for end in ends]
        truth = whole[0] - whole[1]
        found = arb(float(cells.low[k] + cells.high[k]))
        assert bool(abs(found - truth) <= truth * arb(2.0 * float(cells.errors[k]) + 1e-15))
        # And the bound is not so wide that anything would pass.
        assert cells.errors[k] < 1e-9


def test_contracted_atoms_keep_the_mass_of_both_distributions_where_they_can() -> None:
    cells = cells_of(AddRemovePair(0.02, 0.5), spacing(AddRemovePair(0.02, 0.5), 0.05), TAIL)
    lower = contracted(cells)
    losses = lower.origin + lower.offsets
    assert 1.0 - 1e-9 < lower.masses.sum() <= 1.0
    assert float(lower.masses @ np.exp(-losses)) == pytest.approx(1.0, abs=1e-7)
    # Less spread than the atoms that dominate.
    upper = spread(cells)
    wide = upper.masses @ (upper.origin + upper.offsets) ** 2
    assert lower.masses @ losses**2 < wide


def test_a_cell_that_nothing_can_be_proven_of_is_rounded_down() -> None:
    # All mass in one cell of a block: the mean is next to its end, where no tangent helps.
    low, high = np.zeros(4), np.zeros(4)
    low[0], high[0] = 0.9, 0.1
    cells = Cells(0.5, 0.0, 0, low, high, np.full(4, 1e-12), 0.0, 0.0)
    assert np.flatnonzero(contracted(cells).masses).tolist() == [0]


@pytest.mark.parametrize(("points", "length"), [(5, 0.02), (8, 0.25)])
def test_the_bound_of_the_rule_holds_and_is_not_idle(points: int, length: float) -> None:
    nodes, weights = (part.tolist() for part in np.polynomial.legendre.leggauss(points))

    def integrand(z: arb) -> arb:
        return (arb(0.7 * length) * z).exp() * (1 - (-arb(0.3 * length) * (1 + z)).exp())

    found = sum((arb(w) * integrand(arb(z)) for z, w in zip(nodes, weights, strict=True)), arb(0))
    a, c = arb(0.7 * length), arb(0.3 * length)
    truth = (a.exp() - (-a).exp()) / a - (-c).exp() * ((a - c).exp() - (c - a).exp()) / (a - c)
    assert bool(abs(found - truth) <= truth * arb(rule_error(points, length) + 1e-13))
    assert rule_error(points, length) < 1e-14
    assert rule_error(points - 2, length) > 1e-13
