"""Rows of text and numbers: their columns by name, or by position where they have no names."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import columns_of
from matrixdp.queries.iterators import iterated_blocks
from matrixdp.queries.names import Columns
from matrixdp.queries.stored import stored_parts

__all__ = ["column_blocks"]

# What can be iterated over, but not in rows or blocks of them.
_NO_BLOCKS = (str, bytes, bytearray, memoryview, dict, set, frozenset)


def column_blocks(data: Any, names: Sequence[str]) -> Iterator[list[Any]]:
    """Yield the named columns of blocks of rows.

    Parameters
    ----------
    data : sequence of rows, array, data frame, stored source, or iterator of such blocks
        One value for each name in a row.
    names : sequence of str
        Of the columns, in the order of rows that have no names.

    Raises
    ------
    InvalidParameterError, ShapeError
        If rows are of another width, or a name is missing or ambiguous.
    """
    read = Columns(len(names), tuple(names))
    for block in _table_blocks(data, names):
        yield _columns_of(read.of(block), read.width)


def _columns_of(block: Any, width: int) -> list[Any]:
    """Return the columns of a block, or raise if rows are of another width."""
    columns = columns_of(block)
    if columns is not None and len(columns) == width:
        return columns
    if isinstance(block, np.ma.MaskedArray):
        raise InvalidParameterError("data is a masked array: fill its gaps, then pass its data")
    if not isinstance(block, np.ndarray):
        # Arrays of other libraries; anything else is taken row by row.
        has_array = hasattr(block, "__array__")
        block = np.asarray(block, dtype=object) if has_array else _table_of(block, width)
    if block.ndim == 1 and width == 1:
        block = block[:, None]
    if block.ndim != 2 or block.shape[1] != width:
        raise ShapeError(f"data must have rows of {width} values, one for each attribute")
    return [block[:, number] for number in range(width)]


def _values(row: Any) -> list[Any]:
    """Return the values of a row that is neither a list nor a tuple."""
    return list(row) if isinstance(row, np.ndarray) and row.ndim == 1 else [row]


def _table_blocks(data: Any, names: Sequence[str]) -> Iterator[Any]:
    """Yield blocks of rows: a sequence, an array or a frame is one, an iterator yields many."""
    parts = stored_parts(data, names)
    if parts is not None:
        yield from parts
    elif isinstance(data, list | tuple) or hasattr(data, "__array__"):
        yield data
    elif isinstance(data, Iterable) and not isinstance(data, _NO_BLOCKS):
        yield from iterated_blocks(data)
    else:
        raise InvalidParameterError(
            f"data is a {type(data).__name__}: pass rows with one value for each attribute, or an "
            "iterator of blocks of rows"
        )


def _table_of(rows: Any, width: int) -> NDArray[Any]:
    """Return rows of any objects as a table; what does not fit gives a table of no columns."""
    # Text is no block of records: its letters would be counted, so many for one record.
    if not isinstance(rows, Iterable) or isinstance(rows, _NO_BLOCKS):
        return np.empty((0, 0), dtype=object)
    # For one attribute a row may be the value itself.
    listed = [row if isinstance(row, list | tuple) else _values(row) for row in rows]
    if not all(len(row) == width for row in listed):
        return np.empty((0, 0), dtype=object)
    # Not np.array(listed), which would make text of numbers that are beside text.
    table = np.empty((len(listed), width), dtype=object)
    for number, row in enumerate(listed):
        table[number] = list(row)
    return table
