"""The file of a released matrix: its facts, and what of its labels its format keeps."""

import io
import warnings
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import LABELLED, check_format, format_of
from matrixdp.files.schemas.values import DigestSchema
from matrixdp.mechanisms.drawing import CheckedMatrix
from matrixdp.mechanisms.labelled import MatrixFile, MatrixLabels
from matrixdp.mechanisms.other_arrays import host_array, is_other_array
from matrixdp.mechanisms.release import Release

__all__ = ["MatrixSchema", "checked_file", "facts_of", "labelled_file", "warn_of_lost_labels"]


class MatrixSchema(DigestSchema, frozen=True):
    """The file of a matrix; a header and an index of labels exist in text, Parquet and Arrow."""

    shape: tuple[int, int]
    dtype: Literal["float64", "float32"]
    header: bool
    index: bool


def warn_of_lost_labels(release: Release, path: str | PathLike[str]) -> None:
    """Warn if a release has labels and the format of a file cannot hold them."""
    value = release.value
    plain = isinstance(value, np.ndarray) or is_other_array(value)
    named = release.labels is not None or not plain
    if named and format_of(Path(path)) not in LABELLED:
        # Of the caller of the method that calls this.
        warnings.warn(
            f"labels are left out of {path}: save as one of {', '.join(LABELLED)} to keep them",
            stacklevel=3,
        )


def checked_file(checked: CheckedMatrix, target: Path) -> MatrixFile:
    """Return zeros with the labels that the file of a matrix will have.

    Raises
    ------
    InvalidParameterError, FileFormatError, MissingExtraError
        If the format cannot be written, or cannot hold the labels.
    """
    check_format(target)
    suffix, array = format_of(target), np.zeros_like(checked.array)
    shown = labelled_file(array if checked.relabel is None else checked.relabel(array))
    if suffix not in LABELLED:
        shown = MatrixFile(array)
    # One row shows whether it can be written, before anybody has paid for it.
    index = None if shown.index is None else list(shown.index)
    write_matrix(io.BytesIO(), replace(shown, array=array[:1], index=index and index[:1]), suffix)
    "".join(index or []).encode()
    return shown


def facts_of(name: str, matrix: MatrixFile, digest: str) -> MatrixSchema:
    """Return what a statement says of the file of a matrix."""
    labelled = format_of(name) in LABELLED
    return MatrixSchema(
        name=name,
        sha256=digest,
        shape=(matrix.array.shape[0], matrix.array.shape[1]),
        dtype="float32" if matrix.array.dtype == np.float32 else "float64",
        header=labelled and matrix.columns is not None,
        index=labelled and matrix.index is not None,
    )


def labelled_file(value: Any, labels: MatrixLabels | None = None) -> MatrixFile:
    """Return the value of a release with its labels, or those of its kind of data frame."""
    if isinstance(value, MatrixFile):
        return value
    if labels is not None:
        return MatrixFile(value, labels.columns, labels.index, labels.corner)
    if isinstance(value, np.ndarray):
        return MatrixFile(value)
    if is_other_array(value):
        return MatrixFile(host_array(value))
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
