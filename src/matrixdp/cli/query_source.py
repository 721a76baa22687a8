"""Records from files, for ``matrixdp query``: chosen columns of text, .npy, Parquet and Arrow.

Errors name the column, and never show a cell nor the number of its row: the last row's would be the
number of records, which may be private.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.csv_format import guessed_delimiter
from matrixdp.files.decimals import nearest_float
from matrixdp.files.formats import ARROW, TEXT, check_format, format_of
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
                array, places = self._mapped()
                for start in range(0, len(array), _ROWS_TOGETHER):
                    yield array[start : start + _ROWS_TOGETHER, places]
            case ".parquet" | ".arrow":
                yield from arrow_blocks(self.path, list(self.columns))
            case _:
                readers = [nearest_float] * len(self.columns)
                for block in self._csv_blocks(readers):
                    yield np.array(block, dtype=np.float64)

    def values(self, numeric: Sequence[bool]) -> Iterator[Any]:
        """Yield blocks of rows whose cells are text, or numbers where ``numeric`` says so.

        Whole numbers of files that hold numbers count as text without a decimal point.
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
            for batch in arrow_batches(self.path, self.columns):
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
            with self._opened() as file:
                sign = TEXT[self._format] if self.delimiter is None else self.delimiter
                rows = csv.reader(file, strict=True, delimiter=sign)
                yield from self._parsed(rows, sign, readers)
        except FileNotFoundError:
            raise FileFormatError(f"{self.path} does not exist: name a file to read") from None
        except IsADirectoryError:
            raise FileFormatError(f"{self.path} is a folder: name a file in it") from None
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise FileFormatError(
                f"{self.path} cannot be unpacked: it is cut short, or is not a gzip file"
            ) from None
        except (UnicodeDecodeError, csv.Error):
            raise FileFormatError(
                f"{self.path} is not CSV text in UTF-8: save it as such"
            ) from None

    def _opened(self) -> TextIO:
        # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
        if self._format.endswith(".gz"):
            return gzip.open(self.path, "rt", encoding="utf-8-sig", newline="")
        return self.path.open(encoding="utf-8-sig", newline="")

    def _parsed(
        self, rows: Iterator[list[str]], sign: str, readers: Sequence[Callable[[str], T]]
    ) -> Iterator[list[list[T]]]:
        names = next(rows, [])
        places = [self._named(name, names, sign) for name in self.columns]
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

    def _named(self, name: str, names: list[str], sign: str) -> int:
        # The names of the file are not shown: its first row may be a record.
        if names.count(name) != 1:
            raise FileFormatError(
                f"{self.path} must have exactly one column {name!r}: its first row must be names"
                f"{guessed_delimiter([names], sign)}"
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
