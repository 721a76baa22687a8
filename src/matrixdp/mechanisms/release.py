"""What leaves the library: a noisy matrix together with what it guarantees and how good it is."""

import hashlib
import io
import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from matrixdp.covariance import Covariance, Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError, ShapeError
from matrixdp.mechanisms.matrix_files import (
    MatrixFile,
    check_target,
    read_matrix,
    write_all,
    write_matrix,
)
from matrixdp.mechanisms.noise_grid import can_be_released
from matrixdp.mechanisms.statement import (
    Statement,
    check_proven,
    read_statement,
    statement_path,
)
from matrixdp.noise import SimulatedValue
from matrixdp.noise.npy_layout import read_layout
from matrixdp.parameters import real_number
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["ConfidenceBounds", "Release"]


class ConfidenceBounds(NamedTuple):
    """Lower and upper bounds of every entry of the true matrix, that hold all at once."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Release:
    """A noisy matrix, public from now on; it holds nothing of the input.

    Made by a mechanism's ``release``. One whose covariance does not prove its guarantee cannot
    exist; that the value really got that noise is what the mechanism vouches for.

    Attributes
    ----------
    value : ndarray or DataFrame
        The noisy matrix.
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or Box
        What one record could change.
    covariance : Covariance
        Of the noise, which is public too.
    guarantee : Guarantee
        What is promised.
    mechanism : str
        Which mechanism made it.
    """

    value: Any
    sensitivity: SensitivitySet
    covariance: Covariance
    guarantee: Guarantee
    mechanism: str

    def __post_init__(self) -> None:
        """Refuse simulated noise, and a guarantee that the noise does not give."""
        if isinstance(self.value, SimulatedValue):
            raise InvalidParameterError(
                "value is simulated: its noise protects nothing, so it is no release; use the "
                "mechanism's release()"
            )
        shape = np.shape(self.value)
        if len(shape) != 2:
            raise ShapeError(f"value has shape {shape}: a release is a matrix")
        check_proven(self.guarantee, self.sensitivity, self.covariance)
        for part in (self.sensitivity, self.covariance):
            part.check_shape((shape[0], shape[1]))

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the matrix."""
        rows, columns = np.shape(self.value)
        return (rows, columns)

    @property
    def noise_scale(self) -> float:
        """The standard deviation of every entry, where they all have the same.

        Raises
        ------
        InvalidParameterError
            If entries have scales of their own; see `standard_errors`.
        """
        if not isinstance(self.covariance, Isotropic):
            raise InvalidParameterError(
                f"noise_scale is not one number for {type(self.covariance).__name__} noise: use "
                "standard_errors()"
            )
        return self.covariance.scale

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard deviation of every entry's noise, before the number was rounded."""
        return self.covariance.entry_scales(self.shape)

    def confidence_bounds(self, confidence: float = 0.95) -> ConfidenceBounds:
        """Return bounds that hold for all entries of the true matrix at once.

        Each entry's half-width is its standard error times ``Phi^-1((1 + confidence^(1/mn)) / 2)``,
        by Šidák's inequality (1967) for a joint confidence of at least the one asked for, whatever
        the correlations of Gaussian noise, plus a unit in the last place of the released number,
        which was rounded: little for float64, but not for large float32 numbers.

        Parameters
        ----------
        confidence : float, optional
            Above 0 and below 1.
        """
        level = real_number(confidence, "confidence")
        if not 0.0 < level < 1.0:
            raise InvalidParameterError(f"confidence={level!r} must be above 0 and below 1")
        entries = math.prod(self.shape)
        tail = -0.5 * math.expm1(math.log(level) / entries)
        released = np.asarray(self.value)
        rounding = np.spacing(np.abs(released)).astype(np.float64)
        # The noise's grid has steps of at most 2**-20 scales.
        widths = float(-special.ndtri(tail)) + 2.0**-20
        half_width = widths * self.standard_errors() + rounding
        centre = released.astype(np.float64)
        return ConfidenceBounds(centre - half_width, centre + half_width)

    def save(self, path: str | PathLike[str], *, force: bool = False) -> None:
        """Write the matrix, and beside it the statement ``<path>.json`` of what it guarantees.

        Parameters
        ----------
        path : path
            Ending in ``.npy``, ``.npz`` or ``.csv``. Labels of a data frame are kept in CSV.
        force : bool, optional
            Whether to replace existing files; by default they are refused.

        Raises
        ------
        InvalidParameterError
            If a target exists or its folder does not; nothing is written.
        StorageError
            If the disk is full; no target is made.
        """
        target = _named(path)
        beside = statement_path(target)
        check_target(target, force=force)
        check_target(beside, force=force)
        data, statement = self.encode(target.name)
        # The statement first: a matrix never lies there without what it guarantees.
        write_all([(beside, statement.encode()), (target, data)], force=force)

    def encode(self, name: str) -> tuple[bytes, str]:
        """Return the contents of the two files that `save` would write under a name."""
        suffix = Path(name).suffix
        content = io.BytesIO()
        matrix = _as_file(self.value)
        write_matrix(content, matrix, suffix)
        data = content.getvalue()
        statement = Statement(
            mechanism=self.mechanism,
            sensitivity=self.sensitivity,
            covariance=self.covariance,
            guarantee=self.guarantee,
            file={
                "name": name,
                "sha256": hashlib.sha256(data).hexdigest(),
                "shape": list(self.shape),
                "dtype": matrix.array.dtype.name,
                "header": suffix == ".csv" and matrix.columns is not None,
                "index": suffix == ".csv" and matrix.index is not None,
            },
        )
        return data, statement.to_json()

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Release":
        """Read a saved release, and verify it on the way; the value comes back as an array.

        Raises
        ------
        FileFormatError
            If the statement is missing or foreign, does not prove its guarantee, or speaks of
            another file than the one that lies there.
        """
        source = _named(path)
        statement = _statement_of(source)
        facts = statement.file
        with source.open("rb") as file:
            matrix = read_matrix(
                file,
                source.suffix,
                source.name,
                header=bool(facts.get("header")),
                index=bool(facts.get("index")),
            )
        _check_facts(matrix.array, statement, source)
        return cls(
            value=matrix.array.astype(str(facts["dtype"])),
            sensitivity=statement.sensitivity,
            covariance=statement.covariance,
            guarantee=statement.guarantee,
            mechanism=statement.mechanism,
        )

    @classmethod
    def verify(cls, path: str | PathLike[str]) -> Guarantee:
        """Check a saved release and return the guarantee that it proves.

        As `load` does it, but a ``.npy`` file may be larger than memory.
        """
        source = _named(path)
        if source.suffix != ".npy":
            return cls.load(source).guarantee
        statement = _statement_of(source)
        read_layout(source)  # refuses what is no whole array of floats
        array = np.load(source, mmap_mode="r", allow_pickle=False)
        _check_facts(array, statement, source)
        return statement.guarantee

    def __repr__(self) -> str:
        """Say what it is and what it promises."""
        return f"Release(shape={self.shape}, mechanism={self.mechanism!r}: {self.guarantee})"


def _named(path: str | PathLike[str]) -> Path:
    """Return a path that names a file."""
    named = Path(path)
    if not named.name or "\0" in str(path):
        raise InvalidParameterError(f"path={str(path)!r} names no file")
    return named


def _statement_of(source: Path) -> Statement:
    """Read the statement beside a file, and check that it speaks of this file."""
    try:
        text = statement_path(source).read_text(encoding="utf-8")
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise FileFormatError(
            f"{error.filename} is missing or no file: a saved release is a file and its .json "
            "statement"
        ) from error
    except UnicodeDecodeError:
        raise FileFormatError(f"{source}.json is not a statement of a release") from None
    statement = read_statement(text, statement_path(source).name)
    if digest != statement.file.get("sha256"):
        raise FileFormatError(
            f"{source} is not the file that its statement speaks of: its digest differs"
        )
    return statement


def _check_facts(array: NDArray[Any], statement: Statement, source: Path) -> None:
    """Refuse a matrix that is not what its statement says: its shape, its type, its numbers."""
    facts = statement.file
    own = "float64" if source.suffix == ".csv" else array.dtype.name
    if (
        array.ndim != 2
        or list(array.shape) != facts.get("shape")
        or facts.get("dtype") not in ("float64", "float32")
        or (own != facts.get("dtype") and source.suffix != ".csv")
    ):
        raise FileFormatError(f"{source} does not hold the matrix that its statement speaks of")
    try:
        for part in (statement.sensitivity, statement.covariance):
            part.check_shape((array.shape[0], array.shape[1]))
    except ShapeError as error:
        raise FileFormatError(f"{source} does not fit its statement ({error})") from error
    if not can_be_released(array, statement.covariance):
        raise FileFormatError(
            f"{source} holds numbers that no release with the noise of its statement can have"
        )


def _as_file(value: Any) -> MatrixFile:
    """Return a value with the labels that its kind of data frame has."""
    if isinstance(value, MatrixFile):
        return value
    if isinstance(value, np.ndarray):
        return MatrixFile(value)
    columns = [_label(name) for name in value.columns]
    index = getattr(value, "index", None)
    if index is None:
        return MatrixFile(value.to_numpy(), columns=columns)
    return MatrixFile(
        value.to_numpy(),
        columns=columns,
        index=[_label(name) for name in index],
        corner=_label(tuple("" if name is None else name for name in index.names)),
    )


def _label(name: object) -> str:
    """Return a label as text, the levels of a nested one joined."""
    return "/".join(str(level) for level in name) if isinstance(name, tuple) else str(name)
