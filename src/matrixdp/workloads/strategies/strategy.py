"""Strategies: linear measurements of a histogram, and the estimate made from them."""

import abc
import math
from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from numpy.typing import ArrayLike

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.operator import FloatArray, Workload

__all__ = ["LARGEST_TOTAL", "MOST_PAIRS", "Strategy", "checked_diameter", "checked_norm"]

# The rounding of measurements grows with the number of records, and the noise has to cover it: at
# 2**30 records that is some 1e-6 of the sensitivity.
LARGEST_TOTAL = 2**30
"""The most records that a measured histogram may hold."""

MOST_PAIRS = 8192
"""The most cells for which the columns of every pair are compared."""

# Squares of anything larger stay far above the smallest float, so that no bound underflows.
_SMALLEST_NORM = 2.0**-100


class Strategy(abc.ABC):
    """Linear measurements A of a histogram.

    `ProductStrategy` is a Kronecker product of matrices, `StackedStrategy` several of them, and
    `ResidualStrategy` measures tables of counts, however many cells there are. Everything that a
    release needs is asked through this interface.
    """

    # For files, which must name what they hold; nothing else should depend on it.
    kind: ClassVar[Literal["product", "stack", "residual"]]
    """What implements it, as files name it."""

    @property
    @abc.abstractmethod
    def dimensions(self) -> tuple[int, ...]:
        """The number of cells along each attribute."""

    @property
    @abc.abstractmethod
    def layout(self) -> tuple[int, ...]:
        """The number of measurements along each axis of what `measure` returns."""

    @property
    def shape(self) -> tuple[int, int]:
        """Measurements and cells."""
        return (math.prod(self.layout), math.prod(self.dimensions))

    @abc.abstractmethod
    def apply(self, values: FloatArray) -> FloatArray:
        """Return ``A x`` in the strategy's layout, to ordinary float accuracy."""

    @abc.abstractmethod
    def apply_transpose(self, values: FloatArray) -> FloatArray:
        """Return ``A^T y``, laid out along the attributes."""

    @abc.abstractmethod
    def measure(self, histogram: FloatArray) -> FloatArray:
        """Return ``A x`` with an error of at most `measurement_error` over ``|A| x``.

        Parameters
        ----------
        histogram : ndarray
            Counts, laid out along the attributes.
        """

    @property
    @abc.abstractmethod
    def measurement_error(self) -> float:
        """A bound on the error of `measure`, entry by entry, over ``|A| x``."""

    @property
    @abc.abstractmethod
    def rounded_norm(self) -> float:
        """An upper bound of the norm of a column, without measurements known to be exact."""

    @abc.abstractmethod
    def reconstruct(self, measurements: FloatArray) -> FloatArray:
        """Return the least-squares estimate ``A^+ y`` of the histogram, as a vector of cells."""

    def answers(self, workload: Workload, measurements: FloatArray) -> FloatArray:
        """Return ``W A^+ y``: the answer to each query, in the workload's order."""
        # Through one histogram, so that sums of answers are the answers of sums.
        return workload.apply(self.reconstruct(measurements))

    @abc.abstractmethod
    def written_out(self) -> FloatArray:
        """Return ``A`` as a matrix; products and weights round its entries."""

    @property
    @abc.abstractmethod
    def largest_norm(self) -> float:
        """An upper bound of the largest norm of a column."""

    @property
    @abc.abstractmethod
    def diameter(self) -> float:
        """An upper bound of the largest distance of two columns."""

    def sensitivity(self, neighbouring: Neighbouring) -> float:
        """Return an upper bound on the distance of neighbouring histograms' measurements.

        The largest norm of a column for adding or removing a record, the largest distance of two
        columns for replacing one; both are rounded up.

        Raises
        ------
        InvalidParameterError
            If it is 0, or too small for its square to be a float.
        """
        # A record adds a column of A to the measurements; replacing it swaps two columns.
        if checked_neighbouring(neighbouring) == "add-remove":
            return self.largest_norm
        return self.diameter

    @property
    @abc.abstractmethod
    def errors_are_exact(self) -> bool:
        """Whether `squared_error` and `query_variances` are exact, or only upper bounds."""

    @abc.abstractmethod
    def squared_error(self, workload: Workload) -> float:
        """Return the sum of the queries' variances at unit noise on each measurement."""

    @abc.abstractmethod
    def query_variances(self, workload: Workload) -> FloatArray:
        """Return the variance of each answer at unit noise on each measurement."""

    @abc.abstractmethod
    def check_supports(self, workload: Workload) -> None:
        """Raise if the workload cannot be answered from the measurements.

        Raises
        ------
        InvalidParameterError
            If some query is not a combination of the measurements.
        ShapeError
            If the strategy is for another layout of cells.
        """

    @abc.abstractmethod
    def named_arrays(self) -> dict[str, FloatArray]:
        """Return the arrays that define the strategy, by name: what is saved of it."""

    @classmethod
    @abc.abstractmethod
    def from_named_arrays(cls, arrays: Mapping[str, ArrayLike]) -> Self:
        """Return the strategy with these arrays, checked like any other.

        Raises
        ------
        InvalidParameterError, ShapeError
            If the names or the arrays are not those of such a strategy.
        """


def checked_norm(norm: float) -> float:
    """Return the largest norm of a column, or raise if it is next to nothing."""
    if not norm >= _SMALLEST_NORM:
        raise InvalidParameterError(
            f"the strategy's columns have norms of at most {norm!r}: scale it up, which "
            "changes nothing about it"
        )
    return norm


def checked_diameter(diameter: float) -> float:
    """Return the largest distance of two columns, or raise if it is 0 or next to nothing."""
    # Zero has a reason of its own: noise of scale 0 would be claimed to protect something.
    if diameter == 0.0:
        raise InvalidParameterError(
            "all columns of the strategy are equal: under neighbouring='replace' it measures "
            "nothing but the number of records, which is public; add measurements in which the "
            "cells differ"
        )
    if not diameter >= _SMALLEST_NORM:
        raise InvalidParameterError(
            f"the strategy's columns are at most {diameter!r} apart: scale up the measurements in "
            "which they differ, or leave those out"
        )
    return diameter
