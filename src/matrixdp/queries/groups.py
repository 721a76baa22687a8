"""Counts, sums and second moments by group, in one release at the price of one group."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.integer_sums import Part, RunningSum
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.additive import AdditiveQuery, shown_most
from matrixdp.queries.attributes import (
    Attribute,
    cell_labels,
    checked_attributes,
    described,
    numbers,
)
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import (
    MOST_RECORDS,
    PRODUCT_ROWS,
    checked_most,
    dropped_bits,
    sum_rounding,
)
from matrixdp.queries.grid import GRID_BITS, RecordGrid
from matrixdp.queries.group_summary import GroupSummary, summary_of
from matrixdp.queries.mixed_rows import column_blocks
from matrixdp.queries.preview import AnswerRanges, product_lengths
from matrixdp.queries.products import gram_change, product_bits, product_rounding
from matrixdp.queries.query import check_bounds
from matrixdp.queries.units import in_units, units_of
from matrixdp.rounding import float_up, sqrt_up
from matrixdp.sensitivity.scaled import ScaledBall

__all__ = ["GroupMoments"]

FloatArray = NDArray[np.float64]

_MOST_ENTRIES = 2**24


@dataclass(frozen=True)
class GroupMoments(AdditiveQuery):
    """The number of records of each group, their sum and, if asked for, their second moments.

    The matrix has a row for each group: every combination of the attributes' cells, whether there
    are records or not. Its columns are the count, the sums and the second moments ``x_i x_j`` for
    i up to j. `summary` turns a release into means and covariances.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on the numbers of every record, with the names of their columns.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.
    by : sequence of Categories or Bins
        What groups are, by public values.
    order : {1, 2}, optional
        Up to which moments: counts and sums, or second moments besides.
    most_records : int, optional
        A public bound of the number of records; more are refused.

    Notes
    -----
    *Sensitivity.* Let r(x) be what a record contributes to the row of its group. Adding a record
    changes one row, by r(x): as many groups cost what one costs. Replacing a record changes one row
    by ``r(x) - r(y)`` if it stays in its group. If it moves, it changes two rows, one by r(x) and
    one by ``-r(y)``, by ``sqrt(2) max |r|`` together. The larger of the two is taken.

    *Nothing is centred*, as in `Gram`: subtract a public number from a column that is far from 0
    compared with the length of its range, and add it to the means again.

    *Units.* A row is measured in public units: those of `Gram` for columns with ranges alone, times
    a unit for each order. So counts, sums and second moments of d columns have shares of mu² as
    1 to ``sqrt(d)`` to d, of a record that is as large as the bounds allow. Without second moments
    that minimises the error of means as large as their bounds, as in `Mean` over a private count.

    *Rounding.* Counts are exact, and sums too for up to 2**32 records. Second moments are rounded
    as those of `Gram`, and sums of more records as those of `Sum`. The change of each row grows by
    as much.

    The size of a group is private under either relation. It is released with noise, and means are
    over the released size: never divide by ``len(group)``.

    Examples
    --------
    >>> import matrixdp as mdp
    >>> from matrixdp.queries import Categories, GroupMoments, PublicBounds
    >>> sex = Categories("sex", ["F", "M"])
    >>> bounds = PublicBounds(["age", "hours"], lower=0, upper=[90, 99])
    >>> query = GroupMoments(bounds, "add-remove", by=[sex])
    >>> query.evaluate([("F", 31, 40), ("M", 60, 20), ("F", 29, 38)]).tolist()
    [[2.0, 60.0, 78.0], [1.0, 60.0, 20.0]]
    >>> rows = [("F", 31, 40), ("M", 60, 20)] * 5000
    >>> summary = query.summary(query.release(rows, mdp.Budget(1.0, 1e-6)))
    >>> summary.means.round(-1).tolist()
    [[30.0, 40.0], [60.0, 20.0]]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    by: tuple[Attribute, ...]
    order: int
    most_records: int

    def __init__(
        self,
        bounds: PublicBounds,
        neighbouring: Neighbouring,
        *,
        by: Iterable[Attribute],
        order: int = 1,
        most_records: int = MOST_RECORDS,
    ) -> None:
        check_bounds(bounds)
        object.__setattr__(self, "most_records", checked_most(most_records))
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))
        object.__setattr__(self, "by", checked_attributes(by, "by"))
        if order not in (1, 2) or isinstance(order, bool):
            raise InvalidParameterError(f"order={order!r} must be 1, for sums, or 2")
        object.__setattr__(self, "order", order)
        if bounds.names is None or len(set(self._names)) != len(self._names):
            raise InvalidParameterError(
                "bounds must name their columns, and none as an attribute is called: pass "
                "PublicBounds(['age', 'hours'], ...)"
            )
        groups = math.prod(self._cells)
        if not groups * len(self.columns) <= _MOST_ENTRIES:
            raise InvalidParameterError(f"by has {groups} groups, which is too many: merge cells")

    @property
    def _names(self) -> list[str]:
        return [*(attribute.name for attribute in self.by), *(self.bounds.names or ())]

    @property
    def _cells(self) -> list[int]:
        return [len(attribute.labels) for attribute in self.by]

    @property
    def ranges(self) -> AnswerRanges:
        """Of the count, the numbers and their products: what a record adds to its group."""
        intervals, width = self.bounds.intervals, self.bounds.columns
        parts = [np.ones(1), self.bounds.widths]
        if self.order == 2:
            lengths = product_lengths(intervals, intervals, same=True)
            parts.append(lengths[np.triu_indices(width)])
        row = np.concatenate(parts)
        shape = (math.prod(self._cells), len(row))
        return AnswerRanges(np.broadcast_to(row, shape), of_each_record=True)

    @property
    def labels(self) -> MatrixLabels:
        """The names of rows and columns, which releases have."""
        return MatrixLabels(self.columns, self.index)

    @cached_property
    def index(self) -> list[str]:
        """The names of the rows: the groups."""
        return cell_labels(self.by)

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names = self.bounds.names or ()
        pairs = [f"sum of {names[i]} * {names[j]}" for i, j in zip(*self._pairs, strict=True)]
        sums = [f"sum of {name}" for name in names]
        return ["count", *sums, *(pairs if self.order == 2 else [])]

    @property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        return np.triu_indices(self.bounds.columns)

    @cached_property
    def sensitivity(self) -> ScaledBall:
        """A ball, in the units of counts, sums and second moments."""
        units = units_of(self.bounds)
        bounds = self.bounds if units is None else in_units(self.bounds, units)
        of_count, of_sums, of_products = map(Fraction, self._orders(bounds))
        square = bounds.squared_radius
        # Squared norms of a row: of one record, and of the difference of two in one group.
        whole = 1 / of_count**2 + square / of_sums**2
        within = bounds.squared_distance / of_sums**2
        steps = RecordGrid(bounds).steps
        rounding = sum_rounding(steps, self._sum_bits) / of_sums
        if self.order == 2:
            whole += (square / of_products) ** 2
            within += (gram_change((bounds,), "replace") / of_products) ** 2
            unit = Fraction(2 ** product_bits(self.most_records))
            rounding += product_rounding(steps, steps, unit) / of_products
        change = Fraction(sqrt_up(whole)) + rounding
        if self.neighbouring == "replace":
            moved = Fraction(sqrt_up(Fraction(2))) * change
            change = max(moved, Fraction(sqrt_up(within)) + rounding)
        return ScaledBall(
            float_up(change),
            np.ones(len(self.index)),
            self._column_units(np.ones(bounds.columns) if units is None else units, bounds),
            self.neighbouring,
        )

    @property
    def _sum_bits(self) -> int:
        """How many bits of the sums are rounded off."""
        return dropped_bits(self.most_records, GRID_BITS)

    def _orders(self, bounds: PublicBounds) -> tuple[float, float, float]:
        """Return the units of counts, of sums and of second moments, beside those of columns.

        A record as large as the bounds allow contributes the square roots of its shares of mu².
        """
        root = math.sqrt(bounds.columns)
        shares = np.array([1.0, root, root**2 if self.order == 2 else 0.0])
        shares /= shares.sum()
        square = float_up(bounds.squared_radius)
        sizes = np.array([1.0, math.sqrt(square), square])
        units = sizes / np.sqrt(np.where(shares > 0.0, shares, 1.0))
        return float(units[0]), float(units[1]), float(units[2])

    def _column_units(self, units: FloatArray, bounds: PublicBounds) -> FloatArray:
        """Return the unit of every column of the matrix, rounded up, which enlarges the set."""
        of_count, of_sums, of_products = self._orders(bounds)
        parts = [np.array([of_count]), units * of_sums]
        if self.order == 2:
            left, right = self._pairs
            # A product of two columns stands for both entries of a mirrored pair.
            pair = np.where(left == right, 1.0, math.sqrt(0.5))
            parts.append(units[left] * units[right] * of_products * pair)
        # Below the true product by five roundings at most, of the eight units here.
        return np.asarray(np.concatenate(parts) * (1.0 + 2.0**-50))

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the attributes and the columns."""
        return tuple(self._names)

    def partial(self, data: Any) -> Part:
        """Return counts, sums and products of every group, of a block or a source; private.

        Parameters
        ----------
        data : sequence of rows, array, data frame, or iterator of such blocks
            The attributes and the columns of the bounds, by name; rows without names have the
            attributes first.
        """
        groups, width = len(self.index), self.bounds.columns
        left, right = self._pairs
        records = 0
        sums = RunningSum((groups, 1 + width))
        products = RunningSum((groups, len(left) if self.order == 2 else 0))
        for columns in column_blocks(data, self._names):
            rows = self._groups_of(columns[: len(self.by)])
            block = np.column_stack([numbers(column) for column in columns[len(self.by) :]])
            records += len(block)
            for start in range(0, len(rows), PRODUCT_ROWS):
                part = slice(start, start + PRODUCT_ROWS)
                whole = self._grid(block[part])
                ones = np.ones((len(whole), 1))
                sums.add(_by_row(rows[part], np.hstack([ones, whole]), groups))
                if self.order == 2:
                    pairs = whole[:, left] * whole[:, right]
                    products.add(_by_row(rows[part], pairs, groups))
        return Part(records, (sums.total(), products.total()))

    def _answer(self, part: Part) -> FloatArray:
        sums, products = part.sums
        steps, bits = self._grid.steps, self._sum_bits
        counts = sums.rounded(0)[:, :1].astype(np.float64)
        columns = [counts, sums.rounded(bits)[:, 1:] * (steps * 2.0**bits)]
        if self.order == 2:
            (left, right), bits = self._pairs, product_bits(self.most_records)
            columns.append(products.rounded(bits) * (steps[left] * 2.0**bits * steps[right]))
        return np.asarray(np.hstack(columns))

    def _groups_of(self, columns: list[NDArray[Any]]) -> NDArray[np.intp]:
        cells = [each.cells(column) for each, column in zip(self.by, columns, strict=True)]
        return np.asarray(np.ravel_multi_index(cells, self._cells))

    def summary(self, release: Any) -> GroupSummary:
        """Return sizes, means and covariances from a release of this query: post-processing.

        Parameters
        ----------
        release : Release
            Also one that was saved and loaded.
        """
        if getattr(release, "shape", None) != (len(self.index), len(self.columns)):
            raise ShapeError("release is not one of this query: its shape is another")
        found = release.labels or MatrixLabels()  # of an array, or of a file that keeps none
        if not _same(found.columns, self.columns) or not _same(found.index, self.index):
            raise InvalidParameterError(
                "release is not one of this query: its rows or columns have other names"
            )
        return summary_of(release, self.index, self.bounds.names or (), self.order)

    def __str__(self) -> str:
        """Say what is computed."""
        what = "counts and sums" if self.order == 1 else "counts, sums and second moments"
        names = ", ".join(self.bounds.names or ())
        most = shown_most(self.most_records)
        return f"{what} of {names} by {described(self.by)}, {self.bounds.in_words}{most}"


def _same(found: Sequence[str] | None, names: Sequence[str]) -> bool:
    """Return whether names are these, where there are any."""
    return found is None or list(found) == list(names)


def _by_row(rows: NDArray[np.intp], parts: FloatArray, groups: int) -> FloatArray:
    """Return the sum of the parts of every group: integers below 2**53, exact in any order."""
    total = np.zeros((groups, parts.shape[1]))
    np.add.at(total, rows, parts)
    return total
