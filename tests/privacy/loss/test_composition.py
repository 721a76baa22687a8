"""A composition's assumptions about numpy hold, and its errors are counted."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from flint import arb, ctx
from scipy import fft

from matrixdp.privacy.loss import composition
from matrixdp.privacy.loss.composition import composed
from matrixdp.privacy.loss.lattice import Lattice
from matrixdp.privacy.loss.tilting import Saddle

UNIT = 2.0**-53


@pytest.fixture(autouse=True, scope="module")
def _precise() -> Iterator[None]:
    former, ctx.prec = ctx.prec, 300
    yield
    ctx.prec = former


# numpy's function, the same in ball arithmetic, and points; flint has no types.
FUNCTIONS: dict[str, tuple[Any, Any, Any]] = {
    "exp": (np.exp, lambda x: x.exp(), np.linspace(-700.0, 700.0, 4001)),
    "expm1": (np.expm1, lambda x: x.exp() - 1, np.geomspace(1e-12, 40.0, 2001)),
    "log": (np.log, lambda x: x.log(), np.geomspace(1e-300, 1e300, 2001)),
    "log1p": (np.log1p, lambda x: (1 + x).log(), np.geomspace(1e-12, 1e6, 2001)),
    "arcsinh": (np.arcsinh, lambda x: x.asinh(), np.geomspace(1e-12, 1e6, 2001)),
}


@pytest.mark.parametrize("size", [2**8, 3 * 2**9, 2**14, 3 * 2**14, 2**17])
@pytest.mark.parametrize("kind", ["random", "one point", "smooth", "steep"])
def test_the_transform_is_as_accurate_as_assumed(size: int, kind: str) -> None:
    random = np.random.default_rng(size)
    numbers = np.arange(size)
    masses = {
        "random": random.random(size),
        "one point": (numbers == size // 3).astype(float),
        "smooth": np.exp(-0.5 * ((numbers - size / 2) / 20.0) ** 2),
        "steep": np.exp(-numbers / 3.0),
    }[kind]
    masses /= masses.sum()
    allowed = composition.transform_error(size)
    truth = fft.rfft(masses.astype(np.longdouble))
    there = np.abs(np.fft.rfft(masses) - truth).max()
    assert there <= allowed
    # Back again, from a spectrum with the sizes that powers have.
    spectrum = np.fft.rfft(masses) ** 3
    back = np.abs(np.fft.irfft(spectrum, size) - fft.irfft(spectrum.astype(np.clongdouble), size))
    assert back.max() <= 2.0 / size * allowed * np.abs(spectrum).sum()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_as_accurate_as_assumed(name: str) -> None:
    function, exact, points = FUNCTIONS[name]
    for point, found in zip(points.tolist(), function(points).tolist(), strict=True):
        truth = exact(arb(point))
        assert bool(abs(arb(found) - truth) <= abs(truth) * arb(4.0 * UNIT))


def binomial(steps: int) -> tuple[Lattice, Saddle]:
    """Return atoms at two losses, and a saddle point for the sum of many."""
    lattice = Lattice(0.25, -0.1, -1, np.array([0.25, 0.0, 0.75]), 0.0, 0.0)
    mean = steps * (-0.1 + 0.125)
    return lattice, Saddle(1.0, mean, 0.0, 0.22 * math.sqrt(steps), 0.0)


def binomial_delta(steps: int, epsilon: float) -> arb:
    """Return delta by adding up all outcomes in ball arithmetic."""
    total = arb(0)
    for ups in range(steps + 1):
        loss = arb(steps) * arb(-0.1) + arb(0.25) * (2 * ups - steps) - arb(epsilon)
        if bool(loss > 0):
            chance = arb(math.comb(steps, ups)) * arb(0.75) ** ups * arb(0.25) ** (steps - ups)
            total += chance * (1 - (-loss).exp())
    return total


@pytest.mark.parametrize("steps", [1, 2, 7, 40, 300])
def test_sums_of_two_losses_are_between_the_bounds(steps: int) -> None:
    lattice, saddle = binomial(steps)
    upper = composed([(lattice, steps)], saddle)
    lower = composed([(lattice, steps)], saddle, for_lower=True)
    for epsilon in (0.0, 0.01, saddle.epsilon, saddle.epsilon + 0.5 * saddle.deviation):
        truth = binomial_delta(steps, epsilon).log()
        assert bool(arb(upper.log_upper(epsilon)) >= truth)
        assert lower.log_lower(epsilon) == -math.inf or bool(arb(lower.log_lower(epsilon)) <= truth)
    close = float(binomial_delta(steps, saddle.epsilon).log().mid())
    assert upper.log_upper(saddle.epsilon) == pytest.approx(close, abs=1e-5)
    assert lower.log_lower(saddle.epsilon) == pytest.approx(close, abs=1e-5)


def test_different_lattices_together_are_the_sum_of_their_steps() -> None:
    lattice, saddle = binomial(40)
    once = composed([(lattice, 40)], saddle)
    parts = composed([(lattice, 15), (lattice, 25)], saddle)
    assert parts.log_upper(1.0) == pytest.approx(once.log_upper(1.0), abs=1e-9)


def test_mass_that_wraps_around_is_taken_off_a_lower_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A window that is far too small puts mass from below at losses above epsilon.
    lattice, saddle = binomial(300)
    monkeypatch.setattr(composition, "size_of_window", lambda _points: 64)
    monkeypatch.setattr(composition, "_DOUBLINGS", 0)
    small = composed([(lattice, 300)], saddle, for_lower=True)
    truth = float(binomial_delta(300, saddle.epsilon).log().mid())
    assert small.log_lower(saddle.epsilon) <= truth
    monkeypatch.setattr(composition, "_mass_above", lambda _loss, _growth: 0.0)
    assert small.log_lower(saddle.epsilon) > truth


def test_what_is_lost_and_moved_is_added() -> None:
    lattice, saddle = binomial(40)
    base = composed([(lattice, 40)], saddle)
    lossy = Lattice(0.25, -0.1, -1, lattice.masses, 0.0, 1e-3)
    found = composed([(lossy, 40)], saddle)
    assert math.exp(found.log_upper(1.0)) == pytest.approx(
        math.exp(base.log_upper(1.0)) + 0.04, rel=1e-6
    )
    moved = Lattice(0.25, -0.1, -1, lattice.masses, 1e-3, 0.0)
    found = composed([(moved, 40)], saddle)
    assert found.log_upper(1.04) == pytest.approx(base.log_upper(1.0), abs=1e-9)
    assert found.log_lower(0.96) == pytest.approx(base.log_lower(1.0), abs=1e-9)


def test_errors_of_transforms_and_powers_are_counted() -> None:
    lattice, saddle = binomial(300)
    found = composed([(lattice, 300)], saddle)
    # What is added for one mass grows with the number of steps, and is not idle.
    assert 1e-17 < found.error < 1e-11
    more, tilted = binomial(30_000)
    assert composed([(more, 30_000)], tilted).error > 10.0 * found.error
    truth = composed([(lattice, 300)], saddle).masses
    again = fft.irfft(
        fft.rfft(
            composition._around(
                composition._tilted(lattice, 300, 1.0).masses, -1, len(truth)
            ).astype(np.longdouble)
        )
        ** 300,
        len(truth),
    )
    rolled = np.roll(again, -(found.first % len(truth)))
    assert np.abs(rolled - truth).max() <= found.error
