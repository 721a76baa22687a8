"""What one record can change, as the command line says it: options and files with bounds.

A bound is a promise about decimals: ``--sensitivity 0.3`` means three tenths. The nearest float64
is smaller, so bounds are rounded up, and the set never shrinks.
"""

from pathlib import Path
from typing import Any

import typer

from matrixdp.cli.streams import read_source
from matrixdp.errors import InvalidParameterError
from matrixdp.files.decimals import upper_float
from matrixdp.files.formats import FORMATS, format_of
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.sensitivity.sets import (
    Box,
    FrobeniusBall,
    RowBounds,
    SensitivitySet,
    SymmetricBall,
)

__all__ = ["bound_option", "bounds_file", "sensitivity_set"]


def bound_option(name: str, explanation: str) -> Any:
    """Return an option that takes a number and rounds it up; its error quotes what was given."""
    return typer.Option(name, parser=_bound, metavar="NUMBER", help=explanation)


def _bound(text: str) -> float:
    try:
        return upper_float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a finite number") from None


def sensitivity_set(
    neighbouring: Neighbouring,
    sensitivity: float | None,
    row_bounds: str | None,
    box: str | None,
    *,
    symmetric: bool,
) -> SensitivitySet:
    """Return the set that the options describe.

    Raises
    ------
    InvalidParameterError
        If not exactly one of the three kinds of bounds is given, or one is not positive.
    """
    # Two sets at once could mean their union or their intersection: the user has to choose.
    if [sensitivity, row_bounds, box].count(None) != 2 or (symmetric and sensitivity is None):
        raise InvalidParameterError(
            "pass one of --sensitivity (with or without --symmetric), --row-bounds and --box"
        )
    if sensitivity is not None:
        ball = SymmetricBall if symmetric else FrobeniusBall
        return ball(sensitivity, neighbouring=neighbouring)
    if row_bounds is not None:
        return RowBounds(_vector(row_bounds), neighbouring=neighbouring)
    return Box(_vector(box or ""), neighbouring=neighbouring)


def bounds_file(text: str | None) -> Path | None:
    """Return the file that bounds are read from, or None if they are numbers themselves."""
    return Path(text) if text is not None and format_of(text) in FORMATS else None


def _vector(text: str) -> Any:
    """Return the bounds of a list with commas, or of a file."""
    path = bounds_file(text)
    if path is not None:
        array = read_source(str(path), format_of(path), decimals="up").array
        # One row or one column is a vector; the set refuses any other shape and names it.
        return array.ravel() if array.ndim == 2 and 1 in array.shape else array
    try:
        return [upper_float(part) for part in text.split(",")]
    except ValueError:
        raise InvalidParameterError(
            f"{text!r} is neither numbers with commas between them nor a file"
        ) from None
