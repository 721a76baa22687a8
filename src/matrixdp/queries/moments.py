"""Second moments that are not centred, and what one record changes in sums of products."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.integer_sums import Part, RunningSum
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.additive import AdditiveQuery, shown_most
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import (
    MOST_RECORDS,
    block_rows,
    checked_most,
    for_products,
)
from matrixdp.queries.grid import RecordGrid, whole_blocks
from matrixdp.queries.names import Columns
from matrixdp.queries.preview import AnswerRanges, product_lengths
from matrixdp.queries.products import (
    cross_change,
    gram_change,
    gram_part,
    product_bits,
    product_rounding,
    product_values,
)
from matrixdp.queries.query import check_bounds, labels_of
from matrixdp.queries.sources import record_blocks
from matrixdp.queries.units import ball, in_units, symmetric_set, units_of
from matrixdp.rounding import float_up
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import FrobeniusBall, SymmetricBall

__all__ = ["CrossMoment", "Gram", "JointMoments"]

FloatArray = NDArray[np.float64]


def _gram_set(
    parts: tuple[PublicBounds, ...], neighbouring: Neighbouring, most_records: int
) -> SymmetricBall | ScaledSymmetricBall:
    units = units_of(*parts)
    if units is None:
        return SymmetricBall(_gram_bound(parts, neighbouring, most_records), neighbouring)
    ends = np.cumsum([part.columns for part in parts])[:-1]
    scaled = tuple(map(in_units, parts, np.split(units, ends)))
    return symmetric_set(_gram_bound(scaled, neighbouring, most_records), units, neighbouring)


def _gram_bound(
    parts: tuple[PublicBounds, ...], neighbouring: Neighbouring, most_records: int
) -> float:
    steps = _joined_steps(tuple(map(RecordGrid, parts)))
    rounding = product_rounding(steps, steps, Fraction(2 ** product_bits(most_records)))
    return float_up(gram_change(parts, neighbouring) + rounding)


def _joined_steps(grids: tuple[RecordGrid, ...]) -> FloatArray:
    return np.concatenate([grid.steps for grid in grids])


@dataclass(frozen=True)
class Gram(AdditiveQuery):
    """The Gram matrix ``X^T X`` of the records, the sum of ``x x^T``: symmetric.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every record.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.
    most_records : int, optional
        A public bound of the number of records; more are refused.

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

    *Nothing is centred*, because the moments are about 0. A column far from 0 compared with the
    length of its range, such as a year, has noise as its largest value and not as its length:
    subtract a public number from it first, such as the middle of its range, or ask for the
    `SampleCovariance`.

    *Rounding.* Records are rounded to a public grid, products are added up in integers, and sums
    are rounded to a multiple of ``2**19 step_i step_j``. Two rounded matrices differ by at most
    ``2**19 |steps|^2`` more than before, which is added: for a norm C and d columns at most
    ``d 2**-21 C^2``, a share of 0.00012 for 256 columns. An entry of n records is off by at most
    ``n C step``, a share of 2**-20 of the largest that it could be, and half such a unit.

    *More records.* That is for a bound of 2**30 records: integers are up to 2**21, their products
    up to 2**42, and sums of ``2**c`` of those lose ``c - 11`` bits, so that float64 holds the rest.
    The unit is ``2**(c - 11) step_i step_j`` then, and as much is added in its place. So the
    guarantee holds for any bound; 2**34 records cost a share of 0.002 for 256 columns.

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
    most_records: int = MOST_RECORDS

    def __post_init__(self) -> None:
        """Raise unless these are bounds, a relation and a bound of the records."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)
        object.__setattr__(self, "most_records", checked_most(self.most_records))

    @cached_property
    def sensitivity(self) -> SymmetricBall | ScaledSymmetricBall:
        """A ball of symmetric matrices, in the units of the columns."""
        return _gram_set((self.bounds,), self.neighbouring, self.most_records)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns, twice."""
        return labels_of(self.bounds)

    @property
    def ranges(self) -> AnswerRanges:
        """The ranges of the products of two values of a record."""
        intervals = self.bounds.intervals
        lengths = product_lengths(intervals, intervals, same=True)
        return AnswerRanges(lengths, of_each_record=True)

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.bounds.names

    def partial(self, data: Any) -> Part:
        """Return the products of the records of a block or a source, in steps; private."""
        return gram_part(data, self._grid)

    def _answer(self, part: Part) -> FloatArray:
        steps, bits = self._grid.steps, product_bits(self.most_records)
        return product_values(part.sums[0], steps, steps, bits)

    def __str__(self) -> str:
        """Say what is computed."""
        return f"Gram matrix of records, {self.bounds}{shown_most(self.most_records)}"


@dataclass(frozen=True)
class _OfTwoParts(AdditiveQuery):
    """A query on rows ``[x y]`` whose parts have bounds of their own."""

    x: PublicBounds
    y: PublicBounds
    neighbouring: Neighbouring
    most_records: int = MOST_RECORDS

    def __post_init__(self) -> None:
        """Raise unless these are bounds, a relation and a bound of the records."""
        check_bounds(self.x, "x")
        check_bounds(self.y, "y")
        checked_neighbouring(self.neighbouring)
        object.__setattr__(self, "most_records", checked_most(self.most_records))
        Columns.together(self.x.read, self.y.read)

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns of both parts, if they have names."""
        return Columns.together(self.x.read, self.y.read).names

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
    most_records : int, optional
        A public bound of the number of records; more are refused.

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
        return _gram_set((self.x, self.y), self.neighbouring, self.most_records)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns of both parts, twice."""
        names = self.columns_read
        return None if names is None else MatrixLabels(list(names), list(names))

    @property
    def ranges(self) -> AnswerRanges:
        """The ranges of the products of two values of a row."""
        parts = self.x.intervals, self.y.intervals
        joined = np.concatenate(parts, axis=1)
        lengths = product_lengths((joined[0], joined[1]), (joined[0], joined[1]), same=True)
        return AnswerRanges(lengths, of_each_record=True)

    def partial(self, data: Any) -> Part:
        """Return the products of the rows ``[x y]`` of a block or a source; private."""
        return gram_part(data, *self._grids)

    def _answer(self, part: Part) -> FloatArray:
        steps, bits = _joined_steps(self._grids), product_bits(self.most_records)
        return product_values(part.sums[0], steps, steps, bits)

    def __str__(self) -> str:
        """Say what is computed."""
        most = shown_most(self.most_records)
        return f"joint moments of records [x y], x: {self.x}; y: {self.y}{most}"


class CrossMoment(_OfTwoParts):
    """The cross-moment ``X^T Y`` of rows ``[x y]``, the sum of ``x y^T``.

    Parameters
    ----------
    x, y : PublicBounds
        Enforced on the first columns of every record, and on the rest.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.
    most_records : int, optional
        A public bound of the number of records; more are refused.

    Notes
    -----
    *Sensitivity.* ``|x y^T| = |x| |y|``, so adding a record changes the matrix by at most
    ``Rx Ry``, attained. Replacing one changes it by at most ``2 Rx Ry``, attained by (x, y) and
    (-x, y). If boxes keep entry (i, j) in a range of length ``L_ij``, the change is at most ``|L|``
    too, and the smaller of the two is taken; for boxes without negative numbers it is attained by
    ``upper`` and ``lower``. A part with ranges alone is in units of its own, as in `Gram`. No bound
    is too large by more than a factor of 2: the corner farthest
    from 0 and the point nearest to 0 attain half of every ``L_ij``, and ``Rx Ry`` if that is 0.
    Rounding is that of `Gram`: ``2**19 |steps of x| |steps of y|`` is added, or more for a larger
    bound of the number of records.

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
        unit = Fraction(2 ** product_bits(self.most_records))
        rounding = product_rounding(RecordGrid(x).steps, RecordGrid(y).steps, unit)
        bound = float_up(cross_change(x, y, self.neighbouring) + rounding)
        rows = np.ones(x.columns) if rows is None else rows
        columns = np.ones(y.columns) if columns is None else columns
        return ball(bound, rows, columns, self.neighbouring)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns of y, for the rows those of x."""
        if self.x.names is None or self.y.names is None:
            return None
        return MatrixLabels(list(self.y.names), list(self.x.names))

    @property
    def ranges(self) -> AnswerRanges:
        """The ranges of the products of a value of x and a value of y."""
        lengths = product_lengths(self.x.intervals, self.y.intervals, same=False)
        return AnswerRanges(lengths, of_each_record=True)

    def partial(self, data: Any) -> Part:
        """Return the products of x and y of the records of a block or a source; private."""
        split, read = self.x.columns, Columns.together(self.x.read, self.y.read)
        total, records = RunningSum((split, self.y.columns)), 0
        blocks = record_blocks(data, read, block_rows(read.width))
        for whole in for_products(whole_blocks(blocks, *self._grids)):
            total.add(whole[:, :split].T @ whole[:, split:])
            records += len(whole)
        return Part(records, (total.total(),))

    def _answer(self, part: Part) -> FloatArray:
        left, right = self._grids
        bits = product_bits(self.most_records)
        return product_values(part.sums[0], left.steps, right.steps, bits)

    def __str__(self) -> str:
        """Say what is computed."""
        most = shown_most(self.most_records)
        return f"cross-moment of records [x y], x: {self.x}; y: {self.y}{most}"
