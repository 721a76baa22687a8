"""Tables of results as CSV files: a column for each field of a data class of text."""

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from matrixdp.errors import FileFormatError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["read_table", "table_as_csv"]

RowT = TypeVar("RowT", bound="DataclassInstance")


def table_as_csv(rows: Iterable[RowT], kind: type[RowT]) -> bytes:
    """Return the content of the file; its columns are those of the kind, also without a row."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, _columns(kind), lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    return text.getvalue().encode()


def read_table(path: Path, kind: type[RowT]) -> list[RowT]:
    """Return the rows of the file; none if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        # A table with other columns would be read into the wrong ones.
        if reader.fieldnames != _columns(kind):
            raise FileFormatError(f"{path} has other columns than a report writes: make it anew")
        return [kind(**row) for row in reader]


def _columns(kind: Any) -> list[str]:
    return [column.name for column in fields(kind)]
