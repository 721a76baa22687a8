"""Launching the GPU kernels by the CUDA driver, on the stream that torch uses."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final, Protocol

import torch

from matrixdp.errors import MatrixDPError
from matrixdp.noise.kernels.cuda.compiler import compiled
from matrixdp.noise.kernels.cuda.source import (
    COLUMNS,
    DECIDING_THREADS,
    THREADS,
    kernel_source,
)

__all__ = ["KERNELS", "Argument", "CudaLauncher", "Launcher"]

Argument = Any
"""A ctypes number or structure."""

KERNELS: Final = {
    "add_noise_single": THREADS,
    "add_noise_single_one_scale": THREADS,
    "add_noise_double": THREADS,
    "add_noise_double_one_scale": THREADS,
    "decide_single": DECIDING_THREADS,
    "decide_double": DECIDING_THREADS,
    "draw_coins": THREADS,
}
"""The names of the kernels, and how many threads their blocks have."""

_AES_TABLE_BYTES = 256 * 256
_SMALL_LAYOUT = _AES_TABLE_BYTES
_LARGE_LAYOUT = 2 * _AES_TABLE_BYTES + 8 * COLUMNS
_MAX_DYNAMIC_SHARED_BYTES = 8
"""The number of a function's attribute in the driver."""


class Launcher(Protocol):
    """Runs a kernel on the memory of one device."""

    @property
    def most_blocks(self) -> int:
        """How many blocks run at once."""
        ...

    def __call__(self, kernel: str, blocks: int, arguments: Sequence[Argument]) -> None:
        """Launch so many blocks of a kernel, after what was launched before."""
        ...


class CudaLauncher:
    """Runs the kernels on a GPU, as soon as the work of its current stream is done.

    Parameters
    ----------
    index : int
        Of the GPU.

    Raises
    ------
    MatrixDPError
        If there are no kernels for it.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        facts = torch.cuda.get_device_properties(index)
        self.most_blocks = facts.multi_processor_count
        # Only builds for CUDA say it, and the types of torch 2.13 do not.
        room: int = getattr(facts, "shared_memory_per_block_optin", 0)
        if room < _SMALL_LAYOUT:
            raise MatrixDPError(
                f"{facts.name} has {room} bytes of shared memory for a block, and the noise "
                f"kernels need {_SMALL_LAYOUT}"
            )
        large = room >= _LARGE_LAYOUT
        self._shared_bytes = _LARGE_LAYOUT if large else _SMALL_LAYOUT
        code = compiled(kernel_source(four_tables=large), f"sm_{facts.major}{facts.minor}")
        self._driver = ctypes.CDLL("libcuda.so.1")
        module = ctypes.c_void_p()
        with torch.cuda.device(index):
            # The driver needs a context, which torch makes with its first tensor.
            torch.empty(1, device="cuda")
            self._check(self._driver.cuModuleLoadData(ctypes.byref(module), code))
            self._functions = {name: self._function(module, name) for name in KERNELS}

    def __call__(self, kernel: str, blocks: int, arguments: Sequence[Argument]) -> None:
        """Launch so many blocks of a kernel on the current stream."""
        pointers = [ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in arguments]
        with torch.cuda.device(self._index):
            self._check(
                self._driver.cuLaunchKernel(
                    self._functions[kernel],
                    *(blocks, 1, 1),
                    *(KERNELS[kernel], 1, 1),
                    self._shared_bytes,
                    ctypes.c_void_p(torch.cuda.current_stream(self._index).cuda_stream),
                    (ctypes.c_void_p * len(pointers))(*pointers),
                    None,
                )
            )

    def _function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        found = self._driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self._check(found)
        allowed = self._driver.cuFuncSetAttribute(
            function, _MAX_DYNAMIC_SHARED_BYTES, self._shared_bytes
        )
        self._check(allowed)
        return function

    def _check(self, result: int) -> None:
        if result:
            reason = ctypes.c_char_p()
            self._driver.cuGetErrorString(result, ctypes.byref(reason))
            text = (reason.value or b"unknown error").decode()
            raise MatrixDPError(f"the CUDA driver cannot run the noise kernels: {text}")
