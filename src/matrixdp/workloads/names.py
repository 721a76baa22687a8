"""What each query of a workload asks, in words that are short enough for a column of a table."""

import itertools
from collections.abc import Iterator

from matrixdp.workloads.operator import Factor, Workload
from matrixdp.workloads.ranges import Identity, Prefix, Ranges, Total

__all__ = ["query_names"]


def query_names(workload: Workload) -> Iterator[str]:
    """Yield the name of each query, in the order of the answers.

    Cells are counted from 0. ``3`` is one cell, ``2..5`` the cells from 2 to 5, ``all`` their sum,
    and ``row 7`` a row of a matrix. Attributes are joined by ``x``, and the last one changes
    fastest. The parts of a union follow each other.

    Examples
    --------
    >>> from matrixdp.workloads import Identity, Prefix, Product, Total, Union
    >>> list(query_names(Union([Product([Prefix(2), Total(3)]), Product([Total(2), Identity(3)])])))
    ['0..0 x all', '0..1 x all', 'all x 0', 'all x 1', 'all x 2']
    """
    for term in workload.terms():
        for parts in itertools.product(*(list(_names(factor)) for factor in term)):
            yield " x ".join(parts)


def _names(factor: Factor) -> Iterator[str]:
    # The type itself and no subclass, which may ask other queries.
    kind = type(factor)
    if isinstance(factor, Identity) and kind is Identity:
        return map(str, range(factor.size))
    if isinstance(factor, Total) and kind is Total:
        return iter(["all"])
    if isinstance(factor, Prefix) and kind is Prefix:
        return (f"0..{last}" for last in range(factor.size))
    if isinstance(factor, Ranges) and kind is Ranges:
        return (
            f"{first}..{first + length - 1}"
            for length in range(1, factor.longest + 1)
            for first in range(factor.size - length + 1)
        )
    return (f"row {row}" for row in range(factor.rows))
