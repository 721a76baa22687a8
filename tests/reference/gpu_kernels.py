"""The kernels of GPUs as the processor runs them, and as a GPU does if there is one."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest

from matrixdp.noise.kernels import KernelFactory, available_kernels
from matrixdp.noise.kernels.block import Block

if find_spec("torch") is not None:
    import torch

    from matrixdp.noise.kernels.cuda import launcher as launcher_module
    from matrixdp.noise.kernels.cuda.kernel import TensorKernel, UndecidedList
    from matrixdp.noise.kernels.cuda.launcher import CudaLauncher, Launcher
    from matrixdp.noise.kernels.cuda.source import kernel_source

HOST = Path(__file__).parents[1] / "noise" / "host"
GIVEN_WORDS = {"finish_single": 1024, "finish_double": 1024}


class HostLauncher:
    """Runs the kernels on the processor, in few threads: those of a GPU would take their time."""

    def __init__(self, library: ctypes.CDLL, most_blocks: int, threads: int) -> None:
        self._library = library
        self.most_blocks = most_blocks
        self._threads = threads

    def __call__(self, kernel: str, blocks: int, arguments: Sequence[Any]) -> None:
        function = getattr(self._library, f"launch_{kernel}")
        given = [
            ctypes.byref(argument) if isinstance(argument, ctypes.Structure) else argument
            for argument in arguments
        ]
        function(ctypes.c_uint32(blocks), ctypes.c_uint32(self._threads), *given)


def source_with_tests(*, four_tables: bool) -> str:
    return kernel_source(four_tables=four_tables) + (HOST / "given_words.cu").read_text()


@lru_cache(maxsize=2)
def host_library(*, four_tables: bool) -> ctypes.CDLL:
    """Compile the kernels, or skip the test where there is no compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no g++ to compile the GPU kernels for the processor")
    with TemporaryDirectory() as folder:
        source, library = Path(folder, "kernels.cu"), Path(folder, "kernels.so")
        source.write_text(source_with_tests(four_tables=four_tables))
        # Without contraction, as for a GPU.
        options = ["-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Werror"]
        options += ["-Wno-unknown-pragmas", "-Wno-unused-function", f'-DKERNEL_SOURCE="{source}"']
        command = [compiler, *options, str(HOST / "processor.cpp"), "-o", str(library)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(library))


def host_kernel(
    *, four_tables: bool = True, most_blocks: int = 2, threads: int = 64
) -> "TensorKernel":
    """Return the kernel of the processor."""
    pytest.importorskip("torch")
    library = host_library(four_tables=four_tables)
    return TensorKernel(HostLauncher(library, most_blocks, threads), torch.device("cpu"))


@lru_cache(maxsize=1)
def _gpu_launcher() -> "CudaLauncher":
    with (
        patch.object(launcher_module, "kernel_source", source_with_tests),
        patch.object(launcher_module, "KERNELS", launcher_module.KERNELS | GIVEN_WORDS),
    ):
        return CudaLauncher(0)


class Undecided(NamedTuple):
    """An element that no table decides."""

    element: int
    value: float
    word: int


def entries_of(undecided: "UndecidedList") -> list[Undecided]:
    """Return the entries of a list in the order of their elements: threads append in any order."""
    rows = undecided.tensor.cpu().numpy().view(np.uint64).reshape(-1, 3)
    found = rows[1 : 1 + int(rows[0, 0])]
    values = np.ascontiguousarray(found[:, 1]).view(np.float64)
    return sorted(map(Undecided, found[:, 0].tolist(), values.tolist(), found[:, 2].tolist()))


class GivenWordsKernel:
    """The arithmetic of the GPU kernels on blocks with words of their own."""

    takes_single: Final = True
    block_length: Final = 1 << 15

    def __init__(self, launcher: "Launcher", device: "torch.device") -> None:
        self._launcher = launcher
        self._device = device
        self._kernel = TensorKernel(launcher, device)  # keeps the tables

    def prepare(self, value_bytes: int) -> None:
        """Do nothing: the source is compiled whole."""

    def wipe(self, length: int) -> None:
        """Do nothing: there is no work space."""

    def __call__(self, block: Block, grid_bits: int) -> int:
        size = block.values.size
        scales = np.ascontiguousarray(np.broadcast_to(block.scales, size))
        there = [
            torch.from_numpy(np.array(part)).to(self._device)
            for part in (block.words.view(np.int64), block.values, block.noisy, scales)
        ]
        words, values, noisy, all_scales = (ctypes.c_void_p(one.data_ptr()) for one in there)
        undecided = UndecidedList(size << 18, self._device)
        self._launcher(
            list(GIVEN_WORDS)[block.values.itemsize // 4 - 1],
            1,
            (
                *(words, values, noisy, ctypes.c_uint32(size), all_scales),
                *(ctypes.c_int64(grid_bits << 52), self._kernel.tables),
                ctypes.c_void_p(undecided.tensor.data_ptr()),
                ctypes.c_uint64(undecided.capacity),
            ),
        )
        entries = entries_of(undecided)
        block.noisy[:] = there[2].cpu().numpy()
        block.undecided[:] = False
        block.undecided[[entry.element for entry in entries]] = True
        for element, value, word in entries:
            assert (value, word) == (block.values[element], block.words[element])
        return len(entries)


def _on_host() -> GivenWordsKernel:
    pytest.importorskip("torch")
    library = host_library(four_tables=True)
    return GivenWordsKernel(HostLauncher(library, 1, 32), torch.device("cpu"))


def _on_gpu() -> GivenWordsKernel:
    return GivenWordsKernel(_gpu_launcher(), torch.device("cuda", 0))


def has_gpu() -> bool:
    """Return whether there is an NVIDIA GPU, and torch for it."""
    return find_spec("torch") is not None and torch.cuda.is_available()


def every_kernel() -> dict[str, KernelFactory]:
    """Return the kernels of this installation, and the GPU's as the processor runs them.

    On a machine with a GPU also as that runs them.
    """
    kernels = {**available_kernels(), "gpu source": _on_host}
    return {**kernels, "gpu": _on_gpu} if has_gpu() else kernels
