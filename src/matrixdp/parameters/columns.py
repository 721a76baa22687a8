"""Columns of tables of pandas, polars and Arrow, as arrays."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["TextColumn", "columns_of"]


@dataclass(frozen=True, eq=False, repr=False)
class TextColumn:
    """A column of text: each value once, and which of them stands where.

    Attributes
    ----------
    values : list of str
        The different values.
    codes : ndarray of int, shape (rows,)
        The indices of the values; -1 for one that is missing.
    """

    values: list[str]
    codes: NDArray[np.intp]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.codes)


def columns_of(table: Any) -> list[Any] | None:
    """Return the columns of a table, as arrays or text columns; None for anything else.

    Parameters
    ----------
    table : Any
        A frame or a series of pandas or polars, an Arrow table or batch.
    """
    library, axes = type(table).__module__.partition(".")[0], getattr(table, "ndim", 2)
    if library == "pyarrow" and hasattr(table, "columns"):
        return [_of_arrow(column) for column in table.columns]
    if library == "polars" and hasattr(table, "to_arrow"):
        return [each.to_numpy() for each in (table.iter_columns() if axes == 2 else [table])]
    if library == "pandas" and hasattr(table, "iloc"):
        return list(map(_of_pandas, _series(table) if axes == 2 else [table]))
    return None


def _series(frame: Any) -> Iterator[Any]:
    return (frame.iloc[:, index] for index in range(frame.shape[1]))


def _of_pandas(series: Any) -> Any:
    # Only what holds nothing but text: equal values of several types are different values.
    if type(series.dtype).__name__ != "StringDtype":
        return series.to_numpy()
    codes, values = series.factorize()
    return TextColumn(values.tolist(), codes)


def _of_arrow(column: Any) -> Any:
    if str(column.type) not in ("string", "large_string"):
        return column.to_numpy(**({} if hasattr(column, "chunks") else {"zero_copy_only": False}))
    if hasattr(column, "combine_chunks"):  # a column of a table, and not of a batch
        column = column.combine_chunks()
    coded = column.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return TextColumn(coded.dictionary.to_pylist(), codes.astype(np.intp))
