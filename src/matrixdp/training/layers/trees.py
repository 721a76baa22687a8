"""Tensors in what a layer takes and returns: in tuples, lists and dicts of any nesting.

These are the containers that torch knows (`torch.utils._pytree`), named tuples and registered
classes among them. A tensor in any other object cannot be found, nor put back into it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, ValuesView
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map_only

from matrixdp.errors import InvalidParameterError

__all__ = ["check_followed", "detached", "tensors_in"]


def tensors_in(tree: Any) -> list[Tensor]:
    """Return all tensors, in the order in which torch goes through containers."""
    # Nearly every layer takes tensors alone: a short way, as this is done at every call.
    if type(tree) in (tuple, list) and all(type(part) is Tensor for part in tree):
        return list(tree)
    return [part for part in tree_leaves(tree) if isinstance(part, Tensor)]


def detached(tree: Any) -> Any:
    """Return the same containers with all tensors without their past."""
    if type(tree) is tuple and all(type(part) is Tensor for part in tree):
        return tuple(part.detach() for part in tree)
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
        if not isinstance(part, Tensor) and _may_hold_tensors(part):
            raise InvalidParameterError(
                f"layer {layer!r} {does} a {type(part).__name__} that holds tensors, or may, which "
                "cannot be followed: use a tuple, a list or a dict of them, or mode='exact'"
            )


def _is_packed(part: Any) -> bool:
    # For torch it is a named tuple.
    return isinstance(part, PackedSequence)


def _may_hold_tensors(part: Any) -> bool:
    """Return whether a tensor is in an object or in what it holds, or cannot be ruled out."""
    waiting, seen = [part], set()
    while waiting:
        one = waiting.pop()
        # An iterator shows what it holds only by being used up.
        if isinstance(one, Tensor | Iterator):
            return True
        # What a module holds is not of a batch; anything seen before is in hand already.
        if isinstance(one, nn.Module | type | str | bytes) or id(one) in seen:
            continue
        seen.add(id(one))
        waiting += _held(one)
    return False


def _held(part: Any) -> Iterable[Any]:
    if isinstance(part, Mapping):
        yield from part.values()
    elif isinstance(part, list | tuple | set | frozenset | deque | ValuesView):
        yield from part
    elif isinstance(part, partial):
        yield from (part.func, part.args, part.keywords)
    elif isinstance(part, MethodType):
        yield part.__self__
    elif isinstance(part, FunctionType):
        yield from (cell.cell_contents for cell in part.__closure__ or () if cell != CellType())
    yield from getattr(part, "__dict__", {}).values()
    for kind in type(part).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            yield getattr(part, name, None)
