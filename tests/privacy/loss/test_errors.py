"""Every error that an account makes is counted: each test fails if one term is left out."""

import math
from collections.abc import Iterator

import numpy as np
import pytest
from flint import arb, ctx
from numpy.typing import NDArray

from matrixdp.privacy.loss import composition, lattice
from matrixdp.privacy.loss.composition import Composed, composed
from matrixdp.privacy.loss.lattice import (
    Cells,
    Lattice,
    cells_of,
    coarsened,
    contracted,
    exchanged,
    spread,
)
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.tilting import Saddle
from reference.ball import normal_tail

UNIT = 2.0**-53
NOWHERE = ((1.0, -1e4),)  # a growth that proves that there is no mass above any loss
ANYWHERE = ((0.0, 0.0),)  # and one that proves nothing

FloatArray = NDArray[np.float64]


@pytest.fixture(autouse=True, scope="module")
def _precise() -> Iterator[None]:
    former, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = former


def sum_of_losses(
    masses: FloatArray,
    *,
    first: int = 0,
    tilt: float = 1.0,
    log_factor: float = 0.0,
    error: float = 0.0,
    growth: tuple[tuple[float, float], ...] = NOWHERE,
) -> Composed:
    """Return a composed distribution with losses at the quarters and no other error."""
    return Composed(
        0.25, first, 0.0, masses, tilt, composition.FAR, log_factor, error, 0.0, growth, 0.0, 0.0
    )


def weight(tilt: float, above: float) -> float:
    return math.exp(-tilt * above) * -math.expm1(-above)


# The last sum.


def test_terms_that_are_left_out_are_bounded() -> None:
    empty = sum_of_losses(np.zeros(4096), growth=ANYWHERE)
    assert empty.log_upper(1.0) + 1.0 >= math.log(weight(1.0, 18.0)) - 1e-12


def test_mass_beyond_the_window_is_bounded() -> None:
    empty = sum_of_losses(np.zeros(25), growth=ANYWHERE)
    assert empty.log_upper(1.0) + 1.0 >= math.log(weight(1.0, 5.0)) - 1e-12
    # Also at an epsilon beyond the window, where the mass may have the largest weight.
    assert empty.log_upper(50.0) + 50.0 >= math.log(0.2499)


def test_mass_below_the_window_counts_for_an_epsilon_below_it() -> None:
    above = sum_of_losses(np.zeros(64), first=100)
    assert above.log_upper(1.0) + 1.0 >= math.log(1e-12 * 0.2499)
    within = sum_of_losses(np.zeros(64), first=-8)
    assert within.log_upper(1.0) < -600.0


def test_mass_from_below_the_window_is_taken_off_a_lower_bound() -> None:
    masses = np.zeros(64)
    masses[20] = 1e-11
    total = 1e-11 * weight(1.0, 4.0)
    found = sum_of_losses(masses).log_lower(1.0) + 1.0
    assert found <= math.log(max(total - 0.2499e-12, 1e-300))


def test_the_error_of_each_mass_counts_as_often_as_there_are_masses() -> None:
    places = 0.25 * np.arange(5, 5 + 72) - 1.0
    weights = float((np.exp(-places) * -np.expm1(-places)).sum())
    masses = np.zeros(4096)
    masses[8] = 1.0
    whole = weight(1.0, 1.0)
    off = sum_of_losses(masses, error=1e-3)
    assert math.exp(off.log_upper(1.0) + 1.0) >= whole + 0.999e-3 * weights
    assert math.exp(off.log_lower(1.0) + 1.0) <= whole - 0.999e-3 * weights


@pytest.mark.parametrize("tilt", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("above", [0.0, 0.01, 2.0])
def test_no_weight_is_above_the_largest(tilt: float, above: float) -> None:
    most = sum_of_losses(np.zeros(16), tilt=tilt)._most_weight(above)
    places = [above + 10.0**power for power in np.linspace(-6.0, 2.5, 200)]
    assert most >= max(weight(tilt, place) for place in places)
    assert most <= 1.1 * max(weight(tilt, place) for place in places)


def test_rounding_of_logarithms_goes_to_the_safe_side() -> None:
    numbers = np.random.default_rng(1)
    masses = np.zeros(64)
    masses[40] = 0.75
    for _ in range(200):
        factor, tilt = numbers.uniform(-1e5, 1e5), numbers.uniform(0.5, 1.5)
        epsilon = numbers.uniform(1.0, 8.0)
        found = sum_of_losses(masses, tilt=tilt, log_factor=factor)
        above = arb(10) - arb(epsilon)
        truth = arb(0.75) * (1 - (-above).exp())
        log_truth = truth.log() + arb(factor) - arb(tilt) * arb(10)
        assert bool(arb(found.log_upper(epsilon)) >= log_truth)
        # A lower bound also takes off what may have come from below the window.
        taken = truth - arb(1e-12) * arb(found._most_weight(0.0)) * (arb(tilt) * above).exp()
        lower = taken.log() + arb(factor) - arb(tilt) * arb(10)
        assert bool(arb(found.log_lower(epsilon)) <= lower)


def test_a_sum_of_logarithms_is_rounded_up() -> None:
    numbers = np.random.default_rng(2)
    for _ in range(200):
        logarithm, rest = numbers.uniform(-500.0, -1.0), 10.0 ** numbers.uniform(-200.0, -1.0)
        found = composition._log_sum(logarithm, rest)
        assert bool(arb(found) >= (arb(logarithm).exp() + arb(rest)).log())


# Transforms and powers.


def two_losses(steps: int) -> tuple[Lattice, Saddle]:
    """Return atoms at two losses, and a saddle point without any tilt to speak of."""
    atoms = Lattice(0.25, 0.0, -1, np.array([0.25, 0.0, 0.75]), 0.0, 0.0)
    return atoms, Saddle(1e-9, 0.125 * steps, 0.0, 0.22 * math.sqrt(steps), 0.0)


@pytest.mark.parametrize("steps", [1, 50, 3000])
def test_the_error_of_a_mass_has_all_its_terms(steps: int) -> None:
    atoms, saddle = two_losses(steps)
    found = composed([(atoms, steps)], saddle)
    size = len(found.masses)
    transform = 5.0 * math.log2(size) * UNIT
    angles = 2.0 * math.pi * np.arange(size // 2 + 1) / size
    sizes = np.abs(0.25 * np.exp(1j * angles) + 0.75 * np.exp(-1j * angles))
    powers = np.exp(steps * np.log(sizes))
    # Of the power: what the transform was off before, and the rounding of every product.
    gaps = steps * transform / sizes + (steps - 1) * math.sqrt(5.0) * UNIT
    expected = 2.0 / size * float((powers * gaps).sum() + transform * powers.sum())
    assert 0.999 * expected <= found.error <= 2.0 * expected + 1e-17


def test_rounding_of_tilts_is_counted_for_every_step() -> None:
    atoms, saddle = two_losses(1000)
    steep = Saddle(40.0, saddle.epsilon, 0.0, saddle.deviation, 0.0)
    found = composed([(atoms, 1000)], steep)
    # The exponent 10 of a tilt, its exponential and its logarithm have a unit each.
    assert found.relative >= 1000 * (10.0 + 2.0) * UNIT


def test_growth_is_rounded_up() -> None:
    atoms, _ = two_losses(1)
    tilted = composition._tilted(atoms, 10**9, 0.7)
    for order in np.linspace(-5.0, 5.0, 41).tolist():
        masses = [arb(mass) for mass in tilted.masses.tolist()]
        places = [arb(place) for place in atoms.offsets.tolist()]
        moment = sum(
            (m * (arb(order) * x).exp() for m, x in zip(masses, places, strict=True)), arb(0)
        )
        assert bool(arb(tilted.log_moment(order)) >= 10**9 * moment.log())


def test_hardly_any_mass_is_below_the_window_and_no_more_above_than_bounded() -> None:
    steps = 300
    atoms, saddle = two_losses(steps)
    found = composed([(atoms, steps)], saddle)
    chances = [math.comb(steps, k) * 0.75**k * 0.25 ** (steps - k) for k in range(steps + 1)]
    losses = [0.25 * (2 * k - steps) for k in range(steps + 1)]
    pairs = list(zip(chances, losses, strict=True))
    assert sum(chance for chance, loss in pairs if loss < 0.25 * found.first) <= 1e-12
    for bound in (30.0, 40.0, 45.0, 50.0, 60.0):
        above = sum(chance for chance, loss in pairs if loss >= bound)
        assert composition._mass_above(bound, found.growth) >= above * (1 - 1e-9)


# Lattices.

PAIRS: list[Pair] = [
    AddRemovePair(0.01, 1.0),
    AddRemovePair(0.5, 4.0),
    AddRemovePair(1.0 - 1e-12, 5.0),
    AddRemovePair(1.0, 0.5),
    ReplacePair(0.3, 2.0),
    ReplacePair(0.001, 1.0),
]
NEARLY_ALL: list[Pair] = [ReplacePair(1.0 - 1e-6, 4.5), ReplacePair(1.0 - 1e-12, 4.5)]


def losses_of(cells: Cells) -> FloatArray:
    """Return the losses at the ends of all cells."""
    numbers = np.arange(cells.first, cells.first + len(cells.low) + 1, dtype=np.float64)
    return cells.origin + cells.step * numbers


def exact_loss(pair: Pair, place: arb) -> arb:
    rate, mu = arb(pair.rate), arb(pair.mu)
    up, down = (1 - rate + rate * (sign * mu * place - mu * mu / 2).exp() for sign in (1, -1))
    return (up / down).log() if isinstance(pair, ReplacePair) else up.log()


def exact_masses(pair: Pair, low: arb, high: arb) -> tuple[arb, arb]:
    """Return the masses of P and of Q between two places."""
    rate, mu = arb(pair.rate), arb(pair.mu)

    def between(mean: arb) -> arb:
        return normal_tail(low - mean) - normal_tail(high - mean)

    first = (1 - rate) * between(arb(0)) + rate * between(mu)
    if isinstance(pair, ReplacePair):
        return first, (1 - rate) * between(arb(0)) + rate * between(-mu)
    return first, between(arb(0))


@pytest.mark.parametrize("pair", PAIRS + NEARLY_ALL, ids=repr)
@pytest.mark.parametrize("step", [0.5, 2.0**-6])
def test_places_are_off_by_no_more_than_their_displacement(pair: Pair, step: float) -> None:
    cells = cells_of(pair, step, 1e-20)
    losses = losses_of(cells)
    places = pair.places(losses)
    bounds = pair.displacement(losses, places)
    off = []
    for loss, place, bound in zip(losses.tolist(), places.tolist(), bounds.tolist(), strict=True):
        if math.isfinite(place):
            off.append(abs(exact_loss(pair, arb(place)) - arb(loss)))
            assert bool(off[-1] <= arb(bound))
            assert bound <= cells.displacement
    # Without a bound some would not hold.
    assert max(float(each.mid()) for each in off) > 0.0


def check_shares(pair: Pair, step: float) -> None:
    """Check both shares of every cell with closed forms, in ball arithmetic."""
    tail = 1e-20
    cells = cells_of(pair, step, tail)
    start, stop = pair.reach(tail)
    losses = losses_of(cells)
    places = np.maximum.accumulate(pair.places(losses)).tolist()
    for k in range(0, len(cells.low), max(1, len(cells.low) // 60)):
        ends = [arb(min(max(place, start), stop)) for place in places[k : k + 2]]
        if not bool(ends[0] < ends[1]):
            continue
        first, second = exact_masses(pair, *ends)
        bottom = exact_loss(pair, arb(places[k])) if math.isfinite(places[k]) else arb(losses[k])
        top = exact_loss(pair, arb(places[k + 1]))
        high = (first - bottom.exp() * second) / (1 - (-arb(step)).exp())
        low = (top.exp() * second - first) / (arb(step).exp() - 1)
        for share, found in ((low, cells.low[k]), (high, cells.high[k])):
            assert bool(abs(arb(float(found)) - share) <= share * arb(float(cells.errors[k])))


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
@pytest.mark.parametrize("step", [4.0, 0.5, 2.0**-5])
def test_both_shares_of_a_cell_are_off_by_no_more_than_their_error(pair: Pair, step: float) -> None:
    check_shares(pair, step)


@pytest.mark.parametrize("pair", NEARLY_ALL, ids=repr)
def test_shares_of_replaced_records_that_are_nearly_always_sampled(pair: Pair) -> None:
    check_shares(pair, 0.25)


@pytest.mark.parametrize("step", [4.0, 2.0**-16])
def test_the_error_of_a_share_has_all_its_terms(step: float) -> None:
    pair = AddRemovePair(0.5, 0.25 if step < 1.0 else 4.0)
    cells = cells_of(pair, step, 1e-20)
    losses = losses_of(cells)
    places = np.maximum.accumulate(pair.places(losses))
    inside = np.flatnonzero(np.isfinite(places[:-1]) & (np.abs(places[1:]) < 9.0))
    moved = pair.displacement(losses, places) / step
    moved = np.maximum(moved[inside], moved[inside + 1])
    # A unit for each of exp, products and sums, and those of the exponent of a density.
    units = 8.0 + 0.5 * places[inside + 1] ** 2
    rule = max(lattice.rule_error(5, 0.02), lattice.rule_error(8, 0.25))
    assert np.all(cells.errors[inside] >= rule + units * UNIT + 4.0 * moved)


def test_long_cells_are_cut_into_parts_that_the_rule_is_proven_for() -> None:
    pair, interval = AddRemovePair(0.5, 4.0), (-9.0, 13.0)
    losses = np.array([1.0, 9.0])
    places = pair.places(losses)
    _, _, parts = lattice._integrals(pair, losses, places, interval)
    steepest = np.abs(places).max() + 2.0 * pair.mu
    assert parts >= 0.5 * (places[1] - places[0]) * steepest / 0.25


@pytest.mark.parametrize("step", [0.3, 0.01, 1e-5])
def test_coarser_atoms_are_rounded_up(step: float) -> None:
    for mass in np.geomspace(0.1, 1.0, 30).tolist():
        coarse = coarsened(Lattice(step, 0.0, 1, np.array([mass]), 0.0, 0.0)).masses
        for found, away in zip(coarse.tolist(), (step, -step), strict=False):
            assert bool(arb(found) >= arb(mass) / (1 + arb(away).exp()))


@pytest.mark.parametrize("pair", PAIRS, ids=repr)
def test_no_more_mass_is_lost_than_is_said(pair: Pair) -> None:
    cells = cells_of(pair, 0.125, 1e-3)
    assert cells.lost == 1e-3
    upper = spread(cells)
    assert 1.0 - 1e-3 <= upper.masses.sum() < 1.0
    others = float(upper.masses @ np.exp(-upper.origin - upper.offsets))
    assert 1.0 - 1e-3 <= others < 1.0


def test_atoms_that_dominate_are_rounded_up_by_their_error() -> None:
    cells = Cells(0.5, 0.0, 0, np.array([0.2, 0.3]), np.array([0.1, 0.1]), np.full(2, 1e-3), 0, 0)
    assert np.all(spread(cells).masses >= 1.001 * np.array([0.2, 0.4, 0.1]))


def test_exchanged_atoms_are_rounded_up_and_carry_what_is_off() -> None:
    atoms = Lattice(0.5, 0.1, -2, np.full(5, 0.2), 1e-3, 1e-4)
    other = exchanged(atoms)
    assert (other.displacement, other.lost) == (1e-3, 1e-4)
    losses = atoms.origin + atoms.offsets
    assert np.all(other.masses[::-1] >= 0.2 * np.exp(-losses + 1e-3))
    assert other.origin + other.offsets == pytest.approx(-losses[::-1])


def least_curve(cells: Cells, t: FloatArray) -> FloatArray:
    """Return ``int (t - Q/P)_+ dP`` if each cell has all its mass at one loss: the least of all."""
    ratios = np.exp(-cells.step * np.arange(cells.first, cells.first + len(cells.low) + 1))
    mass = cells.low + cells.high
    means = (cells.low * ratios[:-1] + cells.high * ratios[1:]) / mass
    found: FloatArray = np.maximum(t[:, None] - means, 0.0) @ mass
    return found


def random_cells(numbers: np.random.Generator, count: int, step: float, error: float) -> Cells:
    """Return cells of a density that rises, falls or has a peak, with much noise or little."""
    slope, noise = numbers.normal(0.0, 2.0), 10.0 ** numbers.uniform(-2.0, 0.7)
    logs = slope * np.arange(count) + noise * numbers.normal(size=(2, count))
    low, high = np.exp(logs - logs.max())
    return Cells(step, 0.0, 0, low, high, np.full(count, error), 0.0, 0.0)


@pytest.mark.parametrize("error", [1e-12, 1e-3])
@pytest.mark.parametrize("count", [4, 12])
def test_contracted_atoms_are_dominated_whatever_the_errors_were(count: int, error: float) -> None:
    numbers = np.random.default_rng(count)
    for _ in range(250):
        step = float(10.0 ** numbers.uniform(-3.0, 0.0))
        cells = random_cells(numbers, count, step, error)
        atoms = contracted(cells)
        ratios = np.exp(-atoms.offsets)
        t = np.exp(-step * np.linspace(-1.0, count + 1.0, 40 * count))
        found = np.maximum(t[:, None] - ratios, 0.0) @ atoms.masses
        # The true shares are off by the error, in the direction that is worst, or in any.
        for sides in (np.linspace(1, -1, count) > 0, numbers.random(count) > 0.5):
            off = error * np.where(sides, 1.0, -1.0)
            true = Cells(
                step, 0.0, 0, cells.low * (1 + off), cells.high * (1 - error), cells.errors, 0, 0
            )
            excess = found - least_curve(true, t)
            assert np.all(excess <= 1e-14 * (cells.low + cells.high).sum())


def test_merged_blocks_are_dominated() -> None:
    numbers = np.random.default_rng(3)
    merged = 0
    for _ in range(1500):
        step = float(10.0 ** numbers.uniform(-3.0, -0.5))
        cells = random_cells(numbers, 8, step, 0.0)
        points = lattice._contracted_block(cells.low, cells.high, 0.0, step)
        if points is None:
            continue
        merged += 1
        t = np.exp(-step * np.linspace(-1.0, 9.0, 320))
        found = np.maximum(t[:, None] - np.exp(-step * np.arange(9)), 0.0) @ points
        assert np.all(found <= least_curve(cells, t) + 1e-13 * points.sum())
    assert merged > 100
