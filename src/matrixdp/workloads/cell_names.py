"""The names of the cells of a histogram, and of queries on them."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from matrixdp.errors import InvalidParameterError
from matrixdp.workloads.operator import Factor, Workload
from matrixdp.workloads.ranges import Identity, Prefix, Ranges, Total, query_names

__all__ = ["CellNames", "checked_cell_names", "named_queries"]


class CellNames(NamedTuple):
    """The name of an attribute, and those of its cells in their order; all of them are public."""

    name: str
    labels: tuple[str, ...]


def checked_cell_names(
    attributes: Iterable[CellNames] | None, dimensions: Sequence[int]
) -> tuple[CellNames, ...] | None:
    """Return the names of the cells along each dimension, or raise if they are not."""
    if attributes is None:
        return None
    named = tuple(CellNames(str(name), tuple(labels)) for name, labels in attributes)
    if tuple(len(each.labels) for each in named) != tuple(dimensions):
        raise InvalidParameterError(
            f"attributes names {tuple(len(each.labels) for each in named)} cells, but the workload "
            f"has the dimensions {tuple(dimensions)}: name each cell along each of them"
        )
    if len({each.name for each in named}) != len(named):
        raise InvalidParameterError("attributes has a name twice: give each its own")
    return named


def named_queries(workload: Workload, attributes: Sequence[CellNames] | None) -> Iterator[str]:
    """Yield the name of each query, in the order of the answers: by `query_names` without names.

    Examples
    --------
    >>> from matrixdp.workloads import marginals
    >>> sex, income = CellNames("sex", ("F", "M")), CellNames("income", ("<=50K", ">50K"))
    >>> list(named_queries(marginals([2, 2], [(0, 1), (1,)]), [sex, income]))[2:5]
    ['sex=M, income=<=50K', 'sex=M, income=>50K', 'income=<=50K']
    """
    if attributes is None:
        yield from query_names(workload)
        return
    for term in workload.terms():
        factors = [list(_named(*pair)) for pair in zip(term, attributes, strict=True)]
        for parts in itertools.product(*factors):
            yield ", ".join(filter(None, parts)) or "all"


def _named(factor: Factor, attribute: CellNames) -> Iterator[str]:
    """Yield the name of each query along an attribute; that of the sum of all cells is empty."""
    name, labels = attribute
    # The type itself and no subclass, which may ask other queries.
    kind = type(factor)
    if kind is Total:
        return iter([""])
    if kind is Identity:
        return (f"{name}={label}" for label in labels)
    if kind is Prefix:
        return (f"{name}={labels[0]}..{label}" for label in labels)
    if isinstance(factor, Ranges) and kind is Ranges:
        return (
            f"{name}={labels[first]}..{labels[first + length - 1]}"
            for length in range(1, factor.longest + 1)
            for first in range(factor.size - length + 1)
        )
    return (f"row {row} of {name}" for row in range(factor.rows))
