"""Options that several commands share, so that they read the same everywhere."""

from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.budget import Budget

__all__ = [
    "AsJson",
    "ColumnsOption",
    "DelimiterOption",
    "DeltaOption",
    "EpsilonOption",
    "Figure",
    "Force",
    "GammaOption",
    "MuOption",
    "OptionalEpsilonOption",
    "ReleasesOption",
    "RowsOption",
    "SamplingRateOption",
    "SensitivityOption",
    "ThreadsOption",
    "budget_from",
    "names_of",
    "number_option",
    "whole_number_option",
]


# typer calls the parser on default values too, which are numbers already.
def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a number") from None


def _whole_number(text: str | int) -> int:
    # int() of text, not of a float: "2.5" must not become 2.
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a whole number") from None


def _threads(text: str | int) -> int:
    number = _whole_number(text)
    if number < 1:
        raise typer.BadParameter(f"{text!r} is not a number of threads: pass 1 or more")
    return number


def number_option(name: str, explanation: str) -> Any:
    """Return an option that takes a number; its error message quotes what was given instead."""
    return typer.Option(name, parser=_number, metavar="NUMBER", help=explanation)


def whole_number_option(name: str, explanation: str) -> Any:
    """Return an option that takes a whole number; its error quotes what was given instead."""
    return typer.Option(name, parser=_whole_number, metavar="COUNT", help=explanation)


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
        "pass exactly one of --epsilon and --mu: --mu spends a part that `budget split` printed"
    )


def names_of(columns: str | None) -> list[str] | None:
    """Return the names of columns that have commas between them."""
    if columns is None:
        return None
    names = [name.strip() for name in columns.split(",")]
    if not all(names) or len(set(names)) != len(names):
        raise InvalidParameterError(f"columns {columns!r} must be names, each once")
    return names


def _delimiter(text: str) -> str:
    sign = "\t" if text in {"tab", "\\t"} else text
    # Letters, digits, quotes and what numbers are written with would tear cells apart.
    if len(sign) != 1 or sign.isalnum() or sign in "\"'.-+\r\n":
        raise typer.BadParameter(f"{text!r} is not one sign such as ; or | or the word tab")
    return sign


# The domains are those of matrixdp.parameters, which has the last word.
EpsilonOption: TypeAlias = Annotated[
    float, number_option("--epsilon", "Privacy loss, from 0 to 1e6.")
]
OptionalEpsilonOption: TypeAlias = Annotated[
    float | None, number_option("--epsilon", "Privacy loss, from 0 to 1e6; or pass --mu.")
]
MuOption: TypeAlias = Annotated[
    float | None,
    number_option(
        "--mu", "Instead of --epsilon: the Gaussian privacy parameter, as `budget split` prints it."
    ),
]
DeltaOption: TypeAlias = Annotated[
    float, number_option("--delta", "Failure probability, from 2.3e-308 to 1 - 1e-12.")
]
DelimiterOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--delimiter",
        parser=_delimiter,
        metavar="SIGN",
        help="Text: what stands between cells, such as ';' or tab; default: what the name of the "
        "file says.",
    ),
]
SensitivityOption: TypeAlias = Annotated[
    float,
    number_option(
        "--sensitivity", "Largest Frobenius norm by which one record changes the matrix."
    ),
]
RowsOption: TypeAlias = Annotated[
    int, whole_number_option("--rows", "Rows of the released matrix.")
]
ColumnsOption: TypeAlias = Annotated[
    int, whole_number_option("--columns", "Columns of the released matrix.")
]
GammaOption: TypeAlias = Annotated[
    float | None,
    number_option("--gamma", "Largest Frobenius norm of a matrix, for MVG; default: sensitivity."),
]
ReleasesOption: TypeAlias = Annotated[int, whole_number_option("--releases", "Number of releases.")]
SamplingRateOption: TypeAlias = Annotated[
    float, number_option("--sampling-rate", "Probability that a record is in a step.")
]
ThreadsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--threads",
        parser=_threads,
        metavar="COUNT",
        help="The most threads that draw noise; default: one for each processor. The result does "
        "not depend on it.",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, at full precision.")
]
Figure: TypeAlias = Annotated[
    Path | None, typer.Option("--figure", help="Draw the result in this PNG file.")
]
Force: TypeAlias = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
