"""Adding exact noise to torch tensors on the GPU where they are: the same bits as on the processor.

Only the undecided elements, less than one in a million, come to the processor, which decides them.
"""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from matrixdp.errors import KeyStateError, MatrixDPError
from matrixdp.noise.application.add import add_noise
from matrixdp.noise.kernels.cuda.kernel import (
    ScaleTensor,
    TensorKernel,
    Undecided,
    UndecidedList,
)
from matrixdp.noise.kernels.cuda.launcher import CudaLauncher
from matrixdp.noise.keys.context import NoiseContext
from matrixdp.noise.keys.release_key import ReleaseKey
from matrixdp.noise.keys.stream import NoiseStream
from matrixdp.noise.specification.exact import exact_element

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


class NoiseOnTheWay:
    """A tensor that is being filled by its device; `finish` returns it with all of its noise.

    Between the two, other work of the processor and of the device may go on.
    """

    def __init__(
        self, out: Tensor, scales: ScaleTensor, stream: NoiseStream, undecided: UndecidedList
    ) -> None:
        self._out = out
        self._scales = scales
        self._stream = stream
        self._undecided = undecided
        self._closed = False
        self._wiped = False

    def finish(self) -> Tensor:
        """Wait for the device, decide what it has left, and return the noisy tensor; once."""
        # What was closed may hold elements without noise, and nobody knows any more which.
        if self._closed:
            raise KeyStateError("this noise is closed: what had not finished is not released")
        try:
            found = self._undecided.entries()
            if found:
                self._write(found)
        finally:
            self.close()
        return self._out

    def close(self) -> None:
        """Overwrite the secrets; what is not finished has no result."""
        # Marked first: an interrupted close is made up for by the next, and never finished.
        self._closed = True
        if not self._wiped:
            self._stream.close()
            self._undecided.wipe()
            self._wiped = True

    def _write(self, found: list[Undecided]) -> None:
        """Decide elements, and write them by a single copy to the device."""
        noisy = np.array([self._decided(*one) for one in found])
        elements = np.array([one.element for one in found], dtype=np.int64)
        both = torch.from_numpy(np.stack([elements, noisy.view(np.int64)]))
        # From pinned memory, or the device would be waited for once more.
        both = both.pin_memory() if self._out.is_cuda else both
        moved = both.to(self._out.device, non_blocking=True)
        # What comes to float32 is rounded here, once.
        self._out.view(-1)[moved[0]] = moved[1].view(torch.float64).to(self._out.dtype)

    def _decided(self, element: int, value: float, word: int) -> float:
        further = self._stream.further_words(element)
        grid_bits = self._stream.context.grid_bits
        return exact_element(value, self._scales.of(element), word, further, grid_bits)


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
        """
        # What can fail for lack of memory comes before the payment.
        undecided = UndecidedList(value.numel(), self._kernel.device)
        values = value.contiguous()
        out = values if in_place else torch.empty_like(values)
        stream = key.bind(self._context, pay=pay)
        on_the_way = NoiseOnTheWay(out, self._scales, stream, undecided)
        try:
            self._kernel(values, out, self._scales, stream, undecided)
            undecided.fetch()
        except BaseException:
            on_the_way.close()
            raise
        return on_the_way


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
