"""Workloads made of workloads: Kronecker products, unions, marginals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import members_of, positive_integer
from matrixdp.workloads.operator import Factor, Workload
from matrixdp.workloads.ranges import Identity, Total

__all__ = ["Product", "Union", "marginals"]

# Errors are sums of squares over this many queries; their squares must stay finite in float64.
_LARGEST_SIZE = 2**256

# More tables than this are counted and not named.
_MOST_NAMED = 16


@dataclass(frozen=True, eq=False, repr=False)
class Product(Workload):
    """Every combination of one query on each attribute: the Kronecker product.

    Parameters
    ----------
    factors : sequence of Factor
        One for each attribute, with at most 2**256 cells and queries in all.

    Examples
    --------
    >>> from matrixdp.workloads import Prefix, Product, Total
    >>> Product([Prefix(100), Total(7), Prefix(50)]).shape
    (5000, 35000)
    """

    factors: tuple[Factor, ...]

    def __init__(self, factors: Sequence[Factor]) -> None:
        parts = members_of(factors, "factors", "one workload per attribute, such as [Prefix(3)]")
        if not parts:
            raise InvalidParameterError("factors=() is empty: pass one workload per attribute")
        for part in parts:
            # A product of unions would have terms of its own; as a union of products it has one
            # factor per attribute, which is what everything else relies on.
            if not isinstance(part, Factor):
                raise InvalidParameterError(
                    f"factors holds a {type(part).__name__}: pass workloads on one attribute "
                    "(Dense, Identity, Total, Prefix, Ranges); write a product of unions as a "
                    "Union of Products"
                )
        object.__setattr__(self, "factors", parts)
        if not max(self.shape) <= _LARGEST_SIZE:
            raise InvalidParameterError(
                f"factors has {len(parts)} attributes with more than 2**256 cells or queries in "
                "all, whose errors float64 cannot represent: leave out attributes"
            )

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return tuple(factor.cells for factor in self.factors)

    def terms(self) -> tuple[tuple[Factor, ...], ...]:
        """Return the one product."""
        return (self.factors,)


@dataclass(frozen=True, eq=False, repr=False)
class Union(Workload):
    """The queries of several workloads on one histogram.

    Parameters
    ----------
    parts : sequence of Workload
        All of the same dimensions.
    """

    parts: tuple[Workload, ...]

    def __init__(self, parts: Sequence[Workload]) -> None:
        members = members_of(parts, "parts", "workloads, such as [Prefix(3), Total(3)]")
        if not members:
            raise InvalidParameterError("parts=() is empty: pass at least one workload")
        for member in members:
            if not isinstance(member, Workload):
                raise InvalidParameterError(
                    f"parts holds a {type(member).__name__}: pass workloads; a matrix is a Dense"
                )
            if member.dimensions != members[0].dimensions:
                raise ShapeError(
                    f"parts are for cells laid out as {members[0].dimensions} and as "
                    f"{member.dimensions}: use one layout; Total or Identity stand for an "
                    "attribute that a part sums over or keeps"
                )
        object.__setattr__(self, "parts", members)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""
        return self.parts[0].dimensions

    def terms(self) -> tuple[tuple[Factor, ...], ...]:
        """Return the products of all parts."""
        return tuple(term for part in self.parts for term in part.terms())

    def __repr__(self) -> str:
        """Name the terms, or count them if they are many tables."""
        if len(self.terms()) > _MOST_NAMED and self.asks_tables:
            return f"{len(self.terms())} tables of {' x '.join(map(str, self.dimensions))} cells"
        return super().__repr__()


def marginals(dimensions: Sequence[int], kept: Iterable[Sequence[int]]) -> Union:
    """Return contingency tables: for each group of attributes, the counts of their combinations.

    Parameters
    ----------
    dimensions : sequence of int
        The number of cells along each attribute.
    kept : iterable of sequences of int
        The attributes of each table, by number; the others are summed over.

    Examples
    --------
    >>> from itertools import combinations
    >>> from matrixdp.workloads import marginals
    >>> marginals([10, 20, 30], combinations(range(3), 2)).rows
    1100
    """
    given = members_of(dimensions, "dimensions", "the numbers of cells, such as [2, 3]")
    sizes = tuple(positive_integer(size, "dimensions") for size in given)
    if not sizes:
        raise InvalidParameterError("dimensions=() is empty: pass a number of cells per attribute")
    groups = members_of(kept, "kept", "the attributes of each table, such as [(0,), (0, 1)]")
    if not groups:
        raise InvalidParameterError("kept=() is empty: pass at least one table, such as [(0,)]")
    # A table keeps the cells of its attributes and sums over those of the others.
    tables = []
    for group in groups:
        wanted = _attributes(group, len(sizes))
        tables.append(
            Product(
                [
                    Identity(size) if index in wanted else Total(size)
                    for index, size in enumerate(sizes)
                ]
            )
        )
    return Union(tables)


def _attributes(group: Any, count: int) -> set[int]:
    """Return the attributes of one table, or raise if it does not name each of them once."""
    # members_of accepts sequences only, because elsewhere the order matters; here it does not.
    members = tuple(group) if isinstance(group, set | frozenset) else group
    wanted = members_of(members, "a table in kept", "its attributes, such as (0,) for the first")
    for number in wanted:
        # True and False are integers in Python, but nobody means attributes 1 and 0 by them.
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or not 0 <= number < count:
            raise InvalidParameterError(
                f"kept holds {wanted!r}: attributes are numbered from 0 to {count - 1}"
            )
    if len(set(wanted)) != len(wanted):
        raise InvalidParameterError(f"kept holds {wanted!r}: name every attribute once")
    return set(wanted)
