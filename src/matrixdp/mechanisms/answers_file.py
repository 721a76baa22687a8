"""Answers in files: the numbers, and a JSON statement of what they guarantee and how they came."""

import hashlib
import io
import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError
from matrixdp.mechanisms.matrix_files import MatrixFile, read_matrix, write_all, write_matrix
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.mechanisms.statement import SCHEMA as RELEASE_SCHEMA
from matrixdp.mechanisms.statement import Statement, read_statement, statement_path
from matrixdp.privacy.guarantee import Guarantee

__all__ = ["SCHEMA", "SavedAnswers", "load_answers", "save_answers"]

SCHEMA = "matrixdp-answers/1"
_OWN_KEYS = ("workload", "queries", "expected_rmse", "post_processing")


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
    """
    target = Path(path)
    matrix = MatrixFile(np.asarray(answers, dtype=np.float64).reshape(-1, 1))
    content = io.BytesIO()
    write_matrix(content, matrix, target.suffix)
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
    # The statement first: answers never lie there without what they guarantee.
    write_all([(statement_path(target), text.encode()), (target, data)], force=force)


def load_answers(path: str | PathLike[str]) -> SavedAnswers:
    """Read saved answers, and verify them on the way.

    Raises
    ------
    FileFormatError
        If a file is missing, cut short or foreign, if the statement does not prove its guarantee,
        or if it speaks of another file.
    """
    source = Path(path)
    name = statement_path(source).name
    try:
        data = source.read_bytes()
        text = statement_path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileFormatError(
            f"{error.filename} is missing: saved answers are a file and its .json statement"
        ) from error
    except UnicodeDecodeError:
        raise FileFormatError(f"{name} is not a statement of answers") from None
    record = _record(text, name)
    common = {key: part for key, part in record.items() if key not in _OWN_KEYS}
    statement = read_statement(json.dumps(common | {"schema": RELEASE_SCHEMA}), name)
    if hashlib.sha256(data).hexdigest() != statement.file.get("sha256"):
        raise FileFormatError(
            f"{source} is not the file that its statement speaks of: its digest differs"
        )
    answers = read_matrix(io.BytesIO(data), source.suffix, source.name).array
    try:
        saved = SavedAnswers(
            answers=np.asarray(answers, dtype=np.float64).ravel(),
            guarantee=statement.guarantee,
            workload=str(record["workload"]),
            expected_error=float(record["expected_rmse"]),
            post_processing=tuple(str(step) for step in record["post_processing"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{name} is not a statement of answers ({error})") from error
    if saved.answers.shape != (record.get("queries"),):
        raise FileFormatError(f"{source} does not hold the answers that its statement speaks of")
    return saved


def _record(text: str, name: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(text)
        schema = record["schema"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FileFormatError(f"{name} is not a statement of answers") from None
    if schema != SCHEMA:
        raise FileFormatError(f"{name} has schema {schema!r}: this version reads {SCHEMA!r}")
    return record
