"""Made-up records of the shapes and types of real ones, for the checks of a model.

Only the shapes and types of the first record are looked at. Integers are 0 and 1, which are classes
and tokens of every model that has any.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from matrixdp.errors import InvalidParameterError

__all__ = ["KINDS", "Batches", "Draw", "Kind", "imitation", "template"]

Batches = Callable[[Sequence[int]], Any]
"""Returns the batch of some records, by their indices and in their order."""


class Draw(NamedTuple):
    """Some records for a check.

    Attributes
    ----------
    batches : Batches
        The records.
    needed : bool
        Whether losses that cannot be computed for them are refused.
    distinct : int
        How many records there are: indices go up to this.
    """

    batches: Batches
    needed: bool
    distinct: int


Kind = Literal["differing", "ends with zeros", "ends with ones", "of both signs"]

KINDS: tuple[Kind, ...] = get_args(Kind)

# So many lengths there are of sequences whose end is padding.
_LENGTHS = 4


def template(record: Any) -> Any:
    """Return something of the shapes and types of a record that does not keep it alive."""

    def emptied(leaf: Any) -> Any:
        match leaf:
            case Tensor():
                return leaf.new_empty(leaf.shape)
            case np.ndarray():
                return np.empty_like(leaf)
        return leaf

    return tree_map(emptied, record)


def imitation(record: Any, kind: Kind, index: int, owner: int, *, cut: bool = False) -> Any:
    """Return a made-up record.

    Parameters
    ----------
    record : any
        What to imitate: tensors, arrays, numbers and strings in containers.
    kind : Kind
        What integers and booleans are: others in some records than in the rest, or the same in all
        records up to a point that depends on the record, where padding begins. Other numbers are
        between 0 and 1, or larger and of both signs.
    index : int
        Of the made-up row; the same one is always the same.
    owner : int
        Of the record whose row it is. Padding begins where that says: if each record had a row of
        full length, none would show that it depends on the longest of others.
    cut : bool, optional
        Whether sequences end where padding would begin.
    """
    numbers = _Numbers(kind, index)
    # The first one is the longest, as batches of all records and of fewer are to be equally long.
    length = 1.0 - owner % _LENGTHS / _LENGTHS

    def made(leaf: Any) -> Any:
        match leaf:
            case Tensor():
                array = _array(_numpy_type(leaf), tuple(leaf.shape), kind, length, numbers)
                found: Any = torch.from_numpy(array).to(leaf.device, leaf.dtype)
            case np.ndarray():
                found = _array(leaf.dtype, leaf.shape, kind, length, numbers).astype(leaf.dtype)
            case bool() | int() | np.bool_() | np.integer():
                return type(leaf)(numbers.integers(()))
            case float() | np.floating():
                return type(leaf)(numbers.floats(()))
            case str():
                return " ".join(["a"] * _end(8, length))
            case None:
                return None
            case _:
                raise InvalidParameterError(
                    f"a record holds a {type(leaf).__name__}, which cannot be imitated: call "
                    "training.check(rows) with records of your own that are not private"
                )
        return found[: _end(len(found), length)] if cut and found.ndim else found

    return tree_map(made, record)


def _numpy_type(leaf: Tensor) -> np.dtype[Any]:
    if leaf.is_complex():
        return np.dtype(np.complex128)
    if leaf.is_floating_point():
        return np.dtype(np.float64)
    return np.dtype(np.bool_) if leaf.dtype == torch.bool else np.dtype(np.int64)


def _array(
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    kind: Kind,
    length: float,
    numbers: "_Numbers",
) -> Any:
    padded = kind.startswith("ends") and len(shape) > 0
    end = _end(shape[0], length) if padded else 0
    if dtype.kind == "c":
        return numbers.floats(shape) + 1j * numbers.floats(shape)
    if dtype.kind == "f":
        values = numbers.floats(shape)
        if padded and len(shape) > 1:
            values[end:] = 0.0
        return values
    if not padded:
        return numbers.integers(shape).astype(dtype)
    values = np.full(shape, kind == "ends with zeros", dtype)
    values[end:] = kind == "ends with ones"
    return values


class _Numbers:
    """The numbers of one made-up record, one leaf after another."""

    def __init__(self, kind: Kind, index: int) -> None:
        self._kind = kind
        self._code = (index ^ index >> 2) & 3
        self._own = np.random.default_rng([KINDS.index(kind), index])
        self._common = np.random.default_rng(KINDS.index(kind))

    def floats(self, shape: tuple[int, ...]) -> Any:
        """Return numbers between 0 and 1, or of both signs."""
        values = self._own.random(shape)
        # Without axes, what numpy makes of an array is no array any more.
        return np.asarray(6.0 * values - 3.0 if self._kind == "of both signs" else values)

    def integers(self, shape: tuple[int, ...]) -> Any:
        """Return integers each of which is 0 in two of four records, and 1 in the two others.

        By chance a single one, such as a class, would be the same in all of them.
        """
        halves = self._common.integers(1, 4, size=shape)
        odd = (halves & self._code) % 3 > 0
        return np.asarray(odd ^ self._common.integers(2, size=shape, dtype=bool))


def _end(size: int, length: float) -> int:
    return max(1, round(size * length))
