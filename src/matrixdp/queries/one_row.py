"""Sensitivity of a matrix of which one record changes a single row."""

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries.bounds import PublicBounds, exact_squared_norm
from matrixdp.rounding import float_up, sqrt_up
from matrixdp.sensitivity.sets import FrobeniusBall, RowBox

__all__ = ["box_of", "change_in_box", "change_in_norm", "single_row_set"]

FloatArray = NDArray[np.float64]


def single_row_set(
    bounds: PublicBounds,
    neighbouring: Neighbouring,
    *,
    divisor: int = 1,
    rounding: FloatArray | None = None,
) -> FrobeniusBall | RowBox:
    """Return what a record changes in a sum of records, divided by a public number.

    Of the ball and the box that contain every change, the one that takes less noise.

    Parameters
    ----------
    bounds : PublicBounds
        Of every record.
    neighbouring : {"add-remove", "replace"}
        The relation.
    divisor : int, optional
        What the sum is divided by.
    rounding : ndarray, shape (columns,), optional
        How much more each entry can change, because the quotient is rounded.
    """
    extra = np.zeros(bounds.columns) if rounding is None else rounding
    ball = change_in_norm(bounds, neighbouring) / divisor + Fraction(
        sqrt_up(exact_squared_norm(extra))
    )
    # The box around a ball of one norm is a cube, which takes more noise.
    if bounds.lower is None:
        return FrobeniusBall(float_up(ball), neighbouring)
    sides = [
        Fraction(side) / divisor + Fraction(float(unit))
        for side, unit in zip(change_in_box(bounds, neighbouring).tolist(), extra, strict=True)
    ]
    # Total variances at mu = 1.
    if bounds.columns * ball**2 <= sum(sides) ** 2:
        return FrobeniusBall(float_up(ball), neighbouring)
    return box_of([float_up(side) for side in sides], bounds, neighbouring)


def box_of(sides: list[float], bounds: PublicBounds, neighbouring: Neighbouring) -> RowBox:
    """Return the box of a change, with the weights that make the units of columns not matter.

    Ranges alone do not say how columns compare, so that a variance counts in squared sides. The
    least total variance in the units as they are would starve small columns: its noise grows with
    the root of a side. A norm says that columns are comparable as they are.
    """
    weights = None if bounds.norm is not None else 1.0 / np.square(sides)
    return RowBox(sides, neighbouring, weights)


def change_in_norm(bounds: PublicBounds, neighbouring: Neighbouring) -> Fraction:
    """Return the largest norm of a record, or of the difference of two, rounded up."""
    square = bounds.squared_radius if neighbouring == "add-remove" else bounds.squared_distance
    return Fraction(sqrt_up(square))


def change_in_box(bounds: PublicBounds, neighbouring: Neighbouring) -> FloatArray:
    """Return the largest absolute value in each column, or the length of its range."""
    return bounds.largest_entries if neighbouring == "add-remove" else bounds.widths
