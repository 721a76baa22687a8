"""Matrices as CSV text: numbers, with or without a row and a column of labels.

Errors give the row and the column, counted from 1 with labels included, as an editor or a
spreadsheet shows them. They never contain a cell: it may be private.
"""

import csv
import io
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.files.csv_guesses import (
    guessed_delimiter,
    guessed_labels,
    guessed_mistake,
    guessed_tear,
)
from matrixdp.files.decimals import READERS, Decimals
from matrixdp.files.progress import Share, parts_of, read_with_progress, silent
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["not_text", "read_csv", "torn_quotes", "write_csv"]

_Rows = list[list[str]]
# As many cells take a fraction of a second to read or to write.
_CELLS_TOGETHER = 1 << 16
_ROWS_TOGETHER = 1 << 10
_END_OF_ROW = "\r\n"
# How files start that are named like text by mistake.
_SIGNATURES = {
    b"PK": "a spreadsheet or another archive, not text: save it as CSV",
    b"PAR1": "a Parquet file, not text: let its name end in .parquet",
    b"ARROW1": "an Arrow file, not text: let its name end in .arrow",
    b"\x93NUMPY": "an array of numpy, not text: let its name end in .npy",
    b"\x1f\x8b": "compressed: let its name end in .csv.gz or .tsv.gz",
    b"\xff\xfe": "text in UTF-16: save it in UTF-8",
    b"\xfe\xff": "text in UTF-16: save it in UTF-8",
}


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
    """Return a label as a cell, in quotation marks if its signs would end a cell or a row.

    As Python's writer does it for whole rows. Where its own end of a row is empty, some versions
    (3.11.7) leave ends of lines in a cell without them, and the file cannot be read.
    """
    if any(sign in label for sign in (delimiter, '"', "\r", "\n")):
        return '"' + label.replace('"', '""') + '"'
    return label


def read_csv(
    file: BinaryIO,
    name: str,
    *,
    header: bool,
    index: bool,
    decimals: Decimals,
    delimiter: str,
    columns: Sequence[str] | None,
    offered: Collection[str] = (),
    advance: Share = silent,
) -> MatrixFile:
    """Read a matrix; see `read_matrix`."""
    rows = _rows_of(file, name, delimiter, lambda share: advance(share / 2))
    _check_widths(rows, name, delimiter, offered, labels=int(index))
    titles = rows[0] if header else None
    body = rows[1:] if header else rows
    if not body:
        raise FileFormatError(f"{name} has no rows of numbers: add some")
    left = 1 if index else 0
    places: Sequence[int] = range(left, len(rows[0]))
    if columns is not None:
        places = _chosen(titles or [], columns, left, name)
    # The place of a bad cell is looked for afterwards, so that good files do not pay for it.
    try:
        array = _numbers(body, places, READERS[decimals], lambda share: advance(share / 2))
    except ValueError:
        place = _first_unreadable(rows, places, READERS[decimals], start=int(header))
        if reason := _rounded(rows, place, decimals):
            raise FileFormatError(f"{_shown(name, place)}: {reason}") from None
        reason = (
            guessed_delimiter(rows, delimiter, offered).removeprefix("; ")
            or guessed_labels(rows, place, offered, header=header, index=index)
            or guessed_mistake(rows[place[0]][place[1]])
            or "every cell must be one, with a point for the decimals and nothing else"
        )
        raise FileFormatError(
            f"{_shown(name, place)}: the cell is not a finite number; {reason}"
        ) from None
    return MatrixFile(
        array,
        columns=None if titles is None else [titles[place] for place in places],
        index=[row[0] for row in body] if index else None,
        corner=titles[0] if titles and index else "",
        places=None if columns is None else places,
    )


def _chosen(titles: Sequence[str], columns: Sequence[str], left: int, name: str) -> list[int]:
    """Return the places of columns by their names; spaces around names do not count."""
    names = [title.strip() for title in titles]
    for wanted in columns:
        if names[left:].count(wanted) != 1:
            raise FileFormatError(
                f"{name} must have exactly one column {wanted!r}: its first row must be names"
            )
    return [names.index(wanted, left) for wanted in columns]


def _numbers(
    body: _Rows, places: Sequence[int], reader: Callable[[str], float], advance: Share
) -> NDArray[np.float64]:
    """Return the numbers of chosen cells; raise ValueError if one is not a number."""
    array = np.empty((len(body), len(places)))
    for part in parts_of(len(body), len(places), _CELLS_TOGETHER, advance):
        array[part] = [[reader(row[place]) for place in places] for row in body[part]]
    return array


def _rows_of(file: BinaryIO, name: str, delimiter: str, advance: Share) -> _Rows:
    start = file.read(8)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    # utf-8-sig: spreadsheets put a byte order mark in front, which is not part of the first cell.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    rows: _Rows = []
    try:
        # Row by row: a single call for all of them could not be interrupted.
        reader = csv.reader(text, strict=True, delimiter=delimiter)
        for row in read_with_progress(reader, file, size, advance, together=_ROWS_TOGETHER):
            rows.append(row)
    except UnicodeDecodeError:
        raise FileFormatError(f"{name} is {not_text(start)}") from None
    except csv.Error as error:
        raise FileFormatError(f"{name}, row {len(rows) + 1}: {torn_quotes(error)}") from None
    finally:
        text.detach()
    # Empty lines at the end are common and mean nothing. In between, one may be a lost record.
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise FileFormatError(f"{name} is empty: it must hold rows of numbers")
    return rows


def not_text(start: bytes) -> str:
    """Say what a file is that is not text in UTF-8, by its first bytes."""
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return kind
    return "not text in UTF-8: save it again as such"


def torn_quotes(error: csv.Error) -> str:
    """Say what is wrong where Python's reader of CSV fails: quotation marks, or too long a cell."""
    if "expected after" in str(error):
        return (
            "a quotation mark ends before its cell does: put them around whole cells, and double "
            "those that belong to a cell"
        )
    if "larger than" in str(error):
        # The whole file from a quotation mark on, or a long row whose cells were not told apart.
        return (
            f"a cell has more than {csv.field_size_limit():,} characters: a quotation mark is "
            "opened and not closed, or the cells are separated by another sign"
        )
    # Its other error is the end of the file.
    return "a quotation mark is opened and not closed: close it, or leave it out"


def _check_widths(
    rows: _Rows, name: str, delimiter: str, offered: Collection[str], *, labels: int
) -> None:
    width = len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            guess = guessed_tear(row) or guessed_delimiter(rows, delimiter, offered)
            raise FileFormatError(
                f"{name}, row {number} has {len(row)} cells, but row 1 has {width}: rows must have "
                f"one length{guess}"
            )
    if width <= labels:
        guess = guessed_delimiter(rows, delimiter, offered)
        raise FileFormatError(f"{name} has no columns of numbers: add some{guess}")


def _first_unreadable(
    rows: _Rows, places: Sequence[int], reader: Callable[[str], float], *, start: int
) -> tuple[int, int]:
    """Return the row and the column of the first cell that cannot be read."""
    return next(
        (row, column)
        for row in range(start, len(rows))
        for column in places
        if not _readable(reader, rows[row][column])
    )


def _rounded(rows: _Rows, place: tuple[int, int], decimals: Decimals) -> str:
    """Return the reason where a cell is a number, but rounding it is not allowed."""
    cell = rows[place[0]][place[1]]
    if decimals != "exact" or not _readable(READERS["nearest"], cell):
        return ""
    return (
        "the number is not exactly one of float64, and must be; round it to fewer digits, or save "
        "the matrix as .npy"
    )


def _shown(name: str, place: tuple[int, int]) -> str:
    return f"{name}, row {place[0] + 1}, column {place[1] + 1}"


def _readable(reader: Callable[[str], float], cell: str) -> bool:
    try:
        reader(cell)
    except ValueError:
        return False
    return True
