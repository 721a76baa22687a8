"""The preview of a release: its shape, its noise and its errors, before the data are touched."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.parameters import checked_choice
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.planner import ErrorMeasure
from matrixdp.rounding import shown_up
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["AnswerRanges", "Preview", "product_lengths", "shown_errors"]

FloatArray = NDArray[np.float64]
Interval = tuple[FloatArray, FloatArray]


class AnswerRanges(NamedTuple):
    """The length of the range that each entry of an answer can be in, by public bounds.

    Attributes
    ----------
    lengths : ndarray, of the shape of the answer
        About as large as the bounds allow.
    of_each_record : bool
        Whether the answer is a sum, to which each record adds a number in a range of that length.
    """

    lengths: FloatArray
    of_each_record: bool


@dataclass(frozen=True, eq=False)
class Preview:
    """What a release will be like; public, since it is computed without records.

    Made by `Query.preview`.

    Attributes
    ----------
    query : str
        What is asked, in words, with its bounds.
    sensitivity : SensitivitySet
        What one record can change.
    guarantee : Guarantee
        What the release will promise.
    standard_errors : ndarray, of the shape of the answer
        Of each entry; of the sum, where the budget pays for the number of records.
    ranges : AnswerRanges
        What the errors are compared with.
    count_error : float or None
        The standard error of the number of records, where the budget pays for it.
    """

    query: str
    sensitivity: SensitivitySet
    guarantee: Guarantee
    standard_errors: FloatArray
    ranges: AnswerRanges
    count_error: float | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the answer."""
        rows, columns = self.standard_errors.shape
        return rows, columns

    @property
    def least_records(self) -> int | None:
        """With fewer records the noise of some entry is larger than the range that it can be in.

        None if the answer is not a sum over the records.
        """
        if not self.ranges.of_each_record:
            return None
        return math.ceil(float((self.standard_errors / self.ranges.lengths).max()))

    @property
    def hidden_entries(self) -> int:
        """How many entries have noise larger than the range that they can be in."""
        if self.ranges.of_each_record:
            return 0
        return int(np.count_nonzero(self.standard_errors > self.ranges.lengths))

    def error(self, measure: ErrorMeasure | str) -> float:
        """Return the error of the answer in a measure.

        ``ENTRY`` is the largest standard error; ``LARGEST`` an upper bound where they differ.
        """
        checked = checked_choice(measure, ErrorMeasure, "measure")
        if checked is ErrorMeasure.FROBENIUS:
            return float(np.linalg.norm(self.standard_errors))
        return float(self.standard_errors.max()) * checked.per_unit_noise(*self.shape)

    def __str__(self) -> str:
        """Say it in lines, errors rounded up."""
        rows, columns = self.shape
        what = "answer" if self.count_error is None else "sum that the means are made of"
        lines = [
            str(self.guarantee),
            self.query,
            f"the {what} is a {rows} by {columns} matrix",
            shown_errors(self.standard_errors),
        ]
        if self.count_error is not None:
            lines.append(
                f"standard error of the number of records: {shown_up(self.count_error, 3)}"
            )
        if self.least_records is not None:
            lines.append(
                f"with fewer than {self.least_records} records the noise is larger than the range "
                "of an entry"
            )
        elif self.hidden_entries:
            lines.append(
                f"THE NOISE IS LARGER THAN THE RANGE of {self.hidden_entries} of "
                f"{rows * columns} entries: such an answer says nothing; take a larger budget, "
                "narrower bounds or fewer columns"
            )
        return "\n".join(lines)


def shown_errors(errors: FloatArray) -> str:
    """Return standard errors in words, rounded up."""
    least, most = float(errors.min()), float(errors.max())
    if least == most:
        return f"standard error of each entry: {shown_up(most, 3)}"
    return f"standard errors of the entries: {shown_up(least, 3)} to {shown_up(most, 3)}"


def product_lengths(x: Interval, y: Interval, *, same: bool) -> FloatArray:
    """Return the lengths of the ranges of all products ``x_i y_j``; of squares, if y is x.

    Examples
    --------
    >>> x = np.array([-1.0, 0.0]), np.array([1.0, 3.0])
    >>> product_lengths(x, x, same=True).tolist()
    [[1.0, 6.0], [6.0, 9.0]]
    """
    corners = [np.multiply.outer(a, b) for a in x for b in y]
    lengths = np.maximum.reduce(corners) - np.minimum.reduce(corners)
    if same:
        squares = np.square(x)
        least = np.where((x[0] <= 0.0) & (x[1] >= 0.0), 0.0, squares.min(axis=0))
        np.fill_diagonal(lengths, squares.max(axis=0) - least)
    return np.asarray(lengths)
