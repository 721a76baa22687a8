"""What is probably wrong with text that does not read as a matrix: a guess that is right, or none.

Guesses never contain a cell: it may be private.
"""

import re
from collections.abc import Collection, Sequence

from matrixdp.files.decimals import nearest_float

__all__ = [
    "MISSING_WORDS",
    "guessed_delimiter",
    "guessed_header_delimiter",
    "guessed_labels",
    "guessed_mistake",
    "guessed_tear",
]

MISSING_WORDS = frozenset({"na", "n/a", "n.a.", "nan", "nat", "null", "none", "nil", "missing"})
"""What stands for a missing value in a column of numbers, in programs and by hand."""

_WITHOUT_GAPS = "fill or drop such records by a rule that looks at one record at a time"
# What may stand between cells, the likeliest first, and how it is called.
_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas", " ": "spaces"}
_EXPONENT = r"(?:[eE][+-]?\d+)?"
_DECIMAL_COMMA = re.compile(rf"[+-]?\d+,\d+{_EXPONENT}")
# Signs between thousands, one kind of them in a number.
_THOUSANDS = re.compile(
    r"[+-]?\d{1,3}"
    r"(?:(?:,\d{3})+(?:\.\d*)?|(?:\.\d{3})+(?:,\d*)?|(?:['’ \u00a0\u202f]\d{3})+(?:[.,]\d*)?)"
)
# A number with anything around it that people write there: a currency, a unit, signs of thousands.
_ALMOST_A_NUMBER = re.compile(r"[-+($€£¥]*\s*[\d.,'’\s]*\d[\d.,'’\s]*\)?\s*[%€$£]?")


def guessed_delimiter(
    rows: Sequence[Sequence[str]], delimiter: str, offered: Collection[str] = ()
) -> str:
    """Return the end of a message where cells seem to be separated by something else, or nothing.

    That is a sign that makes rows of one length, either of cells that are numbers or where the
    delimiter itself is not to be found.

    Parameters
    ----------
    rows : sequence of rows
        As the delimiter has divided them.
    delimiter : str
        What was taken to stand between cells.
    offered : collection of str
        Options of the command that a message may advise.
    """
    lines = [delimiter.join(row) for row in rows if row]
    whole = all(len(row) <= 1 for row in rows)
    # One column of numbers with signs in them looks like several columns without.
    single = whole and all(_one_number(line) for line in (lines[1:] or lines))
    for sign in _DELIMITERS:
        cut = [line.split(sign) for line in lines]
        if sign == delimiter or len({len(cells) for cells in cut}) != 1 or len(cut[0]) < 2:
            continue
        if single and sign == " ":
            continue
        # The first row and the first column may be labels.
        body = [cell for cells in cut[1:] or cut for cell in (cells[1:] if cut[1:] else cells)]
        numbers = all(_is_number(cell) or _DECIMAL_COMMA.fullmatch(cell.strip()) for cell in body)
        if numbers or (whole and sign != " "):
            commas = not all(_is_number(cell) for cell in body)
            return _advised(sign, delimiter, offered, commas=numbers and commas, single=single)
    return ""


def guessed_header_delimiter(
    names: Sequence[str], wanted: str, delimiter: str, offered: Collection[str] = ()
) -> str:
    """Return the end of a message where another sign would make a wanted name out of a header."""
    line = delimiter.join(names)
    for sign in _DELIMITERS:
        if sign != delimiter and wanted in [name.strip() for name in line.split(sign)]:
            return _advised(sign, delimiter, offered)
    return ""


def guessed_mistake(cell: str) -> str:
    """Return what is wrong with a cell that is not a number, or nothing if that is not clear.

    Examples
    --------
    >>> guessed_mistake("1,5")
    'its decimals are written with a comma: write a point'
    >>> guessed_mistake("bob")
    ''
    """
    text = cell.strip()
    guess = ""
    if "\0" in cell:
        guess = "it holds zero bytes, as text in UTF-16 does: save it in UTF-8"
    elif "\n" in cell or "\r" in cell:
        guess = "it goes over several lines, so that a quotation mark is probably not closed"
    elif not text:
        guess = f"it is empty: {_WITHOUT_GAPS}"
    elif text.casefold() in MISSING_WORDS:
        guess = f"it is a word for a missing value: {_WITHOUT_GAPS}"
    elif cell != text and text.startswith('"'):
        guess = "there is a space before its quotation mark: remove it"
    else:
        guess = _guessed_number(text)
    return guess


def _guessed_number(text: str) -> str:
    """Return what is wrong with the way in which a number is written, or nothing."""
    if _THOUSANDS.fullmatch(text):
        return (
            "it has signs between thousands, or a comma for decimals: leave out the first, and "
            "write a point for the second"
        )
    if _DECIMAL_COMMA.fullmatch(text):
        return "its decimals are written with a comma: write a point"
    if text.endswith("%") and _is_number(text[:-1]):
        return "it has a percent sign"
    return "it is infinite, or too large for float64" if _is_float(text) else ""


def guessed_tear(row: Sequence[str]) -> str:
    """Return the end of a message where a row of another length is torn, or nothing."""
    if any("\0" in cell for cell in row):
        return "; it holds zero bytes, as text in UTF-16 does: save it in UTF-8"
    if any("\n" in cell or "\r" in cell for cell in row):
        return (
            "; one of its cells goes over several lines, so that a quotation mark is probably not "
            "closed"
        )
    return ""


def guessed_labels(
    rows: Sequence[Sequence[str]],
    place: tuple[int, int],
    offered: Collection[str],
    *,
    header: bool,
    index: bool,
) -> str:
    """Return advice where a bad cell is in a first row or column of labels, or nothing.

    Parameters
    ----------
    rows : sequence of rows
        The whole file.
    place : (int, int)
        Row and column of the first cell that is not a number.
    offered : collection of str
        Options of the command that a message may advise.
    header, index : bool
        Whether the first row and the first column are taken as labels already.
    """
    left = 1 if index else 0
    guesses = []
    if not header and place[0] == 0 and _all_text(rows[0][left:]):
        way_out = "add --header" if "--header" in offered else "leave it out"
        guesses.append(f"the first row is text: if it is labels, {way_out}")
    # The corner may be empty or a title, but not a number.
    labelled = not index and place[1] == 0 and (header or not _is_float(rows[0][0]))
    if labelled and len(rows) > 1 and _all_text([row[0] for row in rows[1:]]):
        way_out = "add --index" if "--index" in offered else "leave it out"
        guesses.append(f"the first column is text: if it is labels, {way_out}")
    return ", and ".join(guesses)


def _advised(
    sign: str,
    delimiter: str,
    offered: Collection[str],
    *,
    commas: bool = False,
    single: bool = False,
) -> str:
    own = _DELIMITERS.get(delimiter, repr(delimiter))
    found = _DELIMITERS[sign]
    points = ""
    if commas:
        found += ", and decimals are written with commas"
        points = ", and write decimals with a point"
    elif single:
        found += ", unless these belong to the numbers, which must have points for decimals"
    shown = "tab" if sign == "\t" else f"'{sign}'"
    option = f"pass --delimiter {shown}, or " if "--delimiter" in offered else ""
    return f"; the cells seem to be separated by {found}: {option}save the file with {own}{points}"


def _all_text(cells: Sequence[str]) -> bool:
    """Return whether no cell is anything like a number or stands for one, and not all are empty."""
    return any(cell.strip() for cell in cells) and not any(
        _is_float(cell)
        or _ALMOST_A_NUMBER.fullmatch(cell.strip())
        or cell.strip().casefold() in MISSING_WORDS
        # Over several lines, of other formats or encodings: not labels as anybody writes them.
        or any(sign in cell for sign in "\n\r\t\0;|[]{}<>")
        for cell in cells
    )


def _one_number(line: str) -> bool:
    """Return whether a line is one number with a decimal comma or signs between thousands."""
    text = line.strip()
    return bool(_DECIMAL_COMMA.fullmatch(text) or _THOUSANDS.fullmatch(text))


def _is_number(cell: str) -> bool:
    try:
        nearest_float(cell)
    except ValueError:
        return False
    return True


def _is_float(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
