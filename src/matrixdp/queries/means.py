"""Means of records, over a count that is public or paid for."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.drawing import check_drawable
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.release import Release
from matrixdp.parameters import positive_integer
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import power_of_two_up, rounded_quotients
from matrixdp.queries.grid import RecordGrid
from matrixdp.queries.one_row import single_row_set
from matrixdp.queries.query import Query, check_bounds, check_public_count
from matrixdp.queries.sums import Sum, exact_total
from matrixdp.rounding import sqrt_up
from matrixdp.sensitivity.sets import Box, FrobeniusBall

__all__ = ["Mean", "PrivateCountMean", "PrivateCountMeanRelease"]

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


@dataclass(frozen=True)
class PrivateCountMeanRelease:
    """A released sum and a released count; their quotient is post-processing.

    Attributes
    ----------
    total, count : Release
        What was measured.
    guarantee : Guarantee
        Of both together.
    """

    total: Release
    count: Release
    guarantee: Guarantee

    @property
    def value(self) -> FloatArray:
        """The sum over the count; a noisy count below 1 counts as 1."""
        return np.asarray(self.total.value / max(float(self.count.value[0, 0]), 1.0))


@dataclass(frozen=True)
class PrivateCountMean:
    """The mean of the records where their number is private too, and paid for.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every record. The relation is ``add-remove``; under ``replace`` the number of
        records is public, and `Mean` takes it.

    Notes
    -----
    *Budget.* Sum and count are released side by side, with shares of mu² in the ratio
    ``sqrt(columns)`` to 1. That minimises ``columns C² / mu_sum² + C² / mu_count²``, the squared
    error of the quotient for a mean as long as the bound C. The shares are stated by the guarantees
    of the two releases.

    Examples
    --------
    >>> query = PrivateCountMean(PublicBounds(4, norm=1.0))
    >>> release = query.release([[0.5, 0.5, 0, 0]] * 1000, Budget(1.0, 1e-5))
    >>> print(release.guarantee)
    (1, 1e-05)-differential privacy under adding or removing one record (mu = 0.2681).
    >>> release.value.shape
    (1, 4)
    """

    bounds: PublicBounds

    def __post_init__(self) -> None:
        """Raise unless these are bounds."""
        check_bounds(self.bounds)

    def release(
        self,
        data: Any,
        budget: Budget,
        *,
        filter: Filter | None = None,  # noqa: A002
    ) -> PrivateCountMeanRelease:
        """Return sum and count with exact noise, within one budget.

        Parameters
        ----------
        data : array_like, path of a .npy file, Arrow table, or iterable of blocks
            Records in rows.
        budget : Budget
            For both releases together.
        filter : Filter, optional
            Pays for both at once, after all checks and before anything is drawn.
        """
        check_budget(budget)
        if filter is not None and not isinstance(filter, Filter):
            raise InvalidParameterError(
                f"filter is a {type(filter).__name__}: pass Filter(budget, neighbouring=...), or "
                "nothing"
            )
        shares = budget.split([math.sqrt(self.bounds.columns), 1.0])
        summed = Sum(self.bounds, "add-remove")
        of_sum = IMGM(summed.sensitivity, shares[0])
        of_count = IMGM(FrobeniusBall(1.0, "add-remove"), shares[1])
        both = Guarantee.of_budget(
            budget,
            mu=sqrt_up(Fraction(of_sum.mu) ** 2 + Fraction(of_count.mu) ** 2),
            neighbouring="add-remove",
        )
        total = exact_total(data, summed.grid)
        answers = (total.rounded(0) * summed.grid.steps, np.array([[float(total.records)]]))
        # Everything is checked before the filter pays, and nothing can be refused after it.
        for mechanism, answer in zip((of_sum, of_count), answers, strict=True):
            mechanism.checked(answer)
            check_drawable(mechanism.proof, (1, answer.shape[1]), answer.dtype)
        if filter is not None:
            filter.spend(both)
        return PrivateCountMeanRelease(
            of_sum.release(answers[0]), of_count.release(answers[1]), both
        )

    def __str__(self) -> str:
        """Say what is averaged."""
        return f"mean of records over a private count, {self.bounds}"
