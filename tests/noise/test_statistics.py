"""The noise is normal with the right scale, and the tests of it notice when it is not.

Keys are fixed, so nothing here is ever flaky. With other keys a test would fail by chance with
probability ALARM. Against each wrong distribution below, the tests have far more power than needed.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.noise import ExactNoise, NoiseContext, add_noise
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.proofs.certificate import FINE_CUT
from matrixdp.noise.proofs.segments import Segment
from matrixdp.noise.specification.table import load_table
from reference.gpu_kernels import every_kernel
from reference.noise import test_key
from reference.normality import Normality

ALARM = 1e-6
CHUNK = 1_000_000
KERNELS = every_kernel()


def standardised(chunks: int, make_kernel: Any, scale: float = 1.0, seed: int = 40) -> Normality:
    found = Normality()
    context = NoiseContext.describe(shape=(chunks, CHUNK), dtype="float64", scale=scale)
    noise = ExactNoise(test_key(seed).bind(context), scale, make_kernel=make_kernel)
    for row in range(chunks):
        found.add(noise.add_tile(np.zeros((1, CHUNK)), (row, 0)).ravel() / scale)
    return found


def test_ten_million_samples() -> None:
    found = standardised(10, next(iter(KERNELS.values())))
    assert found.size == 10**7
    assert found.smallest() > ALARM


@pytest.mark.parametrize("make_kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("scale", [1.0, 3.7, 2.0**-30 * 1.99])
def test_every_path_and_scale(make_kernel: Any, scale: float) -> None:
    assert standardised(1, make_kernel, scale, seed=41).smallest() > ALARM


def test_scales_per_row_and_per_column() -> None:
    rows = np.geomspace(1e-3, 1e3, 1000)[:, None]
    for scales in (rows, rows.T):
        noisy = add_noise(np.full((1000, 1000), 7.0), scales, test_key(43))
        assert Normality().add(((noisy - 7.0) / scales).ravel()).smallest() > ALARM


def test_float32_noise() -> None:
    noisy = add_noise(np.zeros((1000, 1000), dtype=np.float32), 1.0, test_key(44))
    assert Normality().add(noisy.ravel().astype(np.float64)).smallest() > ALARM


def wrong_table_noise() -> NDArray[np.float64]:
    table = load_table().copy()
    centre = table[0, Segment(FINE_CUT, -1, 128).column :][:1].view(np.float64)
    centre += 0.004
    context = NoiseContext.describe(shape=(CHUNK,), dtype="float64", scale=1.0)
    noise = ExactNoise(test_key(45).bind(context), 1.0, make_kernel=lambda: NumpyKernel(table))
    return noise.add(np.zeros(CHUNK))


def truncated(rng: np.random.Generator) -> NDArray[np.float64]:
    samples = rng.standard_normal(4 * CHUNK)
    return samples[np.abs(samples) < 4.4]


WRONG: dict[str, Callable[[np.random.Generator], NDArray[np.float64]]] = {
    "0.9 of the scale": lambda _: add_noise(np.zeros(CHUNK), 0.9, test_key(48)),
    "1.1 of the scale": lambda _: add_noise(np.zeros(CHUNK), 1.1, test_key(49)),
    "0.99 of the scale": lambda rng: 0.99 * rng.standard_normal(CHUNK),
    "1.01 of the scale": lambda rng: 1.01 * rng.standard_normal(CHUNK),
    "off by 0.01": lambda rng: rng.standard_normal(CHUNK) + 0.01,
    "a sum of twelve uniforms": lambda rng: rng.random((12, CHUNK)).sum(axis=0) - 6.0,
    "a Student distribution": lambda rng: rng.standard_t(50, CHUNK) * np.sqrt(48 / 50),
    "cut off at 4.4": truncated,
    "every sample twice": lambda rng: np.repeat(rng.standard_normal(CHUNK // 2), 2),
    "one wrong segment of 5888": lambda _: wrong_table_noise(),
    "rounded to 1/64": lambda rng: np.rint(rng.standard_normal(CHUNK) * 64) / 64,
}


@pytest.mark.parametrize("draw", WRONG.values(), ids=WRONG)
def test_wrong_noise_is_rejected(draw: Callable[[np.random.Generator], NDArray[Any]]) -> None:
    assert Normality().add(draw(np.random.default_rng(46))).smallest() < ALARM / 1000


def test_right_noise_of_another_kind_is_accepted() -> None:
    samples = np.random.default_rng(47).standard_normal(CHUNK)
    assert Normality().add(samples).smallest() > ALARM
