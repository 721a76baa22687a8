"""The interface of queries: a matrix computed from records, and all that one record can change."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.paid import checked_request
from matrixdp.files.publishing.paid_release import release_to
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.gaussian import GaussianMechanism
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile, MatrixLabels
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.release import Release, described
from matrixdp.noise import ReleaseKey
from matrixdp.parameters import positive_number
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.privacy.planner import ErrorMeasure
from matrixdp.queries.bounds import PublicBounds
from matrixdp.queries.preview import AnswerRanges, Preview
from matrixdp.rounding import quotient_up
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = [
    "MechanismMaker",
    "Query",
    "check_bounds",
    "check_public_count",
    "labels_of",
    "least_budget",
]

FloatArray = NDArray[np.float64]
MechanismMaker: TypeAlias = Callable[[SensitivitySet, Budget], Mechanism[Release]]
"""Makes a mechanism from a sensitivity set and a budget: `IMGM`, for instance."""


class Query(ABC):
    """A matrix computed from records, together with what one record can change.

    A query is a public description and holds no data.

    Notes
    -----
    *Guarantee:* for every two neighbouring data sets that `evaluate` accepts, the difference of its
    two float64 results, as exact rational numbers, is a member of `sensitivity`.
    """

    neighbouring: Neighbouring

    @property
    @abstractmethod
    def sensitivity(self) -> SensitivitySet:
        """What one record can change; every mechanism accepts it."""

    @property
    @abstractmethod
    def ranges(self) -> AnswerRanges:
        """The ranges that the entries of the answer can be in."""

    @property
    def labels(self) -> MatrixLabels | None:
        """The public names of the rows and columns of the answer, where there are any."""
        return None

    @abstractmethod
    def evaluate(self, data: Any) -> FloatArray:
        """Return the exact matrix, which is private: pass it to a mechanism and nowhere else.

        Raises
        ------
        InvalidParameterError, ShapeError
            If the data cannot be read; the message never shows a record.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Say what is computed, and under which bounds; all of it is public."""

    def preview(self, budget: Budget, *, mechanism: MechanismMaker = IMGM) -> Preview:
        """Return what a release will be like, without data.

        Parameters
        ----------
        budget : Budget
            What is to be guaranteed.
        mechanism : callable, optional
            As in `release`.

        Examples
        --------
        >>> from matrixdp.queries import Mean, PublicBounds
        >>> print(Mean(PublicBounds(1, lower=0, upper=9), "replace", 20).preview(Budget(1.0, 1e-5)))
        (1, 1e-05)-differential privacy under replacing one record (mu = 0.2681).
        sum of records over the public count 20, column ranges 0 to 9
        the answer is a 1 by 1 matrix
        standard error of each entry: 1.68
        """
        chosen, ranges = self._mechanism(mechanism, budget), self.ranges
        return Preview(
            str(self),
            chosen.sensitivity,
            chosen.guarantee,
            chosen.covariance.entry_scales(ranges.lengths.shape),
            ranges,
        )

    def budget_for(
        self, error: float, measure: ErrorMeasure | str = ErrorMeasure.ENTRY, *, delta: float
    ) -> Budget:
        """Return the least budget with which no error of a release is larger than a bound.

        Parameters
        ----------
        error : float
            The largest error that is wanted.
        measure : ErrorMeasure or str, optional
            In which measure; by default the largest standard error of an entry.
        delta : float
            What the budget's epsilon is stated at.

        Examples
        --------
        >>> from matrixdp.queries import PublicBounds, Sum
        >>> query = Sum(PublicBounds(1, lower=0, upper=9), "replace")
        >>> query.budget_for(20.0, delta=1e-5)
        Budget(epsilon=1.77..., delta=1e-05, mu=0.45...)
        """
        return least_budget(self.preview(Budget.from_mu(1.0, delta)), error, measure, delta)

    def release(
        self,
        data: Any,
        budget: Budget,
        *,
        mechanism: MechanismMaker = IMGM,
        key: ReleaseKey | None = None,
        privacy_filter: Payer | None = None,
        threads: int | None = None,
    ) -> Release:
        """Return the answer with exact noise, and what that guarantees.

        Parameters
        ----------
        data : array_like, path of a .npy file, Arrow table, or iterable of blocks
            Records in rows.
        budget : Budget
            What is to be guaranteed.
        mechanism : callable, optional
            Makes the mechanism from the query's sensitivity set and the budget; by default `IMGM`.
        key, privacy_filter, threads : optional
            As in `IMGM.release`.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn or paid.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn and the key is not spent.
        """
        # First, so that a bad budget is refused before a long pass over the data.
        chosen = self._mechanism(mechanism, budget)
        released = chosen.release(
            self.evaluate(data), key=key, privacy_filter=privacy_filter, threads=threads
        )
        return described(released, str(self), self.labels)

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
    ) -> Release:
        """Release the answer into a file and its statement, which names the query.

        Paid once and never lost, as `IMGM.release_to` is.

        Parameters
        ----------
        path : path
            As in `Release.save`.
        data, budget
            As in `release`. A request that is not finished needs the same data again.
        mechanism : callable, optional
            One that makes a `GaussianMechanism`; by default `IMGM`.
        privacy_filter, request, force, threads, about : optional
            As in `IMGM.release_to`.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from matrixdp import PrivacyFilter, Release
        >>> from matrixdp.queries import PublicBounds, Sum
        >>> paying = PrivacyFilter(Budget(2.0, 1e-5), neighbouring="replace")
        >>> query = Sum(PublicBounds(2, norm=1.0), "replace")
        >>> with TemporaryDirectory() as folder:
        ...     path = f"{folder}/sums.csv"
        ...     release = query.release_to(
        ...         path, [[0.6, 0.8]] * 10, Budget(1.0, 1e-5), privacy_filter=paying
        ...     )
        ...     Release.verify(path) == release.guarantee
        True
        """
        chosen = self._mechanism(mechanism, budget)
        if not isinstance(chosen, GaussianMechanism):
            raise InvalidParameterError(
                f"mechanism makes a {type(chosen).__name__}, whose release_to cannot name the "
                "query: pass a GaussianMechanism, or call its release_to with query.evaluate(data)"
            )
        target = Path(path)
        # Before a long pass over the data, too.
        name = checked_request(
            privacy_filter, request, [target, statement_path(target)], force=force
        )
        answer = self.evaluate(data)
        labels = self.labels
        released = release_to(
            chosen,
            target,
            answer if labels is None else MatrixFile(answer, labels.columns, labels.index),
            privacy_filter=privacy_filter,
            request=name,
            force=force,
            threads=threads,
            query=str(self),
            about=about,
        )
        return described(released, str(self), labels, about)

    def _mechanism(self, make: MechanismMaker, budget: Budget) -> Mechanism[Release]:
        """Return a mechanism for this query; one for another set would make a false guarantee."""
        sensitivity = self.sensitivity
        chosen = make(sensitivity, budget)
        if sensitivity != chosen.sensitivity:
            raise InvalidParameterError(
                "mechanism has another sensitivity than the query: build it from the set that it "
                "is called with"
            )
        return chosen


def least_budget(
    at_one: Preview, error: float, measure: ErrorMeasure | str, delta: float
) -> Budget:
    """Return the least budget that an error needs, from a preview at a mu of 1."""
    wanted = positive_number(error, "error")
    # All noise here is proportional to 1 / mu. The margin covers its roundings.
    return Budget.from_mu(quotient_up(at_one.error(measure), wanted) * (1.0 + 1e-12), delta)


def labels_of(bounds: PublicBounds, row: str | None = None) -> MatrixLabels | None:
    """Return the names of columns as those of a row, or of the rows as well, if there are any."""
    if bounds.names is None:
        return None
    return MatrixLabels(list(bounds.names), list(bounds.names) if row is None else [row])


def check_bounds(bounds: object, name: str = "bounds") -> None:
    """Raise unless these are public bounds."""
    if not isinstance(bounds, PublicBounds):
        raise InvalidParameterError(
            f"{name} is a {type(bounds).__name__}: pass PublicBounds(columns, norm=...) or "
            "PublicBounds(columns, lower=..., upper=...)"
        )


def check_public_count(found: int, count: int, neighbouring: Neighbouring) -> None:
    """Raise if a count that is public under the relation is not the one that was stated."""
    # Under adding and removing, the number of records is private: it may differ from the divisor.
    if neighbouring == "replace" and found != count:
        raise InvalidParameterError(
            f"count={count} is not the number of records in data: under replace that number is "
            "public, so pass it"
        )
