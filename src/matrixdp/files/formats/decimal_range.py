"""The sensitivity that rounding decimals to float64 adds, and the range in which it is covered.

A CSV file holds decimals, but noise is added to float64 numbers. The bound that a user states is
one on the decimals of the file; neighbouring files may be further apart once they are rounded. This
module enlarges the sensitivity set by what rounding can add. Numbers from a ``.npy`` or ``.npz``
file are floats already and need none of it.

Notes
-----
*How far a cell moves.* Let x be a decimal and f the float64 nearest to it, with ``|f| <= R`` and
``R >= 2**-1022``, the smallest normal float. If f is normal, the floats around it are at most
``2**-52 |f|`` apart, so ``|x - f| <= 2**-53 |f| <= 2**-53 R``. Otherwise they are 2**-1074 apart,
and ``|x - f| <= 2**-1075 <= 2**-53 R``. Both times

    ``|x - f| <= 2**-53 R``.

*How far neighbours move apart.* Let x and y be the decimals of one cell in neighbouring files. If
they are equal so are their floats, so a cell that one record cannot change stays unchanged. If they
differ, their floats differ from each other by ``x - y`` and an error of at most ``2**-52 R``. The
errors of the k cells that one bound is about have a Euclidean norm of at most ``2**-52 R sqrt(k)``,
and by the triangle inequality a set that contains all differences of floats is the old one with

    ``bound + 2**-52 R sqrt(k)``

instead of each bound: k = 1 for a `RowBox`, whose bounds are about single cells; k = n for
`RowBounds`; k = m n for the balls. Symmetric decimals have symmetric floats, so a `SymmetricBall`
stays one.

*The default range* is ``R = 2**32 bound / sqrt(k)``, for each bound its own. It depends on bounds
and shape alone, which are public, and enlarges a bound by a factor of at most ``1 + 2**-20``.
"""

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.parameters import positive_number
from matrixdp.rounding import UNIT_ROUNDOFF, float_down, float_up, sqrt_up
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import (
    FrobeniusBall,
    RowBounds,
    RowBox,
    SensitivitySet,
    SymmetricBall,
)

__all__ = ["DecimalCover", "cover_decimals"]

Covered: TypeAlias = FrobeniusBall | SymmetricBall | RowBounds | RowBox
"""Sets whose bounds are in the units of the decimals."""

# The derivation needs a normal float; a smaller range would save nothing worth having.
_SMALLEST_RANGE = sys.float_info.min
_LARGEST_RANGE = Fraction(sys.float_info.max)
# Large enough for most data, and 2**32 * 2**-52 = 2**-20 of the bound is too little to be noticed.
_RANGE_PER_BOUND = 2**32
# Two cells, each off by 2**-53 of the range.
_ERROR_PER_RANGE = 2 * Fraction(UNIT_ROUNDOFF)


@dataclass(frozen=True, eq=False)
class DecimalCover:
    """A sensitivity set that holds for decimals rounded to float64, and the range in which it does.

    Attributes
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox
        The enlarged set: it contains the differences of the floats of neighbouring files.
    limits : ndarray
        The largest size of a cell, in a shape that broadcasts to the matrix.
    """

    sensitivity: SensitivitySet
    limits: NDArray[np.float64]

    def check(self, matrix: MatrixFile, name: str) -> None:
        """Raise if a cell is beyond its limit; the message gives its position and never its value.

        Checking the floats is enough: the derivation above starts from the float of a cell.

        Raises
        ------
        InvalidParameterError
            Before anything is drawn.
        """
        # Written so that NaN counts as beyond the limit.
        outside = np.argwhere(~(np.abs(matrix.array) <= self.limits))
        if not len(outside):
            return
        row, column = (int(number) for number in outside[0])
        limit = float(np.broadcast_to(self.limits, matrix.array.shape)[row, column])
        # Rows and columns count from 1, labels included, as an editor shows them.
        row += 1 if matrix.columns is None else 2
        number = matrix.column_in_file(column)
        raise InvalidParameterError(
            f"{name}, row {row}, column {number}: the number is outside the range of {limit!r} "
            "either way, in which the noise covers the rounding of decimals; pass a larger "
            "--range, chosen without looking at the data"
        )


def cover_decimals(
    sensitivity: SensitivitySet, shape: tuple[int, int], given: float | None = None
) -> DecimalCover:
    """Return a set that contains the differences of neighbouring decimal matrices after rounding.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox
        What one record can change in the decimals.
    shape : tuple of int
        Of the matrix; it is public.
    given : float, optional
        A range for all cells. By default each bound has its own, derived from it and the shape.

    Raises
    ------
    ShapeError
        If the set does not describe a matrix of that shape.
    InvalidParameterError
        If the given range is not positive and finite.

    Notes
    -----
    *Guarantee:* for every two decimal matrices whose difference is in the set and whose floats are
    within the limits, the difference of the floats is in the set that is returned. Bounds are
    rounded up and limits down; see the module's notes for the proof.

    Examples
    --------
    >>> from matrixdp import RowBox
    >>> cover = cover_decimals(RowBox([1.0, 100.0], neighbouring="replace"), (50, 2))
    >>> cover.limits.tolist(), cover.sensitivity.bounds.tolist()
    ([[4294967296.0, 429496729600.0]], [1.0000009536743164, 100.00009536743164])
    >>> wider = cover_decimals(RowBox([1.0, 100.0], neighbouring="replace"), (50, 2), given=2.0**50)
    >>> wider.sensitivity.bounds.tolist()
    [1.25, 100.25]
    """
    sensitivity.check_shape(shape)
    if isinstance(sensitivity, ScaledBall | ScaledSymmetricBall):
        raise InvalidParameterError(
            f"sensitivity is a {type(sensitivity).__name__}, whose entries have units of their "
            "own, so that no range fits all decimals: release the query, which reads its records"
        )
    if given is not None:
        given = max(positive_number(given, "range"), _SMALLEST_RANGE)
    bounds, cells = _bounds_and_cells(sensitivity, shape)
    # Rounded up, which enlarges the covered bound and shrinks the default limit: both are safe.
    root = Fraction(sqrt_up(Fraction(cells)))
    limits = [_default_limit(bound, root) if given is None else given for bound in bounds]
    covered = [
        float_up(Fraction(bound) + Fraction(limit) * _ERROR_PER_RANGE * root)
        for bound, limit in zip(bounds, limits, strict=True)
    ]
    return _assembled(sensitivity, covered, limits)


def _bounds_and_cells(sensitivity: Covered, shape: tuple[int, int]) -> tuple[list[float], int]:
    """Return the bounds of a set, and how many cells each of them is about."""
    match sensitivity:
        case FrobeniusBall() | SymmetricBall():
            return [sensitivity.bound], math.prod(shape)
        case RowBounds():
            return sensitivity.bounds.tolist(), shape[1]
        case RowBox():
            return sensitivity.bounds.tolist(), 1


def _default_limit(bound: float, root: Fraction) -> float:
    limit = float_down(min(_RANGE_PER_BOUND * Fraction(bound) / root, _LARGEST_RANGE))
    return max(limit, _SMALLEST_RANGE)


def _assembled(sensitivity: Covered, covered: list[float], limits: list[float]) -> DecimalCover:
    """Return the set of the same kind with other bounds, and limits laid along its axis."""
    relation, sizes = sensitivity.neighbouring, np.array(limits)
    match sensitivity:
        case FrobeniusBall() | SymmetricBall():
            return DecimalCover(type(sensitivity)(covered[0], relation), sizes[:, None])
        case RowBounds():
            return DecimalCover(RowBounds(covered, relation), sizes[:, None])
        case RowBox():
            return DecimalCover(RowBox(covered, relation, sensitivity.weights), sizes[None, :])
