"""Taps on what a layer returns: the gradients of the losses with respect to its outputs.

The gradient of an output is that of its uses outside of the layer. Within the layer other outputs
may be made of it, as the hidden state of an LSTM cell is made of the cell state; what comes back
through these counts already where the layer is run again.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from matrixdp.training.layer_call import LayerCall
from matrixdp.training.layers.trees import check_followed, tensors_in

__all__ = ["ROOT", "tapped"]

# Not as whoever imports this may have it, in inference mode or on another device.
with torch.inference_mode(mode=False):
    ROOT = torch.ones((), device="cpu", requires_grad=True)
"""A leaf that autograd goes back to where nothing else needs a gradient; it never gets one."""

Arrived = Callable[[int, Tensor | None], None]
"""Called with the number of an output and its gradient."""


class _Rooted(torch.autograd.Function):
    """The identity, on a tensor that autograd would otherwise take for a constant."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, _root: Tensor) -> Tensor:
        # Marked as changed in place: a following layer may then change it in place as well.
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(_ctx: Any, *_gradients: Tensor) -> tuple[None, None]:
        return None, None


class _Apart(torch.autograd.Function):
    """The identity, as a tensor of its own that other outputs do not depend on.

    It has the same memory, but is no view for autograd: a change in place of a view would pass its
    hooks by.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor, _root: Tensor) -> Tensor:
        ctx.set_materialize_grads(False)
        return output.detach()

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None]:
        return gradients[0], None


def tapped(call: LayerCall, output: Any, arrived: Arrived) -> Any:
    """Return a layer's output with every tensor in it tapped, numbered in their order.

    Parameters
    ----------
    call : LayerCall
        Of the call; the number of tensors is written to it.
    output : any
        What the layer returned: tensors in containers that torch knows. Other things in them, such
        as None for attention weights that were not asked for, are left as they are.
    arrived : callable
        Called when the backward pass comes by.

    Raises
    ------
    InvalidParameterError
        If there are tensors in other objects.
    """
    if type(output) is Tensor and _is_smooth(output):
        # As nearly every layer returns: a short way, as this is done at every call.
        call.outputs = call.tapped = 1
        tap = _alone(call, output)
        _listen(tap, 0, arrived)
        return tap
    check_followed(call.name, "returns", output)
    parts, structure = tree_flatten(output)
    places = [place for place, part in enumerate(parts) if isinstance(part, Tensor)]
    # The others, such as indices, have no gradient.
    smooth = [place for place in places if _is_smooth(parts[place])]
    call.outputs, call.tapped = len(places), len(smooth)
    if len(smooth) == 1:
        taps = [_alone(call, parts[smooth[0]])]
    else:
        taps = _several(call, [parts[place] for place in smooth])
    for place, tap in zip(smooth, taps, strict=True):
        _listen(tap, places.index(place), arrived)
        parts[place] = tap
    return tree_unflatten(parts, structure)


def _is_smooth(part: Tensor) -> bool:
    return part.is_floating_point() or part.is_complex()


def _listen(tap: Tensor, place: int, arrived: Arrived) -> None:
    """Have the gradient of an output reported, as the user's hooks on that output have left it.

    torch calls the hooks of a tensor first, whenever they were registered, then those of the
    function that made it.
    """
    number = tap.output_nr
    node: Any = tap.grad_fn
    node.register_prehook(lambda gradients: arrived(place, gradients[number]))


def _alone(call: LayerCall, output: Tensor) -> Tensor:
    """Return the only output of a layer, on the way of autograd."""
    if output.requires_grad:
        # A change in place of a view would pass its hooks by, and nothing made a leaf.
        return _apart(output) if output._is_view() or output.is_leaf else output  # noqa: SLF001
    # Nothing before this layer needs a gradient, so autograd would not come here.
    output = output.clone() if call.shares(output) else output
    return cast("Tensor", _Rooted.apply(output, ROOT))  # type: ignore[no-untyped-call]


def _apart(output: Tensor) -> Tensor:
    return cast("Tensor", _Apart.apply(output, ROOT))  # type: ignore[no-untyped-call]


def _several(call: LayerCall, outputs: list[Tensor]) -> list[Tensor]:
    """Return the outputs of a layer apart from each other, each on the way of autograd."""
    memory = Counter(map(_memory, outputs))
    memory.update({_memory(part) for part in tensors_in(call.inputs)})
    memory.update({_memory(part) for part in call.module.parameters()})
    taps = []
    for output in outputs:
        shared = memory[_memory(output)] > 1
        tap = _apart(output.clone() if shared else output)
        if shared:
            # Were it changed in place, plain torch would change what shares its memory, too.
            call.copies.append(tap.detach())
        taps.append(tap)
    return taps


def _memory(part: Tensor) -> int | None:
    """Return where the memory of a tensor begins, or None if it has no single one."""
    return part.untyped_storage().data_ptr() if part.layout == torch.strided else None
