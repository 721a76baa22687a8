"""Strategies in files: the matrices as ``.npz``, and a JSON statement of what they are for."""

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

from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError
from matrixdp.mechanisms.matrix_files import check_target, write_all
from matrixdp.mechanisms.statement import read_with_statement, statement_path
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.certificate import Certificate
from matrixdp.workloads.operator import LARGEST_HISTOGRAM
from matrixdp.workloads.optimal import OptimalStrategy
from matrixdp.workloads.strategy import Strategy

__all__ = [
    "SCHEMA",
    "SavedStrategy",
    "check_strategy_target",
    "load_strategy",
    "save_strategy",
    "stated_gap",
]

SCHEMA = "matrixdp-strategy/1"


@dataclass(frozen=True, eq=False)
class SavedStrategy:
    """A strategy read from a file, and what the file says of it.

    The sensitivity of the strategy is never read but computed again; what is said of its error is
    the word of whoever saved it.
    """

    strategy: Strategy
    workload: str
    neighbouring: Neighbouring
    certificate: Certificate


def save_strategy(
    optimum: OptimalStrategy, path: str | PathLike[str], *, force: bool = False
) -> None:
    """Write a strategy to a ``.npz`` file, and its statement to ``<path>.json``.

    Parameters
    ----------
    optimum : OptimalStrategy
        From `optimal_strategy`.
    path : path
        Ending in ``.npz``.
    force : bool, optional
        Whether to replace existing files.
    """
    target = Path(path)
    check_strategy_target(target, force=force)
    arrays = {f"factor_{place}": part for place, part in enumerate(optimum.strategy.factors)}
    if optimum.strategy.weights is not None:
        arrays["weights"] = optimum.strategy.weights
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    data = content.getvalue()
    record = {
        "schema": SCHEMA,
        "workload": repr(optimum.workload),
        "neighbouring": optimum.neighbouring,
        "value": optimum.certificate.value,
        "lower_bound": optimum.certificate.lower_bound,
        "gap": stated_gap(optimum.certificate),
        "file": {"name": target.name, "sha256": hashlib.sha256(data).hexdigest()},
    }
    text = json.dumps(record, indent=2, allow_nan=False) + "\n"
    write_all([(statement_path(target), text.encode()), (target, data)], force=force)


def check_strategy_target(target: Path, *, force: bool) -> None:
    """Refuse a file, or its statement, that could not be written; before minutes of work."""
    if target.suffix != ".npz":
        raise InvalidParameterError(f"{target} does not end in .npz: name such a file")
    check_target(target, force=force)
    check_target(statement_path(target), force=force)


def load_strategy(path: str | PathLike[str]) -> SavedStrategy:
    """Read a saved strategy.

    Raises
    ------
    FileFormatError
        If a file is missing, a folder, cut short, foreign, or not the one that the statement
        speaks of, or if the statement does not fit together.
    """
    source = Path(path)
    data, text = read_with_statement(source, "a strategy")
    record = _read_statement(text, f"{source}.json")
    if hashlib.sha256(data).hexdigest() != record["file"]["sha256"]:
        raise FileFormatError(
            f"{source} is not the file that its statement speaks of: its digest differs"
        )
    factors, weights = _read_arrays(data, str(source))
    try:
        return SavedStrategy(
            _checked_strategy(factors, weights),
            record["workload"],
            checked_neighbouring(record["neighbouring"]),
            _checked_certificate(record),
        )
    except MatrixDPError as error:
        raise FileFormatError(f"{source} is not a saved strategy ({error})") from error


def _checked_strategy(factors: list[NDArray[Any]], weights: NDArray[Any] | None) -> Strategy:
    """Return the strategy, on attributes of no more cells than a histogram can have."""
    strategy = Strategy(factors, weights)
    if not max(strategy.dimensions) <= LARGEST_HISTOGRAM:
        raise FileFormatError(
            f"its cells are laid out as {strategy.dimensions}, and no attribute has more than "
            f"{LARGEST_HISTOGRAM}"
        )
    return strategy


def _checked_certificate(record: dict[str, Any]) -> Certificate:
    """Return what is said of the error, if it fits together."""
    certificate = Certificate(record["value"], record["lower_bound"])
    if record["gap"] != stated_gap(certificate):
        raise FileFormatError(
            f"gap={record['gap']!r} is not the {stated_gap(certificate)!r} of value and "
            "lower_bound: the statement was altered"
        )
    return certificate


def stated_gap(certificate: Certificate) -> float | None:
    """Return the gap as it is written: none where nothing is known of what could be best."""
    return certificate.gap if math.isfinite(certificate.gap) else None


def _read_statement(text: str, name: str) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(text)
        schema, digest = record["schema"], record["file"]["sha256"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FileFormatError(f"{name} is not a statement of a strategy") from None
    if schema != SCHEMA:
        raise FileFormatError(f"{name} has schema {schema!r}: this version reads {SCHEMA!r}")
    right = {
        "file": isinstance(digest, str),
        "workload": isinstance(record.get("workload"), str),
        "neighbouring": isinstance(record.get("neighbouring"), str),
        "value": isinstance(record.get("value"), float),
        "lower_bound": isinstance(record.get("lower_bound"), float),
        "gap": isinstance(record.get("gap", ""), float | None),
    }
    for field, fine in right.items():
        if not fine:
            raise FileFormatError(
                f"{name} is not a statement of a strategy: {field} is missing or of the wrong kind"
            )
    return record


def _read_arrays(data: bytes, name: str) -> tuple[list[NDArray[Any]], NDArray[Any] | None]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            count = sum(member.startswith("factor_") for member in archive.files)
            factors = [archive[f"factor_{place}"] for place in range(count)]
            return factors, archive["weights"] if "weights" in archive.files else None
    except Exception:  # noqa: BLE001 (numpy raises what its parsers raise: zipfile, zlib, pickle)
        raise FileFormatError(
            f"{name} is not a saved strategy: its arrays are damaged; save it again"
        ) from None
