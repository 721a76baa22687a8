"""Records from files, for ``matrixdp query``: chosen columns of text, .npy, Parquet and Arrow.

Errors name the column, and the row where a cell cannot be read: nothing is released of such a file.
They never show a cell. How many records there are is private; what a record holds is checked by the
query, whose errors name no row.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from matrixdp.cli.shared.streams import LARGE_FILE
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.csv_format import NOT_A_NUMBER, text_rows
from matrixdp.files.formats.decimals import nearest_float
from matrixdp.files.formats.numpy_format import map_npy
from matrixdp.files.formats.opening import foreign_errors, opened
from matrixdp.files.formats.progress import read_with_progress
from matrixdp.files.formats.suffixes import ARROW, TEXT, check_format, format_of
from matrixdp.queries.sources import arrow_batches, arrow_blocks

__all__ = ["RecordFile"]

T = TypeVar("T")
_FORMATS = (".npy", *TEXT, *ARROW)
_ROWS_TOGETHER = 4096


@dataclass(frozen=True)
class RecordFile:
    """A file of records, of which some columns are read.

    Parameters
    ----------
    path : Path
        Text whose first row has names, such as ``.csv``, a ``.parquet`` or ``.arrow`` file, or a
        ``.npy`` file, whose columns are numbered from 0.
    columns : sequence of str
        Names or numbers of columns, in the order that they are wanted.
    delimiter : str, optional
        What stands between the cells of text; by default what the file's name says.
    """

    path: Path
    columns: tuple[str, ...]
    delimiter: str | None = None

    def __post_init__(self) -> None:
        """Raise if the format is not known or no column is named."""
        check_format(self.path, _FORMATS)
        if self.delimiter is not None and self._format not in TEXT:
            raise InvalidParameterError(
                f"--delimiter is for {', '.join(TEXT)}, but IN is {self._format}"
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
        match self._format:
            case ".npy":
                array, positions = self._mapped()
                with self._progress() as advance:
                    for start in range(0, len(array), _ROWS_TOGETHER):
                        yield array[start : start + _ROWS_TOGETHER, positions]
                        advance(_ROWS_TOGETHER / len(array))
            case ".parquet" | ".arrow":
                with self._progress(known=False):
                    yield from arrow_blocks(self.path, list(self.columns))
            case _:
                readers = [nearest_float] * len(self.columns)
                for block in self._csv_blocks(readers):
                    yield np.array(block, dtype=np.float64)

    def values(self, numeric: Sequence[bool]) -> Iterator[Any]:
        """Yield blocks of rows whose cells are text, or numbers where ``numeric`` says so.

        Integers of files that hold numbers count as text without a decimal point.
        """
        if self._format in TEXT:
            readers = [nearest_float if is_number else str.strip for is_number in numeric]
            yield from self._csv_blocks(readers)
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
            for block in self.numbers():
                yield block.T.tolist()

    def _mapped(self) -> tuple[NDArray[Any], list[int]]:
        array = map_npy(self.path)
        if array.ndim != 2:
            raise FileFormatError(f"{self.path} must hold one array with two axes")
        return array, [self._index(name, array.shape[1]) for name in self.columns]

    def _index(self, name: str, width: int) -> int:
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
        if not self.path.is_file() or self.path.stat().st_size < LARGE_FILE:
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
        rows = text_rows(file, self._format, self.path, self.delimiter)
        for number, row in enumerate(rows, start=1):
            if number == 1:
                width, positions = len(row), [self._named(name, row) for name in self.columns]
                continue
            if len(row) != width:
                raise FileFormatError(
                    f"{self.path}, row {number} has {len(row)} cells, but row 1 has {width}: make "
                    "all rows of one length"
                )
            block.append(self._read_row(row, number, positions, readers))
            if len(block) == _ROWS_TOGETHER:
                yield block
                block = []
        if not positions:
            raise FileFormatError(f"{self.path} is empty: its first row must be names")
        if block:
            yield block

    def _named(self, name: str, names: list[str]) -> int:
        # The names of the file are not shown: its first row may be a record.
        stripped = [each.strip() for each in names]
        if stripped.count(name) != 1:
            delimiter = TEXT[self._format] if self.delimiter is None else self.delimiter
            raise FileFormatError(
                f"{self.path} must have exactly one column {name!r}: its first row must be names "
                f"between {delimiter!r}, unless --delimiter names another character"
            )
        return stripped.index(name)

    def _read_row(
        self,
        row: list[str],
        number: int,
        positions: Sequence[int],
        readers: Sequence[Callable[[str], T]],
    ) -> list[T]:
        read = []
        for name, position, reader in zip(self.columns, positions, readers, strict=True):
            try:
                read.append(reader(row[position]))
            except ValueError:
                raise FileFormatError(
                    f"{self.path}, row {number}, column {name!r}: {NOT_A_NUMBER}; fill or drop "
                    "such records by a rule that looks at one record at a time"
                ) from None
        return read


def _as_text(value: Any) -> str | None:
    """Return the category that a cell names; None, which no category is, where it names none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() if isinstance(value, str | int) else None
