"""Attributes of a contingency table: named categories, or bins of numbers."""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import EqualByValue, TextColumn, members_of
from matrixdp.parameters.arrays import plain_array
from matrixdp.rounding import shown_exactly

__all__ = [
    "Attribute",
    "Bins",
    "Categories",
    "cell_labels",
    "checked_attributes",
    "described",
    "numbers",
]

IntArray = NDArray[np.int64]
# More cells than this are counted rather than listed, where attributes are described.
_MOST_LABELS = 20


@dataclass(frozen=True)
class Categories:
    """An attribute whose values are categories, listed in public.

    Parameters
    ----------
    name : str
        What the attribute is called.
    values : sequence
        All categories, each once: text or integers.
    other : str, optional
        The name of one more category, for values that are not listed; without it they are refused.

    Examples
    --------
    >>> Categories("sex", ["F", "M"]).cells(["M", "F", "M"]).tolist()
    [1, 0, 1]
    >>> Categories("sex", ["F", "M"], other="X").cells(["M", "unknown"]).tolist()
    [1, 2]
    """

    name: str
    values: tuple[Hashable, ...]
    other: str | None

    def __init__(self, name: str, values: Iterable[Hashable], other: Any = None) -> None:
        members = members_of(values, "values", "the categories, such as ['F', 'M']")
        labels = tuple(_plain(value) for value in members)
        kinds = (str, int)
        if not labels or not all(isinstance(label, kinds) for label in labels):
            raise InvalidParameterError(
                f"values of {name!r} must be categories, at least one: text or integers"
            )
        # True equals 1 and 1.0 in a dictionary, so that types are compared, too.
        if len({(type(label), label) for label in labels}) != len(labels) or len(
            set(labels)
        ) != len(labels):
            raise InvalidParameterError(f"values of {name!r} hold a category twice: list it once")
        object.__setattr__(self, "name", name)
        if other is not None and (not isinstance(other, str) or other in map(str, labels)):
            raise InvalidParameterError(
                f"other={other!r} of {name!r} must be a text other than its values"
            )
        object.__setattr__(self, "values", labels)
        object.__setattr__(self, "other", other)

    @property
    def labels(self) -> list[str]:
        """The names of the cells."""
        return [*map(str, self.values), *([] if self.other is None else [self.other])]

    def cells(self, column: Any) -> IntArray:
        """Return the index of the cell of each value, or raise if a value is not listed."""
        if isinstance(column, TextColumn):
            # -1 takes the last: a missing value is not listed.
            cells = np.append(self._indices(column.values), -1)[column.codes]
        else:
            cells = self._indices(_members(column))
        if self.other is not None:
            return np.where(cells < 0, len(self.values), cells)
        if cells.size and not bool(cells.min() >= 0):
            raise InvalidParameterError(
                f"column {self.name!r} of data has a value that is not among its categories: add a "
                "category for it, or one for all others (other=..., --other)"
            )
        return cells

    def _indices(self, values: list[Any]) -> IntArray:
        """Return the index of the cell of each value, or -1 if it is not listed."""
        indices = {value: index for index, value in enumerate(self.values)}
        try:
            found = [indices.get(value, -1) for value in values]
        except TypeError:  # some cannot be looked up: a list in the cell, or in a tuple
            found = [_index(indices, value) for value in values]
        return np.array(found, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Bins(EqualByValue):
    """An attribute whose values are numbers, counted in bins.

    Parameters
    ----------
    name : str
        What the attribute is called.
    edges : array_like
        Increasing. A bin contains its lower edge and not its upper one, except the last, which
        contains both. The outer edges may be infinite; otherwise values outside are refused.

    Examples
    --------
    >>> Bins("age", [0, 18, 65, float("inf")]).cells([17, 18, 80]).tolist()
    [0, 1, 2]
    """

    name: str
    edges: NDArray[np.float64]

    def __init__(self, name: str, edges: ArrayLike) -> None:
        # Infinite edges are allowed, so that only the order is checked; NaN fails it.
        array = np.array(plain_array(edges, "edges"), dtype=np.float64)
        if array.ndim != 1 or array.size < 2:
            raise ShapeError(
                f"edges of {name!r} have shape {array.shape}: pass two or more numbers"
            )
        if not bool(np.all(array[:-1] < array[1:])):
            raise InvalidParameterError(f"edges of {name!r} must increase: {array.tolist()}")
        array.setflags(write=False)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "edges", array)

    @property
    def labels(self) -> list[str]:
        """The names of the cells."""
        ends = [shown_exactly(edge) for edge in self.edges]
        closing = [")"] * (len(ends) - 2) + ["]"]
        pairs = zip(ends[:-1], ends[1:], closing, strict=True)
        return [f"[{low}; {high}{bracket}" for low, high, bracket in pairs]

    def cells(self, column: Any) -> IntArray:
        """Return the number of the bin of each number, or raise if one is in no bin."""
        values = numbers(column)
        # Negated, so that NaN counts as outside.
        if not bool(np.all((values >= self.edges[0]) & (values <= self.edges[-1]))):
            raise InvalidParameterError(
                f"column {self.name!r} of data has a value outside its bins: widen them, or clamp "
                "the values, by a rule that does not depend on the data"
            )
        cells = np.searchsorted(self.edges, values, side="right") - 1
        return np.minimum(cells, len(self.edges) - 2).astype(np.int64)


Attribute = Categories | Bins
"""Either kind."""


def checked_attributes(attributes: Iterable[Attribute], name: str) -> tuple[Attribute, ...]:
    """Return attributes, at least one, or raise on behalf of a parameter."""
    members = members_of(attributes, name, "a sequence of Categories and Bins")
    for number, member in enumerate(members):
        if not isinstance(member, Attribute):
            raise InvalidParameterError(
                f"{name}[{number}] is a {type(member).__name__}: pass Categories or Bins"
            )
    if not members:
        raise InvalidParameterError(f"{name}=() is empty: pass at least one")
    return members


def cell_labels(attributes: Sequence[Attribute]) -> list[str]:
    """Return the names of all combinations of cells, the last attribute's changing fastest."""
    return [
        ", ".join(f"{a.name}={label}" for a, label in zip(attributes, labels, strict=True))
        for labels in product(*(attribute.labels for attribute in attributes))
    ]


def described(attributes: Sequence[Attribute]) -> str:
    """Return what attributes are called, and their cells if there are few."""
    shown = []
    for attribute in attributes:
        labels = attribute.labels
        cells = ", ".join(labels) if len(labels) <= _MOST_LABELS else f"{len(labels)} cells"
        shown.append(f"{attribute.name} ({cells})")
    return ", ".join(shown)


def numbers(column: Any) -> NDArray[np.float64]:
    """Return the numbers of a column, NaN for what is not a number, even if it looks like one."""
    if isinstance(column, TextColumn):
        return np.full(len(column), math.nan)
    array = np.asarray(column)
    if array.dtype == object:  # a column of a table of several types
        array = np.array([_number(value) for value in array.tolist()], dtype=np.float64)
    return plain_array(array, "data").reshape(-1)


def _plain(value: Any) -> Any:
    """Return a numpy scalar as the Python object that it stands for."""
    return value.item() if isinstance(value, np.generic) else value


def _members(column: Any) -> list[Any]:
    array = hasattr(column, "__array__")
    return list(np.asarray(column).reshape(-1).tolist() if array else column)


def _index(indices: dict[Hashable, int], value: Any) -> int:
    """Return the index of a category, or -1 for a value that is not listed."""
    try:
        return indices.get(value, -1)
    except TypeError:  # a list in the cell, or in a tuple: it cannot be looked up
        return -1


def _number(value: Any) -> float:
    # Text is not a number, even if it looks like one; NaN is refused where bins are looked up.
    plain = _plain(value)
    real = isinstance(plain, int | float) and not isinstance(plain, bool)
    try:
        return float(plain) if real else math.nan
    except OverflowError:  # an integer beyond every float, and every bin but an infinite one
        return math.inf if plain > 0 else -math.inf
