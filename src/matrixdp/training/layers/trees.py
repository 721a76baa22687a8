"""Tensors in what a layer takes and returns: in tuples, lists and dicts of any nesting.

These are the containers that torch knows (`torch.utils._pytree`), named tuples and registered
classes among them.
"""

from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

__all__ = ["detached", "tensors_in"]


def tensors_in(tree: Any) -> list[Tensor]:
    """Return all tensors, in the order in which torch goes through containers."""
    # Nearly every layer takes tensors alone: a short way, as this is done at every call.
    if type(tree) in (tuple, list) and all(type(tensor) is Tensor for tensor in tree):
        return list(tree)
    return [tensor for tensor in tree_leaves(tree) if isinstance(tensor, Tensor)]


def detached(tree: Any) -> Any:
    """Return the same containers with all tensors without their past."""
    if type(tree) is tuple and all(type(tensor) is Tensor for tensor in tree):
        return tuple(tensor.detach() for tensor in tree)
    return tree_map_only(Tensor, Tensor.detach, tree)
