"""The output holds its old content or finished numbers at every moment, for all who can see it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.noise import ExactNoise, NoiseContext
from matrixdp.noise.kernels import KernelFactory, available_kernels
from matrixdp.noise.kernels.block import Block
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.specification.table import load_table
from reference.noise import ScriptedStream

VALUE = np.full(3000, 1234.5)
OLD = -1.0
SCALES = {"one scale": 1.0, "a scale each": np.linspace(0.5, 3.0, VALUE.size)}


@contextmanager
def seen(array: NDArray[Any]) -> Iterator[list[NDArray[Any]]]:
    """Yield a list of the contents that the array has before every line that is run meanwhile."""
    contents = [array.copy()]

    def look(_frame: FrameType, _event: str, _argument: Any) -> Any:
        if not np.array_equal(array, contents[-1], equal_nan=True):
            contents.append(np.array(array))
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        yield contents
    finally:
        sys.settrace(before)


def assert_finished_numbers_only(make_kernel: KernelFactory, scale: Any, dtype: str) -> None:
    context = NoiseContext.describe(shape=VALUE.shape, dtype=dtype, scale=scale)
    words = np.random.default_rng(101).integers(0, 2**64, VALUE.size, dtype=np.uint64)
    words[::500] >>= np.uint64(30)  # so far in the tail that the fast path leaves them undecided
    stream = ScriptedStream(context, words)
    noise = ExactNoise(stream, scale, make_kernel=make_kernel)
    value = VALUE.astype(dtype)
    final = noise.add(value)
    out = np.full(VALUE.shape, OLD, dtype=dtype)
    with seen(out) as contents:
        noise.add(value, out=out)
    assert len(contents) >= (8 if dtype == "float64" else 2)  # the undecided come one by one
    for content in contents:
        assert ((content == OLD) | (content == final)).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("make_kernel", available_kernels().values(), ids=available_kernels())
def test_only_finished_numbers_are_seen(make_kernel: KernelFactory, scale: Any, dtype: str) -> None:
    assert_finished_numbers_only(make_kernel, scale, dtype)


class Hasty(NumpyKernel):
    """A kernel that uses the output as work space: first the noise alone, then the rest."""

    def __call__(self, block: Block, grid_bits: int) -> int:
        undecided = super().__call__(block, grid_bits)
        finished = block.noisy.copy()
        block.noisy[:] = finished - block.values
        block.noisy[:] = finished
        return undecided


def test_noise_alone_is_caught() -> None:
    with pytest.raises(AssertionError):
        assert_finished_numbers_only(lambda: Hasty(load_table()), 1.0, "float64")
