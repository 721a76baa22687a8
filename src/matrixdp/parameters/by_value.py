"""Equality of frozen values that hold arrays: a dataclass would compare those entry by entry."""

import dataclasses
from typing import Any

import numpy as np

__all__ = ["EqualByValue"]


class EqualByValue:
    """Frozen dataclasses with ``eq=False`` are equal if their kind and all of their fields are.

    Arrays are equal if they have one shape and equal entries. They must be read-only, or the hash
    would change with them.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is of the same kind and has equal fields."""
        if type(other) is not type(self):
            return NotImplemented
        pairs = zip(_fields(self), _fields(other), strict=True)
        return all(
            np.array_equal(own, others)
            if isinstance(own, np.ndarray) or isinstance(others, np.ndarray)
            else own == others
            for own, others in pairs
        )

    def __hash__(self) -> int:
        """Return a hash that equal values share."""
        return hash((type(self), *map(_hashable, _fields(self))))


def _fields(value: Any) -> list[Any]:
    return [getattr(value, field.name) for field in dataclasses.fields(value)]


def _hashable(field: Any) -> Any:
    if not isinstance(field, np.ndarray):
        return field
    # The sum turns -0.0 into 0.0: they are equal, but their bytes are not.
    return field.shape, (field + 0.0).tobytes()
