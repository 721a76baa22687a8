"""Type I of the paper, private gradients: choose hyper-parameters, then run the grid."""

from collections.abc import Sequence

import matrixdp.training  # noqa: F401 (first: it says what to install where PyTorch is missing)
from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.cells import Cell
from matrixdp_experiments.gradients.planning import (
    Choices,
    Tried,
    best_of,
    candidate_runs,
    planned_runs,
    refusal_of,
)
from matrixdp_experiments.gradients.settings import setting_of
from matrixdp_experiments.gradients.training import train_and_test
from matrixdp_experiments.grid.folders import check_data, check_results
from matrixdp_experiments.grid.outcomes import read_outcomes, unfinished
from matrixdp_experiments.grid.runner import Work
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.grid.tally import Tally, tally_of

__all__ = ["FOLDER", "choose", "run_grid"]

FOLDER = "type_one"
"""Within the folder of results."""


def choose(datasets: Sequence[str], work: Work) -> Tally:
    """Choose hyper-parameters for data sets and keep them; return what was made.

    A family with a failed run keeps what it had.
    """
    for dataset in datasets:
        setting_of(dataset)  # a name that is not known is an error before any work
    check_results(work.folder)
    check_data(datasets)
    book, choices = AccountBook(work.folder), Choices(work.folder)
    candidates = {dataset: candidate_runs(dataset, book) for dataset in datasets}
    runs = [
        run for families in candidates.values() for pairs in families.values() for _, run in pairs
    ]
    left = unfinished(runs, work.folder)
    failed = work.perform(left, train_and_test)
    # From the files: most of these runs may have been made by an earlier process.
    outcomes = read_outcomes(work.folder, Run)
    for dataset, families in candidates.items():
        for family, pairs in families.items():
            keys = [run_key(run) for _, run in pairs]
            # Choosing among some of the candidates would depend on which runs failed.
            if pairs and all(key in outcomes for key in keys):
                tried = [
                    Tried(candidate, outcomes[key].accuracy)
                    for (candidate, _), key in zip(pairs, keys, strict=True)
                ]
                choices.add([best_of(dataset, family, tried)])
    return tally_of(runs, left, failed)


def run_grid(cells: Sequence[Cell], work: Work) -> Tally:
    """Make the runs that cells need and that are not finished; return what was made."""
    check_results(work.folder)
    book = AccountBook(work.folder)
    runs = planned_runs(cells, book, Choices(work.folder))
    left = unfinished([run for run in runs.values() if run is not None], work.folder)
    check_data(run.dataset for run in left)
    failed = work.perform(left, train_and_test)
    refusals = [_refusal(cell, book) for cell, run in runs.items() if run is None]
    return tally_of(runs.values(), left, failed, refusals)


def _refusal(cell: Cell, book: AccountBook) -> str:
    reason = refusal_of(cell, book)
    return f"{cell.dataset}, {cell.mechanism}, epsilon {cell.epsilon:g} does not apply: {reason}"
