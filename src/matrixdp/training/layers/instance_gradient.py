"""Instance normalisation of one row, whose gradient torch gets wrong in one layout.

Given a single row, and a gradient of its output that has the channels last in memory, torch's
backward pass on the CPU takes numbers of some channels for those of others. With more rows it is
right. So an example would have another gradient alone than in a batch. Here such a gradient is
copied into the plain layout before it comes to the layer.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

__all__ = ["right_instance_gradients"]


@contextmanager
def right_instance_gradients(model: nn.Module) -> Iterator[None]:
    """Let layers of instance normalisation have the right gradient within the block.

    Nothing is stored in the layers, and where none of them is concerned nothing is watched.

    Parameters
    ----------
    model : nn.Module
        The model, whose layers these are.
    """
    # With a single axis of positions torch does not tell that layout from others.
    layers = {
        one for one in model.modules() if isinstance(one, nn.InstanceNorm2d | nn.InstanceNorm3d)
    }
    if not layers:
        yield
        return

    def plain(module: nn.Module, _: Any, output: Any) -> Any:
        if module not in layers or not isinstance(output, Tensor):
            return output
        positions = 2 if isinstance(module, nn.InstanceNorm2d) else 3
        # There may be no axis of rows at all.
        one_row = output.shape[: -positions - 1].numel() == 1
        # Both are views. The backward pass of the first one has to write the gradient in order.
        return output.flatten().view_as(output) if one_row else output

    hook = register_module_forward_hook(plain)
    try:
        yield
    finally:
        try:
            hook.remove()
        finally:
            hook.remove()  # once more, should the first be interrupted
