"""Matrices as Parquet and Arrow files, whose columns have names; they need pyarrow.

Errors give the row and the column, counted from 1, and never a value: it may be private.
"""

import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, MissingExtraError
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.parameters import LARGEST_EXACT_INTEGER

__all__ = ["arrow_module", "check_names", "read_arrow", "write_arrow"]

_INDEX = "index"  # the name of a column of row labels that has none


def arrow_module(name: str = "pyarrow") -> ModuleType:
    """Return pyarrow or one of its parts, or raise if it is not installed."""
    try:
        # Late: an extra, and slow to import.
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            "Parquet and Arrow files need pyarrow, which is not installed: pip install "
            "'matrixdp[data]'"
        ) from None


def write_arrow(file: BinaryIO, matrix: MatrixFile, suffix: str) -> None:
    """Write a matrix; columns without labels are named by their numbers from 0."""
    arrow = arrow_module()
    check_names(matrix, suffix)
    columns: list[Any] = [np.ascontiguousarray(column) for column in matrix.array.T]
    if matrix.index is not None:
        columns.insert(0, arrow.array(list(matrix.index), type=arrow.string()))
    table = arrow.table([arrow.array(column) for column in columns], names=_names(matrix))
    if suffix == ".parquet":
        arrow_module("pyarrow.parquet").write_table(table, file)
        return
    with arrow_module("pyarrow.ipc").new_file(file, table.schema) as writer:
        writer.write_table(table)


def check_names(matrix: MatrixFile, suffix: str) -> None:
    """Raise if two columns of a Parquet file would have one name: most programs cannot read it."""
    names = _names(matrix)
    if suffix == ".parquet" and len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileFormatError(
            f"Parquet needs columns with different names, and {twice!r} is there twice: rename "
            "one, or save as .arrow or .csv"
        )


def _names(matrix: MatrixFile) -> list[str]:
    """Return the names of all columns, that of the row labels first."""
    if matrix.columns is None:
        names = [str(place) for place in range(matrix.array.shape[1])]
    else:
        names = list(matrix.columns)
    if matrix.index is None:
        return names
    corner = matrix.corner or _INDEX
    # A name that is made up here must not be in the way of one that was given.
    while not matrix.corner and corner in names:
        corner = f"_{corner}"
    return [corner, *names]


def read_arrow(
    file: BinaryIO,
    suffix: str,
    name: str,
    *,
    header: bool,
    index: bool,
    columns: Sequence[str] | None,
) -> MatrixFile:
    """Read a matrix; see `read_matrix`. The names of the columns are its labels."""
    table = _table(file, suffix, name)
    names: list[str] = table.column_names
    places = _chosen(names, name, index=index, columns=columns)
    if not places or table.num_rows == 0:
        raise FileFormatError(f"{name} has no rows or no columns of numbers: add some")
    numbers = [_numbers(table.column(place), f"{name}, column {place + 1}") for place in places]
    array = np.column_stack(numbers)
    _check_finite(array, places, name)
    labels = None
    if index:
        labels = [str(label) for label in table.column(0).to_pylist()]
    return MatrixFile(
        array,
        columns=[names[place] for place in places] if header else None,
        index=labels,
        corner=names[0] if index else "",
    )


def _table(file: BinaryIO, suffix: str, name: str) -> Any:
    arrow = arrow_module()
    part = arrow_module("pyarrow.parquet" if suffix == ".parquet" else "pyarrow.ipc")
    try:
        if suffix == ".parquet":
            # From memory and by one thread: at the end of a process, threads of pyarrow that still
            # hold a Python file may abort it.
            content = arrow.BufferReader(file.read())
            return part.ParquetFile(content, pre_buffer=False).read(use_threads=False)
        return part.open_file(file).read_all()
    except (arrow.ArrowException, OSError):
        # Not Arrow's own message, which may quote what it could not read.
        kind = "a Parquet file" if suffix == ".parquet" else "an Arrow file"
        raise FileFormatError(f"{name} is not {kind}, or is damaged: save it again") from None


def _chosen(
    names: Sequence[str], name: str, *, index: bool, columns: Sequence[str] | None
) -> list[int]:
    """Return the places of the columns with numbers; the first column may be labels."""
    own = list(names[1:] if index else names)
    if columns is None:
        return list(range(int(index), len(names)))
    for wanted in columns:
        if own.count(wanted) != 1:
            raise FileFormatError(f"{name} must have exactly one column {wanted!r} of numbers")
    return [own.index(wanted) + int(index) for wanted in columns]


def _numbers(column: Any, place: str) -> NDArray[Any]:
    """Return the numbers of a column as float32 or float64, without rounding any."""
    types = arrow_module("pyarrow.types")
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind):
        raise FileFormatError(
            f"{place}: the column is text, not numbers; if it is the first one and holds labels, "
            "add --index, and otherwise name the others with --columns, where the command takes "
            "these; or save the file without it"
        )
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        raise FileFormatError(f"{place}: the column is of type {kind}: cast it to float64")
    if column.null_count:
        raise FileFormatError(
            f"{place}: the column has missing values: fill or drop them by a rule that does not "
            "depend on the data"
        )
    numbers = np.asarray(column.to_numpy())
    if types.is_integer(kind) and not bool(
        np.all((numbers <= LARGEST_EXACT_INTEGER) & (numbers >= -LARGEST_EXACT_INTEGER))
    ):
        raise FileFormatError(f"{place}: an integer is beyond 2**53, where float64 would round it")
    return numbers if numbers.dtype == np.float32 else numbers.astype(np.float64)


def _check_finite(array: NDArray[Any], places: Sequence[int], name: str) -> None:
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        row, column = wrong[0]
        raise FileFormatError(
            f"{name}, row {row + 1}, column {places[column] + 1}: the number is not finite"
        )
