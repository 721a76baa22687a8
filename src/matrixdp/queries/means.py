"""Means of records, over a public count."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.parameters import positive_integer
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import power_of_two_up, rounded_quotients
from matrixdp.queries.grid import RecordGrid
from matrixdp.queries.one_row import single_row_set
from matrixdp.queries.query import Query, check_bounds, check_public_count
from matrixdp.queries.sums import exact_total
from matrixdp.sensitivity.sets import Box, FrobeniusBall

__all__ = ["Mean"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Mean(Query):
    """The sum of the records divided by a public count: a matrix of one row.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every record.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.
    count : int
        A public number. Under ``replace`` the number of records is public, and must be this one.
        Under ``add-remove`` it is private: choose a divisor without looking at the data (the answer
        is the mean times the true number over this one), or use `PrivateCountMean`.

    Notes
    -----
    *Sensitivity.* That of `Sum` divided by the count, plus one unit of the grid that quotients are
    rounded to: two roundings to the nearest multiple differ by at most one unit more than what is
    rounded. A unit is at most ``step / count``, a share of 2**-20 of the change of an entry.

    Examples
    --------
    >>> query = Mean(PublicBounds(3, lower=0, upper=1), "replace", count=100)
    >>> query.sensitivity.bounds.round(6).tolist()
    [0.01, 0.01, 0.01]
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    count: int

    def __post_init__(self) -> None:
        """Raise unless these are bounds, a relation and a count."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)
        object.__setattr__(self, "count", positive_integer(self.count, "count"))

    @cached_property
    def sensitivity(self) -> FrobeniusBall | Box:
        """That of the sum over the count, with the rounding of the quotient."""
        return single_row_set(
            self.bounds,
            self.neighbouring,
            divisor=self.count,
            rounding=self.grid.steps * float(self._unit),
        )

    @cached_property
    def grid(self) -> RecordGrid:
        """How records become whole numbers."""
        return RecordGrid(self.bounds)

    @property
    def _unit(self) -> Fraction:
        """What quotients are rounded to multiples of, in steps: at most one over the count."""
        # A sum of at most 2**51 steps has less than 2**53 units then.
        return power_of_two_up(Fraction(1, self.count)) / 2

    def evaluate(self, data: Any) -> FloatArray:
        """Return the mean, which is private."""
        total = exact_total(data, self.grid)
        check_public_count(total.records, self.count, self.neighbouring)
        quotients = rounded_quotients(total.integers(), self.count * self._unit)
        return np.asarray(quotients * (self.grid.steps * float(self._unit)))

    def __str__(self) -> str:
        """Say what is averaged."""
        return f"sum of records over the public count {self.count}, {self.bounds}"
