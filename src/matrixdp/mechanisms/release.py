"""Releases: a noisy matrix together with what it guarantees and how good it is."""

import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import DTypeLike, NDArray

from matrixdp.covariance import Covariance, Isotropic
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.markup import card
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.in_words import noise_in_words, sensitivity_in_words
from matrixdp.mechanisms.labelled import MatrixFile, MatrixLabels
from matrixdp.mechanisms.other_arrays import host_array, is_other_array
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.noise import SimulatedValue
from matrixdp.parameters import proper_fraction
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["ConfidenceBounds", "Release", "described", "joint_quantile"]

_LONGEST_NAME = 100


class ConfidenceBounds(NamedTuple):
    """Lower and upper bounds of every entry of the true matrix, that hold all at once."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Release:
    """A noisy matrix, public from now on; it holds nothing of the input.

    Made by a mechanism's ``release``. A release whose covariance does not prove its guarantee
    cannot exist. That the value really has that noise is up to the mechanism.

    Attributes
    ----------
    value : ndarray, DataFrame or Tensor
        The noisy matrix, of the library and on the device of the one that was released.
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox
        What one record could change.
    covariance : Covariance
        Of the noise, which is public too.
    guarantee : Guarantee
        What is promised.
    mechanism : str
        Which mechanism made it: the name of its class.
    floor : float or None
        The scale of the exact i.i.d. noise within directional noise that the guarantee rests on;
        None for independent entries.
    labels : MatrixLabels or None
        Names of rows and columns, of a query or read from a file; `save` writes them. None where
        there were none; a data frame has its own.
    query : str or None
        What was asked, in words, where a query made it; `save` states it.
    about : About or None
        What a loaded release states that it is about.
    """

    value: Any
    proof: NoiseProof
    guarantee: Guarantee
    mechanism: str
    labels: MatrixLabels | None
    query: str | None
    about: About | None

    def __init__(
        self,
        *,
        value: Any,
        sensitivity: SensitivitySet,
        covariance: Covariance,
        guarantee: Guarantee,
        mechanism: str,
        floor: float | None = None,
    ) -> None:
        """Prove the guarantee, and raise if the noise does not give it."""
        # Statements hold the name, which must not be another way for data to leave.
        if not (mechanism.isidentifier() and len(mechanism) <= _LONGEST_NAME):
            raise InvalidParameterError(
                "mechanism must be the name of a class, such as 'IMGM', of at most "
                f"{_LONGEST_NAME} characters"
            )
        shape = _checked_shape(value)
        proof = NoiseProof(sensitivity, covariance, floor)
        for part in (sensitivity, covariance):
            part.check_shape(shape)
        self._fill(value, proof, guarantee, mechanism)

    @classmethod
    def from_proof(
        cls,
        value: Any,
        proof: NoiseProof,
        guarantee: Guarantee,
        mechanism: str,
        labels: MatrixLabels | None = None,
    ) -> "Release":
        """Return the release of a caller that has proven its noise and checked the shape."""
        # Asking a plain array takes less time than the question for anything else.
        if type(value) is not np.ndarray or value.ndim != 2:
            _checked_shape(value)
        release = cls.__new__(cls)
        release._fill(value, proof, guarantee, mechanism, labels)  # noqa: SLF001 - its own class
        return release

    def _fill(
        self,
        value: Any,
        proof: NoiseProof,
        guarantee: Guarantee,
        mechanism: str,
        labels: MatrixLabels | None = None,
    ) -> None:
        # Every release comes through here. Two numbers are compared; the proof is not repeated.
        proof.check_claim(guarantee)
        self.__dict__.update(
            value=value,
            proof=proof,
            guarantee=guarantee,
            mechanism=mechanism,
            labels=labels,
            query=None,
            about=None,
        )

    @property
    def sensitivity(self) -> SensitivitySet:
        """What one record could change."""
        return self.proof.sensitivity

    @property
    def covariance(self) -> Covariance:
        """The covariance of the noise."""
        return self.proof.covariance

    @property
    def floor(self) -> float | None:
        """The scale of the independent noise that directional noise's guarantee rests on."""
        # Stated in files too: another machine may prove less than this one did.
        return self.proof.floor

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        rows, columns = np.shape(self.value)
        return (rows, columns)

    @property
    def noise_scale(self) -> float | None:
        """The standard deviation of every entry, where they all have the same.

        None if entries have scales of their own; see `standard_errors`.
        """
        return self.covariance.scale if isinstance(self.covariance, Isotropic) else None

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard deviation of every entry's noise, before the number was rounded."""
        # Rounding onto the grid adds less than 1e-13 of the variance, which is left out.
        return self.covariance.entry_scales(self.shape)

    def confidence_bounds(self, confidence: float = 0.95) -> ConfidenceBounds:
        """Return bounds that hold for all entries of the true matrix at once.

        Each entry's half-width is its standard error times ``Phi^-1((1 + confidence^(1/mn)) / 2)``.
        By Šidák's inequality (1967) the joint confidence is then at least the one asked for,
        whatever the correlations of Gaussian noise. One unit in the last place of the released
        number is added for its rounding, which matters for large float32 numbers.

        Parameters
        ----------
        confidence : float, optional
            Above 0 and below 1.
        """
        # In the type of the release: the unit in the last place of float32 is what counts there.
        released = np.asarray(self)
        rounding = np.spacing(np.abs(released)).astype(np.float64)
        # The noise's grid has steps of at most 2**-20 scales, in units of which widths are given.
        widths = joint_quantile(confidence, math.prod(self.shape)) + 2.0**-20
        half_width = widths * self.standard_errors() + rounding
        centre = released.astype(np.float64)
        return ConfidenceBounds(centre - half_width, centre + half_width)

    def __array__(
        self,
        dtype: DTypeLike | None = None,
        copy: bool | None = None,  # noqa: FBT001
    ) -> NDArray[Any]:
        """Return the matrix without its labels: what numpy and scikit-learn see."""
        value = host_array(self.value) if is_other_array(self.value) else self.value
        return np.array(value, dtype=dtype, copy=copy)

    def save(
        self, path: str | PathLike[str], *, force: bool = False, about: About | None = None
    ) -> None:
        """Write the matrix, and beside it the statement ``<path>.json`` of what it guarantees.

        Parameters
        ----------
        path : path
            Ending in ``.npy``, ``.npz``, ``.csv``, ``.tsv``, ``.csv.gz`` or ``.tsv.gz``, or with
            pyarrow in ``.parquet`` or ``.arrow``. The first two cannot hold labels, and a
            warning says so if there are any.
        force : bool, optional
            Whether to replace existing files; by default they are refused.
        about : About, optional
            What the statement says for people; published as it is.

        Raises
        ------
        InvalidParameterError
            If a target exists or its folder does not; nothing is written.
        StorageError
            If the disk is full; no target is made.
        """
        # Late, because files are above mechanisms: only these three methods look up there.
        from matrixdp.files.publishing.release_file import warn_of_lost_labels  # noqa: PLC0415
        from matrixdp.files.publishing.releases import save_release  # noqa: PLC0415

        save_release(self, path, force=force, about=about)
        warn_of_lost_labels(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Release":
        """Read a saved release and verify it; the value comes back as an array, beside `labels`.

        Raises
        ------
        FileFormatError
            If the statement is missing or foreign, does not prove its guarantee, or belongs to
            another file.
        """
        from matrixdp.files.publishing.releases import load_release  # noqa: PLC0415

        return load_release(path)

    @classmethod
    def verify(cls, path: str | PathLike[str]) -> Guarantee:
        """Check a saved release and return the guarantee that it proves.

        As `load` does it, but a ``.npy`` file may be larger than memory, and so may a folder of
        chunks, which are checked by several threads.
        """
        if Path(path).name and Path(path).is_dir():
            from matrixdp.files.publishing.chunked_release import verified_chunks  # noqa: PLC0415

            return verified_chunks(Path(path))[1]
        from matrixdp.files.publishing.releases import verify_release  # noqa: PLC0415

        return verify_release(path)

    def plot(self, axes: Any = None) -> Any:
        """Draw the noisy matrix: a row or a column with its standard errors, else a heat map.

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
        from matrixdp.mechanisms.figure import draw_heat_map, draw_numbers  # noqa: PLC0415

        # A data frame carries its own names.
        named = self.value if self.labels is None else self.labels
        index, columns = getattr(named, "index", None), getattr(named, "columns", None)
        matrix = np.asarray(self)
        if 1 not in matrix.shape:
            return draw_heat_map(matrix, index, columns, self.guarantee, axes)
        names = columns if matrix.shape[0] == 1 else index
        errors = self.standard_errors()
        return draw_numbers(matrix.ravel(), errors.ravel(), names, self.guarantee, axes)

    def _repr_html_(self) -> str:
        rows, columns = self.shape
        facts = [
            ("matrix", f"{rows} by {columns}, with noise"),
            ("guarantee", self.guarantee),
            ("mechanism", self.mechanism),
            ("one record changes", sensitivity_in_words(self.sensitivity)),
            ("noise", noise_in_words(self.covariance)),
        ]
        query = [] if self.query is None else [("query", self.query)]
        return card("Release", [*query, *facts])

    def __repr__(self) -> str:
        """Say what it is and what it promises."""
        return f"Release(shape={self.shape}, mechanism={self.mechanism!r}: {self.guarantee})"


def described(
    release: Release, query: str | None, labels: MatrixLabels | None, about: About | None = None
) -> Release:
    """Return a release with a query in words, what it is about, and labels beside an array."""
    value = release.value.array if isinstance(release.value, MatrixFile) else release.value
    same = Release.from_proof(value, release.proof, release.guarantee, release.mechanism, labels)
    same.__dict__.update(query=query, about=about)
    return same


def joint_quantile(confidence: float, count: int) -> float:
    """Return ``Phi^-1((1 + confidence^(1/count)) / 2)``.

    By Šidák's inequality (1967) so many Gaussian numbers, however correlated, are all within that
    many standard deviations with at least the confidence.
    """
    level = proper_fraction(confidence, "confidence")
    # 1 - confidence^(1/count) by expm1: for many the power is too close to 1 to subtract.
    tail = -0.5 * math.expm1(math.log(level) / count)
    return float(-scipy.special.ndtri(tail))


def _checked_shape(value: Any) -> tuple[int, int]:
    """Return the shape of a matrix that may be a release; simulated noise may not."""
    if isinstance(value, SimulatedValue):
        raise InvalidParameterError(
            "value is simulated: its noise protects nothing, so it is not a release; use the "
            "mechanism's release()"
        )
    shape = np.shape(value)
    if len(shape) != 2:
        raise ShapeError(f"value has shape {shape}: a release is a matrix")
    return (shape[0], shape[1])
