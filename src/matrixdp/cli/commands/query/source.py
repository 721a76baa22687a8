"""Records from a file, for ``matrixdp query``: of text, .npy, zarr, Parquet and Arrow.

Errors name the column, and the row where a cell cannot be read: nothing is released of such a file.
They never show a cell. How many records there are is private; what a record holds is checked by the
query, whose errors name no row.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from matrixdp.cli.commands.query.layout import Layout
from matrixdp.cli.shared.streams import LARGE_FILE
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.csv_format import NOT_A_NUMBER, text_rows
from matrixdp.files.formats.numpy_format import map_npy
from matrixdp.files.formats.opening import foreign_errors, opened
from matrixdp.files.formats.progress import read_with_progress
from matrixdp.files.formats.suffixes import ARROW, TEXT, check_format, format_of
from matrixdp.queries.record_files import arrow_batches
from matrixdp.queries.sources import arrow_blocks
from matrixdp.queries.stored_arrays import StoredRows, opened_zarr

__all__ = ["RecordFile"]

T = TypeVar("T")
_FORMATS = (".npy", ".zarr", *TEXT, *ARROW)
_ROWS_TOGETHER = 4096
_PLAIN = Layout()


@dataclass(frozen=True)
class RecordFile:
    """A file of records, of which some columns are read.

    Parameters
    ----------
    path : Path
        Text whose first row has names, such as ``.csv``, a ``.parquet`` or ``.arrow`` file, or a
        ``.npy`` file or ``.zarr`` array, whose columns are numbered from 0.
    columns : sequence of str
        Names or numbers of columns, in the order that they are wanted.
    layout : Layout, optional
        How the file is written.
    rows : pair of int, optional
        Which rows of a ``.zarr`` array; by default all.
    quiet : bool, optional
        Whether to show no progress bar.
    """

    path: Path
    columns: tuple[str, ...]
    layout: Layout = _PLAIN
    rows: tuple[int, int] | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Raise if the format is not known, or no column is named."""
        check_format(self.path, _FORMATS)
        if self.layout.for_text and self._format not in TEXT:
            raise InvalidParameterError(
                f"{self.layout.for_text[0]} is for {', '.join(TEXT)}, but IN is {self._format}"
            )
        if self.layout.names is not None and self._format in ARROW:
            raise InvalidParameterError(
                f"--names is for files without names, unlike {self._format}"
            )
        if not all(self.columns) or len(set(self.columns)) != len(self.columns):
            raise InvalidParameterError(
                f"columns {','.join(self.columns)!r} must be names, each once"
            )

    @property
    def _format(self) -> str:
        return format_of(self.path)

    def numbers(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of numbers."""
        if self.layout.missing or self._format in TEXT:
            for block in self._cells([self.layout.read_number] * len(self.columns)):
                yield np.array(block, dtype=np.float64)
            return
        match self._format:
            case ".npy" | ".zarr":
                with self._progress() as advance:
                    for rows, share in self._array_blocks():
                        yield rows
                        advance(share)
            case _:
                with self._progress(known=False):
                    yield from arrow_blocks(self.path, list(self.columns))

    def values(self, numeric: Sequence[bool]) -> Iterator[Any]:
        """Yield blocks of rows whose cells are text, or numbers where ``numeric`` says so.

        Integers of files that hold numbers count as text without a decimal point.
        """
        if self.layout.missing or self._format in TEXT:
            read_number = self.layout.read_number
            yield from self._cells([read_number if each else str.strip for each in numeric])
            return
        for columns in self._value_columns():
            cells = [
                column if is_number else list(map(_as_text, column))
                for column, is_number in zip(columns, numeric, strict=True)
            ]
            yield list(zip(*cells, strict=True))

    def _value_columns(self) -> Iterator[list[list[Any]]]:
        """Yield the columns of blocks of a file that is not text."""
        if self._format in ARROW:
            with self._progress(known=False):
                for batch in arrow_batches(self.path, self.columns):
                    with foreign_errors(self.path, "a file of numbers and text"):
                        columns = [column.to_pylist() for column in batch.columns]
                    yield columns
        else:
            for block, _ in self._array_blocks():
                for start in range(0, len(block), _ROWS_TOGETHER):
                    yield block[start : start + _ROWS_TOGETHER].T.tolist()

    def _cells(self, readers: Sequence[Callable[[str], Any]]) -> Iterator[list[list[Any]]]:
        """Yield blocks of the cells of records, read from text; missing ones by their rule."""
        if self._format in TEXT:
            yield from self._csv_blocks(readers)
            return
        for columns in self._value_columns():
            words = [list(map(_word, column)) for column in columns]
            rows = [self.layout.present(row) for row in zip(*words, strict=True)]
            kept = [self._read_row(row, None, readers) for row in rows if row is not None]
            if kept:
                yield kept

    def _array_blocks(self) -> Iterator[tuple[NDArray[Any], float]]:
        """Yield blocks of the columns of an array, and the share of the file that each is."""
        stored = self._format == ".zarr"
        array = opened_zarr(self.path) if stored else map_npy(self.path)
        if array.ndim != 2:
            raise FileFormatError(f"{self.path} must hold one array with two axes")
        positions = [self._index(name, array.shape[1]) for name in self.columns]
        rows = array.shape[0]
        start, stop = self.rows or (0, rows)
        blocks: Iterable[NDArray[Any]] = (
            StoredRows(array, start, stop)
            if stored
            else (array[row : row + _ROWS_TOGETHER] for row in range(0, rows, _ROWS_TOGETHER))
        )
        for block in blocks:
            yield block[:, positions], len(block) / (stop - start)

    def _index(self, name: str, width: int) -> int:
        if self.layout.names is not None:
            return self._among_names(name, width)
        if name not in map(str, range(width)):
            raise InvalidParameterError(
                f"column {name!r} is not in {self.path}: pass indices from 0 to {width - 1}"
            )
        return int(name)

    def _csv_blocks(self, readers: Sequence[Callable[[str], T]]) -> Iterator[list[list[T]]]:
        with opened(self.path) as file, self._progress() as advance:
            size = os.fstat(file.fileno()).st_size
            yield from read_with_progress(self._parsed(file, readers), file, size, advance)

    @contextmanager
    def _progress(self, *, known: bool = True) -> Iterator[Callable[[float], None]]:
        """Show a progress bar if the file is large and takes long to read."""
        small = self.path.is_file() and self.path.stat().st_size < LARGE_FILE
        if self.quiet or small or not self.path.exists():
            yield lambda _: None
            return
        # Late, because progress bars are slow to import.
        from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415

        total = 1.0 if known else None
        with progress_bar(total, f"Reading {self.path}", after=1.0) as advance:
            yield advance

    def _parsed(
        self, file: BinaryIO, readers: Sequence[Callable[[str], T]]
    ) -> Iterator[list[list[T]]]:
        width, positions = 0, list[int]()
        block: list[list[T]] = []
        rows = text_rows(file, self._format, self.path, self.layout.delimiter)
        for number, row in enumerate(_without_empty_end(rows, self.path), start=1):
            if number == 1:
                width, positions = len(row), [self._position(name, row) for name in self.columns]
                if self.layout.names is None:
                    continue
            if len(row) != width:
                raise FileFormatError(
                    f"{self.path}, row {number} has {len(row)} cells, but row 1 has {width}: make "
                    "all rows of one length"
                )
            cells = self.layout.present([row[position] for position in positions])
            if cells is not None:
                block.append(self._read_row(cells, number, readers))
            if len(block) == _ROWS_TOGETHER:
                yield block
                block = []
        if not positions:
            raise FileFormatError(f"{self.path} is empty: its first row must be names")
        if block:
            yield block

    def _among_names(self, name: str, width: int) -> int:
        names = self.layout.names or ()
        if len(names) != width:
            raise InvalidParameterError(
                f"--names has {len(names)} names, but {self.path} has {width} columns: name all"
            )
        if name not in names:
            raise InvalidParameterError(f"column {name!r} is not among --names")
        return names.index(name)

    def _position(self, name: str, names: list[str]) -> int:
        """Return the position of a column by the first row, or by the names that are given."""
        if self.layout.names is not None:
            return self._among_names(name, len(names))
        # The names of the file are not shown: its first row may be a record.
        stripped = [each.strip() for each in names]
        if stripped.count(name) != 1:
            delimiter = self.layout.delimiter or TEXT[self._format]
            raise FileFormatError(
                f"{self.path} must have exactly one column {name!r}: its first row must be names "
                f"between {delimiter!r}, unless --delimiter names another character; --names is "
                "for files without such a row"
            )
        return stripped.index(name)

    def _read_row(
        self, cells: Sequence[str], number: int | None, readers: Sequence[Callable[[str], T]]
    ) -> list[T]:
        read = []
        for name, cell, reader in zip(self.columns, cells, readers, strict=True):
            try:
                read.append(reader(cell))
            except ValueError:
                where = "" if number is None else f" row {number},"
                raise FileFormatError(
                    f"{self.path},{where} column {name!r}: {NOT_A_NUMBER}; --missing says what "
                    "missing cells hold, --decimal and --thousands how numbers are written"
                ) from None
        return read


def _without_empty_end(rows: Iterator[list[str]], path: Path) -> Iterator[list[str]]:
    """Yield rows, except for empty ones at the end; empty rows before may be lost records."""
    empty = None
    for number, row in enumerate(rows, start=1):
        if row and empty is not None:
            raise FileFormatError(f"{path}, row {empty} is empty: remove it, or fill its cells")
        if row:
            yield row
        elif empty is None:
            empty = number


def _word(value: Any) -> str:
    """Return what a cell would be in text, also where it holds nothing."""
    text = _as_text(value)
    return "null" if text is None else text


def _as_text(value: Any) -> str | None:
    """Return what a cell of a file of numbers and text would be in text; None for none at all."""
    if value is None:
        return None
    return str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
