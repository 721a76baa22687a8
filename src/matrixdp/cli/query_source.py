"""Records from files, for ``matrixdp query``: chosen columns of text, .npy, Parquet and Arrow.

Errors name the column, and the row where a cell cannot be read: nothing is released of such a file.
They never show a cell. How many records there are is private; what a record holds is checked by the
query, whose errors name no row.
"""

import csv
import gzip
import io
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from matrixdp.cli.streams import LARGE_FILE
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.csv_format import not_text, torn_quotes
from matrixdp.files.csv_guesses import guessed_header_delimiter, guessed_mistake
from matrixdp.files.decimals import nearest_float
from matrixdp.files.formats import ARROW, TEXT, check_format, format_of
from matrixdp.files.progress import read_with_progress
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
                with self._progress() as advance:
                    for start in range(0, len(array), _ROWS_TOGETHER):
                        yield array[start : start + _ROWS_TOGETHER, places]
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
            with self._progress(known=False):
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
            with self.path.open("rb") as file, self._progress() as advance:
                size = os.fstat(file.fileno()).st_size
                yield from read_with_progress(self._parsed(file, readers), file, size, advance)
        except FileNotFoundError:
            raise FileFormatError(f"{self.path} does not exist: name a file to read") from None
        except IsADirectoryError:
            raise FileFormatError(f"{self.path} is a folder: name a file in it") from None
        except (gzip.BadGzipFile, EOFError, zlib.error):
            raise FileFormatError(
                f"{self.path} cannot be unpacked: it is cut short, or is not a gzip file"
            ) from None
        except UnicodeDecodeError:
            with self.path.open("rb") as file:
                kind = not_text(file.read(8))
            raise FileFormatError(f"{self.path} is {kind}") from None

    @contextmanager
    def _progress(self, *, known: bool = True) -> Iterator[Callable[[float], None]]:
        """Show a progress bar if the file is large and takes long to read."""
        if not self.path.is_file() or self.path.stat().st_size < LARGE_FILE:
            yield lambda _: None
            return
        # Late, because progress bars are slow to import.
        from matrixdp.cli.progress import progress_bar  # noqa: PLC0415

        total = 1.0 if known else None
        with progress_bar(total, f"Reading {self.path}", after=1.0) as advance:
            yield advance

    def _parsed(
        self, file: BinaryIO, readers: Sequence[Callable[[str], T]]
    ) -> Iterator[list[list[T]]]:
        packed = self._format.endswith(".gz")
        content = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
        # utf-8-sig: spreadsheets put a byte order mark in front of the first name.
        text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
        sign = TEXT[self._format] if self.delimiter is None else self.delimiter
        rows = csv.reader(text, strict=True, delimiter=sign)
        number, width = 1, 0
        places: list[int] = []
        block: list[list[T]] = []
        try:
            for number, row in enumerate(rows, start=1):
                if number == 1:
                    width, places = (
                        len(row),
                        [self._named(name, row, sign) for name in self.columns],
                    )
                    continue
                if len(row) != width:
                    raise FileFormatError(
                        f"{self.path}, row {number} has {len(row)} cells, but row 1 has {width}: "
                        "rows must have one length"
                    )
                block.append(self._read_row(row, number, places, readers))
                if len(block) == _ROWS_TOGETHER:
                    yield block
                    block = []
        except csv.Error as error:
            raise FileFormatError(f"{self.path}, row {number + 1}: {torn_quotes(error)}") from None
        finally:
            text.detach()  # or the wrapper would close a file that is not its own
        if not places:
            raise FileFormatError(f"{self.path} is empty: its first row must be names")
        if block:
            yield block

    def _named(self, name: str, names: list[str], sign: str) -> int:
        # The names of the file are not shown: its first row may be a record.
        stripped = [each.strip() for each in names]
        if stripped.count(name) != 1:
            raise FileFormatError(
                f"{self.path} must have exactly one column {name!r}: its first row must be names"
                f"{guessed_header_delimiter(names, name, sign, ['--delimiter'])}"
            )
        return stripped.index(name)

    def _read_row(
        self,
        row: list[str],
        number: int,
        places: Sequence[int],
        readers: Sequence[Callable[[str], T]],
    ) -> list[T]:
        read = []
        for name, place, reader in zip(self.columns, places, readers, strict=True):
            try:
                read.append(reader(row[place]))
            except ValueError:
                reason = guessed_mistake(row[place]) or (
                    "fill or drop such records by a rule that looks at one record at a time"
                )
                raise FileFormatError(
                    f"{self.path}, row {number}, column {name!r}: the cell is not a finite number; "
                    f"{reason}"
                ) from None
        return read


def _as_text(value: Any) -> str | None:
    """Return the category that a cell names; None, which no category is, where it names none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() if isinstance(value, str | int) else None
