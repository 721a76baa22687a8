"""From the cells of Type I to their accounts and to their runs, by the choices that were made.

Learning rate and clip norm are chosen once for a data set and a family of mechanisms. Every
candidate is trained once, on the records for choosing, at the reference cell of its family: IMGM
with the subsampled PLD at epsilon 1, or MVG at epsilon 1. The best accuracy decides. This look at
the data is not paid for; the page on experiments says so.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from matrixdp.errors import InvalidParameterError
from matrixdp.rounding import shown_up
from matrixdp_experiments.gradients.account_book import AccountBook, promise_of
from matrixdp_experiments.gradients.accounts import MECHANISMS, Account, Family
from matrixdp_experiments.gradients.cells import Cell, Hyperparameters, plain_run, private_run
from matrixdp_experiments.gradients.settings import REFERENCE_EPSILON, setting_of
from matrixdp_experiments.grid.json_files import alone_with, read_json, write_json
from matrixdp_experiments.grid.runs import Run

__all__ = [
    "REFERENCES",
    "Choice",
    "Choices",
    "Tried",
    "account_of",
    "best_of",
    "candidate_runs",
    "planned_runs",
    "reference_accounts",
    "refusal_of",
]

_SEED = 0  # one is enough: the candidates differ by factors
REFERENCES: dict[Family, str] = {"isotropic": "imgm-pld", "mvg": "mvg"}
"""The mechanism at whose noise the candidates of a family are judged."""


class Tried(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate and the accuracy that it reached."""

    candidate: Hyperparameters
    accuracy: float


class Choice(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was chosen for a family of mechanisms on a data set, and from what."""

    dataset: str
    family: Family
    chosen: Hyperparameters
    tried: list[Tried]

    @property
    def accuracy(self) -> float:
        """On the records for choosing."""
        (reached,) = {one.accuracy for one in self.tried if one.candidate == self.chosen}
        return reached


class Choices:
    """The choices in ``choices.json`` of a folder of results."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "choices.json"
        self._choices = self._read()

    def add(self, choices: Sequence[Choice]) -> None:
        """Keep new choices, instead of earlier ones for the same family and data set."""
        with alone_with(self._path):
            # Read again: other processes may have chosen for other data sets meanwhile.
            self._choices = self._read() | _by_family(choices)
            write_json(self._path, self.listed())

    def chosen(self, dataset: str, family: Family) -> Hyperparameters:
        """Return what was chosen, or raise if nothing was."""
        if (dataset, family) not in self._choices:
            raise InvalidParameterError(
                f"nothing was chosen for dataset={dataset!r} yet: run `choose type-one "
                f"--dataset {dataset}` first"
            )
        return self._choices[dataset, family].chosen

    def listed(self) -> list[Choice]:
        """Return all of them."""
        return list(self._choices.values())

    def _read(self) -> dict[tuple[str, Family], Choice]:
        return _by_family(read_json(self._path, list[Choice]) if self._path.exists() else [])


def _by_family(choices: Sequence[Choice]) -> dict[tuple[str, Family], Choice]:
    return {(one.dataset, one.family): one for one in choices}


def candidate_runs(
    dataset: str, book: AccountBook
) -> dict[Family, list[tuple[Hyperparameters, Run]]]:
    """Return the candidates of each family, and the run that judges each of them."""
    setting = setting_of(dataset)
    plain = [Hyperparameters(rate, None) for rate in setting.plain_rates]
    found: dict[Family, list[tuple[Hyperparameters, Run]]] = {
        "plain": [(one, plain_run(setting, "choosing", _SEED, one.learning_rate)) for one in plain]
    }
    # Judged with the noise of the reference, as the best rate without noise is far too large.
    for family, mechanism in REFERENCES.items():
        cell = Cell(dataset, mechanism, REFERENCE_EPSILON, _SEED)
        pairs = setting.mvg_candidates if family == "mvg" else setting.candidates
        noisy = [Hyperparameters(rate, clip_norm) for rate, clip_norm in pairs]
        runs = [(one, private_run(setting, "choosing", cell, one, book)) for one in noisy]
        found[family] = [(one, run) for one, run in runs if run is not None]
    return found


def best_of(dataset: str, family: Family, tried: Sequence[Tried]) -> Choice:
    """Return the choice among candidates; of equally good ones the first in the table."""
    # max returns the first of equals, so that the choice does not depend on the order of runs.
    best = max(tried, key=lambda one: one.accuracy)
    return Choice(dataset=dataset, family=family, chosen=best.candidate, tried=list(tried))


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
