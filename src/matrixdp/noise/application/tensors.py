"""Adding exact noise to torch tensors on their GPU: the same bits as on the processor."""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.errors import MatrixDPError
from matrixdp.noise.application.add import add_noise
from matrixdp.noise.kernels.cuda.kernel import ScaleTensor, TensorKernel, UndecidedList
from matrixdp.noise.kernels.cuda.launcher import CudaLauncher
from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey

__all__ = ["NoiseOnTheWay", "TensorNoise", "cuda_kernel", "try_known"]

# So many that counters of AES blocks have three bytes, as they have at most.
_TRIED = 2 * 70_001
# Types, scales, and the byte of a key that leaves an element undecided.
_KNOWN = (
    (torch.float64, [[3.7]], 4),
    (torch.float64, [[1.25], [0.001]], 4),
    (torch.float32, [[3.7]], 4),
    (torch.float32, [[1.25], [0.001]], 8),
)


class NoiseOnTheWay(NamedTuple):
    """A tensor that gets its noise before anything else that its device is asked to do now.

    Attributes
    ----------
    out : Tensor
        The noisy tensor; NaN where noise could not be drawn.
    undecided : UndecidedList
        Says whether it could.
    """

    out: Tensor
    undecided: UndecidedList

    def finish(self) -> Tensor:
        """Wait for the device, and return the noisy tensor."""
        self.undecided.check()
        return self.out


class TensorNoise:
    """Exact noise for tensors of one shape, type and device.

    Parameters
    ----------
    context : NoiseContext
        Of the release: one or two axes.
    scales : NDArray[np.float64]
        With as many axes as the tensors, each of length 1 or the tensors'.
    kernel : TensorKernel
        Of their device.
    """

    def __init__(
        self, context: NoiseContext, scales: NDArray[np.float64], kernel: TensorKernel
    ) -> None:
        self._context = context
        self._scales = ScaleTensor(scales, context.shape, kernel.device)
        self._kernel = kernel

    def begin(
        self,
        value: Tensor,
        key: ReleaseKey,
        *,
        pay: Callable[[], None] | None = None,
        in_place: bool = False,
    ) -> NoiseOnTheWay:
        """Spend a key, and begin to fill a new tensor with the noisy values.

        Parameters
        ----------
        value : Tensor
            Of the shape and type of the context, on the kernel's device; finite and within
            the limit of the noise. None of that is checked again.
        key : ReleaseKey
            Unbound.
        pay : callable, optional
            As in `ReleaseKey.bind`.
        in_place : bool, optional
            Whether the value may be overwritten by the result, which saves its memory.

        Raises
        ------
        MatrixDPError
            While a CUDA graph is captured: repeated, its noise would be the same. Nothing is spent.
        """
        with torch.cuda.device_of(value):
            _check_not_captured()
        # What can fail for lack of memory comes before the payment.
        undecided = UndecidedList(value.numel(), self._kernel.device)
        values = value.contiguous()
        out = values if in_place else torch.empty_like(values)
        with key.bind(self._context, pay=pay) as stream:
            try:
                self._kernel(values, out, self._scales, stream, undecided)
                self._kernel.decide(out, self._scales, stream, undecided)
            except BaseException:
                # Values and words that nobody decided would give their noise away.
                undecided.tensor.zero_()
                raise
        return NoiseOnTheWay(out, undecided)


@lru_cache(maxsize=64)
def cuda_kernel(index: int) -> TensorKernel:
    """Return the kernel of a GPU, compiled and tried once.

    Raises
    ------
    MatrixDPError
        If there is none for this GPU, or it does not give the bits of the processor.
    """
    torch.cuda.init()
    kernel = TensorKernel(CudaLauncher(index), torch.device("cuda", index))
    try_known(kernel)
    return kernel


def _check_not_captured() -> None:
    """Raise while the current device captures a CUDA graph."""
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise MatrixDPError(
            "noise was asked for while a CUDA graph is captured, which would add the same noise to "
            "other values each time it is replayed: draw noise outside of the graph"
        )


def try_known(kernel: TensorKernel) -> None:
    """Raise unless a kernel gives known noise: every launch would be wrong otherwise."""
    for kind, scales, number in _KNOWN:
        _try(kernel, kind, np.array(scales), number)


def _try(kernel: TensorKernel, kind: torch.dtype, scales: NDArray[np.float64], number: int) -> None:
    """Raise unless the kernel gives known noise: every launch would be wrong otherwise."""
    value = torch.linspace(-9.0, 9.0, _TRIED, dtype=kind, device="cpu").reshape(2, -1)
    known = bytes([number]) * 32
    expected = add_noise(value.numpy(), scales, ReleaseKey.from_bytes(known))
    context = NoiseContext.of_scales(expected.shape, expected.dtype, scales)
    noise = TensorNoise(context, scales, kernel)
    found = noise.begin(value.to(kernel.device), ReleaseKey.from_bytes(known)).finish()
    # By their bits: the sign of a zero counts as well.
    if found.cpu().numpy().tobytes() != expected.tobytes():
        raise MatrixDPError(
            f"the noise kernels do not work on {kernel.device}: known noise comes out wrong"
        )
