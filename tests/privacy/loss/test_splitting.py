"""Large losses apart: the parts add up to the whole, and what is left out is counted."""

import math

import numpy as np
import pytest
from flint import arb

from matrixdp.privacy.loss.lattice import Lattice, cells_of, spread
from matrixdp.privacy.loss.pairs import AddRemovePair
from matrixdp.privacy.loss.splitting import cut_of, mixture
from matrixdp.privacy.loss.tilting import Cumulants, Split

STEPS = [(AddRemovePair(0.5, 1.0), 1)]  # only says how to tilt


def delta_of_sums(masses: dict[float, float], steps: int, epsilon: float) -> arb:
    """Return delta by adding up the outcomes of all steps in ball arithmetic."""
    sums: dict[float, arb] = {0.0: arb(1)}
    for _ in range(steps):
        following: dict[float, arb] = {}
        for loss, chance in sums.items():
            for step, mass in masses.items():
                place = loss + step
                following[place] = following.get(place, arb(0)) + chance * arb(mass)
        sums = following
    total = arb(0)
    for loss, chance in sums.items():
        if loss > epsilon:
            total += chance * (1 - (arb(epsilon) - arb(loss)).exp())
    return total


@pytest.mark.parametrize("steps", [1, 3, 6, 9])
def test_parts_bound_the_whole(steps: int) -> None:
    # Small losses of a quarter, and rare ones of 2; sums of these are exact.
    masses = {-0.25: 0.4995, 0.25: 0.5, 2.0: 0.0005}
    values = np.zeros(10)
    for loss, mass in masses.items():
        values[round((loss + 0.25) / 0.25)] = mass
    lattice = Lattice(0.25, 0.0, -1, values, 0.0, 1e-40)
    pairs = [(STEPS[0][0], steps)]
    for epsilon in (0.1, 1.1, 2.6):
        upper = mixture([(lattice, steps)], pairs, Split(0, 1.0), epsilon)
        lower = mixture([(lattice, steps)], pairs, Split(0, 1.0), epsilon, for_lower=True)
        truth = delta_of_sums(masses, steps, epsilon).log()
        if not bool(truth > -600):  # no outcome is above
            continue
        assert bool(arb(upper.log_upper(epsilon)) >= truth - arb(1e-12))
        assert bool(arb(lower.log_lower(epsilon)) <= truth + arb(1e-12))
        assert upper.log_upper(epsilon) == pytest.approx(float(truth.mid()), abs=1e-5)
        assert lower.log_lower(epsilon) == pytest.approx(float(truth.mid()), abs=1e-5)


def test_more_large_losses_than_are_composed_are_counted() -> None:
    values = np.array([0.5, 0.0, 0.5])
    lattice = Lattice(0.25, 0.0, -1, values, 0.0, 1e-40)
    found = mixture([(lattice, 8)], [(STEPS[0][0], 8)], Split(0, 0.0), 0.5)
    # More than three of eight: their probability is at most C(8, 4) / 2^4.
    assert found.rest == pytest.approx(math.comb(8, 4) * 0.5**4)
    assert found.log_upper(0.5) >= math.log(found.rest)
    assert len(found.parts) == 4
    lower = mixture([(lattice, 8)], [(STEPS[0][0], 8)], Split(0, 0.0), 0.5, for_lower=True)
    truth = delta_of_sums({-0.25: 0.5, 0.25: 0.5}, 8, 0.5).log()
    assert bool(arb(lower.log_lower(0.5)) <= truth)


def test_the_cut_leaves_more_large_losses_than_composed_unlikely() -> None:
    pair, count, delta = AddRemovePair(1e-3, 1.0), 500, 1e-12
    lattice = spread(cells_of(pair, 2.0**-10, 1e-30))
    cut = cut_of(lattice, count, delta)
    losses = lattice.origin + lattice.offsets
    above = float(lattice.masses[losses > cut].sum())
    assert 0.0 < math.comb(count, 4) * above**4 <= 1.1e-8 * delta
    # As low as that allows.
    assert math.comb(count, 4) * float(lattice.masses[losses > 0.8 * cut].sum()) ** 4 > 1e-8 * delta


def test_what_is_lost_is_counted_once() -> None:
    lattice = Lattice(0.25, 0.0, -1, np.array([0.5, 0.0, 0.5]), 0.0, 1e-3)
    found = mixture([(lattice, 2)], [(STEPS[0][0], 2)], Split(0, 0.0), 0.1)
    assert [part.lost for part in found.parts] == [pytest.approx(2e-3), 0.0, 0.0]


def test_the_tilt_of_each_part_brings_it_to_epsilon() -> None:
    steps = [(AddRemovePair(1e-4, 1.0), 100)]
    for number in (1, 2):
        saddle = Cumulants(steps, 1e-30, split=Split(0, 0.01, number)).for_epsilon(1.5)
        assert saddle.epsilon == pytest.approx(1.5, abs=0.05)
