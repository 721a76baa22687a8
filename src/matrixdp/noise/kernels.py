"""Which fast path runs: numba where it is installed, numpy everywhere else."""

from collections.abc import Callable
from functools import lru_cache
from importlib.util import find_spec

from matrixdp.noise.block import BLOCK_ELEMENTS, Kernel
from matrixdp.noise.kernel_numba import NumbaKernel
from matrixdp.noise.kernel_numpy import NumpyKernel
from matrixdp.noise.table import load_table

__all__ = ["KernelFactory", "available_kernels", "fastest_kernel"]

KernelFactory = Callable[[], Kernel]
"""Makes a kernel for one thread."""


def _numpy_kernel() -> Kernel:
    return NumpyKernel(load_table(), BLOCK_ELEMENTS)


def _numba_kernel() -> Kernel:
    return NumbaKernel(load_table(), BLOCK_ELEMENTS)


@lru_cache(maxsize=1)
def available_kernels() -> dict[str, KernelFactory]:
    """Return the kernels of this installation by name, the fastest first.

    Examples
    --------
    >>> "numpy" in available_kernels()
    True
    """
    fast: dict[str, KernelFactory] = {"numba": _numba_kernel} if find_spec("numba") else {}
    return fast | {"numpy": _numpy_kernel}


def fastest_kernel() -> Kernel:
    """Make a kernel of the fastest kind that is installed."""
    return next(iter(available_kernels().values()))()
