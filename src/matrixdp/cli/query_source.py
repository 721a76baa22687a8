"""Records from files, for ``matrixdp query``: chosen columns of .npy, .csv and .parquet files.

Errors name the column, and never show a cell nor the number of its row: the last row's would be the
number of records, which may be private.
"""

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.decimals import nearest_float
from matrixdp.queries.sources import parquet_batches, parquet_blocks

__all__ = ["RecordFile"]

T = TypeVar("T")
_FORMATS = (".npy", ".csv", ".parquet")
_ROWS_TOGETHER = 4096


@dataclass(frozen=True)
class RecordFile:
    """A file of records, of which some columns are read.

    Parameters
    ----------
    path : Path
        A ``.csv`` file whose first row has names, a ``.parquet`` file, or a ``.npy`` file, whose
        columns are numbered from 0.
    columns : sequence of str
        Names or numbers of columns, in the order that they are wanted.
    """

    path: Path
    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise if the format is not known or no column is named."""
        if self.path.suffix not in _FORMATS:
            raise InvalidParameterError(
                f"{self.path} is of format {self.path.suffix!r}: use one of {', '.join(_FORMATS)}"
            )
        if not all(self.columns) or len(set(self.columns)) != len(self.columns):
            raise InvalidParameterError(
                f"columns {','.join(self.columns)!r} must be names, each once"
            )

    def numbers(self) -> Iterator[NDArray[Any]]:
        """Yield blocks of numbers."""
        match self.path.suffix:
            case ".npy":
                array, places = self._mapped()
                for start in range(0, len(array), _ROWS_TOGETHER):
                    yield array[start : start + _ROWS_TOGETHER, places]
            case ".parquet":
                yield from parquet_blocks(self.path, list(self.columns))
            case _:
                readers = [nearest_float] * len(self.columns)
                for block in self._csv_blocks(readers):
                    yield np.array(block, dtype=np.float64)

    def values(self, numeric: Sequence[bool]) -> Iterator[Any]:
        """Yield blocks of rows whose cells are text, or numbers where ``numeric`` says so.

        Whole numbers of files that hold numbers count as text without a decimal point.
        """
        if self.path.suffix == ".csv":
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
        if self.path.suffix == ".parquet":
            for batch in parquet_batches(self.path, self.columns):
                yield [column.to_pylist() for column in batch.columns]
        else:
            for block in self.numbers():
                yield block.T.tolist()

    def _mapped(self) -> tuple[NDArray[Any], list[int]]:
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except FileNotFoundError:
            raise FileFormatError(f"{self.path} does not exist: name a file to read") from None
        except (ValueError, EOFError, OSError):
            raise FileFormatError(
                f"{self.path} is not a .npy file of numbers, or is cut short"
            ) from None
        if not isinstance(array, np.ndarray) or array.ndim != 2:
            raise FileFormatError(f"{self.path} must hold one array with two axes")
        return array, [self._place(name, array.shape[1]) for name in self.columns]

    def _place(self, name: str, width: int) -> int:
        if not (name.isascii() and name.isdigit() and int(name) < width):
            raise InvalidParameterError(
                f"column {name!r} is not in {self.path}: pass numbers from 0 to {width - 1}"
            )
        return int(name)

    def _csv_blocks(self, readers: Sequence[Callable[[str], T]]) -> Iterator[list[list[T]]]:
        try:
            # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
            with self.path.open(encoding="utf-8-sig", newline="") as file:
                yield from self._parsed(csv.reader(file, strict=True), readers)
        except FileNotFoundError:
            raise FileFormatError(f"{self.path} does not exist: name a file to read") from None
        except IsADirectoryError:
            raise FileFormatError(f"{self.path} is a folder: name a file in it") from None
        except (UnicodeDecodeError, csv.Error):
            raise FileFormatError(
                f"{self.path} is not CSV text in UTF-8: save it as such"
            ) from None

    def _parsed(
        self, rows: Iterator[list[str]], readers: Sequence[Callable[[str], T]]
    ) -> Iterator[list[list[T]]]:
        names = next(rows, [])
        places = [self._named(name, names) for name in self.columns]
        block: list[list[T]] = []
        for row in rows:
            if len(row) != len(names):
                raise FileFormatError(
                    f"{self.path} has a row with another number of cells than row 1"
                )
            block.append(self._read_row(row, places, readers))
            if len(block) == _ROWS_TOGETHER:
                yield block
                block = []
        if block:
            yield block

    def _named(self, name: str, names: list[str]) -> int:
        # The names of the file are not shown: its first row may be a record.
        if names.count(name) != 1:
            raise FileFormatError(
                f"{self.path} must have exactly one column {name!r}: its first row must be names"
            )
        return names.index(name)

    def _read_row(
        self,
        row: list[str],
        places: Sequence[int],
        readers: Sequence[Callable[[str], T]],
    ) -> list[T]:
        read = []
        for name, place, reader in zip(self.columns, places, readers, strict=True):
            try:
                read.append(reader(row[place]))
            except ValueError:
                raise FileFormatError(
                    f"{self.path}, column {name!r}: a cell is not a finite number; fill or drop "
                    "such records by a rule that looks at one record at a time"
                ) from None
        return read


def _as_text(value: Any) -> str | None:
    """Return the category that a cell names; None, which no category is, where it names none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() if isinstance(value, str | int) else None
