"""The fast path: numba where it works, numpy everywhere else; the same bits from both."""

import importlib
from collections import deque
from collections.abc import Callable
from functools import lru_cache

from matrixdp.interrupts import interrupts_held
from matrixdp.noise.kernels.block import Kernel
from matrixdp.noise.kernels.numba_kernel import NumbaKernel
from matrixdp.noise.kernels.numpy_kernel import NumpyKernel
from matrixdp.noise.specification.coarse_table import load_coarse_table
from matrixdp.noise.specification.table import load_table

__all__ = [
    "KernelFactory",
    "PreparedKernels",
    "available_kernels",
    "fastest_kernel",
    "prepare_fastest",
]

KernelFactory = Callable[[], Kernel]
"""Makes a kernel for one thread."""


def _numpy_kernel() -> Kernel:
    # A new one each time: its work space serves one thread only.
    return NumpyKernel(load_table())


@lru_cache(maxsize=1)
def _numba_kernel() -> Kernel:
    # It has no work space, so that all threads can share one.
    return NumbaKernel(load_table(), load_coarse_table())


@lru_cache(maxsize=1)
def available_kernels() -> dict[str, KernelFactory]:
    """Return the kernels of this installation by name, the fastest first.

    Examples
    --------
    >>> "numpy" in available_kernels()
    True
    """
    # numba loads its compiler through callbacks from C, which swallow an interrupt.
    with interrupts_held():
        works = _numba_works()
    fast: dict[str, KernelFactory] = {"numba": _numba_kernel} if works else {}
    return fast | {"numpy": _numpy_kernel}


def _numba_works() -> bool:
    """Return whether numba can be imported: installed, and fit for this numpy and system."""
    try:
        importlib.import_module("numba")
    # Of any kind: a compiler library that cannot be loaded, or an import that was interrupted
    # before and left a part of the package.
    except Exception:  # noqa: BLE001
        return False
    return True


def fastest_kernel() -> Kernel:
    """Make a kernel of the fastest kind that works here."""
    return next(iter(available_kernels().values()))()


def prepare_fastest(value_bytes: int) -> KernelFactory:
    """Compile what values of 8 bytes or 4 need, and return what makes such kernels from here on."""
    make_kernel = next(iter(available_kernels().values()))
    make_kernel().prepare(value_bytes)
    return make_kernel


class PreparedKernels:
    """Makes kernels, the first of them at once: what cannot be made fails before it is needed.

    Parameters
    ----------
    make_kernel : KernelFactory
        Called now, and again when a second thread needs a kernel.
    value_bytes : int
        Of each value that they will work on: 8 or 4.
    """

    def __init__(self, make_kernel: KernelFactory, value_bytes: int) -> None:
        self._make_kernel = make_kernel
        self._value_bytes = value_bytes
        # A deque, because its pop is atomic: two threads never get the same kernel.
        self._ready = deque([self._prepared()])

    def __call__(self) -> Kernel:
        """Return the kernel that is ready, or make another."""
        try:
            return self._ready.pop()
        except IndexError:
            # Prepared like the first, which it need not be: of two releases that begin at once in
            # two threads, each may make a kernel, for values of its own type.
            return self._prepared()

    def _prepared(self) -> Kernel:
        kernel = self._make_kernel()
        kernel.prepare(self._value_bytes)
        return kernel
