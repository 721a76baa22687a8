"""Rows with names of their own, such as named tuples: they are refused, since names decide."""

from typing import Any

import numpy as np

from matrixdp.errors import InvalidParameterError

__all__ = ["refuse_rows_with_names"]


def refuse_rows_with_names(table: Any) -> None:
    """Raise if rows of a table have names, which would be passed over.

    Their order is that of where they come from, and need not be the query's.
    """
    if _has_rows_with_names(table):
        raise InvalidParameterError(
            "data has rows with names of their own, which are not read: pass a frame with these "
            "columns, or rows without names"
        )


def _has_rows_with_names(table: Any) -> bool:
    if isinstance(table, np.ndarray):
        return table.dtype.names is not None
    return isinstance(table, list | tuple) and any(map(_has_names, table))


def _has_names(row: Any) -> bool:
    if isinstance(row, list | tuple):
        return hasattr(row, "_fields")  # a named tuple
    # A row of a database has keys; one of a frame has its names in the index.
    return hasattr(row, "keys") or hasattr(row, "iloc")
