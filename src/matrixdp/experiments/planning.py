"""From the cells of Type I to their runs, by the accounts and the choices that were made."""

from collections.abc import Sequence

from matrixdp.experiments.account_book import AccountBook
from matrixdp.experiments.accounts import MECHANISMS
from matrixdp.experiments.cells import Cell, Run, plain_run, private_run
from matrixdp.experiments.choosing import Choices
from matrixdp.experiments.settings import setting_of

__all__ = ["planned_runs"]


def planned_runs(
    cells: Sequence[Cell], book: AccountBook, choices: Choices
) -> dict[Cell, Run | None]:
    """Return the run behind each cell; None where the mechanism's rule does not apply."""
    return {cell: _planned(cell, book, choices) for cell in cells}


def _planned(cell: Cell, book: AccountBook, choices: Choices) -> Run | None:
    setting = setting_of(cell.dataset)
    chosen = choices.chosen(cell.dataset, MECHANISMS[cell.mechanism].family)
    if cell.epsilon is None:
        return plain_run(setting, "test", cell.seed, chosen.learning_rate)
    return private_run(setting, "test", cell, chosen, book)
