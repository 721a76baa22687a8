"""The query that ``matrixdp plan --query`` is about."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Protocol, TypeAlias

import typer

from matrixdp.cli.commands.plan.tables import PlannedTables
from matrixdp.cli.commands.query.attributes import attributes_from, grouped_moments, tables_of
from matrixdp.cli.commands.query.options import public_bounds
from matrixdp.cli.shared.options import names_of
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.privacy.planner import ErrorMeasure
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    Gram,
    Mean,
    Preview,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
)

__all__ = ["Kind", "KindOption", "Plannable", "QueryOptions", "asked_query"]


class Kind(StrEnum):
    """The queries that can be planned: those of the commands of ``matrixdp query``."""

    SUM = "sum"
    MEAN = "mean"
    GRAM = "gram"
    COVARIANCE = "covariance"
    GROUPS = "groups"
    CLIPPED = "clipped"
    HISTOGRAM = "histogram"
    MARGINALS = "marginals"


KindOption: TypeAlias = Annotated[
    Kind | None,
    typer.Option(
        "--query",
        help="Instead of --shape and --sensitivity: a command of `query`, with its --neighbouring, "
        "--columns, bounds, --count, --categories and so on.",
    ),
]

_OF_COLUMNS: dict[Kind, Callable[[PublicBounds, Neighbouring], Query]] = {
    Kind.SUM: Sum,
    Kind.GRAM: Gram,
    Kind.CLIPPED: ClippedRecords,
}
_BOUNDS = ("columns", "norm", "lower", "upper")
_CELLS = ("categories", "bins", "other")
# The options that each kind takes besides --neighbouring; others would say nothing.
_TAKEN: dict[Kind, tuple[str, ...]] = {
    **dict.fromkeys(_OF_COLUMNS, _BOUNDS),
    Kind.MEAN: (*_BOUNDS, "count"),
    Kind.COVARIANCE: (*_BOUNDS, "count"),
    Kind.GROUPS: (*_BOUNDS, *_CELLS, "by", "order"),
    Kind.HISTOGRAM: _CELLS,
    Kind.MARGINALS: (*_CELLS, "of", "ways"),
}


class Plannable(Protocol):
    """What says its errors before anything is spent."""

    def preview(self, budget: Budget) -> Preview:
        """Return what a release will be like."""

    def budget_for(
        self, error: float, measure: ErrorMeasure | str = ..., *, delta: float
    ) -> Budget:
        """Return the least budget with which no error of a release is larger than a bound."""


@dataclass(frozen=True)
class QueryOptions:
    """What options say of a query; None where they say nothing."""

    neighbouring: str | None
    columns: str | None
    norm: float | None
    lower: str | None
    upper: str | None
    count: int | None
    categories: Sequence[str] | None
    bins: Sequence[str] | None
    other: str | None
    by: str | None
    order: int | None
    of: str | None
    ways: int | None

    @property
    def given(self) -> list[str]:
        """The options that say something."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    @property
    def bounds(self) -> PublicBounds:
        """The bounds of the columns."""
        names = names_of(self.columns)
        if names is None:
            raise InvalidParameterError("--query needs --columns")
        return public_bounds(tuple(names), self.norm, self.lower, self.upper)

    @property
    def attributes(self) -> list[Categories | Bins]:
        """What is counted by."""
        return attributes_from(self.categories, self.bins, self.other)


def asked_query(kind: Kind, options: QueryOptions) -> Plannable:
    """Return the query that options describe."""
    if options.neighbouring is None:
        raise InvalidParameterError("--query needs --neighbouring")
    for name in options.given:
        if name not in ("neighbouring", *_TAKEN[kind]):
            raise InvalidParameterError(f"--{name} is not for --query {kind}: leave it out")
    relation = checked_neighbouring(options.neighbouring)
    if kind is Kind.MARGINALS:
        of, ways = options.of, 2 if options.ways is None else options.ways
        return PlannedTables(*tables_of(options.attributes, of, ways, relation))
    if kind is Kind.HISTOGRAM:
        return ContingencyTable(options.attributes, relation)
    if kind is Kind.GROUPS:
        if options.by is None:
            raise InvalidParameterError("--query groups needs --by")
        order = 1 if options.order is None else options.order
        return grouped_moments(options.bounds, options.attributes, options.by, order, relation)
    if kind in _OF_COLUMNS:
        return _OF_COLUMNS[kind](options.bounds, relation)
    return _over_count(kind, options, relation)


def _over_count(kind: Kind, options: QueryOptions, relation: Neighbouring) -> Query:
    """Return a mean or a covariance; under add-remove a budget may pay for the count of a mean."""
    if kind is Kind.MEAN and (options.count is not None or relation == "add-remove"):
        return Mean(options.bounds, relation, options.count)
    if options.count is None:
        raise InvalidParameterError(f"--query {kind} needs --count, a public number to divide by")
    return SampleCovariance(options.bounds, relation, options.count)
