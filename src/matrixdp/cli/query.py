"""``matrixdp query``: from a file of records to a released sum, moment matrix or table."""

from collections.abc import Sequence
from typing import Annotated

import typer

from matrixdp.cli.groups import command_group
from matrixdp.cli.query_options import (
    Asked,
    AskedOfNumbers,
    Count,
    TouchedShare,
    asked,
    asked_of_numbers,
    edges,
    named_list,
    with_options_of,
)
from matrixdp.cli.query_source import RecordFile
from matrixdp.errors import InvalidParameterError
from matrixdp.queries import (
    Bins,
    Categories,
    ContingencyTable,
    Covariance,
    Gram,
    Mean,
    PrivateCountMean,
    Query,
    Sum,
    TouchedRecords,
)

__all__ = ["app"]

app = command_group("Sums, moments and tables of records, released with exact noise.")


@app.command("sum")
@with_options_of(asked_of_numbers)
def sum_(given: AskedOfNumbers, touched_share: TouchedShare = None) -> None:
    """Release the sum of the records."""
    _release(given, Sum(given.bounds, given.neighbouring), ["sum"], touched_share)


@app.command()
@with_options_of(asked_of_numbers)
def mean(
    given: AskedOfNumbers,
    count: Count = None,
    private_count: Annotated[
        bool,
        typer.Option("--private-count", help="Pay for the number of records, under add-remove."),
    ] = False,
    touched_share: TouchedShare = None,
) -> None:
    """Release the mean of the records, over a public count or one that the budget pays for."""
    if not private_count:
        query = Mean(
            given.bounds,
            given.neighbouring,
            _public_count(count, "and --private-count pays for it"),
        )
        _release(given, query, ["mean"], touched_share)
        return
    if given.neighbouring != "add-remove" or count is not None or touched_share is not None:
        raise InvalidParameterError(
            "--private-count goes with --neighbouring add-remove, and without --count and "
            "--touched-share: under replace the number of records is public, and `query touched` "
            "counts what the bounds change"
        )
    given.output.release_private_count_mean(
        PrivateCountMean(given.bounds), given.file.numbers, columns=given.file.columns
    )


@app.command()
@with_options_of(asked_of_numbers)
def gram(given: AskedOfNumbers, touched_share: TouchedShare = None) -> None:
    """Release the Gram matrix of the records, the sum of x x^T."""
    _release(given, Gram(given.bounds, given.neighbouring), given.file.columns, touched_share)


@app.command()
@with_options_of(asked_of_numbers)
def covariance(
    given: AskedOfNumbers, count: Count = None, touched_share: TouchedShare = None
) -> None:
    """Release the covariance matrix of the records about their mean, over a public count."""
    query = Covariance(
        given.bounds,
        given.neighbouring,
        _public_count(count, "so choose it without looking at them"),
    )
    _release(given, query, given.file.columns, touched_share)


@app.command()
@with_options_of(asked_of_numbers)
def touched(given: AskedOfNumbers) -> None:
    """Release how many records the bounds change: paid for like any other question."""
    query = TouchedRecords(given.bounds, given.neighbouring)
    given.output.release(query, given.file.numbers, columns=["touched"], index=["records"])


@app.command()
@with_options_of(asked)
def histogram(
    given: Asked,
    categories: Annotated[
        list[str] | None,
        typer.Option("--categories", metavar="NAME=A,B,..", help="Count by these values."),
    ] = None,
    bins: Annotated[
        list[str] | None,
        typer.Option("--bins", metavar="NAME=EDGES", help="Count by these bins: 0,18,65,inf."),
    ] = None,
) -> None:
    """Release a table of counts by categories and bins; categories come first."""
    attributes: list[Categories | Bins] = [
        *(Categories(name, values) for name, values in map(named_list, categories or [])),
        *(Bins(name, edges(values)) for name, values in map(named_list, bins or [])),
    ]
    query = ContingencyTable(attributes, given.neighbouring)
    file = RecordFile(
        given.source, tuple(attribute.name for attribute in attributes), given.delimiter
    )
    numeric = [isinstance(attribute, Bins) for attribute in attributes]
    given.output.release(
        query, lambda: file.values(numeric), columns=query.columns, index=query.index
    )


def _release(
    given: AskedOfNumbers, query: Query, index: Sequence[str], touched_share: float | None
) -> None:
    """Release the answer to a query on numbers, and the count of touched records if it is asked."""
    file = given.file
    if touched_share is None:
        given.output.release(query, file.numbers, columns=file.columns, index=index)
        return
    given.output.release_with_touched(
        query,
        TouchedRecords(given.bounds, given.neighbouring),
        touched_share,
        file.numbers,
        columns=file.columns,
        index=index,
    )


def _public_count(count: int | None, otherwise: str) -> int:
    if count is None:
        raise InvalidParameterError(
            "pass --count, a public number to divide by: under add-remove the number of records "
            f"is private, {otherwise}"
        )
    return count
