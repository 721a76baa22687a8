"""Answers in files: the numbers, and a JSON statement of what they guarantee and how they came."""

import hashlib
import io
import json
import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError, ShapeError
from matrixdp.files.atomic import check_target, try_writing, write_all
from matrixdp.files.matrices import read_matrix, write_matrix
from matrixdp.files.statement import SCHEMA as RELEASE_SCHEMA
from matrixdp.files.statement import (
    Statement,
    read_statement,
    read_with_statement,
    statement_path,
)
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["SCHEMA", "SavedAnswers", "check_answers_target", "load_answers", "save_answers"]

SCHEMA = "matrixdp-answers/1"
_OWN_KEYS = ("workload", "queries", "expected_rmse", "post_processing")
# No float64 has more digits in a CSV file.
_LONGEST_NUMBER = -1.2345678901234567e-300


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedAnswers:
    """Answers read from a file, and what the file says of them.

    The guarantee is proven again from the sensitivity and the noise of the measurements; what is
    said of the workload and of the error is the word of whoever saved it.
    """

    answers: NDArray[np.float64]
    guarantee: Guarantee
    workload: str
    expected_error: float
    post_processing: tuple[str, ...]


def save_answers(
    mechanism: MatrixMechanism,
    answers: NDArray[np.float64],
    path: str | PathLike[str],
    *,
    post_processing: tuple[str, ...] = (),
    force: bool = False,
) -> None:
    """Write answers to a ``.npy``, ``.npz`` or ``.csv`` file, and their statement beside them.

    Parameters
    ----------
    mechanism : MatrixMechanism
        Whose release they come from.
    answers : ndarray, shape (queries,)
        The workload's answers.
    path : path
        The file; its statement is ``<path>.json``.
    post_processing : tuple of str, optional
        What was done to the estimate first.
    force : bool, optional
        Whether to replace existing files.

    Raises
    ------
    ShapeError, InvalidParameterError
        If they are not one finite number for each query, or a file exists; nothing is written.
    StorageError
        If a file cannot be written; then neither is.
    """
    contents = _contents(mechanism, _checked(mechanism, answers), Path(path), post_processing)
    write_all(contents, force=force)


def check_answers_target(
    mechanism: MatrixMechanism, path: str | PathLike[str], *, force: bool = False
) -> None:
    """Refuse what `save_answers` could not write or `WorkloadRelease` not compute, before drawing.

    Answers of zeros are computed, which also keeps what all answers are computed with, and files as
    large as any are written beside the target and removed.

    Raises
    ------
    InvalidParameterError, StorageError
        If the format is unknown, a file exists, there is not enough memory, or no space.
    """
    target = Path(path)
    for made in (target, statement_path(target)):
        check_target(made, force=force)
    queries = mechanism.workload.rows
    try:
        measured = np.zeros(mechanism.strategy.shape[0])
        mechanism.workload.apply(mechanism.strategy.reconstruct(measured))
        contents = _contents(mechanism, np.full(queries, _LONGEST_NUMBER), target, ())
        try_writing(contents)
    except MemoryError:
        raise InvalidParameterError(
            f"there is not enough memory for {queries} answers and the file {target}: ask fewer "
            "queries, or write .npy"
        ) from None


def _checked(mechanism: MatrixMechanism, answers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return one finite number for each query, or refuse what is none."""
    values = np.asarray(answers)
    queries = mechanism.workload.rows
    if values.shape != (queries,):
        raise ShapeError(
            f"answers has shape {values.shape}: pass one number for each of the {queries} queries "
            "of the mechanism's workload"
        )
    if values.dtype.kind not in "iuf" or not bool(np.all(np.isfinite(values))):
        raise InvalidParameterError(
            "answers must hold finite real numbers: pass those of the release, or workload.apply "
            "of an estimate"
        )
    return values.astype(np.float64, copy=False)


def _contents(
    mechanism: MatrixMechanism,
    answers: NDArray[np.float64],
    target: Path,
    post_processing: tuple[str, ...],
) -> list[tuple[Path, bytes]]:
    """Return the files to write: the statement first, so that no answers lie there without it."""
    content = io.BytesIO()
    write_matrix(content, MatrixFile(answers.reshape(-1, 1)), target.suffix)
    data = content.getvalue()
    statement = Statement(
        mechanism=type(mechanism).__name__,
        sensitivity=mechanism.sensitivity,
        covariance=mechanism.covariance,
        guarantee=mechanism.guarantee,
        file={"name": target.name, "sha256": hashlib.sha256(data).hexdigest()},
    )
    record = json.loads(statement.to_json()) | {
        "schema": SCHEMA,
        "workload": repr(mechanism.workload),
        "queries": mechanism.workload.rows,
        "expected_rmse": mechanism.expected_error,
        "post_processing": list(post_processing),
    }
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    return [(statement_path(target), text.encode()), (target, data)]


def load_answers(path: str | PathLike[str]) -> SavedAnswers:
    """Read saved answers, and verify them on the way.

    Raises
    ------
    FileFormatError
        If a file is missing, a folder, cut short or foreign, if the statement does not prove its
        guarantee, if it speaks of another file, or if anything in them is not as it is written.
    """
    source = Path(path)
    data, text = read_with_statement(source, "answers")
    name = statement_path(source).name
    record = _record(text, name)
    common = {key: part for key, part in record.items() if key not in _OWN_KEYS}
    statement = read_statement(json.dumps(common | {"schema": RELEASE_SCHEMA}), name)
    if hashlib.sha256(data).hexdigest() != statement.file.get("sha256"):
        raise FileFormatError(
            f"{source} is not the file that its statement speaks of: its digest differs"
        )
    _check_own(record, name)
    matrix = read_matrix(io.BytesIO(data), source.suffix, source.name)
    return SavedAnswers(
        answers=_checked_answers(matrix, record["queries"], source.name),
        guarantee=statement.guarantee,
        workload=record["workload"],
        expected_error=record["expected_rmse"],
        post_processing=tuple(record["post_processing"]),
    )


def _check_own(record: dict[str, Any], name: str) -> None:
    """Refuse a statement whose own fields are missing or of another kind than is written."""
    steps, error = record.get("post_processing"), record.get("expected_rmse")
    right = {
        "workload": isinstance(record.get("workload"), str),
        "queries": type(record.get("queries")) is int,
        "expected_rmse": isinstance(error, float) and 0.0 <= error < math.inf,
        "post_processing": isinstance(steps, list) and all(isinstance(step, str) for step in steps),
    }
    for field, fine in right.items():
        if not fine:
            raise FileFormatError(
                f"{name} is not a statement of answers: {field} is missing or of the wrong kind"
            )


def _checked_answers(matrix: MatrixFile, queries: int, name: str) -> NDArray[np.float64]:
    """Return the one column of finite numbers that answers are written as."""
    answers = np.asarray(matrix.array)
    fitting = answers.shape == (queries, 1) and answers.dtype == np.float64
    if not fitting or not bool(np.all(np.isfinite(answers))):
        raise FileFormatError(
            f"{name} does not hold the answers that its statement speaks of: one column of "
            f"{queries} finite numbers"
        )
    return np.asarray(answers[:, 0])


def _record(text: str, name: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(text)
        schema = record["schema"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FileFormatError(f"{name} is not a statement of answers") from None
    if schema != SCHEMA:
        raise FileFormatError(f"{name} has schema {schema!r}: this version reads {SCHEMA!r}")
    return record
