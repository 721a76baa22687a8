"""Check that a layer gives an example the same alone as in the batch.

A layer of the user's own may take a mean over the batch, decide by all of its rows, draw random
numbers or keep something from call to call. Its second run then returns something else. This finds
what is not within rounding; a layer that mixes examples by less than that is not noticed.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from matrixdp.training.layers.trees import tensors_in

__all__ = ["copied_outputs", "differing", "norms_of_inputs"]

# Shares of a norm. Kernels for one example round in another way than those for a batch, but far
# less than this, in TF32 and in 16 bits as well.
_ROUNDING = 0.1
_ROUNDING_OF_16_BITS = 0.5
# Shares of the inputs' norm: an output that is not larger may be nothing but rounding.
_NOISE = 1e-5
_NOISE_OF_16_BITS = 1e-2


def copied_outputs(output: Any) -> dict[int, Tensor]:
    """Return copies of all tensors that a layer returned, by their number."""
    # Copies, as a following layer may change them in place.
    return {place: part.detach().clone() for place, part in enumerate(tensors_in(output))}


def differing(in_batch: Tensor, alone: Tensor, inputs: Tensor, *, half: bool) -> Tensor:
    """Return for every example whether its output is another one when it is run alone.

    It is if the difference is not small against the output, or against that of the median example,
    or if other numbers are finite. Nothing waits for the device.

    Parameters
    ----------
    in_batch, alone : Tensor
        The outputs, with the examples on the first axis.
    inputs : Tensor
        The norm of every example's inputs.
    half : bool
        Whether something was computed in 16 bits.

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
    half = half or in_batch.element_size() < 4 or alone.element_size() < 4
    share, noise = (_ROUNDING_OF_16_BITS, _NOISE_OF_16_BITS) if half else (_ROUNDING, _NOISE)
    first, second = (_wide(part).flatten(1) for part in (in_batch, alone))
    # A mask makes some numbers infinite in both runs: they hide nothing of the others.
    finite = first.isfinite() & second.isfinite()
    others = (first.isfinite() != second.isfinite()).any(1)
    size, change = (
        torch.linalg.vector_norm(part.where(finite, 0.0), dim=1, dtype=torch.float64)
        for part in (first, first - second)
    )
    return others | (change > share * torch.maximum(size, size.median()) + noise * inputs)


def norms_of_inputs(inputs: Iterable[Tensor]) -> Tensor:
    """Return the norm of everything that every example put into a layer.

    Parameters
    ----------
    inputs : iterable of Tensor
        With the examples on the first axis.
    """
    # In float64, where the squares of large numbers do not overflow.
    norms = [
        torch.linalg.vector_norm(_wide(part).flatten(1), dim=1, dtype=torch.float64)
        for part in inputs
    ]
    return torch.stack([one.nan_to_num() for one in norms]).sum(0)


def _wide(part: Tensor) -> Tensor:
    if part.is_complex():
        return torch.view_as_real(part)
    return part.to(torch.promote_types(part.dtype, torch.float32))
