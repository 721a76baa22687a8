"""Counts of records: checked, or counted block by block without writing out all cells."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.integer_sums import Integers, Part
from matrixdp.parameters import integer_array, members_of, names_of, positive_integer
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, Workload
from matrixdp.workloads.strategies.strategy import LARGEST_TOTAL

__all__ = ["TableCounts", "check_records", "checked_counts", "count_cells"]

Attributes = tuple[int, ...]
IntArray = NDArray[np.int64]

# Records that are counted together: the numbers of their cells take 8 megabytes.
_TOGETHER = 2**20


def count_cells(records: ArrayLike, dimensions: Sequence[int]) -> IntArray:
    """Return how many records fall into each cell: exact counts, which are private.

    They are what `MatrixMechanism.release` takes; nothing here adds noise.

    Parameters
    ----------
    records : array_like of int, shape (records, attributes) or (records,), or iterator of blocks
        The index of the cell along each attribute, counted from 0.
    dimensions : sequence of int
        The number of cells along each attribute. Choose it in advance, without looking at the
        records.

    Returns
    -------
    ndarray of int64, of shape dimensions

    Raises
    ------
    InvalidParameterError, ShapeError
        If records are not integers within the dimensions. Messages never show a record.

    Notes
    -----
    *Guarantee:* one record more or less changes one count by one. Replacing a record moves one
    count from a cell to another. `MatrixMechanism` relies on this.

    Examples
    --------
    >>> count_cells([[0, 1], [2, 1], [0, 1]], [3, 2]).tolist()
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
    return _counted_tables(records, sizes, [kept])[kept]


def checked_counts(
    histogram: ArrayLike, workload: Workload, most_records: int = LARGEST_TOTAL
) -> NDArray[np.float64]:
    """Return a histogram of integer counts, laid out as a workload is, or raise if it is not one.

    Raises
    ------
    InvalidParameterError, ShapeError
        Messages never show a count.
    """
    workload.check_histogram()  # larger ones are released from their records
    counts: Any = workload.checked_cells(histogram, "histogram")
    # The bound on rounding holds for integer counts of at most 2**30 records, whose sum is exact.
    whole = bool(np.all((counts >= 0.0) & (counts == np.rint(counts))))
    most = min(most_records, LARGEST_TOTAL)
    if not whole or not float(np.sum(counts)) <= most:
        raise InvalidParameterError(
            "histogram must hold counts of records: integers of at least 0, and at most "
            f"{most} records in all; count the records of each cell"
        )
    return np.asarray(counts)


def check_records(records: Any, dimensions: Sequence[int]) -> None:
    """Raise if records cannot be counted, for callers that work long before they count them.

    The parameters and the errors are those of `_counted_tables`.
    """
    _counted_tables(records, dimensions, [])


def _counted_tables(
    records: Any, dimensions: Sequence[int], tables: Sequence[Attributes]
) -> dict[Attributes, IntArray]:
    """Return how many records fall into each cell of each table.

    Parameters
    ----------
    records : array_like of int, shape (records, attributes), or iterator of such blocks
        The index of the cell along each attribute, by position. For one attribute the shape
        may be (records,).
    dimensions : sequence of int
        The number of cells along each attribute.
    tables : sequence of tuples of int
        The attributes of each table.

    Raises
    ------
    InvalidParameterError, ShapeError
        If records are not integers within the dimensions, or are more than 2**30. Messages
        never show a record.

    Notes
    -----
    *Guarantee:* one record more or less changes one count of each table by one. Replacing a record
    moves one count in each table, or none.

    Examples
    --------
    >>> found = _counted_tables([[0, 1], [2, 1], [0, 0]], [3, 2], [(0,), (0, 1)])
    >>> found[(0,)].tolist(), found[(0, 1)].tolist()
    ([2, 0, 1], [[1, 1], [0, 0], [0, 1]])
    """
    counts = TableCounts(tuple(dimensions), tuple(tables))
    return counts.finish(counts.partial(records))


@dataclass(frozen=True)
class TableCounts:
    """Tables of counts of records, counted in parts that can be added up in any order.

    Attributes
    ----------
    dimensions : tuple of int
        The number of cells along each attribute.
    tables : tuple of tuples of int
        The attributes of each table.

    Examples
    --------
    >>> counts = TableCounts((3, 2), ((0,),))
    >>> part = counts.partial([[0, 1], [2, 1]]) + counts.partial([[0, 0]])
    >>> counts.finish(part)[(0,)].tolist()
    [2, 0, 1]
    """

    dimensions: tuple[int, ...]
    tables: tuple[Attributes, ...]

    def partial(self, records: Any) -> Part:
        """Return the counts of some records, as `_counted_tables` takes them; private."""
        counts = [np.zeros(math.prod(self._shape(kept)), np.int64) for kept in self.tables]
        total = 0
        for columns in _checked_blocks(records, self.dimensions):
            total += len(columns[0])
            for kept, table in zip(self.tables, counts, strict=True):
                cells = np.zeros(len(columns[0]), np.int64)
                for index in kept:
                    cells = cells * self.dimensions[index] + columns[index]
                np.add.at(table, cells, 1)
        return Part(total, tuple(Integers(table, None, total) for table in counts))

    def finish(self, part: Part, most_records: int = LARGEST_TOTAL) -> dict[Attributes, IntArray]:
        """Return the tables from the part of all records; both are private.

        Raises
        ------
        InvalidParameterError
            If there are more records than the bound.
        """
        if not part.records <= most_records:
            raise InvalidParameterError(
                f"records are more than {most_records}: the noise covers the rounding of so many; "
                "count fewer, or pass MatrixMechanism(..., most_records=...) for marginals"
            )
        pairs = zip(self.tables, part.sums, strict=True)
        return {kept: table.rounded(0).reshape(self._shape(kept)) for kept, table in pairs}

    def _shape(self, kept: Attributes) -> tuple[int, ...]:
        return tuple(self.dimensions[index] for index in kept)


def _checked_blocks(records: Any, dimensions: Sequence[int]) -> Iterator[list[IntArray]]:
    """Yield the columns of blocks of records, or raise if a number has no cell."""
    for block in _blocks(records):
        if len(dimensions) > 1 and names_of(block) is not None:
            raise InvalidParameterError(
                "records has names of columns, and a workload has none to match: pass "
                "ContingencyTable(...).cells(table), which goes by name, or an array"
            )
        array = integer_array(block, "records")
        # An empty list is no record, with any number of attributes: raising for it would tell it
        # apart from a list of one record.
        if array.ndim == 1 and (len(dimensions) == 1 or not array.size):
            array = array.reshape(-1, len(dimensions))
        if array.ndim != 2 or array.shape[1] != len(dimensions):
            # The first axis is not shown: how many records there are may be private.
            found = f"rows of {array.shape[1]} numbers" if array.ndim == 2 else f"{array.ndim} axes"
            raise ShapeError(
                f"records has {found}: pass one row per record and {len(dimensions)} columns"
            )
        for start in range(0, len(array), _TOGETHER):
            part = array[start : start + _TOGETHER]
            yield [_column(part, index, size) for index, size in enumerate(dimensions)]


def _column(array: NDArray[Any], index: int, size: int) -> IntArray:
    column = np.asarray(array[:, index])
    # Not even the index of the record is shown: the message may end up in a public log. Compared
    # before unsigned numbers become signed ones.
    if not bool(np.all((column >= 0) & (column < size))):
        raise InvalidParameterError(
            f"records has a value outside 0 .. {size - 1} in column {index + 1}, counted from 1: "
            "give every value a cell, by a rule that does not depend on the data"
        )
    return column.astype(np.int64)


def _blocks(records: Any) -> Iterator[Any]:
    """Yield blocks: an array or a sequence is one, an iterator yields many."""
    if isinstance(records, Iterator):
        yield from records
    elif isinstance(records, Iterable) and not isinstance(records, str | bytes | dict | set):
        yield records
    else:
        raise InvalidParameterError(
            f"records is a {type(records).__name__}: pass an array with one row per record, or an "
            "iterator of such blocks"
        )
