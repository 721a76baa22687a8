"""Steps of others, which get one record at a time, so that they cannot mix records."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import names_of

__all__ = ["one_by_one"]


def one_by_one(name: str, step: Any, records: Any) -> Any:
    """Return what a step gives for each record, which it gets by itself; names of columns stay."""
    _check_no_shared_categories(name, records)
    parts, again = list[Any](), list[Any]()
    refusal: str | None = None
    try:
        parts = [step.transform(_record(records, index)) for index in range(len(records))]
        rows = [np.asarray(part) for part in parts]
        again = [np.asarray(step.transform(_record(records, 0))) for _ in rows[:1]]
    except Exception as error:  # noqa: BLE001 - whatever it raises may show the record
        refusal = type(error).__name__
    if refusal is not None:
        raise InvalidParameterError(
            f"step {name!r} raises {refusal} for a record by itself: it must be fitted to public "
            "data, and treat each record alone"
        )
    if not rows or any(row.ndim != 2 or row.shape != (1, *rows[0].shape[1:]) for row in rows):
        raise InvalidParameterError(
            f"step {name!r} must give a row of one width for each record; sparse ones are refused"
        )
    if not _same_bits(again[0], rows[0]):
        raise InvalidParameterError(
            f"step {name!r} gives one record two different rows: it keeps something between its "
            "calls, or draws at random, so that it does not treat each record alone"
        )
    return _with_names(name, np.concatenate(rows), parts)


def _record(records: Any, index: int) -> Any:
    """Return one record as a table without its index, which may say how many there are."""
    if hasattr(records, "iloc"):
        return records.iloc[index : index + 1].reset_index(drop=True)
    return records[index : index + 1]


def _same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two rows are the same; NaN is the same as NaN."""
    return one.dtype == other.dtype and repr(one.tolist()) == repr(other.tolist())


def _check_no_shared_categories(name: str, records: Any) -> None:
    """Raise if a record by itself shows the categories of all: codes of pandas, polars or Arrow."""
    kinds = getattr(getattr(records, "schema", None), "types", getattr(records, "dtypes", ()))
    listed = np.array(kinds, dtype=object).ravel()  # a column alone has one kind
    if any(str(kind).lower().startswith(("categor", "dictionary")) for kind in listed):
        raise InvalidParameterError(
            f"step {name!r} would get categories that are listed from all records: pass columns "
            "of text, and list public categories in the step"
        )


def _with_names(name: str, table: NDArray[Any], parts: Sequence[Any]) -> Any:
    """Return a table as a frame of the kind that its rows were, if they had names."""
    names = names_of(parts[0])
    if any(names_of(part) != names for part in parts):
        raise InvalidParameterError(
            f"step {name!r} must give every record columns of the same names"
        )
    if names is None:
        return table
    kind = type(parts[0])
    if hasattr(parts[0], "iloc"):
        return kind(table, columns=names)
    if hasattr(parts[0], "from_arrays"):
        return kind.from_arrays(list(table.T), names=names)
    return kind(table, schema=names)
