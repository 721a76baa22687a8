"""From the cells of a grid to the rows of its table."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from matrixdp_experiments.grid.outcomes import Outcome
from matrixdp_experiments.grid.runs import run_key

__all__ = ["outcome_columns", "rows_of_cells"]

CellT = TypeVar("CellT", bound=Hashable)
RowT = TypeVar("RowT")


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
