"""Tables of databases, read a number of rows at a time."""

from collections.abc import Iterator
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.opening import foreign_errors
from matrixdp.parameters import NamedRows

__all__ = ["cursor_blocks", "is_cursor"]

_ROWS = 8192


def is_cursor(data: Any) -> bool:
    """Return whether data are a cursor of the DB-API, or a result of SQLAlchemy."""
    return callable(getattr(data, "fetchmany", None))


def cursor_blocks(data: Any) -> Iterator[NamedRows]:
    """Yield the rows that a query of a database has not returned yet, with the names of columns.

    Whether the driver fetches all rows at once is up to it: ask for a cursor on the server, or
    ``stream_results`` of SQLAlchemy.
    """
    if callable(getattr(data, "keys", None)):  # a result of SQLAlchemy
        names = tuple(data.keys())
    elif getattr(data, "description", None):
        names = tuple(column[0] for column in data.description)
    else:
        raise InvalidParameterError("data is a cursor without rows: execute a SELECT first")
    while True:
        with foreign_errors("data", "a table that the database can read"):
            rows = [tuple(row) for row in data.fetchmany(_ROWS)]
        if not rows:
            return
        yield NamedRows(names, rows)
