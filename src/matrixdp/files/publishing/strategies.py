"""Strategies in files: the matrices as ``.npz``, and a JSON statement of what they are for."""

import hashlib
import io
import math
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

from matrixdp.errors import FileFormatError, MatrixDPError
from matrixdp.files.formats.numpy_format import (
    packed_arrays,
    read_archive,
    unpacked_arrays,
)
from matrixdp.files.publishing.atomic import write_all
from matrixdp.files.publishing.statement import (
    check_archive_target,
    check_digest,
    encoded,
    read_statement,
    statement_path,
)
from matrixdp.files.schemas.values import DigestSchema, Schema
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads import (
    Certificate,
    OptimalStrategy,
    ProductStrategy,
    ResidualStrategy,
    StackedStrategy,
    Strategy,
)
from matrixdp.workloads.operator import LARGEST_HISTOGRAM

__all__ = [
    "SavedStrategy",
    "StrategyStatement",
    "load_strategy",
    "save_strategy",
    "stated_gap",
]

_Schema = Literal["matrixdp-strategy/1", "matrixdp-strategy/2", "matrixdp-strategy/3"]
# One schema for each kind, so that versions that do not know a kind refuse it.
_SCHEMAS: dict[str, _Schema] = {
    "product": "matrixdp-strategy/1",
    "stack": "matrixdp-strategy/2",
    "residual": "matrixdp-strategy/3",
}
_KINDS: dict[_Schema, type[Strategy]] = {
    "matrixdp-strategy/1": ProductStrategy,
    "matrixdp-strategy/2": StackedStrategy,
    "matrixdp-strategy/3": ResidualStrategy,
}


class StrategyStatement(Schema, frozen=True):
    """The statement of a saved strategy.

    Schema 1 is one product, schema 2 a stack of products, schema 3 tables set by set.
    """

    schema: _Schema
    workload: str
    neighbouring: Neighbouring
    value: float
    lower_bound: float
    gap: float | None  # None if nothing is known of the best strategy
    file: DigestSchema


@dataclass(frozen=True, eq=False)
class SavedStrategy:
    """A strategy read from a file, and what the file states about it.

    The sensitivity of the strategy is never read but computed again. Its error is the one that the
    file states, and is not proven again.
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
    check_archive_target(target, force=force)
    data = packed_arrays(optimum.strategy.named_arrays())
    statement = StrategyStatement(
        schema=_SCHEMAS[optimum.strategy.kind],
        workload=repr(optimum.workload),
        neighbouring=optimum.neighbouring,
        value=optimum.certificate.value,
        lower_bound=optimum.certificate.lower_bound,
        gap=stated_gap(optimum.certificate),
        file=DigestSchema(target.name, hashlib.sha256(data).hexdigest()),
    )
    # The statement first, as with releases: there are never matrices that nobody can check.
    write_all([(statement_path(target), encoded(statement)), (target, data)], force=force)


def load_strategy(path: str | PathLike[str]) -> SavedStrategy:
    """Read a saved strategy.

    Raises
    ------
    FileFormatError
        If a file is missing, a folder, cut short, of another kind, or not the one that the
        statement describes, or if the statement contradicts itself.
    """
    source = Path(path)
    data = read_archive(source)
    statement = read_statement(source, StrategyStatement, "a saved strategy")
    check_digest(hashlib.sha256(data).hexdigest(), statement.file.sha256, source)
    arrays = unpacked_arrays(io.BytesIO(data), source)
    # By the schema and not by the names, so that the two must agree.
    kind = _KINDS[statement.schema]
    try:
        return SavedStrategy(
            _checked_layout(kind.from_named_arrays(arrays)),
            statement.workload,
            statement.neighbouring,
            _checked_certificate(statement),
        )
    except MatrixDPError as error:
        raise FileFormatError(f"{source} is not a saved strategy ({error})") from error


def _checked_layout(strategy: Strategy) -> Strategy:
    """Return the strategy, or raise if an attribute has more cells than a histogram can have."""
    # A factor of one row may be very wide in a small file; its Gram matrix would not fit in memory.
    if not max(strategy.dimensions) <= LARGEST_HISTOGRAM:
        raise FileFormatError(
            f"its cells are laid out as {strategy.dimensions}, and no attribute has more than "
            f"{LARGEST_HISTOGRAM}"
        )
    return strategy


def _checked_certificate(statement: StrategyStatement) -> Certificate:
    """Return what is stated about the error, or raise if it contradicts itself."""
    certificate = Certificate(statement.value, statement.lower_bound)
    # The same division of the same floats, hence exactly equal on every machine.
    if statement.gap != stated_gap(certificate):
        raise FileFormatError(
            f"gap={statement.gap!r} is not the {stated_gap(certificate)!r} of value and "
            "lower_bound: the statement was altered"
        )
    return certificate


def stated_gap(certificate: Certificate) -> float | None:
    """Return the gap as it is written: None, since JSON has no infinity, if nothing is proven."""
    return certificate.gap if math.isfinite(certificate.gap) else None
