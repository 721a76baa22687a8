"""Whether a layer gives an example the same alone as in the batch.

A layer of the user's own may take a mean over the batch, decide by all of its rows, draw random
numbers or keep something from call to call. Its second run then returns something else. This finds
what is not within rounding; a layer that mixes examples by less than that is not noticed.
"""

from typing import Any

import torch
from torch import Tensor

from matrixdp.training.layers.trees import tensors_in

__all__ = ["copied_outputs", "differing"]

# Shares of a norm. Kernels for one example round in another way than those for a batch, but far
# less than this, in TF32 and in 16 bits as well.
_ROUNDING = 0.1
_ROUNDING_OF_16_BITS = 0.5


def copied_outputs(output: Any) -> dict[int, Tensor]:
    """Return copies of all tensors that a layer returned, by their number."""
    # Copies, as a following layer may change them in place.
    return {place: part.detach().clone() for place, part in enumerate(tensors_in(output))}


def differing(in_batch: Tensor, alone: Tensor) -> Tensor:
    """Return for every example whether its output is another one when it is run alone.

    It is if the difference is not small against the output, or against that of the median example.
    Nothing waits for the device.

    Parameters
    ----------
    in_batch, alone : Tensor
        The outputs, with the examples on the first axis.

    Raises
    ------
    RuntimeError
        If the outputs do not even have the same shape.
    """
    if in_batch.shape != alone.shape:
        raise RuntimeError(
            f"its output for one example has the shape {tuple(alone.shape[1:])}, and in the batch "
            f"{tuple(in_batch.shape[1:])}"
        )
    half = in_batch.element_size() < 4 or alone.element_size() < 4
    first, second = (_wide(part).flatten(1) for part in (in_batch, alone))
    size, change = (torch.linalg.vector_norm(part, dim=1) for part in (first, first - second))
    # What is not finite is not larger than anything, and has an error of its own.
    share = _ROUNDING_OF_16_BITS if half else _ROUNDING
    return change > share * torch.maximum(size, size.nanmedian())


def _wide(part: Tensor) -> Tensor:
    if part.is_complex():
        return torch.view_as_real(part)
    return part.to(torch.promote_types(part.dtype, torch.float32))
