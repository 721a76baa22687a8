"""Every error of an inversion is counted: each test fails if one term is left out."""

import math

import numpy as np
import pytest
from flint import arb, ctx

from matrixdp.privacy.loss import inversion
from matrixdp.privacy.loss.inversion import Inverted, Part, inverted, log_moment
from matrixdp.privacy.loss.pairs import AddRemovePair, Pair, ReplacePair
from matrixdp.privacy.loss.points import points_of
from matrixdp.privacy.loss.tilting import Cumulants
from matrixdp.privacy.loss.transform import characteristic_change
from reference import loss_truth
from reference.loss_composition import generating_function
from reference.loss_truth import Direction

NOWHERE = ((1.0, -1e4),)  # a growth that proves that delta is nothing further up


def curve(
    value: float,
    *,
    tilt: float = 100.0,
    error: float = 0.0,
    dropped: float = 0.0,
    relative: float = 0.0,
    growth: tuple[tuple[float, float], ...] = NOWHERE,
    lost: float = 0.0,
) -> Inverted:
    """Return a curve whose sum is a value, with K(theta) = 0 and a period of 2 pi."""
    values = np.array([math.pi * value], dtype=np.complex128)
    return Inverted(tilt, 0.0, 1.0, values, error, dropped, relative, growth, lost)


def test_the_error_of_the_sum_goes_both_ways() -> None:
    found = curve(0.5, error=0.1)
    assert math.exp(found.log_upper(0.0)) == pytest.approx(0.6, rel=1e-9)
    assert math.exp(found.log_lower(0.0)) == pytest.approx(0.4, rel=1e-9)


def test_the_rounding_of_the_tilt_goes_both_ways() -> None:
    found = curve(0.5, relative=0.1)
    assert found.log_upper(0.0) == pytest.approx(math.log(0.5) + 0.1)
    assert found.log_lower(0.0) == pytest.approx(math.log(0.5) - 0.1)


def test_a_tilt_of_which_hardly_anything_is_known_gives_no_lower_bound() -> None:
    assert curve(0.5, relative=1e3).log_lower(0.0) == -math.inf


def test_what_is_lost_is_added_to_an_upper_bound_only() -> None:
    found = curve(0.5, lost=0.1)
    assert math.exp(found.log_upper(0.0)) >= 0.6
    assert math.exp(found.log_lower(0.0)) == pytest.approx(0.5)


def test_low_losses_that_are_left_out_are_added_to_an_upper_bound_only() -> None:
    found = curve(0.5, dropped=0.1)
    assert math.exp(found.log_upper(0.0)) >= 0.6
    assert math.exp(found.log_lower(0.0)) == pytest.approx(0.5)


def test_other_periods_are_taken_off_a_lower_bound() -> None:
    # One below: delta is at most 1 there, and D at most e^(-theta P) of that.
    below = curve(0.5, tilt=0.3)
    assert math.exp(below.log_lower(0.0)) <= 0.5 - math.exp(-0.6 * math.pi)
    # And one above, by Chernoff's bound.
    above = curve(0.5, growth=((0.3, 0.0),))
    assert math.exp(above.log_lower(0.0)) <= 0.5 - math.exp(-0.6 * math.pi)
    assert math.exp(above.log_upper(0.0)) == pytest.approx(0.5)


def test_what_weights_are_off_moves_every_step() -> None:
    pair, count, tail = AddRemovePair(5.286110165726293e-05, 0.7416632844422009), 1000, 1e-25
    part = Part(pair, pair.reach(tail), count)
    near = Cumulants([(pair, count)], tail).at_point(0.5, math.log(1e-7))
    points = points_of(pair, part.interval, near.tilt, 1.0)
    found = inverted([part], near, 0.0)
    assert found.relative >= count * float(points.weights @ points.errors)


SIZE = 1 << 12
PAIR = AddRemovePair(0.01, 1.25)


def changes(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the change of one step by transform and directly, and the error that is claimed."""
    points = points_of(PAIR, PAIR.reach(1e-20), 1.5, 200.0)
    step = 0.6 / 200.0
    s = np.linspace(0.0, 2.0 * math.pi * (count - 1) / (step * SIZE), count)
    found, errors = characteristic_change(points, step, SIZE, s)
    direct = np.expm1(1j * s[:, None] * points.losses).dot(points.weights)
    return found, direct, errors


def test_moments_are_kept_by_the_lattice() -> None:
    found, direct, errors = changes(300)
    assert float(np.max(np.abs(found - direct) - errors)) <= 1e-14
    assert float(errors[100]) <= 1e-12


def test_the_remainder_of_interpolation_is_counted() -> None:
    # Far out interpolation is all that is off.
    found, direct, errors = changes(1200)
    off = np.abs(found - direct)
    assert float(np.max(off)) > 1e-9
    assert bool((off <= errors + 1e-14).all())


def test_the_end_of_the_line_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, tail = [(PAIR, 30)], 1e-18
    near = Cumulants(steps, tail).at_point(0.5, math.log(1e-4))
    parts = [Part(PAIR, PAIR.reach(tail), 30)]
    whole = inverted(parts, near, 0.0)
    # A line that is far too short, where much is left out.
    monkeypatch.setattr(inversion, "_CLOSE", math.log(3.0))
    short = inverted(parts, near, 0.0)
    assert len(short.values) * short.spacing < 0.7 * len(whole.values) * whole.spacing
    assert short.log_lower(0.5) <= whole.log_lower(0.5) <= whole.log_upper(0.5)
    assert whole.log_upper(0.5) <= short.log_upper(0.5)
    assert short.log_upper(0.5) - whole.log_upper(0.5) > 1e-3


@pytest.mark.parametrize(
    ("pair", "direction", "exchanged"),
    [
        (AddRemovePair(0.01, 1.25), "remove", False),
        (AddRemovePair(0.01, 1.25), "add", True),
        (ReplacePair(0.01, 1.25), "replace", False),
        (ReplacePair(0.01, 1.25), "replace", True),
    ],
)
@pytest.mark.parametrize("order", [0.3, 6.0, 15.0])
def test_moments_with_low_losses_are_bounded(
    pair: Pair,
    direction: Direction,
    order: float,
    monkeypatch: pytest.MonkeyPatch,
    *,
    exchanged: bool,
) -> None:
    truth = loss_truth.Pair(1.0 / pair.mu, pair.rate, direction)
    with ctx.workprec(200):
        true = float(generating_function(truth, order, arb(1), 1)[0].real.log().mid())
    bound = log_moment(pair, pair.reach(1e-200), order, exchanged=exchanged)
    assert true - 1e-13 <= bound <= true + 1e-9
    # Where more is left out, it counts as well.
    monkeypatch.setattr(inversion, "_REST", -2.0)
    assert true - 1e-13 <= log_moment(pair, pair.reach(1e-200), order, exchanged=exchanged)


@pytest.mark.parametrize(
    ("pair", "exchanged"), [(ReplacePair(0.01, 1.25), False), (AddRemovePair(0.01, 1.25), True)]
)
def test_low_losses_that_are_left_out_count(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, *, exchanged: bool
) -> None:
    count, tail = 3, 1e-18
    near = Cumulants([(pair, count)], tail, exchanged=exchanged).at_point(0.02, math.log(1e-3))
    # An end that is far too near.
    monkeypatch.setattr(inversion, "_CLOSE", math.log(3.0))
    part = Part(pair, pair.reach(tail), count)
    found = inverted([part], near, 0.0, exchanged=exchanged)
    kept, _ = inversion._without_low_losses([part], near, exchanged=exchanged)
    assert kept[0].interval != part.interval
    u = np.linspace(*part.interval, 100_001)
    logs, losses = pair.log_density(u), pair.losses(u)
    logs += near.tilt * losses if not exchanged else -(1.0 + near.tilt) * losses
    low = u > kept[0].interval[1] if exchanged else u < kept[0].interval[0]
    ratio = float(np.exp(logs[low]).sum() / np.exp(logs[~low]).sum())
    assert found.dropped >= count * ratio
    assert found.dropped > 1e-6
