"""Matrices as CSV text: numbers, with or without a row and a column of labels.

Errors give the row and the column, counted from 1 with labels included, as an editor or a
spreadsheet shows them. They never contain a cell: it may be private. Where rows are records their
number may be private, too, and errors give the column alone.
"""

import csv
import io
from collections.abc import Callable, Sequence
from typing import BinaryIO

import numpy as np

from matrixdp.errors import FileFormatError
from matrixdp.files.decimals import READERS, Decimals
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["guessed_delimiter", "read_csv", "write_csv"]

_Rows = list[list[str]]
# What may stand between cells, the likeliest first, and how it is called.
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


def write_csv(file: BinaryIO, matrix: MatrixFile, delimiter: str) -> None:
    """Write a matrix and its labels; `repr` writes the digits that read back to the same float."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter)
    if matrix.columns is not None:
        corner = [] if matrix.index is None else [matrix.corner]
        writer.writerow([*corner, *matrix.columns])
    for number, row in enumerate(matrix.array):
        label = [] if matrix.index is None else [matrix.index[number]]
        writer.writerow([*label, *map(repr, row.astype(np.float64).tolist())])
    text.flush()
    # Detached, or the wrapper would close a file that is not its own.
    text.detach()


def read_csv(
    file: BinaryIO,
    name: str,
    *,
    header: bool,
    index: bool,
    decimals: Decimals,
    delimiter: str,
    columns: Sequence[str] | None,
    rows_are_records: bool = False,
) -> MatrixFile:
    """Read a matrix; see `read_matrix`."""
    rows = _rows_of(file, name, delimiter)
    _check_widths(rows, name, delimiter, labels=int(index), number_rows=not rows_are_records)
    titles = rows[0] if header else None
    body = rows[1:] if header else rows
    if not body:
        raise FileFormatError(f"{name} has no rows of numbers: add some")
    left = 1 if index else 0
    places: Sequence[int] = range(left, len(rows[0]))
    if columns is not None:
        places = _chosen(titles or [], columns, left, name)
    reader = READERS[decimals]
    # The place of a bad cell is looked for afterwards, so that good files do not pay for it.
    try:
        array = np.array([[reader(row[place]) for place in places] for row in body])
    except ValueError:
        guess = guessed_delimiter(rows, delimiter)
        raise _not_a_number(
            rows,
            places,
            name,
            guess,
            header=header,
            index=index,
            decimals=decimals,
            number_rows=not rows_are_records,
        ) from None
    return MatrixFile(
        array,
        columns=None if titles is None else [titles[place] for place in places],
        index=[row[0] for row in body] if index else None,
        corner=titles[0] if titles and index else "",
    )


def _chosen(titles: Sequence[str], columns: Sequence[str], left: int, name: str) -> list[int]:
    """Return the places of columns by their names."""
    for wanted in columns:
        if titles[left:].count(wanted) != 1:
            raise FileFormatError(
                f"{name} must have exactly one column {wanted!r}: its first row must be names"
            )
    return [titles.index(wanted, left) for wanted in columns]


def _rows_of(file: BinaryIO, name: str, delimiter: str) -> _Rows:
    # utf-8-sig: spreadsheets put a byte order mark in front, which is not part of the first cell.
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    try:
        rows = list(csv.reader(text, strict=True, delimiter=delimiter))
    except (UnicodeDecodeError, csv.Error):
        raise FileFormatError(f"{name} is not CSV text in UTF-8: save it again as such") from None
    finally:
        text.detach()
    # Empty lines at the end are common and mean nothing. In between, one may be a lost record.
    while rows and not rows[-1]:
        rows.pop()
    if not rows:
        raise FileFormatError(f"{name} is empty: it must hold rows of numbers")
    return rows


def _check_widths(
    rows: _Rows, name: str, delimiter: str, *, labels: int, number_rows: bool
) -> None:
    width = len(rows[0])
    for number, row in enumerate(rows, start=1):
        if len(row) != width:
            if not number_rows:
                raise FileFormatError(
                    f"{name} has a row with another number of cells than row 1: rows must have one "
                    "length"
                )
            raise FileFormatError(
                f"{name}, row {number} has {len(row)} cells, but row 1 has {width}: rows must have "
                f"one length{guessed_delimiter(rows, delimiter)}"
            )
    if width <= labels:
        raise FileFormatError(
            f"{name} has no columns of numbers: add some{guessed_delimiter(rows, delimiter)}"
        )


def guessed_delimiter(rows: Sequence[Sequence[str]], delimiter: str) -> str:
    """Return the end of a message where cells seem to be separated by something else, or nothing.

    That is a sign which every row has inside of its cells, equally often.
    """
    for sign, word in _DELIMITERS.items():
        found = {sum(cell.count(sign) for cell in row) for row in rows if row}
        if sign != delimiter and len(found) == 1 and found != {0}:
            shown = "tab" if sign == "\t" else f"'{sign}'"
            own = _DELIMITERS.get(delimiter, repr(delimiter))
            return (
                f"; the cells seem to be separated by {word}: pass --delimiter {shown} where the "
                f"command takes it, or save the file with {own}"
            )
    return ""


def _not_a_number(
    rows: _Rows,
    places: Sequence[int],
    name: str,
    guess: str,
    *,
    header: bool,
    index: bool,
    decimals: Decimals,
    number_rows: bool,
) -> FileFormatError:
    """Return an error for the first cell that cannot be read, with a guess at the reason."""
    reader = READERS[decimals]
    row, column = next(
        (row, column)
        for row in range(int(header), len(rows))
        for column in places
        if not _readable(reader, rows[row][column])
    )
    row_number = f", row {row + 1}" if number_rows else ""
    place = f"{name}{row_number}, column {column + 1}"
    # The cell is a number, but rounding it is not allowed.
    if decimals == "exact" and _readable(READERS["nearest"], rows[row][column]):
        return FileFormatError(
            f"{place}: the number is not exactly one of float64, and must be; round it to fewer "
            "digits, or save the matrix as .npy"
        )
    if guess:
        return FileFormatError(f"{place}: the cell is not a number{guess}")
    guesses = _guessed_options(rows, header=header, index=index)
    if guesses:
        return FileFormatError(
            f"{place}: the cell is not a number; {' and '.join(guesses)} (labels are for matrixdp "
            "release alone)"
        )
    return FileFormatError(
        f"{place}: the cell is not a finite number; every cell must be one, with a point for the "
        "decimals and nothing else"
    )


def _guessed_options(rows: _Rows, *, header: bool, index: bool) -> list[str]:
    """Return advice where the first row or the first column seems to be labels."""
    left = 1 if index else 0
    guesses = []
    if not header and not _any_number(rows[0][left:]):
        guesses.append("the first row is text: if it is labels, add --header")
    # Without the first row, whose corner may be empty or a title.
    if not index and len(rows) > 1 and not _any_number([row[0] for row in rows[1:]]):
        guesses.append("the first column is text: if it is labels, add --index")
    return guesses


def _any_number(cells: Sequence[str]) -> bool:
    return any(_readable(READERS["nearest"], cell) for cell in cells)


def _readable(reader: Callable[[str], float], cell: str) -> bool:
    try:
        reader(cell)
    except ValueError:
        return False
    return True
