"""Rows that somebody has altered: whatever is asked then, the answer or a clear error."""

# ruff: noqa: S608 - names of tables and columns are those of the schema

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.steps import Stopped, reopened, stop_drawing
from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.errors import LedgerError, MatrixDPError
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.privacy import SampledPlan

PLAN = SampledPlan(noise_multiplier=20.0, sampling_rate=1.0, steps=9, neighbouring="add-remove")
VALUE = np.eye(3)
COLUMNS = {
    "head": ["version", "ledger", "key", "sequence", "digest"],
    "accounts": ["name", "terms", "mu2_limit", "delta_limit", "mu2_spent", "delta_spent"],
    "slots": ["account", "number", "plan", "used_by"],
    "entries": ["sequence", "time", "kind", "account", "release", "body", "digest"],
    "pending": ["release", "account", "tag", "sealed", "draft", "target", "sequence"],
    "runs": ["run", "account", "plan", "mode", "steps", "spent"],
}
CHANGES = [
    f"UPDATE {table} SET {column} = {value} WHERE rowid = (SELECT max(rowid) FROM {table})"
    for table, columns in COLUMNS.items()
    for column in columns
    for value in ("x'00ff'", "'{}'")
]
CHANGES += [f"ALTER TABLE {table} ADD COLUMN more TEXT" for table in COLUMNS]
CHANGES += [
    f"UPDATE entries SET body = '{{}}' WHERE kind = '{kind}'"
    for kind in ("open", "pay", "publish", "run", "step", "spend")
]
MECHANISM = IMGM(FrobeniusBall(1.0, "add-remove"), Budget(0.5, 1e-5))


def operations(ledger: Ledger, folder: Path) -> Iterator[Callable[[], Any]]:
    """Yield what can be asked of a ledger."""

    def account() -> LedgerAccount:
        return ledger.account("a/b")

    yield lambda: account().spend(0.01)
    yield lambda: account().spend_claim(0.01, 1e-9, about="a count")
    yield lambda: account().run("run").counter(PLAN, plan="x", mode="fast").spend()
    yield lambda: paid_again(account(), folder)
    yield lambda: [(one.remaining_mu, one.remaining_delta) for one in ledger.accounts()]
    yield lambda: (ledger.history("a"), ledger.pending(), ledger.verify())
    yield lambda: ledger.explain("a/b")
    yield lambda: [ledger.explain_release(name) for name in ("one", "two", "run")]
    yield lambda: ledger.verify_statements([folder / "one.npy"])
    yield lambda: ledger.paying_account("two")
    yield lambda: ledger.finish("two", VALUE)
    yield lambda: ledger.forfeit("two")


def paid_again(account: LedgerAccount, folder: Path) -> None:
    MECHANISM.release_to(folder / "one.npy", VALUE, privacy_filter=account, request="one")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a ledger that has rows of every kind."""
    folder = tmp_path_factory.mktemp("altered")
    with Ledger.create(f"sqlite:///{folder}/a.ledger", keys=folder / "a.keys") as ledger:
        for name in ("a", "a/b"):
            ledger.open_account(
                name,
                Budget(4.0, 1e-5),
                neighbouring="add-remove",
                plans=[PLAN],
                claims_delta=1e-6,
            )
        account = ledger.account("a/b")
        paid_again(account, folder)
        with pytest.MonkeyPatch.context() as patch:
            stop_drawing(patch)
            with pytest.raises(Stopped):
                MECHANISM.release_to(
                    folder / "two.npy", VALUE, privacy_filter=account, request="two"
                )
        account.run("run").counter(PLAN, plan="x", mode="fast").spend()
        account.spend(0.1)
    return folder


@pytest.mark.parametrize("change", CHANGES)
def test_no_alteration_leads_to_another_error(change: str, original: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(original, folder)
    with closing(sqlite3.connect(folder / "a.ledger")) as connection:
        connection.execute(change)
        connection.commit()
    for number in range(12):
        with suppress(MatrixDPError), reopened(f"sqlite:///{folder}/a.ledger", folder) as ledger:
            list(operations(ledger, folder))[number]()


def test_more_than_all_or_less_than_nothing_is_not_spent(original: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(original, folder)
    for column, value in (("mu2_spent", "'-1'"), ("mu2_limit", "'0'"), ("delta_spent", "'1'")):
        with closing(sqlite3.connect(folder / "a.ledger")) as connection:
            connection.execute(f"UPDATE accounts SET {column} = {value} WHERE name = 'a'")
            connection.commit()
        with (
            reopened(f"sqlite:///{folder}/a.ledger", folder) as ledger,
            pytest.raises(LedgerError, match="account='a' was altered"),
        ):
            ledger.account("a/b").spend(0.01)
