"""Sums of records and of per-example gradients, and the number of records that bounds change."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.integer_sums import Integers, Part, RunningSum
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.parameters import LARGEST_EXACT_INTEGER, checked_integers, members_of
from matrixdp.parameters.arrays import plain_array
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.additive import AdditiveQuery, shown_most
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import (
    MOST_RECORDS,
    block_rows,
    checked_most,
    column_sums,
    dropped_bits,
)
from matrixdp.queries.grid import GRID_BITS, RecordGrid, whole_blocks
from matrixdp.queries.one_row import single_row_set
from matrixdp.queries.preview import AnswerRanges
from matrixdp.queries.query import check_bounds, labels_of
from matrixdp.queries.sources import record_blocks
from matrixdp.sensitivity.sets import FrobeniusBall, RowBox

__all__ = ["ClippedRecords", "GradientSum", "Sum", "column_part"]

FloatArray = NDArray[np.float64]


def column_part(data: Any, grid: RecordGrid) -> Part:
    """Return the part of the records of a source in a sum: integer multiples of a grid's steps."""
    columns = grid.bounds.columns
    total, records = RunningSum((1, columns)), 0
    for whole in whole_blocks(record_blocks(data, grid.bounds.read, block_rows(columns)), grid):
        total.add(column_sums(whole)[None])
        records += len(whole)
    return Part(records, (total.total(),))


@dataclass(frozen=True)
class Sum(AdditiveQuery):
    """The sum of the records: a matrix of one row.

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
    *Sensitivity.* Adding a record x changes the sum by x: its norm is at most the norm bound C, and
    its entries are within the box. Replacing x by y changes it by ``y - x``, of norm at most 2 C,
    with entries at most as large as the lengths of the ranges. Both are attained, by x of norm C
    and ``y = -x``, or by opposite corners. For a norm and ranges from ``-a_i`` to ``b_i`` together,
    ``|y - x|^2`` is also at most ``2 C^2 + 2 sum a_i b_i``, because no product ``x_i y_i`` is below
    ``-a_i b_i``. This may be too large, by at most a factor of 2: unless the norm allows the whole
    box, a record of norm C and 0 are C apart. The set is a `FrobeniusBall` or a `RowBox`, whichever
    takes less noise.

    *Rounding.* Records are rounded to a public grid whose step is at most 2**-20 of the bound, so
    the sum of n records is off by at most n/2 steps; in practice by about ``0.3 sqrt(n)`` steps,
    because roundings cancel. It is added up in integers, which float64 holds for up to 2**32
    records. If more may come, for a bound of ``2**c`` records the sum is rounded to a multiple of
    ``2**(c - 32)`` steps. Two numbers that are rounded to multiples of a unit differ by at most one
    unit more than before, so one unit for every entry is added to the sensitivity, and the
    guarantee holds as it is.

    Examples
    --------
    >>> import matrixdp as mdp
    >>> from matrixdp.queries import PublicBounds, Sum
    >>> query = Sum(PublicBounds(2, norm=1.0), "add-remove")
    >>> query.sensitivity
    FrobeniusBall(bound=1.0, neighbouring='add-remove')
    >>> release = query.release([[0.5, 0.5], [3.0, 4.0]], mdp.Budget(1.0, 1e-5))
    >>> release.shape
    (1, 2)
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    most_records: int = MOST_RECORDS

    def __post_init__(self) -> None:
        """Raise unless these are bounds, a relation and a number of records."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)
        object.__setattr__(self, "most_records", checked_most(self.most_records))

    @cached_property
    def sensitivity(self) -> FrobeniusBall | RowBox:
        """A ball or a box around every record, or around every difference of two."""
        rounding = self.grid.steps * 2.0**self._bits if self._bits else None
        return single_row_set(self.bounds, self.neighbouring, rounding=rounding)

    @property
    def _bits(self) -> int:
        """How many bits of the sum are rounded off."""
        return dropped_bits(self.most_records, GRID_BITS)

    @cached_property
    def grid(self) -> RecordGrid:
        """The grid on which records become integers."""
        return RecordGrid(self.bounds)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns."""
        return labels_of(self.bounds, "sum")

    @property
    def ranges(self) -> AnswerRanges:
        """The ranges of the values that a record adds."""
        return AnswerRanges(self.bounds.widths[None], of_each_record=True)

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.bounds.names

    def partial(self, data: Any) -> Part:
        """Return the sum of the records of a block or a source, in steps; private."""
        return column_part(data, self.grid)

    def _answer(self, part: Part) -> FloatArray:
        # At most 2**53 units, whose size is a power of two: a float64 without rounding.
        return np.asarray(part.sums[0].rounded(self._bits) * (self.grid.steps * 2.0**self._bits))

    def __str__(self) -> str:
        """Say what is summed."""
        return f"sum of records, {self.bounds}{shown_most(self.most_records)}"


@dataclass(frozen=True)
class GradientSum(AdditiveQuery):
    """The sum of per-example gradients, each clipped over all parameters together.

    Parameters
    ----------
    shapes : sequence of tuple of int
        The shape of each parameter.
    norm : float
        The clip norm of one example's whole gradient.
    neighbouring : {"add-remove", "replace"}
        What a record's change is. One record is one example.
    most_records : int, optional
        As for `Sum`.

    Notes
    -----
    *Sensitivity.* As for `Sum`: ``norm`` under adding or removing an example and ``2 norm`` under
    replacing one, both attained. Clipping each of k parameters by itself would cost ``sqrt(k)``
    times as much. Nothing is amplified by sampling here; `matrixdp.training` plans sampled steps.

    Examples
    --------
    >>> import numpy as np
    >>> query = GradientSum([(2, 2), (2,)], norm=1.0, neighbouring="add-remove")
    >>> gradients = [np.ones((10, 2, 2)), np.zeros((10, 2))]
    >>> [part.shape for part in query.split(query.evaluate(gradients))]
    [(2, 2), (2,)]
    """

    shapes: tuple[tuple[int, ...], ...]
    norm: float
    neighbouring: Neighbouring
    most_records: int

    def __init__(
        self,
        shapes: Iterable[Sequence[int]],
        norm: float,
        neighbouring: Neighbouring,
        most_records: int = MOST_RECORDS,
    ) -> None:
        members = members_of(shapes, "shapes", "one shape for each parameter")
        checked = tuple(checked_integers(shape, "shapes") for shape in members)
        if not checked or not all(side >= 1 for shape in checked for side in shape):
            raise ShapeError(f"shapes={checked} must be shapes of parameters that are not empty")
        object.__setattr__(self, "shapes", checked)
        object.__setattr__(self, "norm", norm)
        object.__setattr__(self, "neighbouring", neighbouring)
        object.__setattr__(self, "most_records", checked_most(most_records))
        _ = self._sum  # raises here rather than at the first release

    @cached_property
    def _sum(self) -> Sum:
        columns = sum(math.prod(shape) for shape in self.shapes)
        bounds = PublicBounds(columns, norm=self.norm)
        return Sum(bounds, self.neighbouring, self.most_records)

    @property
    def sensitivity(self) -> FrobeniusBall | RowBox:
        """A ball whose radius is the clip norm, or twice that."""
        return self._sum.sensitivity

    @property
    def ranges(self) -> AnswerRanges:
        """The ranges of the entries of a gradient."""
        return self._sum.ranges

    def partial(self, data: Any) -> Part:
        """Return the sum of the gradients of a batch, or of several; private.

        Parameters
        ----------
        data : list of arrays, or an iterator of such lists
            For each parameter the gradients of a batch, of shape ``(examples, *shape)``.
        """
        batches = [data] if isinstance(data, list | tuple) else data
        if not isinstance(batches, Iterable) or isinstance(batches, np.ndarray | str | dict):
            raise InvalidParameterError(
                f"data is a {type(data).__name__}: pass a list with the gradients of each "
                "parameter, or an iterator of such lists"
            )
        return self._sum.partial(self._rows(batches))

    def _answer(self, part: Part) -> FloatArray:
        return self._sum.finish(part)

    def split(self, matrix: FloatArray) -> list[FloatArray]:
        """Return a released sum as one array for each parameter."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])
        parts = np.split(np.asarray(matrix).reshape(-1), ends[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def _rows(self, batches: Iterable[Any]) -> Iterator[NDArray[Any]]:
        for batch in batches:
            listed = batch if isinstance(batch, list | tuple) else []
            arrays = [plain_array(part, "data", keep_single=True) for part in listed]
            # The first axis is shown as a word: how many examples there are may be private.
            fits = len(arrays) == len(self.shapes) and all(
                array.ndim >= 1 and array.shape == (len(arrays[0]), *shape)
                for array, shape in zip(arrays, self.shapes, strict=True)
            )
            if not fits:
                raise ShapeError(
                    f"data has a batch whose arrays are not of shapes (examples, *shape) for the "
                    f"shapes {self.shapes}: pass one array for each parameter"
                )
            # Not -1 for the width, which numpy could not tell of a batch without examples.
            rows = [
                array.reshape(len(array), math.prod(shape))
                for array, shape in zip(arrays, self.shapes, strict=True)
            ]
            yield np.concatenate(rows, axis=1)

    def __str__(self) -> str:
        """Say what is summed."""
        most = shown_most(self.most_records)
        return f"sum of per-example gradients, {self._sum.bounds}{most}"


@dataclass(frozen=True)
class ClippedRecords(AdditiveQuery):
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
    >>> query = ClippedRecords(PublicBounds(2, norm=1.0), "add-remove")
    >>> query.evaluate([[0.5, 0.5], [3.0, 4.0]]).tolist()
    [[1.0]]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    most_records: int = field(default=LARGEST_EXACT_INTEGER, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise unless these are bounds and a relation."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)

    @cached_property
    def sensitivity(self) -> FrobeniusBall:
        """One."""
        return FrobeniusBall(1.0, self.neighbouring)

    @property
    def ranges(self) -> AnswerRanges:
        """A record counts once at most."""
        return AnswerRanges(np.ones((1, 1)), of_each_record=True)

    @cached_property
    def _grid(self) -> RecordGrid:
        return RecordGrid(self.bounds)

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.bounds.names

    def partial(self, data: Any) -> Part:
        """Return how many records of a block or a source are changed; private."""
        records, clipped = 0, 0
        for block in record_blocks(data, self.bounds.read, block_rows(self.bounds.columns)):
            clipped += int(np.count_nonzero(self._grid.clipped(block)))
            records += len(block)
        return Part(records, (Integers(np.array([[clipped]]), None, records),))

    def _answer(self, part: Part) -> FloatArray:
        return part.sums[0].rounded(0).astype(np.float64)

    def __str__(self) -> str:
        """Say what is counted."""
        return f"number of records that are changed by the bounds: {self.bounds}"
