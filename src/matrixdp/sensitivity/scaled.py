"""Balls in public units: rows and columns are divided by them before they are bounded.

Such a set, and the best noise for it, follow a change of units: a column in cents instead of euros
has a hundred times the unit, the noise and the answer.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.covariance import Covariance, Diagonal, Isotropic, SymmetricDiagonal
from matrixdp.errors import ShapeError
from matrixdp.parameters import EqualByValue, positive_number, positive_vector
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import inflated, ratio_up
from matrixdp.sensitivity.radius import Radius, check_known, normalised, refuse_mirrored

__all__ = ["ScaledBall", "ScaledSymmetricBall"]

FloatArray = NDArray[np.float64]
Shape = tuple[int, int]


@dataclass(frozen=True, eq=False)
class ScaledBall(EqualByValue):
    """All differences of norm at most ``bound`` once rows and columns are divided by their units.

    That is ``sum (D_ij / (rows_i columns_j))^2 <= bound^2``.

    Parameters
    ----------
    bound : float
        The largest Frobenius norm of a difference in these units.
    rows, columns : array_like, shapes (m,) and (n,)
        The unit of each row and of each column: positive.
    neighbouring : {"add-remove", "replace"}
        The relation under which that holds.

    Notes
    -----
    *Best noise:* entry (i, j) gets the scale ``rows_i columns_j bound / mu``. In these units the
    set is a Frobenius ball and the noise is i.i.d., so it is best for every use.

    Examples
    --------
    >>> from matrixdp import Budget
    >>> from matrixdp.sensitivity import ScaledBall
    >>> ball = ScaledBall(1.0, rows=[1.0], columns=[1.0, 1000.0], neighbouring="replace")
    >>> ball.best_covariance(Budget(1.0, 1e-5)).scales.round(2).tolist()
    [[3.73, 3730.63]]
    """

    bound: float
    rows: FloatArray
    columns: FloatArray
    neighbouring: Neighbouring

    def __init__(
        self, bound: float, rows: ArrayLike, columns: ArrayLike, neighbouring: Neighbouring
    ) -> None:
        object.__setattr__(self, "bound", positive_number(bound, "bound"))
        object.__setattr__(self, "rows", positive_vector(rows, "rows"))
        object.__setattr__(self, "columns", positive_vector(columns, "columns"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.bound, self.rows, self.columns, self.neighbouring)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless there is a unit for each row and each column."""
        _check_shape(self, shape, (len(self.rows), len(self.columns)))

    def radius(self, covariance: Covariance) -> Radius:
        """Return ``bound max rows_i columns_j / scale_ij``; an upper bound for full covariances."""
        refuse_mirrored(covariance)
        match covariance:
            case Isotropic() | Diagonal():
                shape = (len(self.rows), len(self.columns))
                scales = covariance.entry_scales(shape)
                worst = float(_over(self.bound, self.rows, self.columns, scales).max())
                return Radius(inflated(worst, 16), exact=True)
            case _:
                largest = [float(self.rows.max()), float(self.columns.max())]
                smallest = covariance.smallest_singular_value
                return Radius(ratio_up([self.bound, *largest], smallest), exact=False)

    def best_covariance(self, budget: Budget) -> Diagonal:
        """Return noise in proportion to the units."""
        # Rows of one unit have the same scales: one row of them says so.
        rows = self.rows[:1] if bool(np.all(self.rows == self.rows[0])) else self.rows
        return Diagonal(np.multiply.outer(rows, self.columns)).rescaled_for(self, budget)


@dataclass(frozen=True, eq=False)
class ScaledSymmetricBall(EqualByValue):
    """All symmetric differences of norm at most ``bound`` once both sides are divided by units.

    That is ``sum (D_ij / (units_i units_j))^2 <= bound^2``: moments of columns with ranges of their
    own.

    Parameters
    ----------
    bound : float
        The largest Frobenius norm of a difference in these units.
    units : array_like, shape (n,)
        The unit of each column: positive.
    neighbouring : {"add-remove", "replace"}
        The relation under which that holds.

    Notes
    -----
    *Best noise:* symmetric, entry (i, j) with the scale ``units_i units_j bound / mu`` on the
    diagonal and that over ``sqrt(2)`` on each mirrored pair. In these units the set is a
    `SymmetricBall` and the noise `SymmetricIsotropic`, so it is best for every use.

    Examples
    --------
    >>> from matrixdp import Budget
    >>> from matrixdp.sensitivity import ScaledSymmetricBall
    >>> ball = ScaledSymmetricBall(1.0, units=[1.0, 10.0], neighbouring="replace")
    >>> ball.best_covariance(Budget(1.0, 1e-5)).entry_scales((2, 2)).round(2).tolist()
    [[3.73, 26.38], [26.38, 373.06]]
    """

    bound: float
    units: FloatArray
    neighbouring: Neighbouring

    def __init__(self, bound: float, units: ArrayLike, neighbouring: Neighbouring) -> None:
        object.__setattr__(self, "bound", positive_number(bound, "bound"))
        object.__setattr__(self, "units", positive_vector(units, "units"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.bound, self.units, self.neighbouring)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless there is a unit for each row and column."""
        _check_shape(self, shape, (len(self.units), len(self.units)))

    def radius(self, covariance: Covariance) -> Radius:
        """Return the radius; with independent entries a pair counts with its mean precision."""
        check_known(covariance)
        size = len(self.units)
        match covariance:
            case SymmetricDiagonal():
                covariance.check_shape((size, size))
                # A diagonal entry is as heavy as any pair: (u_i u_j / (t_i t_j))^2 is their mean.
                worst = float(np.max(self.units / covariance.scales))
                return Radius(inflated(self.bound * worst * worst, 16), exact=True)
            case _ if covariance.mirrored:
                largest = float(self.units.max())
                smallest = covariance.smallest_singular_value
                return Radius(ratio_up([self.bound, largest, largest], smallest), exact=True)
            case Isotropic() | Diagonal():
                # A member with u_i u_j x at (i, j) and (j, i) has the squared norm 2 x^2 in these
                # units, and (1/s_ij^2 + 1/s_ji^2) (u_i u_j x)^2 whitened.
                scales = covariance.entry_scales((size, size))
                largest, shares = normalised(_over(self.bound, self.units, self.units, scales))
                squares = np.square(shares)
                worst = math.sqrt(float(np.max((squares + squares.T) / 2)))
                return Radius(inflated(largest * worst, 16), exact=True)
            case _:
                largest = float(self.units.max())
                smallest = covariance.smallest_singular_value
                return Radius(ratio_up([self.bound, largest, largest], smallest), exact=False)

    def best_covariance(self, budget: Budget) -> SymmetricDiagonal:
        """Return symmetric noise in proportion to the units."""
        return SymmetricDiagonal(self.units).rescaled_for(self, budget)


def _over(bound: float, rows: FloatArray, columns: FloatArray, scales: FloatArray) -> FloatArray:
    """Return a bound in units of entries over their scales; infinity if it is too large."""
    # Exponents apart: of four numbers that are large or small, only the result may be beyond range.
    share, exponent = np.frexp(np.asarray(bound))
    for factor in (rows[:, None], columns):
        part, power = np.frexp(factor)
        share, exponent = share * part, exponent + power
    part, power = np.frexp(scales)
    with np.errstate(over="ignore", under="ignore"):
        return np.asarray(np.ldexp(share / part, exponent - power))


def _check_shape(members: object, shape: Shape, want: Shape) -> None:
    if shape != want:
        raise ShapeError(
            f"a {type(members).__name__} for {want[0]} by {want[1]} entries does not describe a "
            f"matrix of shape {shape}: give one unit for each row and column"
        )
