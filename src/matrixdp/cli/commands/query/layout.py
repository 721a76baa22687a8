"""The layout of a file of records, as its user says it, because nothing is guessed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeAlias

import typer

from matrixdp.cli.shared.options import character_option, names_of
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.decimals import grouped_float, nearest_float
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries import Bins, Categories

__all__ = [
    "DecimalOption",
    "FillOption",
    "Layout",
    "MissingOption",
    "NamesOption",
    "ThousandsOption",
    "check_fill",
    "layout_from",
]

NamesOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--names",
        help="Names of all columns, with commas between them, of text or a .npy file that has "
        "none in row 1.",
    ),
]
DecimalOption: TypeAlias = Annotated[
    str | None,
    character_option("--decimal", "Text: the character before the decimals; default: a point."),
]
ThousandsOption: TypeAlias = Annotated[
    str | None,
    character_option(
        "--thousands",
        "Text: the character between groups of three digits, such as , or the word space.",
    ),
]
MissingOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--missing",
        metavar="WORDS",
        help="A cell that holds one of these words, with commas between them, is missing: such as "
        "NA,?. An empty word stands for an empty cell, null for that of Parquet and Arrow.",
    ),
]
FillOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--fill",
        metavar="VALUES",
        help="Count a missing cell as this value, or one for each column. Without it records with "
        "a missing cell are left out, which is for add-remove only.",
    ),
]


@dataclass(frozen=True)
class Layout:
    """What a user says of the text of a file, and of cells that are missing.

    Attributes
    ----------
    delimiter, decimal, thousands : str or None
        What stands between cells, before decimals and between groups of digits.
    names : tuple of str or None
        Of all columns, where the file has none.
    missing : tuple of str
        What a missing cell holds.
    fill : tuple of str
        What it counts as: one value, or one for each column that is read; empty to leave the
        record out. Either way what becomes of a record depends on it alone.
    """

    delimiter: str | None = None
    names: tuple[str, ...] | None = None
    decimal: str | None = None
    thousands: str | None = None
    missing: tuple[str, ...] = ()
    fill: tuple[str, ...] = ()

    @property
    def for_text(self) -> list[str]:
        """The options that are given and that only text has."""
        return [
            f"--{name}" for name in ("delimiter", "decimal", "thousands") if getattr(self, name)
        ]

    @property
    def read_number(self) -> Callable[[str], float]:
        """How a cell becomes a number."""
        if self.decimal is None and self.thousands is None:
            return nearest_float
        return partial(grouped_float, decimal=self.decimal or ".", thousands=self.thousands)

    def present(self, cells: Sequence[str]) -> Sequence[str] | None:
        """Return the cells of a record with missing ones filled, or None if it is left out."""
        if not self.missing:
            return cells
        gaps = [cell.strip() in self.missing for cell in cells]
        if not any(gaps):
            return cells
        if not self.fill:
            return None
        fill = self.fill_of(len(cells))
        return [value if gap else cell for cell, value, gap in zip(cells, fill, gaps, strict=True)]

    def fill_of(self, columns: int) -> tuple[str, ...]:
        """Return what a missing cell of each column counts as."""
        return self.fill * columns if len(self.fill) == 1 else self.fill

    def __str__(self) -> str:
        """Say what becomes of missing cells, for statements; all of it is public."""
        if not self.missing:
            return ""
        words = " or ".join(map(repr, self.missing))
        if self.fill:
            return f"missing cells ({words}) count as {', '.join(self.fill)}"
        return f"records with a missing cell ({words}) are left out"


def check_fill(
    layout: Layout, columns: Sequence[str], attributes: Mapping[str, Categories | Bins]
) -> None:
    """Raise unless what missing cells count as fits their columns: before any cell is read.

    Parameters
    ----------
    layout : Layout
        What the user says.
    columns : sequence of str
        Those that are read.
    attributes : mapping
        Of the columns that are counted by; the others hold numbers.
    """
    if not layout.fill:
        return
    values = layout.fill_of(len(columns))
    if len(values) != len(columns):
        raise InvalidParameterError(
            f"--fill has {len(values)} values: pass one, or one for each of the {len(columns)} "
            f"columns {','.join(columns)}"
        )
    for name, value in zip(columns, values, strict=True):
        wrong = _misfit(value, attributes.get(name), layout.read_number)
        if wrong is not None:
            raise InvalidParameterError(f"--fill {value!r} for column {name!r} is {wrong}")


def _misfit(
    value: str, attribute: Categories | Bins | None, read_number: Callable[[str], float]
) -> str | None:
    """Return why a column cannot hold a value, or None if it can."""
    if isinstance(attribute, Categories):
        listed = attribute.other is not None or value in attribute.labels
        return None if listed else "not among its --categories"
    try:
        number = read_number(value)
    except ValueError:
        return "not a number"
    if attribute is None or attribute.edges[0] <= number <= attribute.edges[-1]:
        return None
    return "in none of its --bins"


def layout_from(
    delimiter: str | None,
    names: str | None,
    decimal: str | None,
    thousands: str | None,
    missing: str | None,
    fill: str | None,
    neighbouring: Neighbouring,
) -> Layout:
    """Return the layout that options say, or raise if they contradict each other."""
    if (decimal or ".") == thousands:
        raise InvalidParameterError(
            f"--decimal and --thousands are both {thousands!r}: name two characters"
        )
    if fill is not None and missing is None:
        raise InvalidParameterError("--fill needs --missing, which says what missing cells hold")
    if missing is not None and fill is None and neighbouring == "replace":
        raise InvalidParameterError(
            "--missing needs --fill under replace: the number of records is public, so that none "
            "can be left out"
        )
    listed = names_of(names)
    return Layout(
        delimiter,
        None if listed is None else tuple(listed),
        decimal,
        thousands,
        () if missing is None else _words(missing),
        () if fill is None else _words(fill),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))
