"""Contingency tables: counts of records by the values of some attributes."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.integer_sums import Part
from matrixdp.mechanisms.collecting import mapped
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.parameters import LARGEST_EXACT_INTEGER, members_of
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.additive import AdditiveQuery
from matrixdp.queries.attributes import Attribute, cell_labels, checked_attributes, described
from matrixdp.queries.mixed_rows import column_blocks
from matrixdp.queries.preview import AnswerRanges
from matrixdp.rounding import sqrt_up
from matrixdp.sensitivity.sets import FrobeniusBall
from matrixdp.workloads import CellNames, Workload, marginals
from matrixdp.workloads.counting import TableCounts
from matrixdp.workloads.operator import LARGEST_HISTOGRAM

__all__ = ["ContingencyTable"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ContingencyTable(AdditiveQuery):
    """How many records have each combination of values.

    The matrix has a row for each cell of the first attribute and a column for each combination of
    the others; a histogram of one attribute is a matrix of one column.

    Parameters
    ----------
    attributes : sequence of Categories or Bins
        One for each column of the data. Columns of tables that have names (pandas, polars, Arrow)
        are found by them, whatever their order and whatever else the table has; rows and arrays go
        by position.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.

    Notes
    -----
    *Sensitivity.* Adding a record changes one count by 1. Replacing one moves it from a cell to
    another: one count falls by 1 and one grows by 1, so the norm is ``sqrt(2)``. Both are attained.

    For linear queries on the table, such as marginals or ranges, pass `counts` to
    `MatrixMechanism`, which adds less noise. The table itself may have up to 2**26 cells. Marginals
    of larger ones are released from the records: see `marginals` and `cells`.

    Examples
    --------
    >>> from matrixdp.queries import Bins, Categories, ContingencyTable
    >>> attributes = [Categories("sex", ["F", "M"]), Bins("age", [0, 40, 120])]
    >>> table = ContingencyTable(attributes, "replace")
    >>> table.evaluate([("F", 31), ("M", 62), ("F", 40)]).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    >>> table.columns
    ['age=[0; 40)', 'age=[40; 120]']
    """

    attributes: tuple[Attribute, ...]
    neighbouring: Neighbouring
    most_records: int = field(default=LARGEST_EXACT_INTEGER, init=False, repr=False)

    def __init__(self, attributes: Iterable[Attribute], neighbouring: Neighbouring) -> None:
        object.__setattr__(self, "attributes", checked_attributes(attributes, "attributes"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells of each attribute."""
        return tuple(len(attribute.labels) for attribute in self.attributes)

    @property
    def index(self) -> list[str]:
        """The names of the rows."""
        return [f"{self.attributes[0].name}={label}" for label in self.attributes[0].labels]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        rest = self.attributes[1:]
        if not rest:
            return ["count"]
        return cell_labels(rest)

    @property
    def cell_names(self) -> tuple[CellNames, ...]:
        """The names of the cells along each attribute, which `MatrixMechanism` takes."""
        return tuple(CellNames(each.name, tuple(each.labels)) for each in self.attributes)

    @property
    def labels(self) -> MatrixLabels:
        """The names of rows and columns, which releases have."""
        return MatrixLabels(self.columns, self.index)

    @cached_property
    def sensitivity(self) -> FrobeniusBall:
        """A ball of radius 1 or sqrt(2)."""
        bound = 1.0 if self.neighbouring == "add-remove" else sqrt_up(Fraction(2))
        return FrobeniusBall(bound, self.neighbouring)

    @property
    def ranges(self) -> AnswerRanges:
        """A record counts once, in one cell."""
        rows, *rest = self.dimensions
        return AnswerRanges(np.ones((rows, math.prod(rest))), of_each_record=True)

    def counts(self, data: Any) -> NDArray[np.int64]:
        """Return the counts in the shape of the dimensions, which are private."""
        return self.evaluate(data).reshape(self.dimensions).astype(np.int64)

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The names of the attributes."""
        return tuple(attribute.name for attribute in self.attributes)

    def partial(self, data: Any) -> Part:
        """Return the counts of the records of a block or a source; private."""
        return self._counts.partial(self._cells(data))

    @cached_property
    def _counts(self) -> TableCounts:
        if not math.prod(self.dimensions) <= LARGEST_HISTOGRAM:
            raise InvalidParameterError(
                f"attributes have the dimensions {self.dimensions}: the table must have at most "
                f"{LARGEST_HISTOGRAM} cells; merge cells, or release its marginals"
            )
        return TableCounts(self.dimensions, (tuple(range(len(self.dimensions))),))

    def _answer(self, part: Part) -> FloatArray:
        return part.sums[0].rounded(0).reshape(self.dimensions[0], -1).astype(np.float64)

    # Any: an iterator of arrays, or records that Dask's workers read.
    def cells(self, data: Any) -> Any:
        """Return the number of each record's cell along each attribute, in blocks; private.

        These are the records that `MatrixMechanism.release_records` takes. Those of a Dask object
        are made where it is computed.

        Parameters
        ----------
        data : sequence of rows, array, data frame, or iterator of such blocks
            One value for each attribute in a row; columns with names may be in any order.

        Examples
        --------
        >>> import matrixdp as mdp
        >>> from matrixdp.queries import Bins, Categories, ContingencyTable
        >>> attributes = [Categories(f"code {n}", range(1000)) for n in range(12)]
        >>> table = ContingencyTable([Bins("age", [0, 40, 120]), *attributes], "add-remove")
        >>> workload = table.marginals([("age", "code 3"), ("code 7",)])
        >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
        >>> mechanism = mdp.MatrixMechanism(workload, budget, neighbouring=table.neighbouring)
        >>> release = mechanism.release_records(table.cells([(age, *[7] * 12) for age in (31, 62)]))
        >>> release.table(table.numbers(("code 3", "age"))).shape
        (1000, 2)
        """
        return mapped(self._cells, data, self.columns_read)

    def _cells(self, data: Any) -> Iterator[NDArray[np.int64]]:
        for block in column_blocks(data, self.columns_read):
            columns = zip(self.attributes, block, strict=True)
            yield np.stack([attribute.cells(column) for attribute, column in columns], axis=1)

    def marginals(self, kept: Iterable[Sequence[str]]) -> Workload:
        """Return the workload of the tables of some groups of attributes, by their names."""
        return marginals(self.dimensions, [self.numbers(names) for names in kept])

    def numbers(self, names: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of attributes, by their names.

        Raises
        ------
        InvalidParameterError
            If a name is not that of exactly one attribute.
        """
        known = [attribute.name for attribute in self.attributes]
        wanted = members_of(names, "names", "names of attributes, such as ('age', 'sex')")
        for name in wanted:
            if known.count(name) != 1:
                raise InvalidParameterError(
                    f"names holds {name!r}, which {known.count(name)} attributes are called: there "
                    f"are {', '.join(map(repr, known))}"
                )
        return tuple(known.index(name) for name in wanted)

    def __str__(self) -> str:
        """Say what is counted."""
        return f"counts of records by {described(self.attributes)}"
