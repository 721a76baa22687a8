"""Releases in files: the matrix, and beside it the statement of what it guarantees."""

import hashlib
import io
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError, ShapeError
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.matrices import read_matrix, write_matrix
from matrixdp.files.noise_grid import can_be_released
from matrixdp.files.npy_layout import read_layout
from matrixdp.files.statement import Statement, read_statement, statement_path
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["encode_release", "load_release", "save_release", "verify_release"]


def save_release(release: Release, path: str | PathLike[str], *, force: bool = False) -> None:
    """Write a release and its statement; see `Release.save`."""
    target = _named(path)
    beside = statement_path(target)
    check_target(target, force=force)
    check_target(beside, force=force)
    data, statement = encode_release(release, target.name)
    # The statement first: a matrix never lies there without what it guarantees.
    write_all([(beside, statement.encode()), (target, data)], force=force)


def encode_release(release: Release, name: str) -> tuple[bytes, str]:
    """Return the contents of the two files that `save_release` would write under a name."""
    suffix = Path(name).suffix
    content = io.BytesIO()
    matrix = _as_file(release.value)
    write_matrix(content, matrix, suffix)
    data = content.getvalue()
    statement = Statement(
        mechanism=release.mechanism,
        sensitivity=release.sensitivity,
        covariance=release.covariance,
        guarantee=release.guarantee,
        floor=release.floor,
        file={
            "name": name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "shape": list(release.shape),
            "dtype": matrix.array.dtype.name,
            "header": suffix == ".csv" and matrix.columns is not None,
            "index": suffix == ".csv" and matrix.index is not None,
        },
    )
    return data, statement.to_json()


def load_release(path: str | PathLike[str]) -> Release:
    """Read a saved release, and verify it on the way; see `Release.load`."""
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
    return Release(
        value=matrix.array.astype(str(facts["dtype"])),
        sensitivity=statement.sensitivity,
        covariance=statement.covariance,
        guarantee=statement.guarantee,
        mechanism=statement.mechanism,
        floor=statement.floor,
    )


def verify_release(path: str | PathLike[str]) -> Guarantee:
    """Check a saved release, which may be larger than memory; see `Release.verify`."""
    source = _named(path)
    if source.suffix != ".npy":
        return load_release(source).guarantee
    statement = _statement_of(source)
    read_layout(source)  # raises unless it is a whole array of floats
    array = np.load(source, mmap_mode="r", allow_pickle=False)
    _check_facts(array, statement, source)
    return statement.guarantee


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
