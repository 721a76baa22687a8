"""Matrices as Parquet and Arrow files, whose columns have names; they need pyarrow.

Errors give the row and the column, counted from 1, and never a value: it may be private.
"""

import importlib
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, MissingExtraError
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.files.formats.pandas_index import PandasIndex, pandas_index
from matrixdp.files.formats.progress import Share, parts_of, silent
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.parameters import LARGEST_EXACT_INTEGER

__all__ = [
    "Table",
    "arrow_module",
    "check_names",
    "open_table",
    "read_arrow",
    "write_arrow",
]

_INDEX = "index"  # the name of a column of row labels that has none
# As many cells take a fraction of a second to read or to write.
_CELLS_TOGETHER = 1 << 20
# Fewer rows in a batch cost more for themselves than for their cells.
_FEWEST_ROWS = 1 << 10


def arrow_module(name: str = "pyarrow") -> ModuleType:
    """Return pyarrow or one of its parts, or raise if it is not installed."""
    try:
        # Late: an extra, and slow to import.
        return importlib.import_module(name)
    except ImportError:
        raise MissingExtraError(
            "Parquet and Arrow files need pyarrow, which is not installed: pip install "
            "'.[data]' in a clone of matrixdp"
        ) from None


def write_arrow(file: BinaryIO, matrix: MatrixFile, suffix: str, advance: Share = silent) -> None:
    """Write a matrix; columns without labels are named by their numbers from 0."""
    arrow = arrow_module()
    check_names(matrix, suffix)
    schema = _schema(matrix)
    if suffix == ".parquet":
        made = arrow_module("pyarrow.parquet").ParquetWriter(
            file,
            schema,
            # Noisy numbers hardly repeat, and what packs them differs from one system to another.
            use_dictionary=False,
            compression="none",
            write_statistics=False,  # a reader of a saved release would have to check them, too
        )
    else:
        made = arrow_module("pyarrow.ipc").new_file(file, schema)
    with made as writer:
        # In groups of rows: a single call for all of them could not be interrupted.
        for part in parts_of(len(matrix.array), matrix.array.shape[1], _CELLS_TOGETHER, advance):
            columns: list[Any] = [
                arrow.array(np.ascontiguousarray(column)) for column in matrix.array[part].T
            ]
            if matrix.index is not None:
                labels = list(matrix.index[part.start : part.stop])
                columns.insert(0, arrow.array(labels, type=arrow.string()))
            writer.write_table(arrow.Table.from_arrays(columns, schema=schema))


def _schema(matrix: MatrixFile) -> Any:
    """Return the schema of a matrix: the names and the types of its columns, and no metadata."""
    arrow = arrow_module()
    kinds = [arrow.from_numpy_dtype(matrix.array.dtype)] * matrix.array.shape[1]
    if matrix.index is not None:
        kinds.insert(0, arrow.string())
    return arrow.schema(list(zip(_names(matrix), kinds, strict=True)))


def check_names(matrix: MatrixFile, suffix: str) -> None:
    """Raise if two columns of a Parquet file would have one name: most programs cannot read it."""
    if suffix != ".parquet" or matrix.array.ndim != 2:  # which is refused later
        return
    names = _names(matrix)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileFormatError(
            f"Parquet needs columns with different names, and {twice!r} is there twice: rename "
            "one, or save as .arrow or .csv"
        )


def _names(matrix: MatrixFile) -> list[str]:
    """Return the names of all columns, that of the row labels first."""
    if matrix.columns is None:
        names = [str(position) for position in range(matrix.array.shape[1])]
    else:
        names = list(matrix.columns)
    if matrix.index is None:
        return names
    corner = matrix.corner or _INDEX
    # A name that is made up here must not be in the way of one that was given.
    while not matrix.corner and corner in names:
        corner = f"_{corner}"
    return [corner, *names]


@dataclass(frozen=True)
class Table:
    """A file of columns that is read in batches of rows.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns.
    rows : int
        How many rows the file says that it has.
    batches : callable
        Returns an iterator of the columns in batches, each of them checked: the offsets and the
        text of a damaged Arrow file are used by pyarrow without a look, and may crash it.
    """

    schema: Any
    rows: int
    batches: Callable[[], Iterator[Any]]


def open_table(
    source: Any, suffix: str, name: object, columns: Sequence[str] | None = None
) -> Table:
    """Return the table in a file of pyarrow, which is open for reading and stays open.

    Batches of a Parquet file have only the columns that are named, and those of an Arrow file all.

    Raises
    ------
    FileFormatError
        If it is not of the format of its suffix, or is damaged; a damaged batch is found when it is
        read. The message quotes nothing of the file, as pyarrow's own may do.
    """
    kind = "a Parquet file" if suffix == ".parquet" else "an Arrow file"
    with foreign_errors(name, kind):
        if suffix == ".parquet":
            file = arrow_module("pyarrow.parquet").ParquetFile(source, pre_buffer=False)
            schema, rows = file.schema_arrow, file.metadata.num_rows
            wanted = None if columns is None else list(columns)
            width = len(schema.names) if wanted is None else len(wanted)
            together = max(_FEWEST_ROWS, _CELLS_TOGETHER // max(width, 1))

            def batches() -> Iterator[Any]:
                # By one thread: at the end of a process, threads of pyarrow that still hold a
                # file may abort it.
                return iter(
                    file.iter_batches(batch_size=together, columns=wanted, use_threads=False)
                )
        else:
            file = arrow_module("pyarrow.ipc").open_file(source)
            numbers = range(file.num_record_batches)
            schema, rows = file.schema, sum(file.get_batch(n).num_rows for n in numbers)

            def batches() -> Iterator[Any]:
                return map(file.get_batch, numbers)

        # Names that are not UTF-8 are found here, and not where they are used.
        _ = [str(field.type) for field in schema], schema.names, schema.metadata
    return Table(schema, rows, lambda: _checked_batches(batches, rows, name, kind))


def _checked_batches(
    batches: Callable[[], Iterator[Any]], rows: int, name: object, kind: str
) -> Iterator[Any]:
    with foreign_errors(name, kind):
        found = 0
        for batch in batches():
            batch.validate(full=True)
            found += batch.num_rows
            if found > rows:
                break
            yield batch
        if found != rows:
            raise FileFormatError(
                f"{name} does not have the rows that it says it has: save it again"
            )


def read_arrow(
    file: BinaryIO,
    suffix: str,
    name: str,
    *,
    header: bool,
    index: bool,
    columns: Sequence[str] | None,
    offered: Collection[str] = (),
    advance: Share = silent,
) -> MatrixFile:
    """Read a matrix; see `read_matrix`. The names of the columns are its labels.

    Names that only number the columns from 0 are not labels.
    """
    # From memory: pyarrow must not hold a Python file at the end of a process.
    table = open_table(arrow_module().BufferReader(file.read()), suffix, name)
    names: list[str] = table.schema.names
    stated = pandas_index(table.schema.metadata, names)
    counted = _counted_rows(stated, table) if index else None
    # What pandas states as its index is labels wherever it is, and never numbers.
    labelled = stated.positions or ((0,) if index and counted is None else ())
    free = [position for position in range(len(names)) if position not in labelled]
    positions = _chosen(names, free, name, columns)
    if not positions or table.rows == 0:
        raise FileFormatError(f"{name} has no rows or no columns of numbers: add some")
    if stated.positions and not index:
        way_out = "; --index takes it as labels" if "--index" in offered else ""
        warnings.warn(f"{name}: the index of its pandas frame is left out{way_out}", stacklevel=2)
    for position in positions:
        _check_kind(table.schema.field(position).type, f"{name}, column {position + 1}", offered)
    array, labels = _read(table, name, positions, labelled if index else (), advance)
    labels = labels if counted is None else counted
    own = [names[position] for position in positions]
    numbered = [names[position] for position in free] == [
        str(number) for number in range(len(free))
    ]
    corner = names[0] if labelled == (0,) and not stated.positions else stated.name
    return MatrixFile(
        array,
        columns=own if header and not numbered else None,
        index=labels if index else None,
        corner=corner if index else "",
    )


def _counted_rows(stated: PandasIndex, table: Table) -> list[str] | None:
    """Return the numbers of a stated range as labels, if the first column does not hold labels."""
    if stated.numbers is None or len(stated.numbers) != table.rows:
        return None
    types, first = arrow_module("pyarrow.types"), table.schema.field(0).type
    if types.is_string(first) or types.is_large_string(first):
        return None
    return [str(number) for number in stated.numbers]


def _chosen(
    names: Sequence[str], free: Sequence[int], name: str, columns: Sequence[str] | None
) -> list[int]:
    """Return the positions of the columns with numbers, of those that are not labels."""
    if columns is None:
        return list(free)
    own = [names[position] for position in free]
    for wanted in columns:
        if own.count(wanted) != 1:
            labels = ", beside its labels" if wanted in names and wanted not in own else ""
            raise FileFormatError(
                f"{name} must have exactly one column {wanted!r} of numbers{labels}: name columns "
                "that it has"
            )
    return [free[own.index(wanted)] for wanted in columns]


def _check_kind(kind: Any, where: str, offered: Collection[str]) -> None:
    """Raise unless a column is of numbers."""
    types = arrow_module("pyarrow.types")
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        return
    if not (types.is_string(kind) or types.is_large_string(kind)):
        raise FileFormatError(f"{where}: the column is of type {kind}: cast it to float64")
    ways_out = []
    if "--index" in offered:
        ways_out.append("if it is the first one and holds labels, add --index")
    if "--columns" in offered:
        ways_out.append("name the columns of numbers with --columns")
    ways_out.append("save the file without it")
    raise FileFormatError(f"{where}: the column is text, not numbers; {', or '.join(ways_out)}")


def _read(
    table: Table, name: str, positions: Sequence[int], labelled: Sequence[int], advance: Share
) -> tuple[NDArray[Any], list[str]]:
    """Return the numbers of some columns, and the labels of others, levels joined."""
    single = arrow_module().float32()
    kinds = {table.schema.field(position).type for position in positions}
    with foreign_errors(name, "a table that fits in memory"):
        array = np.empty(
            (table.rows, len(positions)), np.float32 if kinds == {single} else np.float64
        )
    labels: list[str] = []
    start = 0
    for batch in table.batches():
        stop = start + batch.num_rows
        for column, position in enumerate(positions):
            array[start:stop, column] = _numbers(batch.column(position), name, start, position)
        with foreign_errors(name, "a table with labels that can be shown"):
            levels = [batch.column(position).to_pylist() for position in labelled]
            labels += ["/".join(map(str, level)) for level in zip(*levels, strict=True)]
        advance((stop - start) / table.rows)
        start = stop
    return array, labels


def _numbers(column: Any, name: str, start: int, position: int) -> NDArray[Any]:
    """Return the numbers of a part of a column, if float64 has all of them."""
    if column.null_count:
        row = start + int(np.argmax(np.asarray(column.is_null())))
        raise FileFormatError(
            f"{name}, row {row + 1}, column {position + 1}: the value is missing: fill or drop "
            "such values by a rule that does not depend on the data"
        )
    numbers = np.asarray(column.to_numpy(zero_copy_only=False))
    if numbers.dtype.kind in "iu":
        # Compared with both ends: the absolute value of the smallest integer does not fit its type.
        wrong = (numbers > LARGEST_EXACT_INTEGER) | (numbers < -LARGEST_EXACT_INTEGER)
        problem = "the integer is beyond 2**53, where float64 would round it"
    else:
        wrong, problem = ~np.isfinite(numbers), "the number is not finite"
    if wrong.any():
        row = start + int(np.argmax(wrong))
        raise FileFormatError(f"{name}, row {row + 1}, column {position + 1}: {problem}")
    return numbers
