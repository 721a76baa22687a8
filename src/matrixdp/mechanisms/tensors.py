"""Releases of arrays on a GPU: checked, drawn and returned there, the same bits as elsewhere."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from matrixdp.errors import InvalidParameterError, MatrixDPError, MissingExtraError, ShapeError
from matrixdp.mechanisms.drawing import Drawing, Promise, drawing_for
from matrixdp.mechanisms.other_arrays import other_from_tensor, plain_tensor
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.parameters import outside_limit

try:
    import torch
    from torch import Tensor
    from torch.utils.dlpack import from_dlpack

    from matrixdp.noise.application.tensors import TensorNoise, cuda_kernel
except ImportError:
    raise MissingExtraError(
        "noise on a GPU needs PyTorch: pip install '.[train]' in a clone of matrixdp, or pass the "
        "matrix as an array of numpy"
    ) from None

__all__ = ["PreparedTensor", "prepared_tensor"]

_KINDS: dict[torch.dtype, np.dtype[Any]] = {
    torch.float64: np.dtype(np.float64),
    torch.float32: np.dtype(np.float32),
}


class PreparedTensor(NamedTuple):
    """A release of an array on a GPU, of which everything is known but the noise.

    Attributes
    ----------
    tensor : Tensor
        The private matrix.
    back : callable
        Takes a tensor to the library that the matrix came from.
    drawing : Drawing
        How noise is drawn for it.
    noise : TensorNoise
        The noise where the matrix is.
    promise : Promise
        What the release will promise.
    """

    tensor: Tensor
    back: Callable[[Tensor], Any]
    drawing: Drawing
    noise: TensorNoise
    promise: Promise

    def drawn(
        self,
        key: ReleaseKey,
        *,
        threads: int | None,  # noqa: ARG002 - a GPU has its own
        pay: Callable[[], None] | None = None,
    ) -> Release:
        """Return the release; its value is of the library and on the device of the matrix."""
        if self.promise.covariance.mirrored:
            noisy = self._mirrored(key, pay)
        else:
            noisy = self.noise.begin(self.tensor, key, pay=pay).finish()
        return Release.from_proof(self.back(noisy), *self.promise)

    def _mirrored(self, key: ReleaseKey, pay: Callable[[], None] | None) -> Tensor:
        """Draw the upper triangle once, in its own row, and mirror it."""
        size = len(self.tensor)
        rows, columns = torch.triu_indices(size, size, device=self.tensor.device)
        noisy = torch.empty_like(self.tensor)  # may lack memory: before the payment
        upper = self.noise.begin(self.tensor[rows, columns], key, pay=pay, in_place=True).finish()
        noisy[rows, columns] = upper
        noisy[columns, rows] = upper
        return noisy

    def __repr__(self) -> str:
        """Show the shape alone."""
        return f"PreparedTensor(shape={tuple(self.tensor.shape)}, dtype={self.tensor.dtype})"


def prepared_tensor(matrix: Any, promise: Promise) -> PreparedTensor | None:
    """Return the release of an array on a GPU, or None if its noise must be drawn elsewhere.

    That is directional noise, which is rotated on the processor, and a GPU without kernels.

    Raises
    ------
    InvalidParameterError, ShapeError
        If the matrix may not be released.
    """
    tensor = plain_tensor(matrix) if isinstance(matrix, Tensor) else from_dlpack(matrix)
    kind = _KINDS.get(tensor.dtype)
    if kind is None:
        raise InvalidParameterError(
            f"matrix has dtype {tensor.dtype}: on a GPU it must be float64 or float32; cast it"
        )
    if tensor.ndim != 2 or tensor.numel() == 0:
        raise ShapeError(
            f"matrix has shape {tuple(tensor.shape)}: it must be not empty and have two axes; "
            "reshape it"
        )
    drawing = drawing_for(promise.proof, (tensor.shape[0], tensor.shape[1]), kind)
    prepared = drawing.noise
    if not (drawing.by_element or promise.covariance.mirrored):
        return None
    try:
        kernel = cuda_kernel(tensor.device.index)
    except MatrixDPError as error:
        warnings.warn(
            f"{error}. The noise is drawn on the processor: the same bits, but slower",
            RuntimeWarning,
            stacklevel=4,
        )
        return None
    _check(tensor, drawing)
    noise = TensorNoise(prepared.context, prepared.scales, kernel)
    return PreparedTensor(tensor, other_from_tensor(matrix), drawing, noise, promise)


def _check(tensor: Tensor, drawing: Drawing) -> None:
    """Raise unless every element is finite and within its limit, and mirrored ones are the same."""
    limits = drawing.limit.largest
    if isinstance(limits, float):
        # One pass; a NaN is the least and the largest number, and within no limit.
        least, largest = torch.stack(torch.aminmax(tensor)).tolist()
        within = largest <= limits and least >= -limits
    else:
        within = bool((tensor.abs() <= torch.tensor(limits, device=tensor.device)).all())
    if not within:
        raise outside_limit("matrix", drawing.limit)
    if drawing.is_symmetric and not torch.equal(tensor, tensor.T):
        raise InvalidParameterError(
            "matrix is not symmetric, but a SymmetricBall is about symmetric matrices: pass "
            "(A + A.T) / 2, or use a FrobeniusBall"
        )
