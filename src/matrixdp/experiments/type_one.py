"""Type I of the paper, private gradients: choose hyper-parameters, then run the grid."""

from collections.abc import Sequence

import matrixdp.training  # noqa: F401 (first: it says what to install where PyTorch is missing)
from matrixdp.experiments.account_book import AccountBook
from matrixdp.experiments.cells import Cell, Run, run_key
from matrixdp.experiments.choosing import Choices, Tried, best_of, candidate_runs
from matrixdp.experiments.outcomes import read_outcomes
from matrixdp.experiments.planning import planned_runs
from matrixdp.experiments.settings import setting_of
from matrixdp.experiments.training_loops import train_and_test
from matrixdp.experiments.work import Work

__all__ = ["FOLDER", "choose", "run_grid"]

FOLDER = "type_one"
"""Within the folder of results."""


def choose(datasets: Sequence[str], work: Work) -> int:
    """Choose hyper-parameters for data sets and keep them; return how many runs failed.

    A family with a failed run keeps what it had.
    """
    for dataset in datasets:
        setting_of(dataset)  # a name that is not known is an error before any work
    book, choices = AccountBook(work.folder), Choices(work.folder)
    candidates = {dataset: candidate_runs(dataset, book) for dataset in datasets}
    failed = work.perform(
        [
            run
            for families in candidates.values()
            for pairs in families.values()
            for _, run in pairs
        ],
        train_and_test,
    )
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
    return failed


def run_grid(cells: Sequence[Cell], work: Work) -> int:
    """Make the runs that cells need and that are not finished; return how many failed."""
    runs = planned_runs(cells, AccountBook(work.folder), Choices(work.folder))
    # Cells whose rule does not apply have nothing to run; the report says why.
    return work.perform([run for run in runs.values() if run is not None], train_and_test)
