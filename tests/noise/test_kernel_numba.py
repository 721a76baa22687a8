"""The compiled kernel alone: its cache and its compiler."""

import builtins
import importlib
import os
import signal
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from matrixdp.noise.kernels import PreparedKernels, available_kernels, compiled_loops
from matrixdp.noise.kernels.block import Block
from matrixdp.noise.kernels.numba_kernel import NumbaKernel
from matrixdp.noise.specification.coarse_table import COARSE_DECIDED_BELOW, load_coarse_table
from matrixdp.noise.specification.table import DECIDED_BELOW, GRID_BITS, load_table
from reference.noise import empty_block

numba: Any = pytest.importorskip("numba")
# V = 1/2, and a V that the coarse table leaves to the other one, for noise of scale 1 on 0.
MIDDLE, OPEN_CASE = 1 << 62, (1 << 62) + 1_472_838_238_208


def forget_compiled() -> None:
    """Leave the cache on disk as the only one."""
    compiled_loops.coarse_loop.cache_clear()
    compiled_loops.fine_loop.cache_clear()


def shipped_kernel() -> NumbaKernel:
    return NumbaKernel(load_table(), load_coarse_table())


def one_element(word: int) -> Block:
    block = empty_block(1)
    block.values[:], block.words[:], block.scales[:] = 0.0, word, 1.0
    return block


def noisy(kernel: NumbaKernel, word: int = MIDDLE) -> float:
    block = one_element(word)
    kernel(block, GRID_BITS)
    return float(block.noisy[0])


def test_another_table_is_never_served_by_cached_code() -> None:
    # Both from the cache on disk, if they were compiled before: it is keyed on the table's content.
    forget_compiled()
    table = load_table()
    other = table.copy()
    other[0, :] = (other[0, :].view(np.float64) + 1.0).view(np.int64)
    for _ in range(2):
        for given, expected in [(table, 0.67449), (other, 1.67449)]:
            kernel = NumbaKernel(given, load_coarse_table())
            assert noisy(kernel, OPEN_CASE) == pytest.approx(expected, abs=1e-5)
        forget_compiled()


def test_another_coarse_table_is_never_served_by_cached_code() -> None:
    forget_compiled()
    table = load_coarse_table()
    other = table + (np.int64(1) << 60)  # c0 larger by 1
    other[[0, -1]] = -1
    for _ in range(2):
        for given, expected in [(table, 0.67449), (other, 1.67449)]:
            assert noisy(NumbaKernel(load_table(), given)) == pytest.approx(expected, abs=1e-5)
        forget_compiled()


BOUNDS = {
    "coarse": ("COARSE_DECIDED_BELOW", COARSE_DECIDED_BELOW, MIDDLE),
    "fine": ("DECIDED_BELOW", DECIDED_BELOW, OPEN_CASE),
}


@pytest.mark.parametrize(("name", "proven", "word"), BOUNDS.values(), ids=BOUNDS)
def test_another_error_bound_is_never_served_by_cached_code(
    monkeypatch: pytest.MonkeyPatch, name: str, proven: float, word: int
) -> None:
    # With nothing decided by one table and, for the first, a second one that decides nothing.
    other = load_table().copy()
    other[0] = np.array(np.nan).view(np.int64)
    table = other if name == "COARSE_DECIDED_BELOW" else load_table()
    for bound, undecided in [(proven, 0), (0.0, 1), (proven, 0)]:
        forget_compiled()
        monkeypatch.setattr(compiled_loops, name, bound)
        kernel = NumbaKernel(table, load_coarse_table())
        assert kernel(one_element(word), GRID_BITS) == undecided
    forget_compiled()


def test_code_for_one_scale_is_never_served_for_a_scale_each() -> None:
    for word in (MIDDLE, OPEN_CASE):
        block = empty_block(2)
        block.values[:], block.words[:], block.scales[:] = 0.0, word, [1.0, 2.0]
        one = block._replace(scales=np.array([2.0]))
        for first, second in [(block, one), (one, block)]:
            forget_compiled()
            found = {}
            for given in (first, second):
                shipped_kernel()(given, GRID_BITS)
                found[given.scales.size] = given.noisy.copy()
            assert found[2] == pytest.approx([0.67449, 1.34898], abs=1e-5)
            assert found[1] == pytest.approx([1.34898, 1.34898], abs=1e-5)


def test_a_machine_without_a_cache_folder_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def without_cache(*arguments: Any, **options: Any) -> Any:
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*arguments, **options)

    forget_compiled()
    monkeypatch.setattr(numba, "njit", without_cache)
    assert noisy(shipped_kernel()) == pytest.approx(0.67449, abs=1e-5)
    forget_compiled()


def test_an_interrupt_that_the_compiler_swallows_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    real = numba.njit

    def swallowing(*arguments: Any, **options: Any) -> Any:
        with suppress(KeyboardInterrupt):  # as callbacks from C do
            signal.raise_signal(signal.SIGINT)
        return real(*arguments, **options)

    forget_compiled()
    monkeypatch.setattr(numba, "njit", swallowing)
    with pytest.raises(KeyboardInterrupt):
        shipped_kernel()
    monkeypatch.undo()
    assert noisy(shipped_kernel()) == pytest.approx(0.67449, abs=1e-5)


def test_kernels_of_further_threads_take_float32_too() -> None:
    # Two releases that begin at once make a kernel each, and their threads may get the other one.
    made = PreparedKernels(shipped_kernel, 4)
    block = empty_block(1)
    block.words[:], block.scales[:] = 1 << 62, 1.0
    single = block._replace(values=np.zeros(1, np.float32), noisy=np.zeros(1, np.float32))
    for _ in range(3):
        single.noisy[:] = 0.0
        assert made()(single, GRID_BITS) == 0
        assert float(single.noisy[0]) == pytest.approx(0.67449, abs=1e-5)


def test_an_interrupt_while_numba_loads_is_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def swallowing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "numba":
            # As numba's callbacks do with whatever is raised in them.
            with suppress(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)
        return load(name, *arguments, **options)

    monkeypatch.setattr(numba, "njit", lambda *_a, **_k: lambda loop: loop)
    monkeypatch.setattr(builtins, "__import__", swallowing)
    with pytest.raises(KeyboardInterrupt):
        compiled_loops.compiled(lambda: 0, 8)


def test_an_interrupt_while_numba_is_looked_for_is_not_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = importlib.import_module

    def swallowing(name: str, *arguments: Any) -> Any:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return load(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", swallowing)
    available_kernels.cache_clear()
    with pytest.raises(KeyboardInterrupt):
        available_kernels()
    monkeypatch.undo()
    assert "numba" in available_kernels()
