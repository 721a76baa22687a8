"""Options that several commands share: one meaning, one text and one position in every help."""

from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.decimals import upper_float
from matrixdp.mechanisms.about import About
from matrixdp.privacy.budget import Budget

__all__ = [
    "UNIT",
    "AsJson",
    "BoundedOption",
    "ColumnsOption",
    "DatasetOption",
    "DelimiterOption",
    "DeltaOption",
    "EpsilonOption",
    "Figure",
    "Force",
    "MuOption",
    "NeighbouringOption",
    "NormBoundOption",
    "OptionalColumnsOption",
    "OptionalDeltaOption",
    "OptionalEpsilonOption",
    "OptionalNeighbouringOption",
    "OptionalSensitivityOption",
    "OptionalShapeOption",
    "OptionalUnitOption",
    "PreviewOption",
    "PurposeOption",
    "SamplingRateOption",
    "SchedulerOption",
    "SensitivityOption",
    "Shape",
    "ShapeOption",
    "StepsOption",
    "ThreadsOption",
    "WorkerKeysOption",
    "about_from",
    "bound_option",
    "budget_from",
    "character_option",
    "count_option",
    "names_of",
    "number_option",
]


# typer calls the parser on default values too, which are numbers already.
def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def _integer(text: str | int) -> int:
    # int() of text, not of a float: "2.5" must not become 2.
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an integer") from None


def _at_least_one(text: str | int) -> int:
    number = _integer(text)
    if number < 1:
        raise typer.BadParameter(f"{text!r} is not an integer of at least 1")
    return number


def _bound(text: str | float) -> float:
    # A bound is a promise about decimals. 0.3 means three tenths, and the nearest float is smaller:
    # it is rounded up, so that what it bounds never shrinks.
    if isinstance(text, float):
        return text
    try:
        return upper_float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a finite number") from None


class Shape(NamedTuple):
    """The shape of a matrix."""

    rows: int
    columns: int


def _shape(text: str) -> Shape:
    rows, _, columns = text.partition("x")
    try:
        return Shape(int(rows), int(columns))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a shape such as 100x20") from None


def number_option(name: str, explanation: str) -> Any:
    """Return an option that takes a number; its error message quotes what was given instead."""
    return typer.Option(name, parser=_number, metavar="NUMBER", help=explanation)


def count_option(name: str, explanation: str) -> Any:
    """Return an option that takes an integer; its error quotes what was given instead."""
    return typer.Option(name, parser=_integer, metavar="COUNT", help=explanation)


def bound_option(name: str, explanation: str) -> Any:
    """Return an option that takes a number and rounds it up; its error quotes what was given."""
    return typer.Option(name, parser=_bound, metavar="NUMBER", help=explanation)


def budget_from(epsilon: float | None, delta: float, mu: float | None) -> Budget:
    """Return the budget of a command that takes either ``--epsilon`` or ``--mu``.

    Only a mu carries a part of a split budget exactly: its epsilon is rounded down.
    """
    # Neither has a default, and 0 is a valid epsilon, so only None means "not given".
    if epsilon is not None and mu is None:
        return Budget(epsilon, delta)
    if mu is not None and epsilon is None:
        return Budget.from_mu(mu, delta)
    raise InvalidParameterError(
        "pass exactly one of --epsilon and --mu: --mu spends a part that `budget` printed"
    )


def about_from(dataset: str | None, purpose: str | None, unit: str | None) -> About | None:
    """Return what a statement is to say for people, if options say anything."""
    if dataset is None and purpose is None and unit is None:
        return None
    return About(dataset=dataset, purpose=purpose, unit=unit)


def names_of(columns: str | None) -> list[str] | None:
    """Return the names of columns that have commas between them."""
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise InvalidParameterError(f"columns {columns!r} must be names, each once")
    return names


def _delimiter(text: str) -> str:
    character = "\t" if text in {"tab", "\\t"} else text
    # Letters, digits, quotes and what numbers are written with would tear cells apart.
    if len(character) != 1 or character.isalnum() or character in "\"'.-+\r\n":
        raise typer.BadParameter(f"{text!r} is not one character such as ; or | or the word tab")
    return character


def _number_mark(text: str) -> str:
    character = " " if text == "space" else text
    # What is part of a number, of a word or of a row could not be told apart.
    if len(character) != 1 or character.isalnum() or character in '"+-\r\n\t':
        raise typer.BadParameter(f"{text!r} is not one character such as , or the word space")
    return character


def character_option(name: str, explanation: str) -> Any:
    """Return an option that takes a character in numbers; its error quotes what was given."""
    return typer.Option(name, parser=_number_mark, metavar="CHARACTER", help=explanation)


# Of options that some commands need and others do not.
# The domains are those of matrixdp.parameters, which has the last word.
_EPSILON = number_option("--epsilon", "Privacy loss, from 0 to 1e6.")
_DELTA = number_option("--delta", "Failure probability, from 2.3e-308 to 1 - 1e-12.")
_SENSITIVITY = bound_option(
    "--sensitivity", "Largest Frobenius norm by which one record changes the matrix."
)
_NEIGHBOURING = (
    "Which data sets are neighbours: add-remove (one has a record more) or replace (one record "
    "is another)."
)
_COLUMNS = typer.Option(
    "--columns",
    help="Take these columns alone: names with commas between them; `query` takes those of a .npy "
    "file by their indices from 0.",
)
ColumnsOption: TypeAlias = Annotated[str, _COLUMNS]
OptionalColumnsOption: TypeAlias = Annotated[str | None, _COLUMNS]
EpsilonOption: TypeAlias = Annotated[float, _EPSILON]
OptionalEpsilonOption: TypeAlias = Annotated[float | None, _EPSILON]
DeltaOption: TypeAlias = Annotated[float, _DELTA]
OptionalDeltaOption: TypeAlias = Annotated[float | None, _DELTA]
SensitivityOption: TypeAlias = Annotated[float, _SENSITIVITY]
OptionalSensitivityOption: TypeAlias = Annotated[float | None, _SENSITIVITY]
MuOption: TypeAlias = Annotated[
    float | None,
    number_option(
        "--mu", "Instead of --epsilon: the Gaussian privacy parameter, as `budget` prints it."
    ),
]
NeighbouringOption: TypeAlias = Annotated[str, typer.Option("--neighbouring", help=_NEIGHBOURING)]
OptionalNeighbouringOption: TypeAlias = Annotated[
    str | None, typer.Option("--neighbouring", help=_NEIGHBOURING)
]
DelimiterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        parser=_delimiter,
        metavar="CHARACTER",
        help="Text: the character between cells, such as ';' or the word tab; default: by the "
        "name of the file.",
    ),
]
_SHAPE = typer.Option(
    "--shape",
    parser=_shape,
    metavar="ROWSxCOLUMNS",
    help="Shape of the released matrix, such as 100x20.",
)
ShapeOption: TypeAlias = Annotated[Shape, _SHAPE]
OptionalShapeOption: TypeAlias = Annotated[Shape | None, _SHAPE]
SamplingRateOption: TypeAlias = Annotated[
    float, number_option("--sampling-rate", "Probability that a record is in a step.")
]
StepsOption: TypeAlias = Annotated[
    int,
    typer.Option(
        "--steps",
        parser=_at_least_one,
        metavar="COUNT",
        help="Number of releases, or of steps of training, that share the budget.",
    ),
]
BoundedOption: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bounded",
        help="What the sensitivity bounds: difference (of two neighbours' sums) or "
        "contribution (of one record). Under replace, samples need contribution.",
    ),
]
NormBoundOption: TypeAlias = Annotated[
    float | None,
    bound_option(
        "--norm-bound", "Largest Frobenius norm of a matrix, for MVG; default: the sensitivity."
    ),
]
ThreadsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--threads",
        parser=_at_least_one,
        metavar="COUNT",
        help="The most threads that draw noise; default: one for each processor. The result does "
        "not depend on it.",
    ),
]
SchedulerOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="The scheduler of a running cluster of Dask, such as tls://host:8786; default: this "
        "machine.",
    ),
]
WorkerKeysOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--worker-keys",
        metavar="FILE",
        help="With --scheduler: a key file that this machine and all workers read under this name; "
        "made if there is none. It opens keys of releases, which are sent sealed.",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, at full precision.")
]
Figure: TypeAlias = Annotated[
    Path | None, typer.Option("--figure", help="Draw the result in this PNG or SVG file.")
]
# Whom a promise or a record is about.
UNIT = typer.Option("--unit", help="Whom the promise is about: record, patient, and so on.")
OptionalUnitOption: TypeAlias = Annotated[str | None, UNIT]
DatasetOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--dataset", help="A name of the data set, for the statement; it is published."),
]
PurposeOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--purpose", help="What the release is for, for the statement; it is published."),
]
PreviewOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--preview",
        help="Say what would be released and how large its errors would be, and do nothing: IN is "
        "not read and nothing is paid or written.",
    ),
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
