"""Releases in files: the matrix, and beside it the statement of what it guarantees."""

import hashlib
import io
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance, Directional
from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.matrices import read_matrix, write_matrix
from matrixdp.files.noise_grid import can_be_released
from matrixdp.files.npy_layout import read_layout
from matrixdp.files.records import (
    CovarianceRecord,
    DigestRecord,
    GuaranteeRecord,
    Record,
    SensitivityRecord,
    covariance_of,
    guarantee_of,
    recorded_covariance,
    recorded_guarantee,
    recorded_sensitivity,
    sensitivity_of,
)
from matrixdp.files.statement import check_digest, encoded, read_statement, statement_path
from matrixdp.files.step_records import StepRecord
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.noise import NOISE_VERSION
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = [
    "MatrixRecord",
    "ReleaseStatement",
    "encode_release",
    "load_processed_release",
    "load_release",
    "save_release",
    "stated_release",
    "verify_release",
]


class MatrixRecord(DigestRecord, frozen=True):
    """The file of a matrix; a header and an index of labels exist in CSV only."""

    shape: tuple[int, int]
    dtype: Literal["float64", "float32"]
    header: bool
    index: bool


class ReleaseStatement(Record, frozen=True, omit_defaults=True):
    """The statement of a saved release."""

    # Both are read, and the second is written.
    schema: Literal["matrixdp-release/1", "matrixdp-release/2"]
    mechanism: str
    guarantee: GuaranteeRecord
    in_words: str  # for people; checked against the numbers, since people believe it
    sensitivity: SensitivityRecord
    covariance: CovarianceRecord
    noise: str
    file: MatrixRecord
    # Of the exact noise within directional noise. Schema 1 does not have it.
    floor: float | None = None
    # What was computed from the records and under which bounds, for people; the set proves itself.
    query: str | None = None
    # Steps of post-processing, in their order. The file holds the matrix as it was before them.
    applied: tuple[StepRecord, ...] = ()


def save_release(
    release: Release,
    path: str | PathLike[str],
    *,
    force: bool = False,
    query: str | None = None,
    applied: tuple[StepRecord, ...] = (),
) -> None:
    """Write a release and its statement; see `Release.save`.

    The statement records the query that the release answers, and the steps that were applied to it.
    """
    target = _named(path)
    beside = statement_path(target)
    # Before the work of encoding; `write_all` checks again when it gives the names.
    check_target(target, force=force)
    check_target(beside, force=force)
    data, statement = encode_release(release, target.name, query, applied)
    # The statement first: there is never a matrix without a statement of what it guarantees.
    write_all([(beside, statement.encode()), (target, data)], force=force)


def encode_release(
    release: Release,
    name: str,
    query: str | None = None,
    applied: tuple[StepRecord, ...] = (),
) -> tuple[bytes, str]:
    """Return the contents of the two files that `save_release` would write under a name."""
    suffix = Path(name).suffix
    # In memory: the statement, which is written first, needs the digest of the whole file.
    content = io.BytesIO()
    matrix = _as_file(release.value)
    write_matrix(content, matrix, suffix)
    data = content.getvalue()
    statement = stated_release(
        mechanism=release.mechanism,
        sensitivity=release.sensitivity,
        covariance=release.covariance,
        guarantee=release.guarantee,
        floor=release.floor,
        query=query,
        applied=applied,
        file=MatrixRecord(
            name=name,
            sha256=hashlib.sha256(data).hexdigest(),
            shape=release.shape,
            dtype="float32" if matrix.array.dtype == np.float32 else "float64",
            header=suffix == ".csv" and matrix.columns is not None,
            index=suffix == ".csv" and matrix.index is not None,
        ),
    )
    return data, encoded(statement).decode()


def stated_release(
    *,
    mechanism: str,
    sensitivity: SensitivitySet,
    covariance: Covariance,
    guarantee: Guarantee,
    file: MatrixRecord,
    floor: float | None = None,
    query: str | None = None,
    applied: tuple[StepRecord, ...] = (),
) -> ReleaseStatement:
    """Return the statement of a release."""
    return ReleaseStatement(
        schema="matrixdp-release/2",
        mechanism=mechanism,
        guarantee=recorded_guarantee(guarantee),
        in_words=str(guarantee),
        sensitivity=recorded_sensitivity(sensitivity),
        covariance=recorded_covariance(covariance),
        noise=NOISE_VERSION,
        file=file,
        floor=floor,
        query=query,
        applied=applied,
    )


def load_release(path: str | PathLike[str]) -> Release:
    """Read a saved release, and verify it on the way; see `Release.load`."""
    return load_processed_release(path)[0]


def load_processed_release(
    path: str | PathLike[str],
) -> tuple[Release, tuple[StepRecord, ...]]:
    """Read a saved release as `load_release` does, and the steps that were applied to it."""
    source = _named(path)
    statement = _statement_of(source)
    facts = statement.file
    with source.open("rb") as file:
        matrix = read_matrix(
            file, source.suffix, source.name, header=facts.header, index=facts.index
        )
    array = matrix.array
    if source.suffix == ".csv":
        array = array.astype(facts.dtype)  # text does not say which type its numbers had
    return _proven(array, statement, source), statement.applied


def verify_release(path: str | PathLike[str]) -> Guarantee:
    """Check a saved release, which may be larger than memory; see `Release.verify`."""
    source = _named(path)
    if source.suffix != ".npy":
        return load_release(source).guarantee
    statement = _statement_of(source)
    read_layout(source)  # raises unless it is a whole array of floats
    # Mapped, not read: only the check of the numbers touches it, a few rows at a time.
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    return _proven(array, statement, source).guarantee


def _named(path: str | PathLike[str]) -> Path:
    """Return a path that names a file."""
    named = Path(path)
    if not named.name or "\0" in str(path):
        raise InvalidParameterError(f"path={str(path)!r} does not name a file")
    return named


def _statement_of(source: Path) -> ReleaseStatement:
    """Read the statement beside a file, and check that it describes this file."""
    statement = read_statement(source, ReleaseStatement, "a saved release")
    try:
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise FileFormatError(
            f"{source} is missing or not a file: a saved release is a file with its .json "
            "statement beside it"
        ) from error
    check_digest(digest, statement.file.sha256, source)
    return statement


def _proven(array: NDArray[Any], statement: ReleaseStatement, source: Path) -> Release:
    """Return the release of a matrix and a statement, if they fit and prove the guarantee."""
    facts, beside = statement.file, statement_path(source).name
    if array.shape != facts.shape or array.dtype.name != facts.dtype:
        raise FileFormatError(f"{source} does not hold the matrix that its statement describes")
    try:
        sensitivity = sensitivity_of(statement.sensitivity)
        covariance = covariance_of(statement.covariance)
        claimed = guaranteed = guarantee_of(statement.guarantee)
        proof = NoiseProof(sensitivity, covariance, statement.floor)
        # Schema 1 states no floor: what its directional noise gives is what is proven here.
        if statement.schema == "matrixdp-release/1" and isinstance(covariance, Directional):
            guaranteed = proof.restated(claimed)
        # The shape of the array is the one that is stated, which was compared above.
        for part in (sensitivity, covariance):
            part.check_shape(facts.shape)
        release = Release.from_proof(array, proof, guaranteed, statement.mechanism)
    except MatrixDPError as error:
        raise FileFormatError(
            f"{beside} does not prove its guarantee, or was altered ({error})"
        ) from error
    if (statement.noise, statement.in_words) != (NOISE_VERSION, str(claimed)):
        raise FileFormatError(
            f"{beside} was altered: noise or in_words is not what the guarantee rests on"
        )
    # Last, because it reads the whole matrix, which may be larger than memory.
    if not can_be_released(array, release.covariance):
        raise FileFormatError(
            f"{source} holds numbers that no release with the noise of its statement can have"
        )
    return release


def _as_file(value: Any) -> MatrixFile:
    """Return a value with the labels that its kind of data frame has."""
    if isinstance(value, MatrixFile):
        return value
    if isinstance(value, np.ndarray):
        return MatrixFile(value)
    columns = [_label(name) for name in value.columns]
    # Frames are recognised by their attributes, so that neither library need be imported.
    index = getattr(value, "index", None)
    if index is None:  # a polars frame
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
