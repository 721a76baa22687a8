"""Labels of a CSV file: they are published as they are, so it must be certain that they are labels.

A first row that is taken for labels is not protected. If it is a record, that record is published.
So plain ``--header`` and ``--index`` accept names only; for anything that could be data the user
has to say ``--header=public`` or ``--index=public``.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import typer
from typer.core import TyperCommand

from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats import LABELLED
from matrixdp.mechanisms.labelled import MatrixFile

__all__ = ["CommandWithLabels", "Labels", "check_labels", "is_name", "warn_of_lost_labels"]

# What stands for a missing or special value in a column of numbers, in programs and by hand.
_WORDS_OF_DATA = {
    *("na", "n/a", "n.a.", "nan", "nat", "null", "none", "nil", "missing", "unknown"),
    *("inf", "infinity", "true", "false", "yes", "no"),
}


class Labels(StrEnum):
    """How a row or a column of labels is taken."""

    NAMES = "names"
    """Only if every label is a name: what the option means if it stands alone."""

    PUBLIC = "public"
    """Whatever it is: the user says that it may be published."""


class CommandWithLabels(TyperCommand):
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


def check_labels(matrix: MatrixFile, header: Labels | None, index: Labels | None) -> None:
    """Raise if labels could be data and the user did not say that they are public.

    Raises
    ------
    InvalidParameterError
        With the place of the first such label, and not the label itself: it may be private.
    """
    if header is Labels.NAMES and matrix.columns is not None:
        labels = list(matrix.columns)
        if matrix.index is not None:
            # The corner names the index; many programs leave it empty.
            labels.insert(0, matrix.corner.strip() or "corner")
        _check_names(labels, "--header", "row 1, column {}", "first row")
    if index is Labels.NAMES and matrix.index is not None:
        # An editor counts the header as row 1.
        above = [] if matrix.columns is None else ["header"]
        _check_names([*above, *matrix.index], "--index", "row {}, column 1", "first column")


def warn_of_lost_labels(suffix: str) -> None:
    """Say on standard error if a format has no place for the labels that a matrix has."""
    if suffix not in LABELLED:
        typer.echo(
            f"matrixdp: labels are left out: {suffix} has no place for them; these have: "
            f"{', '.join(LABELLED)}",
            err=True,
        )


def _check_names(labels: Sequence[str], option: str, place: str, part: str) -> None:
    for number, label in enumerate(labels, start=1):
        if not is_name(label):
            raise InvalidParameterError(
                f"{option} would publish the {part} of IN as it is, but {place.format(number)} "
                f"could be data, not a name: if the {part} is data, leave out {option}; if it is "
                f"labels that everyone may see, pass {option}=public"
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
