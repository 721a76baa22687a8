"""The compiled kernel: with the coarse table and the other one, the bits are those of numpy."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from matrixdp.noise.kernels import compiled_loops
from matrixdp.noise.kernels.block import Block
from matrixdp.noise.kernels.numba_kernel import NumbaKernel
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.proofs.coarse_certificate import COARSE_CUT
from matrixdp.noise.proofs.segments import Segment
from matrixdp.noise.specification.coarse_table import load_coarse_table
from matrixdp.noise.specification.table import GRID_BITS, load_table

numba: Any = pytest.importorskip("numba")


def random_block(size: int, dtype: type, scales: NDArray[np.float64]) -> Block:
    rng = np.random.default_rng(20)
    return Block(
        values=rng.uniform(-9.0, 9.0, size).astype(dtype),
        words=rng.integers(0, 2**64, size, dtype=np.uint64),
        scales=scales,
        noisy=np.full(size, -1.0, dtype=dtype),
        undecided=np.ones(size, dtype=np.bool_),
    )


def by_numpy(block: Block) -> NDArray[Any]:
    """Return what the other table alone makes of a block."""
    kernel = NumpyKernel(load_table())
    noisy = np.full(block.values.size, -1.0)
    length = kernel.block_length
    for start in range(0, noisy.size, length):
        piece = slice(start, start + length)
        scales = block.scales if block.scales.size == 1 else block.scales[piece]
        kernel(
            Block(
                values=block.values[piece].astype(np.float64),
                words=block.words[piece],
                scales=scales,
                noisy=noisy[piece],
                undecided=np.empty(noisy[piece].size, dtype=np.bool_),
            ),
            GRID_BITS,
        )
    return noisy.astype(block.values.dtype)


def assert_equal_to_numpy(kernel: NumbaKernel, block: Block) -> None:
    kernel.prepare(block.values.itemsize)
    left = kernel(block, GRID_BITS)
    assert left == np.count_nonzero(block.undecided) <= 5
    expected = by_numpy(block)
    expected[block.undecided] = -1.0
    assert np.array_equal(block.noisy, expected)


MANY = 300_000
SCALES = {"one": np.array([3.7]), "each": np.random.default_rng(21).uniform(0.1, 8.0, MANY)}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)
def test_both_tables_give_the_bits_of_one(dtype: type, scales: NDArray[np.float64]) -> None:
    kernel = NumbaKernel(load_table(), load_coarse_table())
    assert_equal_to_numpy(kernel, random_block(MANY, dtype, scales))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [*range(1, 70), 1000])
def test_what_the_coarse_table_leaves_is_found_wherever_it_is(size: int, dtype: type) -> None:
    # A table of sentinels leaves everything, up to the last element of a block of any size.
    nothing = np.full_like(load_coarse_table(), -1)
    assert_equal_to_numpy(
        NumbaKernel(load_table(), nothing), random_block(size, dtype, np.array([1.5]))
    )


def test_a_wrong_coarse_table_is_caught() -> None:
    wrong = load_coarse_table().copy()
    # One number of one segment in 5888, by 2e-6: two grid steps.
    wrong[Segment(COARSE_CUT, -1, 99).column] += np.int64(1) << 42
    block = random_block(MANY, np.float64, np.array([1.0]))
    with pytest.raises(AssertionError):
        assert_equal_to_numpy(NumbaKernel(load_table(), wrong), block)


def test_a_wrong_table_behind_the_coarse_one_is_caught() -> None:
    wrong = load_table().copy()
    wrong[0, 1:-1] += np.int64(1) << 33  # about 1e-6 of every first coefficient
    block = random_block(MANY, np.float64, np.array([1.0]))
    with pytest.raises(AssertionError):
        assert_equal_to_numpy(NumbaKernel(wrong, load_coarse_table()), block)


def test_a_missing_error_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_loops.coarse_loop.cache_clear()
    monkeypatch.setattr(compiled_loops, "COARSE_DECIDED_BELOW", 0.5)
    block = random_block(MANY, np.float64, np.array([1.0]))
    with pytest.raises(AssertionError):
        assert_equal_to_numpy(NumbaKernel(load_table(), load_coarse_table()), block)
    compiled_loops.coarse_loop.cache_clear()
