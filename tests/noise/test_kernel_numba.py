"""What is particular to the compiled kernel: its cache."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import matrixdp.noise.kernels.numba_kernel as module
from matrixdp.noise.kernels import PreparedKernels
from matrixdp.noise.kernels.numba_kernel import NumbaKernel
from matrixdp.noise.specification.table import DECIDED_BELOW, GRID_BITS, load_table
from reference.noise import empty_block

numba: Any = pytest.importorskip("numba")


def noisy(kernel: NumbaKernel) -> float:
    block = empty_block(1)
    block.values[:], block.words[:], block.scales[:] = 0.0, 1 << 62, 1.0
    kernel(block, GRID_BITS)
    return float(block.noisy[0])


def test_another_table_is_never_served_by_cached_code() -> None:
    # Both from the cache on disk, if they were compiled before: it is keyed on the table's content.
    module._compile.cache_clear()
    table = load_table()
    other = table.copy()
    other[0, :] = (other[0, :].view(np.float64) + 1.0).view(np.int64)
    assert noisy(NumbaKernel(table)) == pytest.approx(0.67449, abs=1e-5)
    assert noisy(NumbaKernel(other)) == pytest.approx(1.67449, abs=1e-5)
    module._compile.cache_clear()
    assert noisy(NumbaKernel(other)) == pytest.approx(1.67449, abs=1e-5)
    assert noisy(NumbaKernel(table)) == pytest.approx(0.67449, abs=1e-5)


def test_another_error_bound_is_never_served_by_cached_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    block = empty_block(1)
    block.values[:], block.words[:], block.scales[:] = 0.0, 1 << 62, 1.0
    for bound, undecided in [(DECIDED_BELOW, 0), (0.0, 1), (DECIDED_BELOW, 0)]:
        module._compile.cache_clear()
        monkeypatch.setattr(module, "DECIDED_BELOW", bound)
        assert NumbaKernel(load_table())(block, GRID_BITS) == undecided
    module._compile.cache_clear()


def test_code_for_one_scale_is_never_served_for_a_scale_each() -> None:
    block = empty_block(2)
    block.values[:], block.words[:], block.scales[:] = 0.0, 1 << 62, [1.0, 2.0]
    one = replace(block, scales=np.array([2.0]))
    for first, second in [(block, one), (one, block)]:
        module._compile.cache_clear()
        found = {}
        for given in (first, second):
            NumbaKernel(load_table())(given, GRID_BITS)
            found[given.scales.size] = given.noisy.copy()
        assert found[2] == pytest.approx([0.67449, 1.34898], abs=1e-5)
        assert found[1] == pytest.approx([1.34898, 1.34898], abs=1e-5)


def test_a_machine_without_a_cache_folder_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def without_cache(*arguments: Any, **options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*arguments, **options)

    module._compile.cache_clear()
    monkeypatch.setattr(numba, "njit", without_cache)
    assert noisy(NumbaKernel(load_table())) == pytest.approx(0.67449, abs=1e-5)
    module._compile.cache_clear()


def test_kernels_of_further_threads_take_float32_too() -> None:
    # Two releases that begin at once make a kernel each, and their threads may get the other one.
    made = PreparedKernels(lambda: NumbaKernel(load_table()), 4)
    block = empty_block(1)
    block.words[:], block.scales[:] = 1 << 62, 1.0
    single = replace(block, values=np.zeros(1, np.float32), noisy=np.zeros(1, np.float32))
    for _ in range(3):
        single.noisy[:] = 0.0
        assert made()(single, GRID_BITS) == 0
        assert float(single.noisy[0]) == pytest.approx(0.67449, abs=1e-5)
