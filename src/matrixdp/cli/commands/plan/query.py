"""The query that ``matrixdp plan --query`` is about."""

from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from matrixdp.cli.commands.query.options import public_bounds
from matrixdp.cli.shared.options import names_of
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.queries import ClippedRecords, Gram, Mean, Query, SampleCovariance, Sum

__all__ = ["Kind", "KindOption", "asked_query"]


class Kind(StrEnum):
    """The queries that can be planned: those of the commands of ``matrixdp query``."""

    SUM = "sum"
    MEAN = "mean"
    GRAM = "gram"
    COVARIANCE = "covariance"
    CLIPPED = "clipped"


KindOption: TypeAlias = Annotated[
    Kind | None,
    typer.Option(
        "--query",
        help="Instead of --shape and --sensitivity: a command of `query`, with its --columns, "
        "bounds, --count and --neighbouring.",
    ),
]


def asked_query(
    kind: Kind,
    columns: str | None,
    neighbouring: str | None,
    norm: float | None,
    lower: str | None,
    upper: str | None,
    count: int | None,
) -> Query:
    """Return the query that options describe."""
    names = names_of(columns)
    if names is None or neighbouring is None:
        raise InvalidParameterError("--query needs --columns and --neighbouring")
    bounds = public_bounds(tuple(names), norm, lower, upper)
    relation = checked_neighbouring(neighbouring)
    match kind:
        case Kind.SUM:
            return Sum(bounds, relation)
        case Kind.GRAM:
            return Gram(bounds, relation)
        case Kind.CLIPPED:
            return ClippedRecords(bounds, relation)
        case Kind.MEAN | Kind.COVARIANCE:
            if count is None:
                raise InvalidParameterError(
                    f"--query {kind} needs --count, a public number to divide by"
                )
            of_count = Mean if kind is Kind.MEAN else SampleCovariance
            return of_count(bounds, relation, count)
