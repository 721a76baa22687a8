"""The commands of ``matrixdp query``, one for each kind of query."""

from collections.abc import Sequence
from typing import Annotated

import typer

from matrixdp.cli.commands.query.options import (
    Asked,
    AskedOfNumbers,
    ClippedShare,
    Count,
    asked,
    asked_of_numbers,
    edges,
    named_list,
    with_options_of,
)
from matrixdp.cli.commands.query.source import RecordFile
from matrixdp.cli.shared.commands import command_group
from matrixdp.errors import InvalidParameterError
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    Gram,
    Mean,
    Query,
    SampleCovariance,
    Sum,
)

__all__ = ["app"]

app = command_group("Sums, moments and tables of records, released with exact noise.")


@app.command("sum")
@with_options_of(asked_of_numbers)
def sum_(given: AskedOfNumbers, clipped_share: ClippedShare = None) -> None:
    """Release the sum of the records."""
    _release(given, Sum(given.bounds, given.neighbouring), ["sum"], clipped_share)


@app.command()
@with_options_of(asked_of_numbers)
def mean(
    given: AskedOfNumbers,
    count: Count = None,
    clipped_share: ClippedShare = None,
) -> None:
    """Release the mean of the records, over a public count or one that the budget pays for."""
    query = Mean(given.bounds, given.neighbouring, count)
    if count is not None:
        _release(given, query, ["mean"], clipped_share)
        return
    if clipped_share is not None:
        raise InvalidParameterError(
            "--clipped-share needs --count: without it the budget pays for the number of records; "
            "`query clipped` counts what the bounds change"
        )
    given.output.release_private_count_mean(query, given.file.numbers, columns=given.file.columns)


@app.command()
@with_options_of(asked_of_numbers)
def gram(given: AskedOfNumbers, clipped_share: ClippedShare = None) -> None:
    """Release the Gram matrix of the records, the sum of x x^T."""
    _release(given, Gram(given.bounds, given.neighbouring), given.file.columns, clipped_share)


@app.command()
@with_options_of(asked_of_numbers)
def covariance(
    given: AskedOfNumbers, count: Count = None, clipped_share: ClippedShare = None
) -> None:
    """Release the covariance matrix of the records about their mean, over a public count."""
    query = SampleCovariance(
        given.bounds,
        given.neighbouring,
        _public_count(count),
    )
    _release(given, query, given.file.columns, clipped_share)


@app.command()
@with_options_of(asked_of_numbers)
def clipped(given: AskedOfNumbers) -> None:
    """Release how many records the bounds change: paid for like any other question."""
    query = ClippedRecords(given.bounds, given.neighbouring)
    given.output.release(query, given.file.numbers, columns=["clipped"], index=["records"])


@app.command()
@with_options_of(asked)
def histogram(
    given: Asked,
    categories: Annotated[
        list[str] | None,
        typer.Option(
            "--categories",
            metavar="NAME=A,B,..",
            help="Count by these values; repeat for each column.",
        ),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option(
            "--bins",
            metavar="NAME=EDGES",
            help="Count by these bins: 0,18,65,inf; repeat for each column.",
        ),
    ] = None,
) -> None:
    """Release a table of counts by categories and bins; categories come first."""
    attributes: list[Categories | Bins] = [
        *(Categories(name, values) for name, values in map(named_list, categories or [])),
        *(Bins(name, edges(values)) for name, values in map(named_list, bins or [])),
    ]
    query = ContingencyTable(attributes, given.neighbouring)
    file = RecordFile(given.source, tuple(attribute.name for attribute in attributes), given.layout)
    numeric = [isinstance(attribute, Bins) for attribute in attributes]
    given.output.release(
        query, lambda: file.values(numeric), columns=query.columns, index=query.index
    )


def _release(
    given: AskedOfNumbers, query: Query, index: Sequence[str], clipped_share: float | None
) -> None:
    """Release the answer to a query on numbers, and the count of clipped records if it is asked."""
    file = given.file
    if clipped_share is None:
        given.output.release(query, file.numbers, columns=file.columns, index=index)
        return
    given.output.release_with_clipped(
        query,
        ClippedRecords(given.bounds, given.neighbouring),
        clipped_share,
        file.numbers,
        columns=file.columns,
        index=index,
    )


def _public_count(count: int | None) -> int:
    if count is None:
        raise InvalidParameterError(
            "pass --count, a public number to divide by: under add-remove the number of records "
            "is private, so choose it without looking at them"
        )
    return count
