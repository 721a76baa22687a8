"""Which fast path runs: numba where it works, numpy everywhere else."""

import importlib
from collections.abc import Callable
from functools import lru_cache

from matrixdp.noise.block import Kernel
from matrixdp.noise.kernel_numba import NumbaKernel
from matrixdp.noise.kernel_numpy import NumpyKernel
from matrixdp.noise.table import load_table

__all__ = ["KernelFactory", "available_kernels", "fastest_kernel"]

KernelFactory = Callable[[], Kernel]
"""Makes a kernel for one thread."""


def _numpy_kernel() -> Kernel:
    return NumpyKernel(load_table())


def _numba_kernel() -> Kernel:
    return NumbaKernel(load_table())


@lru_cache(maxsize=1)
def available_kernels() -> dict[str, KernelFactory]:
    """Return the kernels of this installation by name, the fastest first.

    Examples
    --------
    >>> "numpy" in available_kernels()
    True
    """
    fast: dict[str, KernelFactory] = {"numba": _numba_kernel} if _numba_works() else {}
    return fast | {"numpy": _numpy_kernel}


def _numba_works() -> bool:
    """Return whether numba can be imported: installed, and fit for this numpy and system."""
    try:
        importlib.import_module("numba")
    except (ImportError, OSError):  # the latter for a compiler library that cannot be loaded
        return False
    return True


def fastest_kernel() -> Kernel:
    """Make a kernel of the fastest kind that works here."""
    return next(iter(available_kernels().values()))()
