"""Matrices as CSV text: numbers, with or without a row and a column of labels.

Errors give the row and the column, counted from 1 with labels included, as an editor or a
spreadsheet shows them. They never contain a cell: it may be private.
"""

import csv
import gzip
import io
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.decimals import READERS, Decimals
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.files.formats.progress import Share, parts_of, read_with_progress, silent
from matrixdp.files.formats.suffixes import TEXT
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["NOT_A_NUMBER", "read_csv", "text_rows", "write_csv"]

NOT_A_NUMBER = "the cell is not a finite number with a point for the decimals"
"""The fault of a cell, which is not shown."""

_Rows = list[list[str]]
# As many cells take a fraction of a second to read or to write.
_CELLS_TOGETHER = 1 << 16
_ROWS_TOGETHER = 1 << 10
_END_OF_ROW = "\r\n"


def write_csv(file: BinaryIO, matrix: MatrixFile, delimiter: str, advance: Share = silent) -> None:
    """Write a matrix and its labels; `repr` writes the digits that read back to the same float."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    if matrix.columns is not None:
        corner = [] if matrix.index is None else [matrix.corner]
        writer = csv.writer(text, delimiter=delimiter, lineterminator=_END_OF_ROW)
        writer.writerow([*corner, *matrix.columns])
    rows, width = matrix.array.shape
    # A row may be longer than what is written in one go.
    ends = [*range(0, width, _CELLS_TOGETHER), width]
    for part in parts_of(rows, width, _CELLS_TOGETHER, advance):
        for number in range(part.start, part.stop):
            if matrix.index is not None:
                text.write(f"{_quoted(matrix.index[number], delimiter)}{delimiter}")
            for first, last in pairwise(ends):
                if first:
                    text.write(delimiter)
                numbers = matrix.array[number, first:last].astype(np.float64).tolist()
                text.write(delimiter.join(map(repr, numbers)))
            text.write(_END_OF_ROW)
    text.flush()
    # Detached, or the wrapper would close a file that is not its own.
    text.detach()


def _quoted(label: str, delimiter: str) -> str:
    """Return a label as a cell, in quotation marks if a character in it would end a cell or a row.

    As Python's writer does it for whole rows. Where its own end of a row is empty, some versions
    (3.11.7) leave ends of lines in a cell without them, and the file cannot be read.
    """
    if any(character in label for character in (delimiter, '"', "\r", "\n")):
        return '"' + label.replace('"', '""') + '"'
    return label


def text_rows(
    file: BinaryIO, suffix: str, name: object, delimiter: str | None = None
) -> Iterator[list[str]]:
    """Yield the rows of text, which may be compressed; errors name the row.

    Parameters
    ----------
    file : binary file
        Open for reading.
    suffix : str
        One of `TEXT`.
    name : object
        What to call the file in errors.
    delimiter : str, optional
        What stands between cells; by default what the suffix says.

    Raises
    ------
    FileFormatError
        If the file cannot be decompressed, or is not CSV text in UTF-8.
    """
    content = file
    if suffix.endswith(".gz"):
        content = cast("BinaryIO", gzip.GzipFile(fileobj=file))
    # utf-8-sig: spreadsheets put a byte order mark in front, which is not part of the first cell.
    text = io.TextIOWrapper(content, encoding="utf-8-sig", newline="")
    separator = TEXT[suffix] if delimiter is None else delimiter
    reader = csv.reader(text, strict=True, delimiter=separator)
    kind = f"{suffix} text in UTF-8 with cells between {separator!r} and quotation marks in pairs"
    done = 0
    try:
        for row in reader:
            yield row
            done += 1
    except csv.Error:
        with foreign_errors(f"{name}, row {done + 1},", kind):
            raise
    except Exception:
        # Text is unpacked and decoded ahead of the rows: it may be a later one.
        with foreign_errors(f"{name}, after row {done},", kind):
            raise
    finally:
        # Or the wrapper would close a file that is not its own, unless it is closed already.
        with suppress(ValueError):
            text.detach()


def read_csv(
    file: BinaryIO,
    suffix: str,
    name: str,
    *,
    header: bool,
    index: bool,
    decimals: Decimals,
    delimiter: str | None,
    columns: Sequence[str] | None,
    offered: Collection[str] = (),
    advance: Share = silent,
) -> MatrixFile:
    """Read a matrix; see `read_matrix`."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    found = text_rows(file, suffix, name, delimiter)
    # Row by row: a single call for all of them could not be interrupted.
    rows = list(
        read_with_progress(
            found, file, size, lambda share: advance(share / 2), together=_ROWS_TOGETHER
        )
    )
    # Empty lines at the end are common and mean nothing. In between, one may be a lost record.
    while rows and not rows[-1]:
        rows.pop()
    separator = TEXT[suffix] if delimiter is None else delimiter
    _check_widths(rows, name, separator)
    titles = rows[0] if header and rows else None
    body = rows[1:] if header else rows
    left = 1 if index else 0
    if not body or len(body[0]) <= left:
        missing = "columns" if body else "rows"
        raise FileFormatError(f"{name} has no {missing} of numbers: add some")
    positions: Sequence[int] = range(left, len(body[0]))
    if columns is not None:
        positions = _chosen(titles or [], columns, left, name)
    # The position of a bad cell is looked for afterwards, so that good files do not pay for it.
    try:
        array = _numbers(body, positions, READERS[decimals], lambda share: advance(share / 2))
    except ValueError:
        row, column = _first_unreadable(rows, positions, READERS[decimals], start=int(header))
        # The same words for every decimal that is not exact, and for every cell that is no number.
        exact = ", or is not exactly one of float64" if decimals == "exact" else ""
        raise FileFormatError(
            f"{name}, row {row + 1}, column {column + 1}: {NOT_A_NUMBER}{exact}; "
            f"{_ways_out(separator, offered)}"
        ) from None
    return MatrixFile(
        array,
        columns=None if titles is None else [titles[position] for position in positions],
        index=[row[0] for row in body] if index else None,
        corner=titles[0] if titles and index else "",
        positions=None if columns is None else positions,
    )


def _ways_out(separator: str, offered: Collection[str]) -> str:
    """Return what a reader takes as cells and labels; the same whatever the file holds."""
    other = " unless --delimiter names another character" if "--delimiter" in offered else ""
    named = [option for option in ("--header", "--index") if option in offered]
    labels = f"labels need {' and '.join(named)}" if named else "leave labels out"
    return f"cells are between {separator!r}{other}, and {labels}"


def _chosen(titles: Sequence[str], columns: Sequence[str], left: int, name: str) -> list[int]:
    """Return the positions of columns by their names; spaces around names do not count."""
    names = [title.strip() for title in titles]
    for wanted in columns:
        if names[left:].count(wanted) != 1:
            raise FileFormatError(
                f"{name} must have exactly one column {wanted!r}: its first row must be names"
            )
    return [names.index(wanted, left) for wanted in columns]


def _numbers(
    body: _Rows, positions: Sequence[int], reader: Callable[[str], float], advance: Share
) -> NDArray[np.float64]:
    """Return the numbers of chosen cells; raise ValueError if one is not a number."""
    array = np.empty((len(body), len(positions)))
    for part in parts_of(len(body), len(positions), _CELLS_TOGETHER, advance):
        array[part] = [[reader(row[position]) for position in positions] for row in body[part]]
    return array


def _check_widths(rows: _Rows, name: str, delimiter: str) -> None:
    for number, row in enumerate(rows, start=1):
        if len(row) != len(rows[0]):
            raise FileFormatError(
                f"{name}, row {number} has {len(row)} cells, but row 1 has {len(rows[0])}: make "
                f"all rows of one length, with {delimiter!r} between cells"
            )


def _first_unreadable(
    rows: _Rows, positions: Sequence[int], reader: Callable[[str], float], *, start: int
) -> tuple[int, int]:
    """Return the row and the column of the first cell that cannot be read."""
    return next(
        (row, column)
        for row in range(start, len(rows))
        for column in positions
        if not _readable(reader, rows[row][column])
    )


def _readable(reader: Callable[[str], float], cell: str) -> bool:
    try:
        reader(cell)
    except ValueError:
        return False
    return True
