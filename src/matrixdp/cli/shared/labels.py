"""Labels of a file: they are published as they are, so it must be certain that they are labels.

A first row that is taken for labels is not protected. If it is a record, that record is published.
So plain ``--header`` and ``--index`` accept names only; for anything that could be data the user
has to say ``--header=public`` or ``--index=public``.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import typer

from matrixdp.cli.shared.commands import Command
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.suffixes import LABELLED
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["CommandWithLabels", "Labels", "check_labels", "is_name", "warn_of_lost_labels"]

# What stands for a missing or special value in a column of numbers.
_WORDS_OF_DATA = {
    *("na", "n/a", "n.a.", "nan", "nat", "null", "none", "nil", "missing"),
    *("unknown", "inf", "infinity", "true", "false", "yes", "no"),
}


# For each kind of labels: what publishes them, where one is, and what to do.
_FIRST_ROW = (
    "--header would publish the first row of IN",
    "row 1, column {}",
    "if it is data, leave out --header; if it is labels for everyone to see, pass --header=public",
)
_FIRST_COLUMN = (
    "--index would publish the first column of IN",
    "row {}, column 1",
    "if it is data, leave out --index; if it is labels for everyone to see, pass --index=public",
)
_COLUMN_NAMES = (
    "the header of IN is published",
    "name {} of its columns of numbers",
    "if it is data, rename the column; if it is labels for everyone to see, pass --header=public",
)
_INDEX = (
    "--index would publish the index of IN",
    "row {}",
    "if it is data, leave out --index; if it is labels for everyone to see, pass --index=public",
)


class Labels(StrEnum):
    """How a row or a column of labels is taken."""

    NAMES = "names"
    """Only if every label is a name: what the option means if it stands alone."""

    PUBLIC = "public"
    """Whatever it is: the user says that it may be published."""


class CommandWithLabels(Command):
    """A command whose ``--header`` and ``--index`` may stand alone or have a word after ``=``.

    Typer knows options that take a value and options that do not, but none that may. So a lone
    option gets its word before Typer sees it.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments after each lone option got its word."""
        return super().parse_args(ctx, _with_words(args))


def _with_words(arguments: list[str]) -> list[str]:
    # After "--" everything is the name of a file.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    lone = {"--header", "--index"}
    options = [f"{each}={Labels.NAMES}" if each in lone else each for each in arguments[:end]]
    return options + arguments[end:]


def check_labels(
    matrix: MatrixFile, header: Labels | None, index: Labels | None, *, text: bool
) -> None:
    """Raise if labels could be data and the user did not say that they are public.

    Of text they are the first row and the first column; other formats have names of columns, and an
    index that may be anywhere.

    Raises
    ------
    InvalidParameterError
        With the position of the first such label, and not the label itself: it may be private.
    """
    if header is Labels.NAMES and matrix.columns is not None:
        if not text:
            _check_names(matrix.columns, _COLUMN_NAMES)
        else:
            # The corner names the index; many programs leave it empty.
            if matrix.index is not None and matrix.corner.strip():
                _check_names([matrix.corner], _FIRST_ROW)
            positions = [matrix.column_in_file(column) for column in range(len(matrix.columns))]
            _check_names(matrix.columns, _FIRST_ROW, positions)
    if index is Labels.NAMES and matrix.index is not None:
        # An editor counts the header as row 1.
        above = ["header"] if text and matrix.columns is not None else []
        _check_names([*above, *matrix.index], _FIRST_COLUMN if text else _INDEX)


def warn_of_lost_labels(suffix: str) -> None:
    """Say on standard error if a format cannot hold the labels that a matrix has."""
    if suffix not in LABELLED:
        typer.echo(
            f"matrixdp: labels are left out: {suffix} cannot hold them; these can: "
            f"{', '.join(LABELLED)}",
            err=True,
        )


def _check_names(
    labels: Sequence[str], words: tuple[str, str, str], positions: Sequence[int] | None = None
) -> None:
    """Raise if a label could be data; its position counts from 1 unless positions are given."""
    published, where, way_out = words
    for number, label in zip(positions or range(1, len(labels) + 1), labels, strict=True):
        if not is_name(label):
            raise InvalidParameterError(
                f"{published} as it is, but {where.format(number)} could be data, not a name: "
                f"{way_out}"
            )


def is_name(label: str) -> bool:
    """Return whether a label can only be a name: a letter first, and not a word that data use.

    That leaves out numbers, also with units or currencies (``12 kg``, ``$5``), dates
    (``2019-05-01``), empty cells, and words for missing values and truth (``NA``, ``null``,
    ``true``).

    Examples
    --------
    >>> [is_name(label) for label in ("income", "y2019", "2019", "NA", "", "?")]
    [True, True, False, False, False, False]
    """
    text = label.strip()
    # An underscore starts names in programs (_id), and never a number.
    starts_well = text[:1].isalpha() or text.startswith("_")
    return starts_well and text.casefold() not in _WORDS_OF_DATA
