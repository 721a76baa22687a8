"""Tensors in what a layer takes and returns: in tuples, lists and dicts of any nesting.

These are the containers that torch knows (`torch.utils._pytree`), named tuples and registered
classes among them. A tensor in any other object cannot be found, nor put back into it.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map_only

from matrixdp.errors import InvalidParameterError

__all__ = ["check_followed", "detached", "tensors_in"]


def tensors_in(tree: Any) -> list[Tensor]:
    """Return all tensors, in the order in which torch goes through containers."""
    return [part for part in tree_leaves(tree) if isinstance(part, Tensor)]


def detached(tree: Any) -> Any:
    """Return the same containers with all tensors without their past."""
    return tree_map_only(Tensor, Tensor.detach, tree)


def check_followed(layer: str, does: str, tree: Any) -> None:
    """Raise if there are tensors that cannot be followed.

    Parameters
    ----------
    layer : str
        Its name.
    does : str
        What the layer does with them: takes or returns.
    tree : any
        An argument or an output.

    Raises
    ------
    InvalidParameterError
        Which names the layer and the object.
    """
    for part in tree_leaves(tree, is_leaf=_is_packed):
        if _is_packed(part):
            raise InvalidParameterError(
                f"layer {layer!r} {does} a PackedSequence, whose rows are mixed with time: use "
                "padded sequences and each record's output at its own last step, or mode='exact'"
            )
        if not isinstance(part, Tensor) and _holds_tensors(part, set()):
            raise InvalidParameterError(
                f"layer {layer!r} {does} a {type(part).__name__} that holds tensors, which cannot "
                "be followed: use a tuple, a list or a dict of them, or mode='exact'"
            )


def _is_packed(part: Any) -> bool:
    # For torch it is a named tuple.
    return isinstance(part, PackedSequence)


def _holds_tensors(part: Any, seen: set[int]) -> bool:
    """Return whether there is a tensor in an object, or in what it holds."""
    if isinstance(part, Tensor):
        return True
    # What a module holds is not of a batch; anything seen before is in hand already.
    if isinstance(part, nn.Module | type | str | bytes) or id(part) in seen:
        return False
    seen.add(id(part))
    return any(_holds_tensors(inner, seen) for inner in _held(part))


def _held(part: Any) -> Iterator[Any]:
    if isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, list | tuple | set | frozenset | deque):
        yield from part
    yield from getattr(part, "__dict__", {}).values()
    for kind in type(part).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(part, name, None)
