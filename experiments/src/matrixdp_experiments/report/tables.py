"""Tables of results: from the cells of a grid to rows, and to CSV files and back."""

import csv
import io
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from matrixdp.errors import FileFormatError
from matrixdp_experiments.grid.outcomes import Outcome
from matrixdp_experiments.grid.runs import run_key

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["outcome_columns", "read_table", "rows_of_cells", "table_as_csv"]

CellT = TypeVar("CellT", bound=Hashable)
RowT = TypeVar("RowT", bound="DataclassInstance")


def rows_of_cells(
    found: Mapping[CellT, Outcome[Any] | None],
    *,
    apart_from_seed: Callable[[CellT], Hashable],
    finished: Callable[[CellT, Outcome[Any]], RowT],
    missing: Callable[[CellT], RowT],
) -> list[RowT]:
    """Return a row for each finished cell, and one for all seeds of a cell that has none finished.

    Parameters
    ----------
    found : mapping
        The outcome of each cell, in the order of the table.
    apart_from_seed : callable
        What cells that differ in their seed alone have in common.
    finished, missing : callable
        Make a row of a cell.
    """
    done = {apart_from_seed(cell) for cell, outcome in found.items() if outcome is not None}
    rows = []
    for cell, outcome in found.items():
        if outcome is not None:
            rows.append(finished(cell, outcome))
        elif apart_from_seed(cell) not in done:
            rows.append(missing(cell))
            done.add(apart_from_seed(cell))  # one row says it for all seeds
    return rows


def outcome_columns(outcome: Outcome[Any]) -> dict[str, str]:
    """Return what is known of a cell once its run is finished: accuracy and provenance."""
    return {
        "accuracy": f"{outcome.accuracy:.5f}",
        "run": run_key(outcome.run),
        "seconds": str(outcome.seconds),
        "commit": outcome.provenance.commit,
        "device": outcome.provenance.device,
        "torch": outcome.provenance.torch,
    }


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
