"""The options of ``matrixdp query`` that say what is counted by, and the queries that they ask."""

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated, TypeAlias

import typer

from matrixdp.cli.commands.query.options import edges, named_list
from matrixdp.cli.shared.options import count_option, names_of
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries import Bins, Categories, ContingencyTable, GroupMoments, PublicBounds
from matrixdp.queries.exact_sums import MOST_RECORDS
from matrixdp.workloads import Workload

__all__ = [
    "BinsOption",
    "ByOption",
    "CategoriesOption",
    "OfOption",
    "OptionalByOption",
    "OptionalOrderOption",
    "OptionalWaysOption",
    "OrderOption",
    "OtherOption",
    "WaysOption",
    "attributes_from",
    "grouped_moments",
    "tables_of",
]

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
OfOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="NAMES",
        help="The columns to count by, with commas between them; default: all of --categories "
        "and --bins.",
    ),
]
_WAYS = count_option("--ways", "Tables by so many columns at once; default: 2.")
WaysOption: TypeAlias = Annotated[int, _WAYS]
OptionalWaysOption: TypeAlias = Annotated[int | None, _WAYS]
_BY = typer.Option(
    "--by", metavar="NAME,..", help="The columns that groups are made by, with commas."
)
ByOption: TypeAlias = Annotated[str, _BY]
OptionalByOption: TypeAlias = Annotated[str | None, _BY]
_ORDER = count_option("--order", "Up to which moments: 1 for sums and means, or 2.")
OrderOption: TypeAlias = Annotated[int, _ORDER]
OptionalOrderOption: TypeAlias = Annotated[int | None, _ORDER]


def attributes_from(
    categories: Sequence[str] | None, bins: Sequence[str] | None, other: str | None
) -> list[Categories | Bins]:
    """Return what is counted by; categories come first."""
    listed = [named_list(text) for text in categories or []]
    binned = [named_list(text) for text in bins or []]
    names = [name for name, _ in [*listed, *binned]]
    for name in names:
        if names.count(name) != 1:
            raise InvalidParameterError(
                f"--categories and --bins name {name!r} more than once: say its values once"
            )
    open_ended = names_of(other) or []
    for name in open_ended:
        if name not in [known for known, _ in listed]:
            raise InvalidParameterError(f"--other names {name!r}: list its values by --categories")
    return [
        *(
            Categories(name, values, other="other" if name in open_ended else None)
            for name, values in listed
        ),
        *(Bins(name, edges(values)) for name, values in binned),
    ]


def tables_of(
    attributes: Sequence[Categories | Bins], of: str | None, ways: int, neighbouring: Neighbouring
) -> tuple[ContingencyTable, Workload]:
    """Return the table of the chosen attributes, and the workload of its marginals."""
    known = {each.name: each for each in attributes}
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
    table = ContingencyTable([known[name] for name in names], neighbouring)
    return table, table.marginals(combinations(names, ways))


def grouped_moments(
    bounds: PublicBounds,
    attributes: Sequence[Categories | Bins],
    by: str,
    order: int,
    neighbouring: Neighbouring,
    most_records: int = MOST_RECORDS,
) -> GroupMoments:
    """Return the moments of groups that are made by all of the attributes, in the order of names.

    Raises
    ------
    InvalidParameterError
        If the names are not those of the attributes.
    """
    found = {attribute.name: attribute for attribute in attributes}
    names = [name.strip() for name in by.split(",")]
    if sorted(found) != sorted(names):
        raise InvalidParameterError(
            f"--by {by} needs public values of each column and of no other: pass --categories "
            "NAME=A,B,.. or --bins NAME=EDGES once for each"
        )
    chosen = [found[name] for name in names]
    return GroupMoments(bounds, neighbouring, by=chosen, order=order, most_records=most_records)
