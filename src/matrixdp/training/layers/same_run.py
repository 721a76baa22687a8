"""Whether a layer gives an example the same alone as in the batch.

A layer of the user's own may take a mean over the batch, decide by all of its rows, draw random
numbers or keep something from call to call. Its second run then returns something else. This finds
what is not within rounding; a layer that mixes examples by less than that is not noticed.
"""

from typing import Any

import torch
from torch import Tensor

from matrixdp.training.layers.trees import tensors_in

__all__ = ["OtherRunError", "check_same_run", "copied_outputs"]

# Shares of a norm. Kernels for one example round in another way than those for a batch, but far
# less than this, in TF32 and in 16 bits as well.
_ROUNDING = 0.1
_ROUNDING_OF_16_BITS = 0.5


class OtherRunError(RuntimeError):
    """A layer returned something else for an example alone than for the same one in a batch."""


def copied_outputs(output: Any) -> dict[int, Tensor]:
    """Return copies of all tensors that a layer returned, by their number."""
    # Copies, as a following layer may change them in place.
    return {place: part.detach().clone() for place, part in enumerate(tensors_in(output))}


def check_same_run(in_batch: Tensor, alone: Tensor) -> None:
    """Raise if an output of some example is another one when it is run alone.

    Parameters
    ----------
    in_batch, alone : Tensor
        Of the same shape, with the examples on the first axis.

    Raises
    ------
    OtherRunError
        If the difference of an example's outputs is not small against them, or against those of the
        median example.
    """
    # A graph that is being captured cannot be asked. The same work has run before, and was looked
    # at then.
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return
    if in_batch.shape != alone.shape:
        raise OtherRunError
    half = in_batch.element_size() < 4 or alone.element_size() < 4
    first, second = (_wide(part).flatten(1) for part in (in_batch, alone))
    size, change = (torch.linalg.vector_norm(part, dim=1) for part in (first, first - second))
    least = torch.maximum(size, size.median()) * (_ROUNDING_OF_16_BITS if half else _ROUNDING)
    # What is not finite has an error of its own.
    if bool((change > least).any()):
        raise OtherRunError


def _wide(part: Tensor) -> Tensor:
    if part.is_complex():
        return torch.view_as_real(part)
    return part.to(torch.promote_types(part.dtype, torch.float32))
