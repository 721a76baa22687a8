"""The Matrix Mechanism: a workload answered through measurements that suit it."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.measuring import Counts, checked_most, measured
from matrixdp.mechanisms.workload_release import WorkloadRelease, measured_sensitivity
from matrixdp.noise import ReleaseKey, SimulatedValue, simulate_noise
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring
from matrixdp.privacy.payment import Payer
from matrixdp.sensitivity.sets import FrobeniusBall
from matrixdp.workloads import (
    CellNames,
    ResidualStrategy,
    Strategy,
    Workload,
    optimal_strategy,
)
from matrixdp.workloads.cell_names import checked_cell_names
from matrixdp.workloads.strategies.strategy import LARGEST_TOTAL

__all__ = ["MatrixMechanism", "WorkloadRelease", "measured_sensitivity"]

FloatArray = NDArray[np.float64]

# What a mechanism states is larger than what it computes by this factor. Other processors sum in
# another order and find a bound that differs in the last digits; they must be able to prove the
# statement too.
_PROVABLE_ELSEWHERE = 1.0 + 2.0**-32


@dataclass(frozen=True, eq=False, repr=False)
class MatrixMechanism:
    """Answers to linear queries on a histogram, by the strategy with the least total error.

    Measures ``y = A x + (sensitivity / mu) z`` with exact noise on the strategy's side, and answers
    ``W A^+ y``.

    Parameters
    ----------
    workload : Workload
        The queries W.
    budget : Budget
        What is to be guaranteed.
    neighbouring : {"add-remove", "replace"}
        Whether a neighbouring histogram has one record more or less, or one in another cell. With
        "replace" the number of records is public.
    strategy : Strategy, optional
        The measurements A; by default those of `optimal_strategy`.
    attributes : iterable of CellNames, optional
        Public names of the cells along each attribute, such as `ContingencyTable.cell_names`:
        statements hold them, and exported answers are called by them.

    most_records : int, optional
        A public bound of the number of records; more are refused. Above 2**30 it needs a
        `ResidualStrategy`, as for marginals, and records, not a histogram.

    Raises
    ------
    InvalidParameterError
        If the workload cannot be answered from the strategy, or has more than 2**28 queries or
        2**26 cells. Tables of counts (`marginals`) may be of any number of cells, if each table has
        at most 2**26.

    Notes
    -----
    *Guarantee:* every release is (guarantee.epsilon, guarantee.delta)-DP under the relation, in
    exact arithmetic, over all data of at most 2**30 records, or `most_records`; more are refused.
    The noise covers what is really measured, floats that are off from ``A x``: entry by entry by at
    most ``r |A| x`` with r = `Strategy.measurement_error`, about 2**-53 for each attribute, because
    the products are compensated. Since ``|| |A| x || <= (records) max_j ||a_j||``, two neighbours'
    measurements are at most ``s + 2 r n max_j ||a_j||`` apart, n that bound, s the exact
    sensitivity rounded up and a_j without the measurements that are exact
    (`Strategy.rounded_norm`): some 1e-6 more than s. Underflow is far smaller than the amount by
    which that is rounded up. The stated sensitivity is larger again by a factor of 1 + 2**-32, so
    that a processor that sums in another order can prove it from the strategy. The same holds for
    the parts of a `StackedStrategy`, with the largest r and the columns of all parts together. A
    `ResidualStrategy` computes in integers, and rounds twice. The noise is that of `IMGM` on the
    Frobenius ball; everything after it is post-processing.

    References
    ----------
    Li, Miklau, Hay, McGregor and Rastogi, *The matrix mechanism: optimizing linear counting queries
    under differential privacy*, VLDB Journal 24 (2015).

    Examples
    --------
    >>> import matrixdp as mdp
    >>> from matrixdp.workloads import Prefix
    >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
    >>> mechanism = mdp.MatrixMechanism(Prefix(64), budget, neighbouring="add-remove")
    >>> round(mechanism.expected_error, 3)
    7.834
    >>> release = mechanism.release([10] * 64)
    >>> release.answers.shape
    (64,)
    >>> print(release.guarantee)
    (1, 1e-05)-differential privacy under adding or removing one record (mu = 0.2681).
    """

    workload: Workload
    budget: Budget
    neighbouring: Neighbouring
    strategy: Strategy
    attributes: tuple[CellNames, ...] | None
    most_records: int

    def __init__(
        self,
        workload: Workload,
        budget: Budget,
        *,
        neighbouring: Neighbouring,
        strategy: Strategy | None = None,
        attributes: Iterable[CellNames] | None = None,
        most_records: int = LARGEST_TOTAL,
    ) -> None:
        if not isinstance(workload, Workload):
            raise InvalidParameterError(
                f"workload is a {type(workload).__name__}: pass a workload; a matrix is a Dense"
            )
        check_budget(budget)
        relation = checked_neighbouring(neighbouring)
        # Before the search, which may take minutes.
        workload.check_answerable()
        names = checked_cell_names(attributes, workload.dimensions)
        if strategy is None:
            strategy = optimal_strategy(workload, neighbouring=relation).strategy
        elif isinstance(strategy, Strategy):
            strategy.check_supports(workload)
        else:
            raise InvalidParameterError(
                f"strategy is a {type(strategy).__name__}: pass a Strategy, for instance "
                "optimal_strategy(..).strategy"
            )
        # The dataclass is frozen: what was proven for a mechanism stays true of it.
        object.__setattr__(self, "workload", workload)
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "neighbouring", relation)
        object.__setattr__(self, "strategy", strategy)
        object.__setattr__(self, "attributes", names)
        object.__setattr__(self, "most_records", checked_most(most_records, strategy))
        if not isinstance(strategy, ResidualStrategy):
            workload.check_histogram()
        _ = self.sensitivity  # raises here rather than at the first release

    # Calibration and noise are those of IMGM; this class only chooses what is measured.
    @cached_property
    def _noise(self) -> IMGM:
        return IMGM(self.sensitivity, self.budget)

    @property
    def sensitivity(self) -> FrobeniusBall:
        """How far apart neighbours' measurements may be, their rounding included."""
        # Never below what the proof of a release covers.
        most = max(self.most_records, LARGEST_TOTAL)
        computed = measured_sensitivity(self.strategy, self.neighbouring, most)
        return FrobeniusBall(computed * _PROVABLE_ELSEWHERE, self.neighbouring)

    @property
    def covariance(self) -> Isotropic:
        """The noise on the measurements."""
        return self.sensitivity.best_covariance(self.budget)

    @property
    def guarantee(self) -> Guarantee:
        """What every release promises."""
        return self._noise.guarantee

    @cached_property
    def expected_error(self) -> float:
        """The root mean squared error per query that a release will have; known before spending.

        With a `StackedStrategy` it is an upper bound.
        """
        total = self.strategy.squared_error(self.workload)
        return self.covariance.scale * math.sqrt(total / self.workload.rows)

    def standard_errors(self) -> FloatArray:
        """Return the standard deviation that each answer will have.

        With a `StackedStrategy` they are upper bounds.
        """
        variances = self.strategy.query_variances(self.workload)
        return np.asarray(self.covariance.scale * np.sqrt(variances))

    def release(
        self,
        histogram: ArrayLike,
        *,
        key: ReleaseKey | None = None,
        privacy_filter: Payer | None = None,
        threads: int | None = None,
    ) -> WorkloadRelease:
        """Measure a histogram with exact noise, and answer the workload.

        Parameters
        ----------
        histogram : array_like, shape (cells,) or the workload's dimensions
            Counts of records: integers of at least 0, at most 2**30 in all, and `most_records`.
        key : ReleaseKey, optional
            By default a fresh one from the operating system; a given one is spent.
        privacy_filter : PrivacyFilter or LedgerAccount, optional
            Pays for the release, after all checks and before anything is drawn.
        threads : int, optional
            As for `IMGM.release`.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn or paid.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn and the key is not spent.
        """
        return self._released(self._measured("histogram", histogram), key, privacy_filter, threads)

    def release_to(
        self,
        path: str | PathLike[str],
        histogram: ArrayLike,
        *,
        privacy_filter: Payer | None = None,
        request: str | None = None,
        force: bool = False,
        threads: int | None = None,
        about: About | None = None,
    ) -> WorkloadRelease:
        """Release into an ``.npz`` file and its statement; paid once, never lost.

        Parameters
        ----------
        path : path
            As in `WorkloadRelease.save`.
        histogram : array_like
            As in `release`.
        privacy_filter, request, force, threads, about : optional
            As in `IMGM.release_to`.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> import matrixdp as mdp
        >>> from matrixdp.workloads import Prefix
        >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
        >>> paying = mdp.PrivacyFilter(budget, neighbouring="replace")
        >>> mechanism = mdp.MatrixMechanism(Prefix(8), budget, neighbouring="replace")
        >>> with TemporaryDirectory() as folder:
        ...     path = f"{folder}/ages.npz"
        ...     release = mechanism.release_to(path, [10] * 8, privacy_filter=paying)
        ...     WorkloadRelease.verify(path) == mechanism.guarantee
        True
        """
        return self._released_to(
            *(path, "histogram", histogram, privacy_filter, request),
            force=force,
            threads=threads,
            about=about,
        )

    def release_records(
        self,
        records: ArrayLike | Iterator[ArrayLike],
        *,
        key: ReleaseKey | None = None,
        privacy_filter: Payer | None = None,
        threads: int | None = None,
    ) -> WorkloadRelease:
        """Count records, measure the counts with exact noise, and answer the workload.

        For tables of counts the histogram of all cells is never written out, so that there may be
        any number of cells. The same key gives the same measurements as `release`.

        Parameters
        ----------
        records : array_like of int, shape (records, attributes), or iterator of such blocks
            The index of the cell along each attribute, by position: of a table with names pass
            ``ContingencyTable.cells``. At most `most_records` of them.
        key, privacy_filter, threads
            As for `release`.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn or paid. Messages never show a record.

        Examples
        --------
        >>> import numpy as np
        >>> import matrixdp as mdp
        >>> from matrixdp.workloads import marginals
        >>> workload = marginals([50] * 12, [(0, 1), (1, 2), (11,)])
        >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
        >>> mechanism = mdp.MatrixMechanism(workload, budget, neighbouring="add-remove")
        >>> records = np.random.default_rng(0).integers(0, 50, (1000, 12))
        >>> release = mechanism.release_records(records)
        >>> release.table((1, 2)).shape
        (50, 50)
        """
        return self._released(self._measured("records", records), key, privacy_filter, threads)

    def release_records_to(
        self,
        path: str | PathLike[str],
        records: ArrayLike | Iterator[ArrayLike],
        *,
        privacy_filter: Payer | None = None,
        request: str | None = None,
        force: bool = False,
        threads: int | None = None,
        about: About | None = None,
    ) -> WorkloadRelease:
        """Count records as `release_records` does, and release into files as `release_to` does."""
        return self._released_to(
            *(path, "records", records, privacy_filter, request),
            force=force,
            threads=threads,
            about=about,
        )

    def _measured(self, counts: Counts, data: Any) -> FloatArray:
        return measured(self.workload, self.strategy, counts, data, self.most_records)

    def _released(
        self,
        exact: FloatArray,
        key: ReleaseKey | None,
        paying: Payer | None,
        threads: int | None,
    ) -> WorkloadRelease:
        """Return measurements with exact noise."""
        return WorkloadRelease(
            measurements=self._noise.release(
                exact, key=key, privacy_filter=paying, threads=threads
            ),
            workload=self.workload,
            strategy=self.strategy,
            attributes=self.attributes,
        )

    def _released_to(
        self,
        path: str | PathLike[str],
        counts: Counts,
        data: Any,
        paying: Payer | None,
        request: str | None,
        *,
        force: bool,
        threads: int | None,
        about: About | None,
    ) -> WorkloadRelease:
        """Write measurements with exact noise."""
        # Late, because files are above mechanisms.
        from matrixdp.files.publishing.paid_workload import release_measured_to  # noqa: PLC0415

        return release_measured_to(
            path,
            lambda: self._noise.prepared(self._measured(counts, data)),
            self.workload,
            self.strategy,
            attributes=self.attributes,
            counts=counts,
            most_records=self.most_records,
            privacy_filter=paying,
            request=request,
            force=force,
            threads=threads,
            about=about,
        )

    def simulate(self, histogram: ArrayLike, generator: np.random.Generator) -> SimulatedValue:
        """Return answers with seeded float noise of the same covariance: for experiments only.

        Nothing simulated can become a release.
        """
        exact = self._measured("histogram", histogram)
        # Float noise, which protects nothing; hence not a WorkloadRelease but a SimulatedValue.
        noisy = simulate_noise(exact, self.covariance.scale, generator).array
        answers = self.strategy.answers(self.workload, noisy)
        return SimulatedValue(array=answers, scale=self.standard_errors())

    def __repr__(self) -> str:
        """Show the queries and the promise."""
        return (
            f"MatrixMechanism({self.workload!r}, {self.budget!r}, "
            f"neighbouring={self.neighbouring!r})"
        )
