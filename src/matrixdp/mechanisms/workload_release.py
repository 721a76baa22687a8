"""Releases of the Matrix Mechanism: noisy measurements, and the answers from them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.markup import card
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.release import ConfidenceBounds, Release, joint_quantile
from matrixdp.privacy.guarantee import Guarantee, Neighbouring
from matrixdp.sensitivity.sets import FrobeniusBall
from matrixdp.workloads import CellNames, Strategy, Workload, marginals
from matrixdp.workloads.cell_names import checked_cell_names
from matrixdp.workloads.strategies.strategy import LARGEST_TOTAL

__all__ = ["WorkloadRelease", "measured_sensitivity"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WorkloadRelease:
    """Noisy answers, public from now on; they hold nothing of the input.

    Made by `MatrixMechanism.release`. The measurements carry all of the privacy; the estimate and
    the answers are post-processing of them. The answers are consistent: they are those of one
    histogram, the estimate. One whose measurements do not prove their guarantee cannot exist; that
    they really were made by this strategy, with that noise, is up to the mechanism.

    Attributes
    ----------
    measurements : Release
        The strategy's measurements with their noise, in one column.
    workload : Workload
        The queries.
    strategy : Strategy
        Which measurements were made.
    attributes : tuple of CellNames, optional
        The names of the cells along each attribute; statements hold them.

    Raises
    ------
    InvalidParameterError
        If the strategy's sensitivity is above the one that the measurements state, or their noise
        is not that of a `MatrixMechanism`.
    ShapeError
        If there is not one measurement for each row of the strategy.
    """

    measurements: Release
    workload: Workload
    strategy: Strategy
    attributes: tuple[CellNames, ...] | None = None

    def __post_init__(self) -> None:
        """Raise if the measurements do not prove a guarantee for this strategy."""
        for name, part, kind in (
            ("measurements", self.measurements, Release),
            ("workload", self.workload, Workload),
            ("strategy", self.strategy, Strategy),
        ):
            if not isinstance(part, kind):
                raise InvalidParameterError(
                    f"{name} is a {type(part).__name__}: take it from MatrixMechanism.release"
                )
        checked_cell_names(self.attributes, self.workload.dimensions)
        stated = self.sensitivity
        # Least squares weighs all measurements alike, which is right for equal noise only.
        if not isinstance(self.measurements.covariance, Isotropic):
            raise InvalidParameterError(
                f"measurements has {type(self.measurements.covariance).__name__} noise: measure "
                "with a MatrixMechanism, whose noise is Isotropic"
            )
        # Privacy does not depend on the number of measurements, but the answers do.
        if self.measurements.shape != (self.strategy.shape[0], 1):
            raise ShapeError(
                f"measurements has shape {self.measurements.shape}: the strategy makes "
                f"{self.strategy.shape[0]} measurements, in one column"
            )
        # Computed here, never read: it is the one number that the whole guarantee rests on. The
        # strategy remembers it, so a release in memory does not pay twice.
        needed = measured_sensitivity(self.strategy, stated.neighbouring)
        if not needed <= stated.bound:
            raise InvalidParameterError(
                f"measurements states a sensitivity of {stated.bound!r}, but neighbours may be "
                f"{needed!r} apart under the strategy: measure with a MatrixMechanism"
            )

    @property
    def sensitivity(self) -> FrobeniusBall:
        """How far apart neighbours' measurements may be, as was stated when they were made."""
        stated = self.measurements.sensitivity
        if not isinstance(stated, FrobeniusBall):
            raise InvalidParameterError(
                f"measurements states a {type(stated).__name__}: measure with a MatrixMechanism, "
                "whose sensitivity is a FrobeniusBall"
            )
        return stated

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
        return self.measurements.guarantee

    @property
    def noise_scale(self) -> float:
        """The standard deviation of the noise on every measurement."""
        # The noise is isotropic, or there would be no release, and this is its scale.
        return self.measurements.covariance.smallest_singular_value

    @property
    def value(self) -> FloatArray:
        """The answers, as `Release.value` is the matrix."""
        return self.answers

    @property
    def shape(self) -> tuple[int]:
        """The shape of the answers: the number of queries."""
        return (self.workload.rows,)

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> NDArray[Any]:
        """Return the answers: what numpy sees."""
        return np.array(self.answers, dtype=dtype, copy=copy)

    @cached_property
    def estimate(self) -> FloatArray | None:
        """The least-squares estimate of the histogram, one number for each cell.

        None if there are more cells than fit in memory; answers and tables need no cells.
        """
        # All noise has one scale, so plain least squares has the least variance (Gauss, Markov).
        try:
            return self.strategy.reconstruct(np.asarray(self.measurements.value))
        except InvalidParameterError:
            return None

    @cached_property
    def answers(self) -> FloatArray:
        """The answer to each query, in the workload's order."""
        return self.strategy.answers(self.workload, np.asarray(self.measurements.value))

    def standard_errors(self) -> FloatArray:
        """Return the standard deviation of the noise in each answer.

        With a `StackedStrategy` they are upper bounds.
        """
        variances = self.strategy.query_variances(self.workload)
        return np.asarray(self.noise_scale * np.sqrt(variances))

    def confidence_bounds(self, confidence: float = 0.95) -> ConfidenceBounds:
        """Return bounds that hold for all true answers at once.

        Each answer's half-width is its standard error times ``Phi^-1((1 + confidence^(1/q)) / 2)``
        for q queries, as in `Release.confidence_bounds`. The rounding of least squares in floats is
        far smaller than the noise, and not counted.

        Parameters
        ----------
        confidence : float, optional
            Above 0 and below 1.

        Examples
        --------
        >>> import matrixdp as mdp
        >>> from matrixdp.workloads import Prefix
        >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
        >>> mechanism = mdp.MatrixMechanism(Prefix(8), budget, neighbouring="add-remove")
        >>> bounds = mechanism.release([10] * 8).confidence_bounds(0.99)
        >>> bool((bounds.lower < bounds.upper).all()), bounds.upper.shape
        (True, (8,))
        """
        # Each measurement is on a grid of at most 2**-20 noise scales. An answer sums up m of them,
        # with coefficients whose absolute sum is at most sqrt(m) times the root of their squares.
        grid = 2.0**-20 * math.sqrt(self.strategy.shape[0])
        half_width = (joint_quantile(confidence, len(self.answers)) + grid) * self.standard_errors()
        return ConfidenceBounds(self.answers - half_width, self.answers + half_width)

    def table(self, kept: Sequence[int]) -> FloatArray:
        """Return the estimated counts by some attributes, with an axis for each.

        It may be any table that the measurements determine, such as the sums of one that was asked
        for. All tables agree with each other and with the answers.

        Parameters
        ----------
        kept : sequence of int
            The attributes by number, in the order of the table's axes.

        Raises
        ------
        InvalidParameterError
            If the table does not follow from what was measured.
        """
        return self._laid_out(kept, self._table_answers)

    def table_errors(self, kept: Sequence[int]) -> FloatArray:
        """Return the standard deviation of the noise in each count of `table`.

        With a `StackedStrategy` they are upper bounds.
        """
        return self._laid_out(kept, self._table_deviations)

    def _table_answers(self, workload: Workload) -> FloatArray:
        return self.strategy.answers(workload, np.asarray(self.measurements.value))

    def _table_deviations(self, workload: Workload) -> FloatArray:
        variances = self.strategy.query_variances(workload)
        return np.asarray(self.noise_scale * np.sqrt(variances))

    def _laid_out(
        self, kept: Sequence[int], numbers: Callable[[Workload], FloatArray]
    ) -> FloatArray:
        """Return numbers for each cell of a table, in the order of its attributes."""
        sizes = self.workload.dimensions
        wanted = marginals(sizes, [kept])
        self.strategy.check_supports(wanted)
        ascending = sorted(kept)
        table = numbers(wanted).reshape([sizes[index] for index in ascending])
        return table.transpose([ascending.index(index) for index in kept])

    def save(
        self, path: str | PathLike[str], *, force: bool = False, about: About | None = None
    ) -> None:
        """Write measurements, strategy and workload, and the statement ``<path>.json``.

        Answers are not written: they follow from the measurements, and only these can be checked.

        Parameters
        ----------
        path : path
            Ending in ``.npz``.
        force : bool, optional
            Whether to replace existing files; by default they are refused.
        about : About, optional
            What the statement says for people; published as it is.

        Raises
        ------
        InvalidParameterError
            If a target exists or its folder does not, or if the workload has a factor of a kind
            that is not part of the library; nothing is written.
        StorageError
            If the disk is full; no target is made.

        Examples
        --------
        >>> from pathlib import Path
        >>> from tempfile import TemporaryDirectory
        >>> import matrixdp as mdp
        >>> from matrixdp.workloads import Prefix
        >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
        >>> mechanism = mdp.MatrixMechanism(Prefix(8), budget, neighbouring="replace")
        >>> with TemporaryDirectory() as folder:
        ...     mechanism.release([10] * 8).save(Path(folder, "ages.npz"))
        ...     again = WorkloadRelease.load(Path(folder, "ages.npz"))
        >>> again.guarantee == mechanism.guarantee
        True
        """
        # Late: files/ is above mechanisms/, and imports this class.
        from matrixdp.files.publishing.workload_releases import save_workload_release  # noqa: PLC0415

        save_workload_release(self, path, force=force, about=about)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "WorkloadRelease":
        """Read a saved release, and prove its guarantee again.

        The strategy's sensitivity is computed and must be covered by the stated one; the noise must
        give the mu, and the mu the guarantee; the measurements must be on the grid of the noise;
        and the strategy must answer the workload. Answers are computed again, so that their last
        digits may differ between machines.

        Raises
        ------
        FileFormatError
            If a file is missing, damaged or not the one that the statement describes, or if
            anything in them does not prove the guarantee.
        """
        from matrixdp.files.publishing.workload_releases import load_workload_release  # noqa: PLC0415

        return load_workload_release(path)

    @classmethod
    def verify(cls, path: str | PathLike[str]) -> Guarantee:
        """Check a saved release as `load` does, and return the guarantee that it proves."""
        return cls.load(path).guarantee

    def plot(self, axes: Any = None) -> Any:
        """Draw the answers with their standard errors, in the workload's order.

        Parameters
        ----------
        axes : matplotlib.axes.Axes, optional
            Where; by default a new figure of pyplot.

        Returns
        -------
        matplotlib.axes.Axes
            With the drawing in it.
        """
        # Late, because matplotlib takes a second to load.
        from matrixdp.mechanisms.figure import draw_numbers  # noqa: PLC0415

        return draw_numbers(self.answers, self.standard_errors(), None, self.guarantee, axes)

    def _repr_html_(self) -> str:
        facts = [
            ("workload", repr(self.workload)),
            ("queries", self.workload.rows),
            ("guarantee", self.guarantee),
            ("noise scale of a measurement", f"{self.noise_scale:g}"),
        ]
        return card("WorkloadRelease", facts)

    def __repr__(self) -> str:
        """Say what it is and what it promises."""
        return f"WorkloadRelease(queries={self.workload.rows}: {self.guarantee})"


def measured_sensitivity(
    strategy: Strategy, neighbouring: Neighbouring, most_records: int = LARGEST_TOTAL
) -> float:
    """Return an upper bound on how far apart the measurements of neighbours are.

    It covers the measurements as floats: what one record changes, and the rounding of both sides
    over so many records.
    """
    # Twice, because the measurements of both neighbours are rounded.
    rounding = 2.0 * strategy.measurement_error * most_records
    exact = strategy.sensitivity(neighbouring)
    # The factor covers the rounding of this line, four operations of 2**-53 each.
    return (exact + rounding * strategy.rounded_norm) * (1.0 + 2.0**-50)
