"""Means of records, over a public count or one that the budget pays for."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.integer_sums import Part
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixLabels
from matrixdp.noise import ReleaseKey
from matrixdp.parameters import positive_integer
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.queries.additive import AdditiveQuery, shown_most
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.exact_sums import (
    MOST_RECORDS,
    checked_most,
    dropped_bits,
    power_of_two_up,
    rounded_quotients,
)
from matrixdp.queries.grid import GRID_BITS, RecordGrid
from matrixdp.queries.one_row import single_row_set
from matrixdp.queries.preview import AnswerRanges, Preview
from matrixdp.queries.private_count import previewed_means, release_means_to, released_means
from matrixdp.queries.query import (
    MechanismMaker,
    check_bounds,
    check_public_count,
    labels_of,
)
from matrixdp.queries.sums import Sum, column_part
from matrixdp.sensitivity.sets import FrobeniusBall, RowBox

__all__ = ["Mean"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Mean(AdditiveQuery):
    """The sum of the records divided by a public count: a matrix of one row.

    Parameters
    ----------
    bounds : PublicBounds
        Enforced on every record.
    neighbouring : {"add-remove", "replace"}
        What a record's change is.
    count : int, optional
        A public number. Under ``replace`` the number of records is public, and must be this one.
        Under ``add-remove`` it is private: choose a divisor without looking at the data (the answer
        is the mean times the true number over this one), or leave it out. Then the budget pays for
        the number of records too, and `release` returns a `MeanRelease`.
    most_records : int, optional
        A public bound of the number of records; more are refused.

    Notes
    -----
    *Sensitivity.* That of `Sum` divided by the count, plus one unit of the grid that quotients are
    rounded to: two roundings to the nearest multiple differ by at most one unit more than what is
    rounded. A unit is at most ``step / count``, a share of 2**-20 of the change of an entry; for a
    bound of ``2**c`` records above 2**31 it is ``2**(c - 31)`` times as large, so that float64
    holds every quotient.

    *Never* ``count=len(group)``. The size of a group is private under either relation: a record
    that is replaced may move to another group. A statement that names the size gives it away, and
    the guarantee is false. `GroupMoments` releases the sizes, with noise, beside the sums.

    *Without a count* sum and count are released side by side, with shares of mu² in the ratio
    ``sqrt(columns)`` to 1. That minimises ``columns C² / mu_sum² + C² / mu_count²``, the squared
    error of the quotient for a mean as long as the bound C. The shares are stated by the guarantees
    of the two releases. There is no one matrix then, so `sensitivity` and `evaluate` raise.

    Examples
    --------
    >>> query = Mean(PublicBounds(3, lower=0, upper=1), "replace", count=100)
    >>> query.sensitivity.bounds.round(6).tolist()
    [0.01, 0.01, 0.01]
    >>> query = Mean(PublicBounds(4, norm=1.0), "add-remove")
    >>> release = query.release([[0.5, 0.5, 0, 0]] * 1000, Budget(1.0, 1e-5))
    >>> print(release.guarantee)
    (1, 1e-05)-differential privacy under adding or removing one record (mu = 0.2681).
    >>> release.value.shape
    (1, 4)
    """

    bounds: PublicBounds
    neighbouring: Neighbouring
    count: int | None = None
    most_records: int = MOST_RECORDS

    def __post_init__(self) -> None:
        """Raise unless these are bounds, a relation, a count and a bound of the records."""
        check_bounds(self.bounds)
        checked_neighbouring(self.neighbouring)
        object.__setattr__(self, "most_records", checked_most(self.most_records))
        if self.count is not None:
            object.__setattr__(self, "count", positive_integer(self.count, "count"))
        elif self.neighbouring == "replace":
            raise InvalidParameterError(
                "count=None pays for the number of records, which is public under replace: pass it"
            )

    @cached_property
    def sensitivity(self) -> FrobeniusBall | RowBox:
        """That of the sum over the count, with the rounding of the quotient."""
        return single_row_set(
            self.bounds,
            self.neighbouring,
            divisor=self._divisor,
            rounding=self._largest_steps * float(self._unit),
        )

    @cached_property
    def grid(self) -> RecordGrid:
        """How records become integers."""
        return RecordGrid(self.bounds)

    @property
    def labels(self) -> MatrixLabels | None:
        """The names of the columns."""
        return labels_of(self.bounds, "mean")

    @property
    def ranges(self) -> AnswerRanges:
        """Those of the columns; of the sum, without a count."""
        return AnswerRanges(self.bounds.widths[None], of_each_record=self.count is None)

    def preview(self, budget: Budget, *, mechanism: MechanismMaker = IMGM) -> Preview:
        """Return what a release will be like; without a count the errors of the sum and the count.

        The parameters are those of `Query.preview`.
        """
        if self.count is not None:
            return super().preview(budget, mechanism=mechanism)
        _check_left_out("mechanism", given=mechanism is not IMGM)
        return previewed_means(self.of_records, budget, str(self), self.ranges)

    @cached_property
    def of_records(self) -> Sum:
        """The sum, which is released beside a count where none is public."""
        return Sum(self.bounds, self.neighbouring, self.most_records)

    @property
    def _largest_steps(self) -> FloatArray:
        """Steps as long as they can be for these bounds: in the same proportion in all units."""
        if self.bounds.norm is not None:
            return self.grid.steps
        return np.ldexp(self.bounds.largest_entries, 1 - GRID_BITS)

    @property
    def _unit(self) -> Fraction:
        """What quotients are rounded to multiples of, in steps: at most one over the count."""
        # A sum of n records has at most n 2**22 units of half a step over the count.
        wider: int = 2 ** dropped_bits(self.most_records, GRID_BITS + 1)
        return power_of_two_up(Fraction(1, self._divisor)) * wider / 2

    @property
    def _divisor(self) -> int:
        """The public count, or raise if there is none."""
        if self.count is None:
            raise InvalidParameterError(
                "count=None releases a sum and a count, which are not one matrix: call release, or "
                "pass a public count"
            )
        return self.count

    @property
    def columns_read(self) -> tuple[str, ...] | None:
        """The names of the columns, if they have names."""
        return self.bounds.names

    def partial(self, data: Any) -> Part:
        """Return the sum of the records of a block or a source, in steps; private."""
        return column_part(data, self.grid)

    def evaluate(self, data: Any) -> FloatArray:
        """Return the mean, which is private."""
        _ = self._divisor  # raises before a pass over the data
        return super().evaluate(data)

    def _answer(self, part: Part) -> FloatArray:
        divisor = self._divisor
        check_public_count(part.records, divisor, self.neighbouring)
        quotients = rounded_quotients(part.sums[0].exact(), divisor * self._unit)
        return np.asarray(quotients * (self.grid.steps * float(self._unit)))

    # Any, because the count decides: a `Release`, or the `MeanRelease` of two of them.
    def release(
        self,
        data: Any,
        budget: Budget,
        *,
        mechanism: MechanismMaker = IMGM,
        key: ReleaseKey | None = None,
        privacy_filter: Payer | None = None,
        threads: int | None = None,
    ) -> Any:
        """Return the mean with exact noise; without a public count a `MeanRelease`.

        The parameters are those of `Query.release`. A sum and a count are two releases: they take
        no key and no mechanism.
        """
        if self.count is not None:
            return super().release(
                data,
                budget,
                mechanism=mechanism,
                key=key,
                privacy_filter=privacy_filter,
                threads=threads,
            )
        _check_left_out("key", given=key is not None)
        _check_left_out("mechanism", given=mechanism is not IMGM)
        return released_means(
            data, self.of_records, budget, str(self), privacy_filter=privacy_filter, threads=threads
        )

    def release_to(
        self,
        path: str | PathLike[str],
        data: Any,
        budget: Budget,
        *,
        mechanism: MechanismMaker = IMGM,
        privacy_filter: Payer | None = None,
        request: str | None = None,
        force: bool = False,
        threads: int | None = None,
        about: About | None = None,
    ) -> Any:
        """Release the mean into files; without a public count those of `MeanRelease.save`.

        The parameters are those of `Query.release_to`. One payment covers sum and count.
        """
        if self.count is not None:
            return super().release_to(
                path,
                data,
                budget,
                mechanism=mechanism,
                privacy_filter=privacy_filter,
                request=request,
                force=force,
                threads=threads,
                about=about,
            )
        _check_left_out("mechanism", given=mechanism is not IMGM)
        return release_means_to(
            path,
            data,
            self.of_records,
            budget,
            str(self),
            privacy_filter=privacy_filter,
            request=request,
            force=force,
            threads=threads,
            about=about,
        )

    def __str__(self) -> str:
        """Say what is averaged."""
        over = "a private count" if self.count is None else f"the public count {self.count}"
        what = "mean" if self.count is None else "sum"
        return f"{what} of records over {over}, {self.bounds}{shown_most(self.most_records)}"


def _check_left_out(name: str, *, given: bool) -> None:
    """Raise if something is given that serves one release only."""
    if given:
        raise InvalidParameterError(
            f"{name} is for one release, and count=None makes two: leave it out, or pass a public "
            "count"
        )
