"""Rows of features: each record owns one row of the released matrix."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.parameters import positive_integer
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import block_rows
from matrixdp.queries.grid import RecordGrid, whole_blocks
from matrixdp.queries.one_row import box_of, change_in_box, change_in_norm
from matrixdp.queries.preview import AnswerRanges
from matrixdp.queries.query import Query, check_bounds
from matrixdp.queries.sources import record_blocks
from matrixdp.rounding import float_up
from matrixdp.sensitivity.sets import RowBounds, RowBox

__all__ = ["Features"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Features(Query):
    """One row of features for each record, in the order of the data.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every row.
    neighbouring : {"replace"}
        Only replacing: another record more would be another row, which everybody sees.
    count : int
        The number of records, which is public.

    Notes
    -----
    *Sensitivity.* Replacing a record changes its row x to y and no other. ``|y - x|`` is at most
    2 C for a norm C, attained by y = -x, and an entry changes by at most the length of its range,
    attained by opposite corners; for both together see `Sum`. The set is `RowBounds` or `RowBox`,
    whichever takes less noise.

    Each record is released once, in a row of its own. The guarantee is the one a record would have
    if it added the noise itself: nothing is hidden among others, and nothing is amplified by
    sampling. Whatever computes the features must not depend on the records.

    Examples
    --------
    >>> query = Features(PublicBounds(2, norm=1.0), "replace", count=3)
    >>> query.sensitivity.bounds.tolist()
    [2.0, 2.0, 2.0]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    count: int

    def __post_init__(self) -> None:
        """Raise unless these are bounds, the relation and a count."""
        check_bounds(self.bounds)
        if checked_neighbouring(self.neighbouring) != "replace":
            raise InvalidParameterError(
                f"neighbouring={self.neighbouring!r}: rows of features show how many records there "
                "are, so that only 'replace' can hold"
            )
        object.__setattr__(self, "count", positive_integer(self.count, "count"))

    @cached_property
    def sensitivity(self) -> RowBounds | RowBox:
        """What one row can change by."""
        ball = change_in_norm(self.bounds, "replace")
        sides = change_in_box(self.bounds, "replace").tolist()
        # Total variances of a row at mu = 1.
        if self.bounds.columns * ball**2 <= sum(map(Fraction, sides)) ** 2:
            return RowBounds(np.full(self.count, float_up(ball)), "replace")
        return box_of(sides, self.bounds, "replace")

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns; rows have none."""
        names = self.bounds.names
        return None if names is None else MatrixLabels(list(names))

    @property
    def ranges(self) -> AnswerRanges:
        """Those of the columns."""
        shape = (self.count, self.bounds.columns)
        return AnswerRanges(np.broadcast_to(self.bounds.widths, shape), of_each_record=False)

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    def evaluate(self, data: Any) -> FloatArray:
        """Return the rows within their bounds, which are private."""
        value = np.empty((self.count, self.bounds.columns))
        filled = 0
        blocks = record_blocks(data, self.bounds.read, block_rows(self.bounds.columns))
        for whole in whole_blocks(blocks, self._grid):
            if not filled + len(whole) <= self.count:
                raise self._wrong_count()
            np.multiply(whole, self._grid.steps, out=value[filled : filled + len(whole)])
            filled += len(whole)
        if filled != self.count:
            raise self._wrong_count()
        return value

    def _wrong_count(self) -> ShapeError:
        return ShapeError(
            f"count={self.count} is not the number of records in data: it is public, so pass it"
        )

    def __str__(self) -> str:
        """Say what is released."""
        return f"one row of features for each record, {self.bounds}"
