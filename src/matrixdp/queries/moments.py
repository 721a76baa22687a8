"""Second moments that are not centred, and what one record changes in sums of products."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.bounds import PublicBounds, exact_squared_norm
from matrixdp.queries.exact_sums import (
    LEAST_PRODUCT_ROWS,
    PRODUCT_BITS,
    ExactSum,
    block_rows,
)
from matrixdp.queries.grid import RecordGrid, whole_blocks
from matrixdp.queries.names import Columns
from matrixdp.queries.preview import AnswerRanges, product_lengths
from matrixdp.queries.query import Query, check_bounds, labels_of
from matrixdp.queries.sources import record_blocks
from matrixdp.queries.units import ball, in_units, symmetric_set, units_of
from matrixdp.rounding import float_up, inflated, sqrt_up
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import FrobeniusBall, SymmetricBall

__all__ = [
    "CrossMoment",
    "Gram",
    "JointMoments",
    "cross_change",
    "gram_change",
    "product_rounding",
]

FloatArray = NDArray[np.float64]
Interval = tuple[FloatArray, FloatArray]

_UNIT = Fraction(2**PRODUCT_BITS)


def _gram_values(data: Any, grids: tuple[RecordGrid, ...]) -> FloatArray:
    steps = _joined_steps(grids)
    total, product = ExactSum((len(steps), len(steps))), np.empty((len(steps), len(steps)))
    read = Columns.together(*(grid.bounds.read for grid in grids))
    blocks = record_blocks(data, read, block_rows(len(steps), LEAST_PRODUCT_ROWS))
    for whole in whole_blocks(blocks, *grids):
        total.add(np.matmul(whole.T, whole, out=product), len(whole))
    return _product_values(total, steps, steps)


def _gram_set(
    parts: tuple[PublicBounds, ...], neighbouring: Neighbouring
) -> SymmetricBall | ScaledSymmetricBall:
    units = units_of(*parts)
    if units is None:
        return SymmetricBall(_gram_bound(parts, neighbouring), neighbouring)
    ends = np.cumsum([part.columns for part in parts])[:-1]
    scaled = map(in_units, parts, np.split(units, ends))
    return symmetric_set(_gram_bound(tuple(scaled), neighbouring), units, neighbouring)


def _gram_bound(parts: tuple[PublicBounds, ...], neighbouring: Neighbouring) -> float:
    steps = _joined_steps(tuple(map(RecordGrid, parts)))
    rounding = product_rounding(steps, steps, _UNIT)
    return float_up(gram_change(parts, neighbouring) + rounding)


def _joined_steps(grids: tuple[RecordGrid, ...]) -> FloatArray:
    return np.concatenate([grid.steps for grid in grids])


@dataclass(frozen=True)
class Gram(Query):
    """The Gram matrix ``X^T X`` of the records, the sum of ``x x^T``: symmetric.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every record.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.

    Notes
    -----
    *Sensitivity.* With R the largest norm that the bounds allow:

    - Adding x changes the matrix by ``x x^T``, of norm ``|x|^2 <= R^2``, attained.
    - Replacing x by y changes it by ``x x^T - y y^T``, and ``|x x^T - y y^T|^2 = |x|^4 + |y|^4 -
      2 (x.y)^2 <= 2 R^4``: the bound is ``sqrt(2) R^2``, attained by orthogonal records of norm R.
    - If a box keeps entry (i, j) of ``x x^T`` in a range of length ``L_ij``, then the change is at
      most ``|L|``. The smaller of the two is taken. For a box without negative numbers ``|L|`` is
      attained by the records ``upper`` and ``lower``. For other boxes it may be too large: by at
      most ``sqrt(2)`` if they contain 0, because a record of norm R and 0 attain ``R^2``, and by at
      most 2 otherwise, because the corner farthest from 0 and the point nearest to 0 attain half of
      every ``L_ij``.

    *Units.* For ranges alone all of that holds for records whose columns are divided by the largest
    absolute values of their ranges; R is ``sqrt(d)`` then, for d columns. The set is that ball in
    these units, so a column in other units changes only the unit of the answer. A norm says that
    columns are comparable as they are.

    *Rounding.* Records are rounded to a public grid, products are added up in integers, and sums
    are rounded to a multiple of ``2**19 step_i step_j``. Two rounded matrices differ by at most
    ``2**19 |steps|^2`` more than before, which is added: for a norm C and d columns at most
    ``d 2**-21 C^2``, a share of 0.00012 for 256 columns. An entry of n records is off by at most
    ``n C step``, a share of 2**-20 of the largest that it could be, and half such a unit.

    Examples
    --------
    >>> query = Gram(PublicBounds(3, norm=2.0), "replace")
    >>> round(query.sensitivity.bound, 4)
    5.6569
    >>> query.evaluate([[1.0, 0.5, 0.0], [0.0, 1.0, 1.0]]).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.25, 1.0], [0.0, 1.0, 1.0]]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise unless these are bounds and a relation."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)

    @cached_property
    def sensitivity(self) -> SymmetricBall | ScaledSymmetricBall:
        """A ball of symmetric matrices, in the units of the columns."""
        return _gram_set((self.bounds,), self.neighbouring)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns, twice."""
        return labels_of(self.bounds)

    @property
    def ranges(self) -> AnswerRanges:
        """Those of the products of two numbers of a record."""
        intervals = self.bounds.intervals
        lengths = product_lengths(intervals, intervals, same=True)
        return AnswerRanges(lengths, of_each_record=True)

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    def evaluate(self, data: Any) -> FloatArray:
        """Return the Gram matrix, which is private."""
        return _gram_values(data, (self._grid,))

    def __str__(self) -> str:
        """Say what is computed."""
        return f"Gram matrix of records, {self.bounds}"


@dataclass(frozen=True)
class _OfTwoParts(Query):
    """A query on rows ``[x y]`` whose parts have bounds of their own."""

    x: PublicBounds
    y: PublicBounds
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise unless these are bounds and a relation."""
        check_bounds(self.x, "x")
        check_bounds(self.y, "y")
        checked_neighbouring(self.neighbouring)
        Columns.together(self.x.read, self.y.read)

    @cached_property
    def _grids(self) -> tuple[RecordGrid, RecordGrid]:
        return RecordGrid(self.x), RecordGrid(self.y)


class JointMoments(_OfTwoParts):
    """The Gram matrix of rows ``[x y]`` whose parts have bounds of their own: symmetric.

    It holds ``X^T X``, ``X^T Y`` and ``Y^T Y``: all that a linear regression needs.

    Parameters
    ----------
    x, y : PublicBounds
        Enforced on the first columns of every record, and on the rest.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.

    Notes
    -----
    *Sensitivity.* That of `Gram` for rows z = [x y], with ``R^2 = Rx^2 + Ry^2``: x and y attain
    their largest norms together, and two rows of that norm can be orthogonal. Columns are in units
    of their own if both parts have ranges alone; a norm of one part says that all columns are
    comparable as they are. Data are the joined
    rows; two iterators are joined by ``map(numpy.hstack, zip(x_blocks, y_blocks))``.

    Examples
    --------
    >>> x, y = PublicBounds(2, norm=1.0), PublicBounds(1, lower=-1, upper=1)
    >>> query = JointMoments(x, y, "replace")
    >>> round(query.sensitivity.bound, 4)
    2.8284
    """

    @cached_property
    def sensitivity(self) -> SymmetricBall | ScaledSymmetricBall:
        """A ball of symmetric matrices, in the units of the columns."""
        return _gram_set((self.x, self.y), self.neighbouring)

    @property
    def ranges(self) -> AnswerRanges:
        """Those of the products of two numbers of a row."""
        parts = self.x.intervals, self.y.intervals
        joined = np.concatenate(parts, axis=1)
        lengths = product_lengths((joined[0], joined[1]), (joined[0], joined[1]), same=True)
        return AnswerRanges(lengths, of_each_record=True)

    def evaluate(self, data: Any) -> FloatArray:
        """Return the joint moments of rows ``[x y]``, which are private."""
        return _gram_values(data, self._grids)

    def __str__(self) -> str:
        """Say what is computed."""
        return f"joint moments of records [x y], x: {self.x}; y: {self.y}"


class CrossMoment(_OfTwoParts):
    """The cross-moment ``X^T Y`` of rows ``[x y]``, the sum of ``x y^T``.

    Parameters
    ----------
    x, y : PublicBounds
        Enforced on the first columns of every record, and on the rest.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.

    Notes
    -----
    *Sensitivity.* ``|x y^T| = |x| |y|``, so adding a record changes the matrix by at most
    ``Rx Ry``, attained. Replacing one changes it by at most ``2 Rx Ry``, attained by (x, y) and
    (-x, y). If boxes keep entry (i, j) in a range of length ``L_ij``, the change is at most ``|L|``
    too, and the smaller of the two is taken; for boxes without negative numbers it is attained by
    ``upper`` and ``lower``. A part with ranges alone is in units of its own, as in `Gram`. No bound
    is too large by more than a factor of 2: the corner farthest
    from 0 and the point nearest to 0 attain half of every ``L_ij``, and ``Rx Ry`` if that is 0.
    Rounding is that of `Gram`: ``2**19 |steps of x| |steps of y|`` is added.

    Examples
    --------
    >>> query = CrossMoment(PublicBounds(2, norm=1.0), PublicBounds(1, norm=3.0), "add-remove")
    >>> round(query.sensitivity.bound, 4)
    3.0
    >>> query.evaluate([[0.5, 0.5, 2.0], [0.0, 1.0, -1.0]]).tolist()
    [[1.0], [0.0]]
    """

    @cached_property
    def sensitivity(self) -> FrobeniusBall | ScaledBall:
        """A ball, in the units of the columns."""
        rows, columns = units_of(self.x), units_of(self.y)
        x = self.x if rows is None else in_units(self.x, rows)
        y = self.y if columns is None else in_units(self.y, columns)
        rounding = product_rounding(RecordGrid(x).steps, RecordGrid(y).steps, _UNIT)
        bound = float_up(cross_change(x, y, self.neighbouring) + rounding)
        rows = np.ones(x.columns) if rows is None else rows
        columns = np.ones(y.columns) if columns is None else columns
        return ball(bound, rows, columns, self.neighbouring)

    @property
    def ranges(self) -> AnswerRanges:
        """Those of the products of a number of x and one of y."""
        lengths = product_lengths(self.x.intervals, self.y.intervals, same=False)
        return AnswerRanges(lengths, of_each_record=True)

    def evaluate(self, data: Any) -> FloatArray:
        """Return the cross-moment of rows ``[x y]``, which is private."""
        left, right = self._grids
        split, read = self.x.columns, Columns.together(self.x.read, self.y.read)
        total = ExactSum((split, self.y.columns))
        blocks = record_blocks(data, read, block_rows(read.width, LEAST_PRODUCT_ROWS))
        for whole in whole_blocks(blocks, left, right):
            total.add(whole[:, :split].T @ whole[:, split:], len(whole))
        return _product_values(total, left.steps, right.steps)

    def __str__(self) -> str:
        """Say what is computed."""
        return f"cross-moment of records [x y], x: {self.x}; y: {self.y}"


def _product_values(total: ExactSum, left: FloatArray, right: FloatArray) -> FloatArray:
    """Return sums of products of integers in float64, rounded to multiples of 2**19 steps²."""
    # At most 2**53 such units; the factors are powers of two, so that nothing else is rounded.
    units = (left * 2.0**PRODUCT_BITS)[:, None] * right
    return np.asarray(total.rounded(PRODUCT_BITS) * units)


def product_rounding(left: FloatArray, right: FloatArray, unit: Fraction) -> Fraction:
    """Return by how much rounding to units lets the difference of two matrices grow, in norm.

    Two numbers, each rounded to the nearest multiple of a unit, differ by at most one unit more
    than before. The norm of the matrix of units is ``unit |left| |right|``.
    """
    lengths = [Fraction(sqrt_up(exact_squared_norm(steps))) for steps in (left, right)]
    return unit * lengths[0] * lengths[1]


def gram_change(parts: tuple[PublicBounds, ...], neighbouring: Neighbouring) -> Fraction:
    """Return a bound of the norm of ``z z^T``, or of the difference of two, for rows z = [x y ..].

    Derived in the docstring of `Gram`.
    """
    square = sum((part.squared_radius for part in parts), start=Fraction(0))
    if neighbouring == "add-remove":
        return square
    whole = Fraction(sqrt_up(2 * square**2))
    # With one norm for several columns the ranges of single entries say less.
    if len(parts) == 1 and parts[0].lower is None and parts[0].columns > 1:
        return whole
    interval = (
        np.concatenate([part.intervals[0] for part in parts]),
        np.concatenate([part.intervals[1] for part in parts]),
    )
    return min(whole, _entrywise(interval, interval, same=True))


def cross_change(x: PublicBounds, y: PublicBounds, neighbouring: Neighbouring) -> Fraction:
    """Return a bound of the norm of ``x y^T``, or of the difference of two.

    Derived in the docstring of `CrossMoment`.
    """
    product = Fraction(sqrt_up(x.squared_radius * y.squared_radius))
    if neighbouring == "add-remove":
        return product
    # Likewise: two norms alone say more than the ranges of the entries.
    if x.lower is None and y.lower is None:
        return 2 * product
    return min(2 * product, _entrywise(x.intervals, y.intervals, same=False))


def _entrywise(x: Interval, y: Interval, *, same: bool) -> Fraction:
    """Return the norm of the matrix of the lengths of the ranges of ``x_i y_j``, rounded up.

    Parameters
    ----------
    x, y : pair of ndarray
        The ranges of the entries.
    same : bool
        Whether y is x, so that the entries on the diagonal are squares.
    """
    corners = [np.multiply.outer(a, b) for a in x for b in y]
    lengths = np.maximum.reduce(corners) - np.minimum.reduce(corners)
    if same:
        squares = np.square(x)
        least = np.where((x[0] <= 0.0) & (x[1] >= 0.0), 0.0, squares.min(axis=0))
        np.fill_diagonal(lengths, squares.max(axis=0) - least)
    # Each length is a difference of two rounded products, which may cancel: the error is a share
    # of the larger one, so that it is added and not multiplied.
    largest = np.maximum.reduce([np.abs(corner) for corner in corners])
    lengths += largest * 2.0**-50
    scale = float(lengths.max())
    norm = scale * math.sqrt(float(np.sum(np.square(lengths / scale))))
    return Fraction(inflated(norm, lengths.size + 16))
