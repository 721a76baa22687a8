"""Tensors that all records share, and that have a gradient for each of them.

A weight that a forward pass uses itself, such as the scale of a normalisation, and what a layer
returns for all records at once, such as the embeddings of positions, have no axis of rows. Their
gradient would be the sum over the batch. So for as long as the losses are computed they stand for
one copy for each row, which takes no memory: as soon as such a tensor meets another one by an
operation that is known here, its copies are put on the first axis of both.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from matrixdp.errors import ShapeError
from matrixdp.training.layers.known import Known
from matrixdp.training.layers.tap import Arrived, tap

__all__ = ["Expanded", "Expansion", "NotExpandableError"]

# Operations on each number by itself, whose shapes are broadcast, and some that join tensors along
# or by an axis that is not that of rows: `_placed` puts the rows first, as they are in the others.
_BROADCASTS = frozenset({
    *("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "rsub"),
    *("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__", "__truediv__"),
    *("__rtruediv__", "pow", "__pow__", "__rpow__", "where", "maximum", "minimum", "lerp"),
    *("addcmul", "cat", "concat", "concatenate", "scaled_dot_product_attention"),
    *("add_", "sub_", "mul_", "div_", "__iadd__", "__isub__", "__imul__", "__itruediv__"),
})  # fmt: skip
_COPIES = frozenset({"expand", "broadcast_to", "repeat"})
# Of these the tensor that comes second is only asked for its shape or type.
_REFERS = frozenset({"to", "type_as", "view_as", "expand_as", "reshape_as"})
_IN_PLACE = frozenset({"__setitem__", "__iadd__", "__isub__", "__imul__", "__itruediv__"})


class NotExpandableError(ShapeError):
    """A shared tensor meets an operation that is not known here.

    Parameters
    ----------
    operation : str
        The operation.
    sources : tuple of str
        The layers that the tensor comes from.
    """

    def __init__(self, operation: str, sources: tuple[str, ...]) -> None:
        names = ", ".join(map(repr, sources))
        super().__init__(f"{operation} takes a tensor of layer {names} that has no axis of rows")
        self.sources = sources


class Expansion:
    """The rows that tensors are expanded to in one call of the losses.

    Parameters
    ----------
    rows : int
        How many rows the batch has.
    known : Known
        What was met when the program was checked.

    Attributes
    ----------
    on : bool
        Whether tensors are expanded; otherwise they are what they were.
    used : set of str
        The layers of whose tensors something was made.
    """

    def __init__(self, rows: int, known: Known) -> None:
        self.rows = rows
        self.known = known
        self.on = True
        self.used: set[str] = set()
        self._thread = threading.get_ident()

    @property
    def acts(self) -> bool:
        """Whether tensors are expanded here: another thread may run the same model."""
        if not self.on or threading.get_ident() == self._thread:
            return self.on
        # A thread of autograd's own, where a GPU has its backward pass, runs checkpoints again.
        return isinstance(threading.current_thread(), threading._DummyThread)  # noqa: SLF001

    def expanded(self, shared: Tensor, source: str, arrived: Arrived) -> "Expanded":
        """Return a tensor that stands for one copy for each row.

        Parameters
        ----------
        shared : Tensor
            Any tensor without rows.
        source : str
            The layer it comes from.
        arrived : callable
            Gets the gradients of all copies, along the first axis.
        """
        each = tap(shared.detach().expand(self.rows, *shared.shape), 0, arrived)
        return _made(shared, each, self, (source,))


class Expanded(Tensor):
    """A tensor without rows, and its copies for all rows.

    To everyone it has the shape and the numbers of the one tensor. What is made of it alone is
    another one of its kind; what is made of it and of others has rows.
    """

    each: Tensor
    expansion: Expansion
    sources: tuple[str, ...]

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: Any = (),
        kwargs: Any = None,
    ) -> Any:
        """Run a function of torch."""
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001
            return _result(func, args, kwargs or {})


def _made(shared: Tensor, each: Tensor, expansion: Expansion, sources: tuple[str, ...]) -> Expanded:
    smooth = each.requires_grad
    made = Tensor._make_subclass(Expanded, shared.detach(), smooth)  # noqa: SLF001
    made.each, made.expansion, made.sources = each, expansion, sources
    return made


def _result(func: Callable[..., Any], args: Any, named: dict[str, Any]) -> Any:
    leaves, structure = tree_flatten((args, named))
    mine = [leaf for leaf in leaves if isinstance(leaf, Expanded)]
    name = func.__name__
    refers = name in _REFERS and not isinstance(leaves[0], Expanded)
    if refers or not all(one.expansion.acts for one in mine):
        arguments, options = tree_map_only(Expanded, _plain, (args, named))
        return func(*arguments, **options)
    sources = tuple(dict.fromkeys(source for one in mine for source in one.sources))
    others = [
        leaf
        for leaf in leaves
        if isinstance(leaf, Tensor) and leaf.ndim and not isinstance(leaf, Expanded)
    ]
    if others or (name in _COPIES and _copies(name, leaves)):
        made = _with_rows(func, leaves, structure, others)
        if made is NotImplemented or (isinstance(leaves[0], Expanded) and _writes(name)):
            raise NotExpandableError(name, sources)
        _note(mine[0].expansion, name, sources, made)
        return made
    return _alone(func, leaves, structure, mine, sources)


def _note(expansion: Expansion, name: str, sources: tuple[str, ...], made: Any) -> None:
    """Raise if tensors meet others in a way that the check has not seen.

    Positions that are selected by what the records are may by chance be as many as the rows.
    """
    expansion.used.update(sources)
    axes = made.ndim if isinstance(made, Tensor) else 0
    met, known = {(source, name, axes) for source in sources}, expansion.known
    if not known.complete:
        known.met |= met
    elif not met <= known.met:
        raise NotExpandableError(name, sources)


def _plain(tensor: Expanded) -> Tensor:
    return tensor.as_subclass(Tensor)


def _writes(name: str) -> bool:
    return name in _IN_PLACE or (name.endswith("_") and not name.endswith("__"))


def _alone(
    func: Callable[..., Any],
    leaves: Sequence[Any],
    structure: Any,
    mine: Sequence[Expanded],
    sources: tuple[str, ...],
) -> Any:
    """Return what a function makes of shared tensors alone: shared ones again."""
    if _writes(func.__name__):
        raise NotExpandableError(func.__name__, sources)
    expansion = mine[0].expansion

    def run(tensors: Sequence[Tensor]) -> Any:
        following = iter(tensors)
        values = [next(following) if isinstance(leaf, Expanded) else leaf for leaf in leaves]
        arguments, options = tree_unflatten(values, structure)
        return func(*arguments, **options)

    with torch.no_grad():
        shared, form = tree_flatten(run([_plain(one) for one in mine]))
    if not any(isinstance(part, Tensor) for part in shared):
        return tree_unflatten(shared, form)  # a shape, or another fact about them
    expansion.used.update(sources)
    try:
        each = tree_flatten(vmap(lambda *tensors: run(tensors))(*(one.each for one in mine)))[0]
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise NotExpandableError(func.__name__, sources) from error
    return tree_unflatten(
        [_made(*pair, expansion, sources) for pair in zip(shared, each, strict=True)], form
    )


def _with_rows(
    func: Callable[..., Any], leaves: Sequence[Any], structure: Any, others: Sequence[Tensor]
) -> Any:
    """Return what a function makes of shared tensors and others, or NotImplemented."""
    name = func.__name__
    if name in _COPIES:
        tensor, sizes = leaves[0], _sizes(leaves)
        placed = _placed(tensor, len(sizes), ())
        if placed is None or sizes[0] != tensor.expansion.rows:
            return NotImplemented
        return placed.repeat(1, *sizes[1:]) if name == "repeat" else placed.expand(*sizes)
    if name == "expand_as":
        placed = _placed(leaves[0], others[0].ndim, others)
        return NotImplemented if placed is None else placed.expand_as(others[0])
    axes = max(leaf.ndim for leaf in leaves if isinstance(leaf, Tensor))
    if name not in _BROADCASTS or not _fits(leaves, others, axes):
        return NotImplemented
    values = [
        _placed(leaf, axes, others) if isinstance(leaf, Expanded) else leaf for leaf in leaves
    ]
    if any(now is None and leaf is not None for now, leaf in zip(values, leaves, strict=True)):
        return NotImplemented
    arguments, options = tree_unflatten(values, structure)
    return func(*arguments, **options)


def _fits(leaves: Sequence[Any], others: Sequence[Tensor], axes: int) -> bool:
    """Return whether others have all rows of the batch, or none where that was met in the check.

    Layers that get some of the rows, as experts do, have other ones.
    """
    (first, *more) = (leaf for leaf in leaves if isinstance(leaf, Expanded))
    expansion, known = first.expansion, first.expansion.known
    lengths = {len(other) for other in others if other.ndim == axes}
    if expansion.rows == 1 or expansion.rows in lengths:
        return lengths <= {1, expansion.rows}
    sources = {source for one in (first, *more) for source in one.sources}
    if not known.complete:
        known.apart |= sources
    return lengths <= {1} and sources <= known.apart


def _placed(tensor: Expanded, axes: int, others: Sequence[Tensor]) -> Tensor | None:
    """Return all copies with rows as the first of so many axes, or None if another one is there.

    The others are never asked for their lengths: which of their axes has the rows cannot be told
    from them. It is the first one, or gradients differ from autograd's when they are checked.
    """
    each, own = tensor.each, tensor.ndim
    if own == 0:
        # Among tensors with axes a scalar does not count when types are found.
        kinds = [other.dtype for other in others if other.is_floating_point()]
        each = each.to(kinds[0]) if kinds else each
    if own < axes:
        return each.reshape(len(each), *[1] * (axes - 1 - own), *tensor.shape)
    return each.squeeze(1) if own == axes and tensor.shape[0] == 1 else None


def _sizes(leaves: Sequence[Any]) -> list[int]:
    return [leaf for leaf in leaves[1:] if isinstance(leaf, int)]


def _copies(name: str, leaves: Sequence[Any]) -> bool:
    """Return whether there is more than one copy along the first axis."""
    tensor, sizes = leaves[0], _sizes(leaves)
    if name == "repeat" or len(sizes) > tensor.ndim:
        return bool(sizes) and sizes[0] != 1
    return bool(sizes) and sizes[0] not in {-1, tensor.shape[0]}
