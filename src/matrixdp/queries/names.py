"""Names of columns: they decide which column is which; only tables without them go by position."""

from dataclasses import dataclass
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import NamedRows, by_name, names_of
from matrixdp.queries.named_rows import refuse_rows_with_names

__all__ = ["Columns"]


@dataclass(frozen=True)
class Columns:
    """The columns that a query reads.

    Attributes
    ----------
    width : int
        How many there are.
    names : tuple of str or None
        Their names, in the query's order; None if it goes by position.
    alike : bool
        Whether the query treats all of them alike, so that their order mixes nothing up.
    """

    width: int
    names: tuple[str, ...] | None = None
    alike: bool = True

    @classmethod
    def together(cls, *parts: "Columns") -> "Columns":
        """Return the columns of parts side by side, of which each has columns of its own.

        Raises
        ------
        InvalidParameterError
            If only some have names, or a name is in two of them.
        """
        width = sum(part.width for part in parts)
        named = [part.names for part in parts if part.names is not None]
        if not named:
            # Parts differ in what is done with them.
            return cls(width, None, alike=len(parts) == 1 and parts[0].alike)
        names = tuple(name for part in named for name in part)
        if len(named) != len(parts) or len(set(names)) != len(names):
            raise InvalidParameterError(
                f"bounds name the columns {names!r}: name those of every part, each once, or none"
            )
        return cls(width, names)

    def of(self, table: Any) -> Any:
        """Return these columns of a table in the query's order; what has no names as it is.

        Raises
        ------
        InvalidParameterError
            If the table has names, and a column is missing or ambiguous, or if only the table has
            names and columns differ in what is done with them, or if rows have names of their own.
        """
        refuse_rows_with_names(table)
        found = names_of(table, self.names or ())
        unnamed = table.rows if isinstance(table, NamedRows) else table
        if found is None:
            return unnamed
        if self.names is not None:
            return by_name(table, self.names)
        if not self.alike:
            raise InvalidParameterError(
                "data has names of columns, and the query's bounds, which differ from column to "
                "column, have none: name them, PublicBounds(['age', 'hours'], lower=..., "
                "upper=...), or pass an array without names"
            )
        return unnamed
