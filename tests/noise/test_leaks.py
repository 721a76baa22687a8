"""Nothing of the true value shows in the bits of the result; unsafe noise is caught too.

Two tests. Off a fine grid: the fraction of results that are not multiples of a power of two must
not depend on the true value (Mironov 2012 attacks the holes and ridges that floating-point noise
leaves). On a coarse grid: the counts of every grid point must match the exact probabilities. Keys
and seeds are fixed; with others a test would fail by chance with probability ALARM.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special, stats

from matrixdp.noise import ExactNoise, NoiseContext
from reference.gpu_kernels import every_kernel
from reference.noise import test_key

ALARM = 1e-7
SAMPLES = 1_000_000
COARSE_BITS = 2
COARSE_STEP = 2.0**-COARSE_BITS
KERNELS = every_kernel()

ROUNDS = 40  # of SAMPLES each: on the 2**-40 grid unsafe noise is a matter of few results

Mechanism = Callable[[float, int], NDArray[np.float64]]


def exact_mechanism(make_kernel: Any, grid_bits: int) -> Mechanism:
    def release(value: float, seed: int) -> NDArray[np.float64]:
        context = NoiseContext.describe(
            shape=(SAMPLES,), dtype="float64", scale=1.0, grid_bits=grid_bits
        )
        noise = ExactNoise(test_key(seed).bind(context), 1.0, make_kernel=make_kernel)
        return noise.add(np.full(SAMPLES, value))

    return release


def unsafe(value: float, seed: int) -> NDArray[np.float64]:
    return value + 1.0 * np.random.default_rng(seed).standard_normal(SAMPLES)


def off_by_half_a_step(value: float, seed: int) -> NDArray[np.float64]:
    noisy = unsafe(value + COARSE_STEP / 2, seed)
    return np.rint(noisy / COARSE_STEP) * COARSE_STEP


def half_gridded(value: float, seed: int) -> NDArray[np.float64]:
    """Round the noise to a grid, but not the value that it is added to."""
    return value + np.rint(unsafe(0.0, seed) * 2.0**45) * 2.0**-45


def off_the_grid(results: NDArray[np.float64], step: float) -> int:
    """Count the results that are not multiples of the step, a power of two."""
    steps = results / step
    return int(np.count_nonzero(steps != np.rint(steps)))


def fractions_differ(release: Mechanism, one: float, other: float, step: float) -> bool:
    """Test whether the fraction off the grid depends on the true value."""
    first, second = (
        sum(off_the_grid(release(value, 1000 * k + j), step) for j in range(ROUNDS))
        for k, value in enumerate((one, other))
    )
    size = ROUNDS * SAMPLES
    pooled = (first + second) / (2 * size)
    spread = np.sqrt(max(2 * pooled * (1 - pooled) * size, 1.0))
    return bool(2 * special.ndtr(-abs(first - second) / spread) < ALARM)


FINE = [(0.0, 1.0, 2.0**-53), (0.0, 1 / 3, 2.0**-40)]


# Other tests compare the bits of all kernels, so that one would do.
@pytest.mark.parametrize(
    "make_kernel",
    [
        pytest.param(kernel, id=name, marks=[pytest.mark.thorough] * name.startswith("gpu"))
        for name, kernel in KERNELS.items()
    ],
)
@pytest.mark.parametrize(("one", "other", "step"), FINE)
def test_fine_bits_say_nothing(make_kernel: Any, one: float, other: float, step: float) -> None:
    assert not fractions_differ(exact_mechanism(make_kernel, 20), one, other, step)


@pytest.mark.parametrize(("one", "other", "step"), FINE)
def test_fine_bits_give_unsafe_noise_away(one: float, other: float, step: float) -> None:
    assert fractions_differ(unsafe, one, other, step)


def test_fine_bits_give_half_gridded_noise_away() -> None:
    assert fractions_differ(half_gridded, *FINE[1])


def grid_point_p_value(results: NDArray[np.float64], value: float) -> float:
    """Chi-square of the counts of every grid point against their exact probabilities."""
    index = results / COARSE_STEP
    if off_the_grid(results, COARSE_STEP):
        return 0.0
    points = np.arange(-40, 41)
    upper = special.ndtr(((points + 0.5) * COARSE_STEP - value)[:-1])
    probabilities = np.diff(upper, prepend=0.0, append=1.0)
    counts = np.bincount(np.clip(index, -40, 40).astype(int) + 40, minlength=81)
    kept = probabilities * SAMPLES >= 5.0
    observed = np.append(counts[kept], counts[~kept].sum())
    expected = np.append(probabilities[kept], probabilities[~kept].sum()) * SAMPLES
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, observed.size - 1))


VALUES = [0.0, 1 / 3, 1.0]


@pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("value", VALUES)
def test_every_grid_point_has_its_probability(make_kernel: Any, value: float) -> None:
    results = exact_mechanism(make_kernel, COARSE_BITS)(value, 52)
    assert grid_point_p_value(results, value) > ALARM


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("release", [unsafe, off_by_half_a_step])
def test_wrong_grid_points_are_caught(release: Mechanism, value: float) -> None:
    assert grid_point_p_value(release(value, 53), value) < ALARM / 1000


def test_a_small_bias_is_caught() -> None:
    results = exact_mechanism(KERNELS["numpy"], COARSE_BITS)(1 / 3 + 0.01, 54)
    assert grid_point_p_value(results, 1 / 3) < ALARM


@pytest.mark.parametrize("value", [0.0, 1 / 3, 1.0, -1e-30])
def test_results_are_multiples_of_the_grid_step(value: float) -> None:
    results = exact_mechanism(KERNELS["numpy"], 20)(value, 55)
    assert off_the_grid(results, 2.0**-20) == 0
    assert not np.signbit(results[results == 0]).any()
