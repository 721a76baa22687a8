"""Databases that fail or are damaged: a clear error, nothing lost, nothing paid twice."""

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ledger.backends import Backend
from ledger.steps import MECHANISM, reopened, spent
from matrixdp import Budget
from matrixdp.errors import (
    InvalidParameterError,
    LedgerError,
    MatrixDPError,
    StorageError,
)
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.ledger.stores import sqlite
from matrixdp.ledger.stores.sqlite import SQLiteStore

NOBODY = 65534


def connection_of(ledger: Ledger) -> sqlite3.Connection:
    """Return the connection that a ledger uses."""
    assert isinstance(ledger._store, SQLiteStore)
    ledger.accounts()
    assert ledger._store._connection is not None
    return ledger._store._connection


def test_a_full_disk(small: LedgerAccount, tmp_path: Path) -> None:
    ledger, target = small.ledger, tmp_path / "out.npy"
    assert isinstance(ledger, Ledger)
    connection = connection_of(ledger)
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count={pages}")
    paid = 0
    with pytest.raises(StorageError, match="full"):  # noqa: PT012 - how many fit is not known
        for paid in range(1000):  # noqa: B007
            small.spend(0.001)
    with pytest.raises(StorageError, match="full"):
        MECHANISM.release_to(target, np.eye(50), privacy_filter=small, request="monday")
    assert not target.exists()
    assert spent(ledger) == {"a": paid * Fraction(0.001) ** 2}
    connection.execute("PRAGMA max_page_count=100000")
    MECHANISM.release_to(target, np.eye(50), privacy_filter=small, request="monday")
    assert spent(ledger)["a"] > paid * Fraction(0.001) ** 2


def test_a_payment_survives_a_power_cut_and_a_key_does_not(small: LedgerAccount) -> None:
    assert isinstance(small.ledger, Ledger)
    connection = connection_of(small.ledger)
    stated = ("journal_mode", "wal"), ("synchronous", 2), ("secure_delete", 1)
    for name, value in stated:  # 2 is FULL
        assert connection.execute(f"PRAGMA {name}").fetchone() == (value,)


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Run a block as somebody who may not write: root may write everything."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        for path in folder.iterdir():
            os.chown(path, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


def test_a_file_that_may_not_be_written() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        url = f"sqlite:///{folder}/a.ledger"
        with Ledger.create(url, keys=folder / "a.keys") as ledger:
            ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace").spend(0.1)
        with as_nobody(folder):
            (folder / "a.ledger").chmod(0o400)
            with pytest.raises(StorageError, match="readonly"), reopened(url, folder) as ledger:
                ledger.account("a").spend(0.1)
            (folder / "a.ledger").chmod(0o600)
        with reopened(url, folder) as ledger:
            assert spent(ledger) == {"a": Fraction(0.1) ** 2}


def test_another_version(backend: Backend, url: str, tmp_path: Path) -> None:
    backend.change(url, "UPDATE head SET version = 2")
    with pytest.raises(LedgerError, match="version 2, and this matrixdp knows version 1"):
        reopened(url, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM head",
        "UPDATE accounts SET terms = '{}'",
        "UPDATE accounts SET mu2_spent = 'nothing'",
        "UPDATE accounts SET mu2_limit = '1/0'",
        "UPDATE entries SET digest = 'other' WHERE sequence = 2",
        "DELETE FROM entries WHERE sequence = 2",
        "UPDATE head SET ledger = 'other'",
    ],
)
def test_an_edited_database(backend: Backend, url: str, tmp_path: Path, change: str) -> None:
    with reopened(url, tmp_path) as ledger:
        account = ledger.account("a")
        backend.change(url, change)
        with pytest.raises(LedgerError, match=r"altered|another ledger"):
            account.spend(0.1)
    with pytest.raises(LedgerError, match=r"altered|another ledger"):
        reopened(url, tmp_path).account("a")


def test_a_table_is_gone(backend: Backend, url: str, tmp_path: Path) -> None:
    with reopened(url, tmp_path) as ledger:
        account = ledger.account("a")
        backend.change(url, "ALTER TABLE entries RENAME TO elsewhere")
        with pytest.raises(MatrixDPError, match=r"no such table|there is no ledger"):
            account.spend(0.1)


@pytest.mark.parametrize("keep", [0.0, 0.1, 0.5, 0.9])
def test_a_truncated_file(small: LedgerAccount, tmp_path: Path, keep: float) -> None:
    ledger, path = small.ledger, tmp_path / "a.ledger"
    assert isinstance(ledger, Ledger)
    for _ in range(40):
        small.spend(0.001)
    ledger.close()
    with path.open("r+b") as file:
        file.truncate(int(keep * path.stat().st_size) // 512 * 512)
    with (
        pytest.raises((StorageError, LedgerError)),
        reopened(f"sqlite:///{path}", tmp_path) as damaged,
    ):
        damaged.account("a").spend(0.001)


def test_the_log_of_another_ledger(small: LedgerAccount, tmp_path: Path) -> None:
    ledger, path = small.ledger, tmp_path / "a.ledger"
    assert isinstance(ledger, Ledger)
    small.spend(0.1)
    path.unlink()  # and the log, which holds all of it, stays
    with pytest.raises(InvalidParameterError, match=r"a\.ledger-wal is the rest of another"):
        Ledger.create(f"sqlite:///{path}", keys=tmp_path / "a.keys")
    assert not path.exists()


def test_an_interrupt_within_a_transaction(small: LedgerAccount) -> None:
    assert isinstance(small.ledger, Ledger)
    for begin in ("BEGIN", "BEGIN IMMEDIATE"):
        connection_of(small.ledger).execute(begin)
        small.spend(0.1)
    assert spent(small.ledger) == {"a": 2 * Fraction(0.1) ** 2}


def test_a_reader_that_takes_its_time(small: LedgerAccount, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.ledger", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM entries").fetchall()
        begun = time.monotonic()
        MECHANISM.release_to(tmp_path / "a.npy", np.eye(3), privacy_filter=small)
        assert time.monotonic() - begun < 30.0  # and not as long as the reader


def test_a_folder_that_is_no_text(small: LedgerAccount, tmp_path: Path) -> None:
    folder = Path(os.fsdecode(bytes(tmp_path) + b"/\xff"))
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this system has no such names")
    with pytest.raises(InvalidParameterError, match="not text in UTF-8"):
        MECHANISM.release_to(folder / "a.npy", np.eye(3), privacy_filter=small)
    assert small.balance.spent.mu_squared == 0


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.ledger").write_text("a text, and no database " * 100)
    with pytest.raises(StorageError, match="not a database"):
        Ledger.open(f"sqlite:///{tmp_path}/a.ledger")


def test_a_network_file_system(
    small: LedgerAccount, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / {tmp_path} rw - nfs4 h:/x rw\n")
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    with pytest.raises(StorageError, match=r"network file system \(nfs4\)"):
        reopened(f"sqlite:///{tmp_path}/a.ledger", tmp_path)
    with pytest.raises(StorageError, match=r"network file system \(nfs4\)"):
        Ledger.create(f"sqlite:///{tmp_path}/b.ledger", keys=tmp_path / "b.keys")
    assert not (tmp_path / "b.ledger").exists()
    assert small.name == "a"


@pytest.mark.parametrize("url", ["", "a.ledger", "sqlite:///", "sqlite://a", "mysql://h/d", 3])
def test_addresses_that_are_none(url: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="address of a ledger"):
        Ledger.create(url, keys=tmp_path / "keys")  # type: ignore[arg-type]
