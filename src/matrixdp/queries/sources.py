"""Sources of records: arrays, files, data frames, Arrow tables, or any iterator of blocks.

Whatever the source, records are handed on in blocks, and memory is bounded by the block.
"""

from collections.abc import Iterable, Iterator
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.parameters import members_of
from matrixdp.parameters.arrays import plain_array
from matrixdp.queries.iterators import iterated_blocks
from matrixdp.queries.names import Columns
from matrixdp.queries.record_files import arrow_batches
from matrixdp.queries.stored import stored_parts

__all__ = ["arrow_blocks", "parquet_blocks", "record_blocks"]

# What can be iterated over, but not in blocks of records.
_NO_BLOCKS = (dict, set, frozenset, bytes, bytearray, memoryview)


def record_blocks(data: Any, columns: Columns, rows: int) -> Iterator[NDArray[Any]]:
    """Yield the records of a source in blocks of at most so many rows, as float64 or float32.

    Small blocks are joined, since the work on a block does not shrink with its rows.

    Parameters
    ----------
    data : array_like, stored source, or iterable of blocks
        Records in rows. An array may be memory-mapped; `stored_parts` lists stored sources; blocks
        are arrays of any number of rows, such as a generator yields. One column may have one axis.
    columns : Columns
        Those that every block must have, by name where it has names.
    rows : int
        The most rows in a block that is yielded.

    Raises
    ------
    InvalidParameterError, ShapeError
        If a block does not hold rows of real numbers of that width. Whether they are finite is
        checked where they are rounded.
    """
    waiting, held = list[NDArray[Any]](), 0
    for piece in _pieces(data, columns, rows):
        if waiting and held + len(piece) > rows:
            yield np.concatenate(waiting)
            waiting, held = [], 0
        if len(piece) < rows:
            # Copied, because an iterator may fill one array again and again.
            waiting.append(np.array(piece))
            held += len(piece)
        else:
            yield piece
    if waiting:
        yield np.concatenate(waiting)


def _pieces(data: Any, columns: Columns, rows: int) -> Iterator[NDArray[Any]]:
    """Yield the records of a source in pieces of from 1 to so many rows."""
    width = columns.width
    for block in map(columns.of, _blocks(data, columns)):
        # An array is cut before it is converted, so that a mapped file is never read whole.
        whole = block if isinstance(block, np.ndarray) and block.ndim else _checked(block, width)
        for start in range(0, len(whole), rows):
            yield _checked(whole[start : start + rows], width)


def parquet_blocks(path: str | PathLike[str], columns: list[str]) -> Iterator[Any]:
    """Yield some columns of a Parquet file in blocks: Arrow batches, which have their names.

    Parameters
    ----------
    path : path
        The file, which may be larger than memory.
    columns : list of str
        The names of its columns. Queries whose bounds have names find them in any order.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    FileFormatError
        If it is not a Parquet file, or has no such column.
    """
    return arrow_batches(path, _named(columns), ".parquet")


def arrow_blocks(path: str | PathLike[str], columns: list[str]) -> Iterator[NDArray[Any]]:
    """Yield the numbers of some columns of a Parquet or Arrow file, in blocks."""
    for batch in arrow_batches(path, _named(columns)):
        yield _from_arrow(batch, path)


def _named(columns: Any) -> list[str]:
    """Return names of columns, at least one."""
    names = list(members_of(columns, "columns", "names of columns, such as ['age']"))
    if not names:
        raise InvalidParameterError("columns=[] has no name: pass at least one")
    return names


def _blocks(data: Any, columns: Columns) -> Iterator[Any]:
    parts = stored_parts(data, columns.names)
    if parts is not None:
        return parts
    if hasattr(data, "__array__") or isinstance(data, list | tuple):
        return iter([data])
    if isinstance(data, Iterable) and not isinstance(data, _NO_BLOCKS):
        return iterated_blocks(data)
    raise InvalidParameterError(
        f"data is a {type(data).__name__}: pass an array of records, paths of files, or an "
        "iterator of blocks"
    )


def _checked(block: Any, columns: int) -> NDArray[Any]:
    if type(block).__module__.partition(".")[0] == "pyarrow" and hasattr(block, "columns"):
        block = _from_arrow(block)
    array = plain_array(block, "data", booleans=True, keep_single=True)
    if array.ndim == 1 and columns == 1:
        array = array[:, None]
    # An empty list has one axis and no width; it holds no records, whatever the columns.
    if array.size == 0 and array.ndim <= 2:
        array = array.reshape(0, columns)
    if array.ndim != 2 or array.shape[1] != columns:
        # The width is shown where it is one; another length could be the number of records.
        found = f"rows of {array.shape[1]} numbers" if array.ndim == 2 else f"{array.ndim} axes"
        raise ShapeError(f"data has a block with {found}: pass two axes and rows of {columns}")
    return array


def _from_arrow(batch: Any, source: object = "data") -> NDArray[Any]:
    """Return the numbers of an Arrow batch; a missing value is refused, never filled."""
    if any(column.null_count for column in batch.columns):
        raise InvalidParameterError(
            "data has missing values: fill or drop them by a rule that looks at one record at a "
            "time"
        )
    with foreign_errors(source, "a table with columns of numbers"):
        columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
    parts = [plain_array(each, "data", booleans=True, keep_single=True) for each in columns]
    return np.column_stack(parts)
