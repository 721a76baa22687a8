"""The commands of ``matrixdp query``, one for each kind of query."""

from collections.abc import Callable, Sequence
from typing import Any

from matrixdp.cli.commands.query.attributes import (
    BinsOption,
    ByOption,
    CategoriesOption,
    OfOption,
    OrderOption,
    OtherOption,
    WaysOption,
    attributes_from,
    grouped_moments,
    tables_of,
)
from matrixdp.cli.commands.query.options import (
    Asked,
    AskedOfNumbers,
    ClippedShare,
    Count,
    asked,
    asked_of_numbers,
    with_options_of,
)
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
    query = Sum(given.bounds, given.neighbouring, given.most_records)
    _release(given, query, ["sum"], clipped_share)


@app.command()
@with_options_of(asked_of_numbers)
def mean(
    given: AskedOfNumbers,
    count: Count = None,
    clipped_share: ClippedShare = None,
) -> None:
    """Release the mean of the records, over a public count or one that the budget pays for."""
    if count is None and given.neighbouring == "replace":
        raise InvalidParameterError(
            "pass --count, the number of records: it is public under replace"
        )
    query = Mean(given.bounds, given.neighbouring, count, given.most_records)
    if count is not None:
        _release(given, query, ["mean"], clipped_share)
        return
    if clipped_share is not None:
        raise InvalidParameterError(
            "--clipped-share needs --count: without it the budget pays for the number of records; "
            "`query clipped` counts what the bounds change"
        )
    given.output.release_private_count_mean(query, given.file.numbers, columns=given.columns)


@app.command()
@with_options_of(asked_of_numbers)
def gram(given: AskedOfNumbers, clipped_share: ClippedShare = None) -> None:
    """Release the Gram matrix of the records, the sum of x x^T."""
    query = Gram(given.bounds, given.neighbouring, given.most_records)
    _release(given, query, given.columns, clipped_share)


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
        given.most_records,
    )
    _release(given, query, given.columns, clipped_share)


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
    categories: CategoriesOption = None,
    bins: BinsOption = None,
    other: OtherOption = None,
) -> None:
    """Release a table of counts by categories and bins; categories come first."""
    attributes = attributes_from(categories, bins, other)
    query = ContingencyTable(attributes, given.neighbouring)
    given.output.release(
        query, _values(given, attributes), columns=query.columns, index=query.index
    )


@app.command()
@with_options_of(asked)
def marginals(
    given: Asked,
    categories: CategoriesOption = None,
    bins: BinsOption = None,
    other: OtherOption = None,
    of: OfOption = None,
    ways: WaysOption = 2,
) -> None:
    """Release all tables of counts by some columns at a time, with the least error in all.

    OUT.npz holds noisy measurements: see workload export for the tables.
    """
    attributes = attributes_from(categories, bins, other)
    table, workload = tables_of(attributes, of, ways, given.neighbouring)
    read = _values(given, table.attributes)
    given.output.release_marginals(table, workload, lambda: table.cells(read()))


def _values(given: Asked, attributes: Sequence[Categories | Bins]) -> Callable[[], Any]:
    """Return what starts to read the values of columns."""
    file = given.record_file(tuple(each.name for each in attributes), attributes)
    return lambda: file.values([isinstance(each, Bins) for each in attributes])


@app.command()
@with_options_of(asked_of_numbers)
def groups(
    given: AskedOfNumbers,
    by: ByOption,
    categories: CategoriesOption = None,
    bins: BinsOption = None,
    other: OtherOption = None,
    order: OrderOption = 1,
) -> None:
    """Release sizes, sums and means by group: all groups cost what one costs."""
    attributes = attributes_from(categories, bins, other)
    query = grouped_moments(
        given.bounds, attributes, by, order, given.neighbouring, given.most_records
    )
    names = tuple(each.name for each in query.by)
    file = given.record_file((*names, *given.columns), attributes)
    numeric = [isinstance(each, Bins) for each in query.by] + [True] * given.bounds.columns
    given.output.release(
        query,
        lambda: file.values(numeric),
        columns=query.columns,
        index=query.index,
        means=lambda release: query.summary(release).table(),
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
