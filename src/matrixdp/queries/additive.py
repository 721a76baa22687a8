"""Queries whose answer follows from sums over records, wherever the records are."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.integer_sums import Part, merged
from matrixdp.mechanisms.collecting import collected
from matrixdp.queries.exact_sums import MOST_RECORDS
from matrixdp.queries.query import Query

__all__ = ["AdditiveQuery", "shown_most"]

FloatArray = NDArray[np.float64]


class AdditiveQuery(Query):
    """A query whose answer follows from sums of integers over the records.

    Each of them is computed as ``finish(merge(partial(block) for block in blocks))``. Parts are
    exact, and merging them is associative and commutative. So the answer has the same bits in any
    order, in any tree, however the records are divided into blocks, and wherever these are: in one
    process (`evaluate` of anything in memory or in files), or on the workers of a cluster
    (`evaluate` of a Dask array or frame).

    Examples
    --------
    >>> from matrixdp.queries import PublicBounds, Sum
    >>> query = Sum(PublicBounds(1, lower=0, upper=9), "replace")
    >>> parts = [query.partial(block) for block in ([[1.0], [2.0]], [[5.0]])]
    >>> query.finish(query.merge(reversed(parts))).tolist()
    [[8.0]]
    """

    most_records: int
    """A public bound of the number of records."""

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns that are read of a table with names; None for all of them."""
        return None

    @abstractmethod
    def partial(self, data: Any) -> Part:
        """Return what the records of a block, or of any source of them, contribute.

        There may be none, so that blocks can be empty.

        Raises
        ------
        InvalidParameterError, ShapeError
            If the data cannot be read; the message never shows a record.
        """

    @staticmethod
    def merge(parts: Iterable[Part]) -> Part:
        """Return what the records of all parts contribute, of which there is at least one."""
        return merged(parts)

    def finish(self, part: Part) -> FloatArray:
        """Return the answer from what all records contribute; both are private.

        Raises
        ------
        InvalidParameterError, ShapeError
            If there are no records, or more than the public bound.
        """
        if not part.records:
            raise ShapeError("data has no records: a query needs at least one")
        # How many there are is private, and not shown.
        if not part.records <= self.most_records:
            raise InvalidParameterError(
                f"data has more than {self.most_records} records: pass a larger public bound, "
                "most_records=..., if the query takes one"
            )
        return self._answer(part)

    @abstractmethod
    def _answer(self, part: Part) -> FloatArray:
        """Return the answer from what at least one record and no more than the bound contribute."""

    def evaluate(self, data: Any) -> FloatArray:
        """Return the exact matrix, which is private: pass it to a mechanism and nowhere else.

        Parameters
        ----------
        data : Any
            Records in memory, in files, in a database or on a cluster: docs/queries.md lists what
            is read.
        """
        return self.finish(self.collected(data))

    def collected(self, data: Any) -> Part:
        """Return what all records contribute, read and added up where they are."""
        return collected(self.partial, data, self.columns_read)


def shown_most(most_records: int) -> str:
    """Return a public bound of the number of records in words, if it is not the usual one."""
    return "" if most_records == MOST_RECORDS else f", at most {most_records} records"
