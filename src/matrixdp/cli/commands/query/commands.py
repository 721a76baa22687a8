"""The commands of ``matrixdp query``, one for each kind of query."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import Annotated, Any, TypeAlias

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
from matrixdp.cli.shared.options import count_option, names_of
from matrixdp.errors import InvalidParameterError
from matrixdp.queries import (
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    Gram,
    GroupMoments,
    Mean,
    Query,
    SampleCovariance,
    Sum,
)

__all__ = ["app"]

CategoriesOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--categories",
        metavar="NAME=A,B,..",
        help="Count by these values; repeat for each column.",
    ),
]
BinsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--bins",
        metavar="NAME=EDGES",
        help="Count by these bins: 0,18,65,inf; repeat for each column.",
    ),
]
OtherOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--other",
        metavar="NAMES",
        help="Columns of --categories, with commas between them, that count values which are not "
        "listed as one more category, other; those of all other columns are refused.",
    ),
]

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
    categories: CategoriesOption = None,
    bins: BinsOption = None,
    other: OtherOption = None,
) -> None:
    """Release a table of counts by categories and bins; categories come first."""
    attributes = _attributes(categories, bins, other)
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
    of: Annotated[
        str | None,
        typer.Option(
            "--of",
            metavar="NAMES",
            help="The columns to count by, with commas between them; default: all of --categories "
            "and --bins.",
        ),
    ] = None,
    ways: Annotated[
        int, count_option("--ways", "Tables by so many columns at once; default: 2.")
    ] = 2,
) -> None:
    """Release all tables of counts by some columns at a time, with the least error in all.

    OUT.npz holds noisy measurements: see workload export for the tables.
    """
    known = {each.name: each for each in _attributes(categories, bins, other)}
    names = list(known) if of is None else names_of(of) or []
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InvalidParameterError(
            f"--of names {unknown[0]!r}: say its values by --categories or --bins"
        )
    if not 1 <= ways <= len(names):
        raise InvalidParameterError(
            f"--ways {ways} must be from 1 to the number of columns, {len(names)}"
        )
    chosen = [known[name] for name in names]
    table = ContingencyTable(chosen, given.neighbouring)
    read = _values(given, chosen)
    given.output.release_marginals(
        table, table.marginals(combinations(names, ways)), lambda: table.cells(read())
    )


def _attributes(
    categories: Sequence[str] | None, bins: Sequence[str] | None, other: str | None
) -> list[Categories | Bins]:
    listed = [named_list(text) for text in categories or []]
    open_ended = names_of(other) or []
    for name in open_ended:
        if name not in [known for known, _ in listed]:
            raise InvalidParameterError(f"--other names {name!r}: list its values by --categories")
    return [
        *(
            Categories(name, values, other="other" if name in open_ended else None)
            for name, values in listed
        ),
        *(Bins(name, edges(values)) for name, values in map(named_list, bins or [])),
    ]


def _values(given: Asked, attributes: Sequence[Categories | Bins]) -> Callable[[], Iterator[Any]]:
    """Return what starts to read the values of columns."""
    file = RecordFile(given.source, tuple(each.name for each in attributes), given.layout)
    return lambda: file.values([isinstance(each, Bins) for each in attributes])


@app.command()
@with_options_of(asked_of_numbers)
def groups(
    given: AskedOfNumbers,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="NAME,..", help="The columns that groups are made by, with commas."
        ),
    ],
    categories: CategoriesOption = None,
    bins: BinsOption = None,
    other: OtherOption = None,
    order: Annotated[
        int, count_option("--order", "Up to which moments: 1 for sums and means, or 2.")
    ] = 1,
) -> None:
    """Release sizes, sums and means by group: all groups cost what one costs."""
    found = {attribute.name: attribute for attribute in _attributes(categories, bins, other)}
    names = [name.strip() for name in by.split(",")]
    if sorted(found) != sorted(names):
        raise InvalidParameterError(
            f"--by {by} needs public values of each column and of no other: pass --categories "
            "NAME=A,B,.. or --bins NAME=EDGES once for each"
        )
    attributes = [found[name] for name in names]
    query = GroupMoments(given.bounds, given.neighbouring, by=attributes, order=order)
    file = RecordFile(given.source, (*names, *given.file.columns), given.layout)
    numeric = [isinstance(each, Bins) for each in attributes] + [True] * given.bounds.columns
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
