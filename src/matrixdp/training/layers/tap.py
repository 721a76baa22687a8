"""Taps on what a layer returns: the gradients of the losses with respect to its outputs.

The gradient of an output is that of its uses outside of the layer. Within the layer other outputs
may be made of it, as the hidden state of an LSTM cell is made of the cell state; what comes back
through these counts already where the layer is run again.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["ROOT", "Arrived", "tap", "tapped"]

# Not as whoever imports this may have it, in inference mode or on another device.
with torch.inference_mode(mode=False):
    ROOT = torch.ones((), device="cpu", requires_grad=True)
"""A leaf that every tap leads to; it never gets a gradient.

Autograd asked for the gradient of this leaf alone runs every tap and whatever lies between the
losses and a tap, forms no gradient of a parameter, and leaves none anywhere.
"""

Arrived = Callable[[int, Tensor], None]
"""Called with the index of an output and its gradient."""


class _Tap(torch.autograd.Function):
    """The identity, as a tensor of its own that no other output depends on.

    It has the same memory, but is no view for autograd: a change in place of a view would pass the
    tap by.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, _root: Tensor, index: int, arrived: Arrived) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.index, ctx.arrived = index, arrived
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        (gradient,) = gradients
        # None, as cuDNN has it for an output that no loss depends on.
        if gradient is not None:
            ctx.arrived(ctx.index, gradient)
        return gradient, None, None, None


def tapped(output: Any, arrived: Arrived) -> tuple[Any, int, int]:
    """Return a layer's output with every tensor in it tapped, numbered in their order.

    With it comes how many tensors there are, and how many of them can have a gradient.

    Parameters
    ----------
    output : any
        What the layer returned: tensors in containers that torch knows. Other things in them are
        left as they are.
    arrived : callable
        Called when the backward pass comes by.
    """
    if type(output) is Tensor:
        # As nearly every layer returns: a short way, as this is done at every call.
        if output.requires_grad:
            return tap(output, 0, arrived), 1, 1
        return output, 1, 0
    leaves, structure = tree_flatten(output)
    indices = [index for index, tensor in enumerate(leaves) if isinstance(tensor, Tensor)]
    smooth = [index for index in indices if leaves[index].requires_grad]
    for index in smooth:
        leaves[index] = tap(leaves[index], indices.index(index), arrived)
    return tree_unflatten(leaves, structure), len(indices), len(smooth)


def tap(output: Tensor, index: int, arrived: Arrived) -> Tensor:
    """Return a tensor whose gradient is handed over when the backward pass comes by."""
    return cast("Tensor", _Tap.apply(output, ROOT, index, arrived))  # type: ignore[no-untyped-call]
