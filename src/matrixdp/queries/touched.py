"""How many records the bounds move: a question about the data, and paid for like any other."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import ExactSum, block_rows
from matrixdp.queries.grid import RecordGrid
from matrixdp.queries.query import Query, check_bounds
from matrixdp.queries.sources import record_blocks
from matrixdp.sensitivity.sets import FrobeniusBall

__all__ = ["TouchedRecords"]


@dataclass(frozen=True)
class TouchedRecords(Query):
    """The number of records that clipping or clamping changes: a matrix of one entry.

    Use it to judge bounds that were chosen without looking at the data.

    Parameters
    ----------
    bounds : PublicBounds
        The bounds in question.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.

    Notes
    -----
    *Sensitivity.* Each record counts 0 or 1, and whether it counts depends on it alone. So one
    record changes the count by at most 1 under either relation, attained. A record counts if one of
    its numbers moves by more than a step of the grid, which is at most 2**-20 of its bound.

    Examples
    --------
    >>> query = TouchedRecords(PublicBounds(2, norm=1.0), "add-remove")
    >>> query.evaluate([[0.5, 0.5], [3.0, 4.0]]).tolist()
    [[1.0]]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise unless these are bounds and a relation."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)

    @cached_property
    def sensitivity(self) -> FrobeniusBall:
        """One."""
        return FrobeniusBall(1.0, self.neighbouring)

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    def evaluate(self, data: Any) -> NDArray[np.float64]:
        """Return the count, which is private."""
        columns = self.bounds.columns
        total = ExactSum((1, 1))
        for block in record_blocks(data, columns, block_rows(columns)):
            touched = np.count_nonzero(self._grid.touched(block))
            total.add(np.array([[float(touched)]]), len(block))
        return total.rounded(0).astype(np.float64)

    def __str__(self) -> str:
        """Say what is counted."""
        return f"number of records that are changed by the bounds: {self.bounds}"
