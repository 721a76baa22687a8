"""Names of a table's columns, which say more than its order: those of pandas, polars and Arrow."""

from collections.abc import Hashable, Sequence
from typing import Any

from matrixdp.errors import InvalidParameterError

__all__ = ["by_name", "names_of"]


def names_of(table: Any) -> list[Hashable] | None:
    """Return the names of a table's columns; None if it has none but those that were made up.

    Examples
    --------
    >>> names_of([[31, 40]]) is None
    True
    """
    match _kind(table):
        case ("pandas" | "polars", "DataFrame"):
            names = list(table.columns)
        case ("pandas" | "polars", "Series"):
            names = [] if table.name in (None, "") else [table.name]
        case ("pyarrow", "Table" | "RecordBatch"):
            names = list(table.schema.names)
        case _:
            return None
    # What pandas and polars call the columns of an array.
    places = range(len(names))
    made_up = names in (list(places), [f"column_{place}" for place in places])
    return None if made_up else names


def by_name(table: Any, wanted: Sequence[Hashable]) -> Any:
    """Return the columns of a table with names that have the wanted ones, in their order.

    Raises
    ------
    InvalidParameterError
        If a name is missing or ambiguous. The table's own names are not shown: they may be data.
    """
    found = names_of(table) or []
    for name in wanted:
        if found.count(name) != 1 or wanted.count(name) != 1:
            many = "more than one" if found.count(name) else "no"
            raise InvalidParameterError(
                f"data has {many} column {name!r}: columns are matched by name, so name each once"
                if wanted.count(name) == 1
                else f"the query has more than one column {name!r}: name each once"
            )
    positions = [found.index(name) for name in wanted]
    match _kind(table):
        case (_, "Series"):
            return table
        case ("pandas", _):
            return table.iloc[:, positions]
        case ("polars", _):
            return table.select(list(wanted))
        case _:
            return table.select(positions)


def _kind(table: Any) -> tuple[str, str]:
    """Return the library and the kind of a table, also of one that is derived from it."""
    for base in type(table).__mro__:
        library = base.__module__.partition(".")[0]
        if library in ("pandas", "polars", "pyarrow"):
            return library, base.__name__
    return "", ""
