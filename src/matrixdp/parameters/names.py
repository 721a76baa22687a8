"""Names of a table's columns, which say more than its order: those of pandas, polars and Arrow."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from matrixdp.errors import InvalidParameterError

__all__ = ["NamedRows", "all_names_of", "by_name", "in_order_of", "names_of"]


@dataclass(frozen=True, eq=False, repr=False)
class NamedRows:
    """Rows of values whose columns have names: what a database returns."""

    names: tuple[Hashable, ...]
    rows: list[tuple[Any, ...]]


def names_of(table: Any, wanted: Collection[Hashable] = ()) -> list[Hashable] | None:
    """Return the names of a table's columns; None if it has none but those that were made up.

    Parameters
    ----------
    table : Any
        A frame, a column of one, a table of Arrow, or anything else, which has no names.
    wanted : collection, optional
        Names to look for. One of them says that the names of a table are meant, even if pandas or
        polars could have made them up.

    Examples
    --------
    >>> names_of([[31, 40]]) is None
    True
    """
    names = all_names_of(table)
    if names is None or isinstance(table, NamedRows) or set(names) & set(wanted):
        return names
    return None if _made_up(names) else names


def all_names_of(table: Any) -> list[Hashable] | None:
    """Return the names of a table's columns, also those that were made up."""
    match _kind(table):
        case ("pandas" | "polars", "DataFrame"):
            names = list(table.columns)
        case ("pandas" | "polars", "Series" | "Index"):
            names = [] if table.name in (None, "") else [table.name]
        case ("pyarrow", "Table" | "RecordBatch"):
            names = list(table.schema.names)
        case ("", "NamedRows"):
            return list(table.names)
        case _:
            return None
    return names


def in_order_of(names: Sequence[Hashable] | None, table: Any) -> Any:
    """Return the columns of a table in the order of another one's, where both have names.

    Parameters
    ----------
    names : sequence or None
        All names of the other table.
    table : Any
        The table.
    """
    found = all_names_of(table)
    if names is None or found is None:
        return table
    apart = not set(names) & set(found)
    if apart and (_made_up(names) or _made_up(found)):
        return table
    return by_name(table, names)


def _made_up(names: Sequence[Hashable]) -> bool:
    """Return whether pandas and polars call the columns of an array so."""
    indices = range(len(names))
    return list(names) in (list(indices), [f"column_{index}" for index in indices])


def by_name(table: Any, wanted: Sequence[Hashable]) -> Any:
    """Return the columns of a table with names that have the wanted ones, in their order.

    Raises
    ------
    InvalidParameterError
        If a name is missing or ambiguous. The table's own names are not shown: they may be data.
    """
    found = names_of(table, wanted) or []
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
        case (_, "Series" | "Index"):
            return table
        case ("", _):
            return [tuple(row[position] for position in positions) for row in table.rows]
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
    return "", type(table).__name__
