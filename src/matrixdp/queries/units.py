"""Units: what columns with ranges of their own are divided by, so that their units do not matter.

A query on records whose columns are all divided by public units has some sensitivity, as a ball.
The same query on the records as they are has the same ball in these units. So no entry is noisier
than if every column had been divided before, and a column in other units changes only the unit of
the answer.
"""

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries.bounds import PublicBounds
from matrixdp.rounding import ratio_up
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import FrobeniusBall, SymmetricBall

__all__ = ["ball", "in_units", "symmetric_set", "units_of"]

FloatArray = NDArray[np.float64]


def units_of(*parts: PublicBounds, differences: bool = False) -> FloatArray | None:
    """Return the unit of each column, or None if columns are comparable as they are.

    That is the largest absolute value of its range, or the range's length where only differences of
    records count. A norm adds up squares of all columns, so it states that they are comparable.

    Examples
    --------
    >>> units_of(PublicBounds(2, lower=[17, 0], upper=[90, 1e5])).tolist()
    [90.0, 100000.0]
    >>> units_of(PublicBounds(2, norm=1.0)) is None
    True
    """
    if any(part.norm is not None for part in parts):
        return None
    units = [part.widths if differences else part.largest_entries for part in parts]
    return np.concatenate(units)


def symmetric_set(
    bound: float, units: FloatArray, neighbouring: Neighbouring
) -> SymmetricBall | ScaledSymmetricBall:
    """Return a ball of symmetric matrices in units, which is a plain one if these are equal."""
    if not _equal(units):
        return ScaledSymmetricBall(bound, units, neighbouring)
    unit = float(units[0])
    return SymmetricBall(ratio_up([bound, unit, unit], 1.0), neighbouring)


def ball(
    bound: float, rows: FloatArray, columns: FloatArray, neighbouring: Neighbouring
) -> FrobeniusBall | ScaledBall:
    """Return a ball of matrices in units, which is a plain one if these are equal."""
    if not (_equal(rows) and _equal(columns)):
        return ScaledBall(bound, rows, columns, neighbouring)
    whole = ratio_up([bound, float(rows[0]), float(columns[0])], 1.0)
    return FrobeniusBall(whole, neighbouring)


def _equal(units: FloatArray) -> bool:
    return bool(np.all(units == units[0]))


def in_units(bounds: PublicBounds, units: FloatArray) -> PublicBounds:
    """Return the bounds of records whose columns are divided by units, rounded outwards.

    Examples
    --------
    >>> in_units(PublicBounds(2, lower=[-1, 0], upper=[2, 1e5]), np.array([2.0, 1e5]))
    PublicBounds(2 columns, column ranges -0.5000000000000001 to 1, 0 to 1)
    """
    lower, upper = bounds.intervals
    return PublicBounds(
        bounds.columns,
        lower=_outwards(lower, units, -np.inf),
        upper=_outwards(upper, units, np.inf),
    )


def _outwards(ends: FloatArray, units: FloatArray, towards: float) -> FloatArray:
    quotients = ends / units
    # A number is 0 or as large as its unit exactly if its quotient is 0 or 1: nothing was rounded.
    exact = (ends == 0.0) | (np.abs(ends) == units)
    return np.where(exact, quotients, np.nextafter(quotients, towards))
