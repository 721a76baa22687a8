"""The results of Type I: one table with a row for each cell.

The table is what documentation and figures are made from. It holds everything that they state:
noise, true epsilons and accuracies, and the provenance of every row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from matrixdp.rounding import shown_exactly, shown_up
from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.accounts import MECHANISMS
from matrixdp_experiments.gradients.cells import Cell, grid
from matrixdp_experiments.gradients.planning import Choices, account_of, planned_runs, refusal_of
from matrixdp_experiments.gradients.settings import EPSILONS, SETTINGS
from matrixdp_experiments.grid.outcomes import Outcome, read_outcomes
from matrixdp_experiments.grid.runs import DELTA, Run, run_key
from matrixdp_experiments.report.tables import outcome_columns, rows_of_cells

__all__ = ["Row", "gathered_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A cell as text, ready to be written; what does not exist is empty.

    ``note`` says why a cell has no accuracy, or no true epsilon.
    """

    dataset: str
    mechanism: str
    epsilon: str = ""
    delta: str = ""
    seed: str = ""
    noise_multiplier: str = ""
    largest_multiplier: str = ""
    true_epsilon: str = ""
    learning_rate: str = ""
    clip_norm: str = ""
    accuracy: str = ""
    run: str = ""
    seconds: str = ""
    commit: str = ""
    device: str = ""
    torch: str = ""
    note: str = ""


def gathered_rows(folder: Path, kept: Sequence[Row] = ()) -> list[Row]:
    """Return a row for each finished cell, and one for each of the grid that no seed was run for.

    Parameters
    ----------
    folder : Path
        Of the experiment's results.
    kept : sequence of Row
        An earlier table: its rows stay for data sets of which there are no files of runs.
    """
    book, choices = AccountBook(folder), Choices(folder)
    outcomes = read_outcomes(folder, Run)
    finished = {one.run.dataset for one in outcomes.values() if one.run.split == "test"}
    rows: list[Row] = []
    for dataset in SETTINGS:  # in this order, whichever was run first
        if dataset in finished:
            rows += _rows_of(dataset, book, choices, outcomes)
        else:
            rows += [row for row in kept if row.dataset == dataset]
    return rows


def _rows_of(
    dataset: str, book: AccountBook, choices: Choices, outcomes: dict[str, Outcome[Run]]
) -> list[Row]:
    final = [one.run for one in outcomes.values() if one.run.split == "test"]
    seeds = sorted({run.seed for run in final if run.dataset == dataset})
    planned = planned_runs(grid([dataset], seeds=seeds), book, choices)
    others = planned_runs(_cells_off_the_grid(dataset, seeds, book), book, choices)
    found = {cell: run for cell, run in others.items() if _outcome(run, outcomes) is not None}
    # One mechanism after another in the table, whereas runs are made one seed after another.
    runs = dict(sorted((planned | found).items(), key=lambda pair: _order(pair[0])))
    return rows_of_cells(
        {cell: _outcome(run, outcomes) for cell, run in runs.items()},
        apart_from_seed=lambda cell: (cell.mechanism, cell.epsilon),
        finished=lambda cell, outcome: _finished_row(cell, outcome, book),
        missing=lambda cell: _missing_row(cell, runs[cell], book),
    )


def _cells_off_the_grid(dataset: str, seeds: Sequence[int], book: AccountBook) -> list[Cell]:
    """Return the cells of other epsilons that noise was ever found for, run or not.

    A run does not say for which epsilon it was made, but the accounts know all that were asked.
    """
    cells = []
    for mechanism in [name for name, one in MECHANISMS.items() if one.find is not None]:
        promised = book.promised(mechanism, SETTINGS[dataset])
        others = [epsilon for epsilon in promised if epsilon not in EPSILONS]
        cells += grid([dataset], [mechanism], others, seeds)
    return cells


def _order(cell: Cell) -> tuple[int, float, int]:
    return list(MECHANISMS).index(cell.mechanism), cell.epsilon or 0.0, cell.seed


def _outcome(run: Run | None, outcomes: dict[str, Outcome[Run]]) -> Outcome[Run] | None:
    return None if run is None else outcomes.get(run_key(run))


def _finished_row(cell: Cell, outcome: Outcome[Run], book: AccountBook) -> Row:
    run = outcome.run
    return Row(
        **_noise_columns(cell, book),
        seed=str(cell.seed),
        learning_rate=f"{run.learning_rate:.6g}",
        clip_norm="" if run.clip_norm is None else shown_exactly(run.clip_norm),
        **outcome_columns(outcome),
    )


def _missing_row(cell: Cell, run: Run | None, book: AccountBook) -> Row:
    # Also for cells that were not run: how much noise they need is known without a run.
    columns = _noise_columns(cell, book)
    reason = "not run" if run is not None else f"does not apply: {refusal_of(cell, book)}"
    return Row(**(columns | {"note": reason}))


def _noise_columns(cell: Cell, book: AccountBook) -> dict[str, str]:
    """Return what is known of a cell before it is run."""
    columns = {"dataset": cell.dataset, "mechanism": cell.mechanism}
    if cell.epsilon is None:
        return columns | {"note": ""}
    account = account_of(cell, book)
    multipliers: Sequence[float | None] = [account.noise_multiplier, *account.layers.values()]
    largest = max((one for one in multipliers if one is not None), default=None)
    return columns | {
        "epsilon": shown_exactly(cell.epsilon),
        "delta": shown_exactly(DELTA),
        "noise_multiplier": _digits(account.noise_multiplier),
        "largest_multiplier": _digits(largest),
        "true_epsilon": _digits(account.true_epsilon),
        "note": account.refusal or "",
    }


def _digits(value: float | None) -> str:
    # Rounded up: a reader who takes the number from the table claims nothing too small.
    return "" if value is None else shown_up(value)
