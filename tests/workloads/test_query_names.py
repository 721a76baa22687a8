"""The name of each query says which cells it asks for, in the order of the answers."""

import re

import numpy as np
import pytest

from matrixdp.workloads import (
    Dense,
    Identity,
    Prefix,
    Product,
    Ranges,
    Total,
    Union,
    Workload,
    marginals,
)
from matrixdp.workloads.ranges import query_names

WORKLOADS: list[Workload] = [
    Identity(4),
    Total(4),
    Prefix(5),
    Ranges(5),
    Ranges(6, 2),
    Product([Prefix(3), Ranges(2), Total(2)]),
    Union([Product([Prefix(3), Total(2)]), Product([Total(3), Identity(2)])]),
    marginals([2, 3, 2], [(0, 1), (2,)]),
]


def row_of(name: str, sizes: tuple[int, ...]) -> np.ndarray:
    """Return the query that a name describes, from the name and the sizes alone."""
    row: np.ndarray = np.ones(1)
    for part, size in zip(name.split(" x "), sizes, strict=True):
        cells = np.zeros(size)
        ends = re.fullmatch(r"(\d+)(?:\.\.(\d+))?", part)
        first, last = (0, size - 1) if ends is None else (int(ends[1]), int(ends[2] or ends[1]))
        cells[first : last + 1] = 1.0
        row = np.kron(row, cells)
    return row


@pytest.mark.parametrize("workload", WORKLOADS, ids=repr)
def test_names_describe_the_queries(workload: Workload) -> None:
    names = list(query_names(workload))
    written = np.stack([row_of(name, workload.dimensions) for name in names])
    asked = np.stack([workload.apply(cell) for cell in np.eye(workload.cells)], axis=1)
    np.testing.assert_array_equal(written, asked)


def test_rows_of_matrices_and_other_kinds_are_numbered() -> None:
    class Own(Identity):
        """An attribute of a user's own, which may ask anything."""

    assert list(query_names(Dense([[1.0, -2.0], [0.5, 0.0]]))) == ["row 0", "row 1"]
    assert list(query_names(Own(2))) == ["row 0", "row 1"]
