"""Counting records in cells."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.counting import counted_tables
from matrixdp.parameters import members_of, positive_integer
from matrixdp.workloads.operator import LARGEST_HISTOGRAM

__all__ = ["histogram"]


def histogram(records: ArrayLike, dimensions: Sequence[int]) -> NDArray[np.int64]:
    """Return how many records fall into each cell.

    Parameters
    ----------
    records : array_like of int, shape (records, attributes) or (records,), or iterator of blocks
        The number of the cell along each attribute, counted from 0.
    dimensions : sequence of int
        The number of cells along each attribute. Choose it in advance, without looking at the
        records.

    Returns
    -------
    ndarray of int64, of shape dimensions

    Raises
    ------
    InvalidParameterError, ShapeError
        If records are not whole numbers within the dimensions. Messages never show a record.

    Notes
    -----
    *Guarantee:* one record more or less changes one count by one. Replacing a record moves one
    count from a cell to another. `MatrixMechanism` relies on this.

    Examples
    --------
    >>> histogram([[0, 1], [2, 1], [0, 1]], [3, 2]).tolist()
    [[0, 2], [0, 0], [0, 1]]
    """
    members = members_of(dimensions, "dimensions", "the numbers of cells, such as [3, 2]")
    sizes = tuple(positive_integer(size, "dimensions") for size in members)
    # Python integers, which do not overflow.
    if not sizes or not math.prod(sizes) <= LARGEST_HISTOGRAM:
        raise InvalidParameterError(
            f"dimensions={sizes} must have from 1 to {LARGEST_HISTOGRAM} cells: merge cells"
        )
    kept = tuple(range(len(sizes)))
    return counted_tables(records, sizes, [kept])[kept]
