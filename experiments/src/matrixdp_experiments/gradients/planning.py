"""From the cells of Type I to their accounts and to their runs, by the choices that were made."""

from collections.abc import Sequence

from matrixdp.errors import InvalidParameterError
from matrixdp.rounding import shown_up
from matrixdp_experiments.gradients.account_book import AccountBook, promise_of
from matrixdp_experiments.gradients.accounts import MECHANISMS, Account
from matrixdp_experiments.gradients.cells import Cell, plain_run, private_run
from matrixdp_experiments.gradients.choosing import REFERENCES, Choices
from matrixdp_experiments.gradients.settings import REFERENCE_EPSILON, setting_of
from matrixdp_experiments.grid.runs import Run

__all__ = ["account_of", "planned_runs", "reference_accounts", "refusal_of"]


def account_of(cell: Cell, book: AccountBook) -> Account:
    """Return the account of a cell's mechanism, which must add noise."""
    if cell.epsilon is None:
        raise InvalidParameterError(f"mechanism={cell.mechanism!r} adds no noise to account for")
    promise = promise_of(setting_of(cell.dataset), "test", cell.mechanism, cell.epsilon)
    return book.account(cell.mechanism, promise)


def refusal_of(cell: Cell, book: AccountBook) -> str | None:
    """Return why a cell cannot be trained; None if it can."""
    account = account_of(cell, book)
    if account.noise_multiplier is None:
        return account.refusal
    if account.true_epsilon is None:
        # Training states its true epsilon, so it needs the accountant that refused.
        return (
            f"its noise multiplier would be {shown_up(account.noise_multiplier, 3)}, which the "
            "accountant of the training has no epsilon for: ask for another epsilon"
        )
    return None


def reference_accounts(dataset: str, book: AccountBook) -> list[Account]:
    """Return the accounts that `choose` needs, on the records that it trains on."""
    setting = setting_of(dataset)
    return [
        book.account(name, promise_of(setting, "choosing", name, REFERENCE_EPSILON))
        for name in REFERENCES.values()
    ]


def planned_runs(
    cells: Sequence[Cell], book: AccountBook, choices: Choices
) -> dict[Cell, Run | None]:
    """Return the run behind each cell; None where the mechanism's rule does not apply."""
    return {cell: _planned(cell, book, choices) for cell in cells}


def _planned(cell: Cell, book: AccountBook, choices: Choices) -> Run | None:
    setting = setting_of(cell.dataset)
    chosen = choices.chosen(cell.dataset, MECHANISMS[cell.mechanism].family)
    # Only plain training has no epsilon.
    if cell.epsilon is None:
        return plain_run(setting, "test", cell.seed, chosen.learning_rate)
    if refusal_of(cell, book) is not None:
        return None
    return private_run(setting, "test", cell, chosen, book)
