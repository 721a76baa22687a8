"""Counting records in cells."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import members_of, positive_integer, whole_numbers
from matrixdp.workloads.operator import LARGEST_HISTOGRAM

__all__ = ["histogram"]


def histogram(records: ArrayLike, dimensions: Sequence[int]) -> NDArray[np.int64]:
    """Return how many records fall into each cell.

    Parameters
    ----------
    records : array_like of int, shape (records, attributes) or (records,)
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
    array = whole_numbers(records, "records")
    if array.ndim == 1 and len(sizes) == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != len(sizes):
        # The first axis is not shown: how many records there are may be private.
        found = f"rows of {array.shape[1]} numbers" if array.ndim == 2 else f"{array.ndim} axes"
        raise ShapeError(f"records has {found}: pass one row per record and {len(sizes)} columns")
    # Column by column: unsigned integers become signed ones, which ravel_multi_index wants.
    columns = [np.asarray(array[:, place], dtype=np.int64) for place in range(len(sizes))]
    for place, (column, size) in enumerate(zip(columns, sizes, strict=True)):
        # Not even the place of the record is shown: the message may end up in a public log.
        if not bool(np.all((column >= 0) & (column < size))):
            raise InvalidParameterError(
                f"records has a value outside 0 .. {size - 1} in column {place}: give every value "
                "a cell, by a rule that does not depend on the data"
            )
    flat = np.ravel_multi_index(tuple(columns), sizes)
    return np.bincount(flat, minlength=int(np.prod(sizes))).reshape(sizes).astype(np.int64)
