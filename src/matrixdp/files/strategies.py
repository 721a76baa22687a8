"""Strategies in files: the matrices as ``.npz``, and a JSON statement of what they are for."""

import hashlib
import io
import json
import math
import re
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.statement import read_with_statement, statement_path
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.operator import LARGEST_HISTOGRAM
from matrixdp.workloads.optimal import OptimalStrategy
from matrixdp.workloads.solve.certificate import Certificate
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.stacked import StackedStrategy
from matrixdp.workloads.strategies.strategy import Strategy

__all__ = [
    "SCHEMA",
    "STACK_SCHEMA",
    "SavedStrategy",
    "check_strategy_target",
    "load_strategy",
    "save_strategy",
    "stated_gap",
]

SCHEMA = "matrixdp-strategy/1"
"""Of one product: the arrays ``factor_0``, ``factor_1``, .., and ``weights`` if there are any."""

STACK_SCHEMA = "matrixdp-strategy/2"
"""Of a stack of products: ``part_0_factor_0``, .., each part with as many factors."""

_STACKED = re.compile(r"part_(0|[1-9]\d{0,5})_factor_(0|[1-9]\d{0,5})")


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
    content = io.BytesIO()
    np.savez(content, **optimum.strategy.named_arrays())  # type: ignore[arg-type]
    data = content.getvalue()
    record = {
        "schema": STACK_SCHEMA if optimum.strategy.kind == "stack" else SCHEMA,
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
    stacked = record["schema"] == STACK_SCHEMA
    arrays = _read_arrays(data, str(source))
    try:
        return SavedStrategy(
            _checked_layout(_stack_of(arrays) if stacked else _product_of(arrays)),
            record["workload"],
            checked_neighbouring(record["neighbouring"]),
            _checked_certificate(record),
        )
    except MatrixDPError as error:
        raise FileFormatError(f"{source} is not a saved strategy ({error})") from error


def _checked_layout(strategy: Strategy) -> Strategy:
    """Return the strategy, on attributes of no more cells than a histogram can have."""
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
    if schema not in (SCHEMA, STACK_SCHEMA):
        raise FileFormatError(
            f"{name} has schema {schema!r}: this version reads {SCHEMA!r} and {STACK_SCHEMA!r}"
        )
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


def _read_arrays(data: bytes, name: str) -> dict[str, NDArray[Any]]:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {member: archive[member] for member in archive.files}
    except Exception:  # noqa: BLE001 (numpy raises what its parsers raise: zipfile, zlib, pickle)
        raise FileFormatError(
            f"{name} is not a saved strategy: its arrays are damaged; save it again"
        ) from None


def _product_of(arrays: dict[str, NDArray[Any]]) -> ProductStrategy:
    names = [f"factor_{n}" for n in range(sum(name.startswith("factor_") for name in arrays))]
    if not set(names) <= set(arrays):
        raise FileFormatError("its arrays are damaged: they are not factor_0, factor_1 and so on")
    return ProductStrategy([arrays[name] for name in names], arrays.get("weights"))


def _stack_of(arrays: dict[str, NDArray[Any]]) -> StackedStrategy:
    """Return the stack whose parts and factors are numbered without gaps, and nothing else."""
    matches = [_STACKED.fullmatch(member) for member in arrays]
    places = {(int(match[1]), int(match[2])) for match in matches if match is not None}
    parts = 1 + max((part for part, _ in places), default=-1)
    factors = 1 + max((factor for _, factor in places), default=-1)
    if not len(arrays) == len(places) == parts * factors:
        raise FileFormatError(
            "its arrays are not part_0_factor_0, part_0_factor_1 and so on, as many for each part"
        )
    return StackedStrategy(
        [
            ProductStrategy([arrays[f"part_{part}_factor_{place}"] for place in range(factors)])
            for part in range(parts)
        ]
    )
