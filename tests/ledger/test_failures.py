"""Databases that fail, are altered or replaced: a clear error, nothing lost, nothing paid twice."""

import os
import shutil
import sqlite3
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ledger.backends import Backend, PostgreSQL
from ledger.steps import MECHANISM, paid_only, spent
from matrixdp import Budget
from matrixdp.errors import (
    FileFormatError,
    InvalidParameterError,
    LedgerError,
    MatrixDPError,
    StorageError,
)
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.ledger.stores import network_files
from matrixdp.ledger.stores.sqlite import SQLiteStore

NOBODY = 65534


@pytest.fixture
def url(backend: Backend, tmp_path: Path) -> str:
    """Return the address of a ledger with an account that has paid once."""
    found = backend.url(tmp_path)
    with Ledger.create(found, keys=tmp_path / "a.keys") as ledger:
        ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace").spend(0.1)
    return found


def reopened(url: str, folder: Path) -> Ledger:
    """Open a ledger again."""
    return Ledger.open(url, keys=folder / "a.keys")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[LedgerAccount]:
    """Yield an account of an SQLite ledger."""
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        yield ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")


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
    monkeypatch.setattr(network_files, "_MOUNTS", mounts)
    with pytest.raises(StorageError, match=r"network file system \(nfs4\)"):
        reopened(f"sqlite:///{tmp_path}/a.ledger", tmp_path)
    with pytest.raises(StorageError, match=r"network file system \(nfs4\)"):
        Ledger.create(f"sqlite:///{tmp_path}/b.ledger", keys=tmp_path / "b.keys")
    assert not (tmp_path / "b.ledger").exists()
    assert small.name == "a"


def put_in_place(file: Path, path: Path) -> None:
    """Give a file the name of a ledger, as whoever restores a copy should."""
    file.replace(path)
    for beside in ("-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)


@pytest.mark.parametrize("still_open", [False, True])
def test_an_older_copy(small: LedgerAccount, tmp_path: Path, still_open: bool) -> None:  # noqa: FBT001
    ledger, path = small.ledger, tmp_path / "a.ledger"
    assert isinstance(ledger, Ledger)
    small.spend(0.1)
    ledger.close()
    shutil.copy(path, tmp_path / "copy")
    small.spend(0.1)
    if not still_open:
        ledger.close()
    put_in_place(tmp_path / "copy", path)
    with pytest.raises(LedgerError, match="replaced" if still_open else "older copy"):
        small.spend(0.1)
    with pytest.raises(LedgerError, match="older copy"):
        reopened(f"sqlite:///{path}", tmp_path)


def test_an_older_copy_of_another_name(small: LedgerAccount, tmp_path: Path) -> None:
    assert isinstance(small.ledger, Ledger)
    small.spend(0.1)
    small.ledger.close()
    shutil.copy(tmp_path / "a.ledger", tmp_path / "restored.ledger")
    small.spend(0.1)
    with pytest.raises(LedgerError, match="older copy"):
        reopened(f"sqlite:///{tmp_path}/restored.ledger", tmp_path)
    # One that holds all that was seen may have another name.
    small.ledger.close()
    (tmp_path / "a.ledger").rename(tmp_path / "moved.ledger")
    with reopened(f"sqlite:///{tmp_path}/moved.ledger", tmp_path) as moved:
        moved.account("a").spend(0.1)


def test_an_older_copy_on_a_server(backend: Backend, url: str, tmp_path: Path) -> None:
    with reopened(url, tmp_path) as ledger:
        first = ledger.history()[0]
        backend.change(url, "DELETE FROM entries WHERE sequence = 2")
        backend.change(url, f"UPDATE head SET sequence = 1, digest = '{first.digest}'")  # noqa: S608
        with pytest.raises(LedgerError, match="older copy"):
            ledger.account("a")
    with pytest.raises(LedgerError, match="older copy"):
        reopened(url, tmp_path)


@pytest.mark.parametrize("still_open", [False, True])
def test_another_ledger_of_the_same_name(tmp_path: Path, still_open: bool) -> None:  # noqa: FBT001
    path, keys = tmp_path / "a.ledger", tmp_path / "a.keys"
    first = Ledger.create(f"sqlite:///{path}", keys=keys)
    account = first.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")
    if not still_open:
        first.close()
    with Ledger.create(f"sqlite:///{tmp_path}/b.ledger", keys=keys) as second:
        for number in range(3):
            second.open_account(f"b{number}", Budget(4.0, 1e-5), neighbouring="replace")
    put_in_place(tmp_path / "b.ledger", path)
    with pytest.raises(LedgerError, match="replaced" if still_open else "holds another ledger"):
        account.spend(0.1)
    with pytest.raises(LedgerError, match="holds another ledger than before"):
        Ledger.open(f"sqlite:///{path}", keys=keys)
    # Whoever means it removes the marks.
    (tmp_path / "a.keys.seen").unlink()
    with Ledger.open(f"sqlite:///{path}", keys=keys) as ledger:
        assert len(ledger.accounts()) == 3
    first.close()


def test_two_ledgers_share_a_key_file(backend: Backend, tmp_path: Path) -> None:
    keys, ledgers = tmp_path / "a.keys", []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        ledgers.append(Ledger.create(backend.url(tmp_path / name), keys=keys))
    for ledger in ledgers * 2:
        ledger.open_account(f"a{len(ledger.accounts())}", Budget(1.0, 1e-5), neighbouring="replace")
    assert [len(ledger.accounts()) for ledger in ledgers] == [2, 2]
    lines = (tmp_path / "a.keys.seen").read_text().splitlines()
    assert [int(line.split()[0]) for line in lines] == [2, 2]
    for ledger in ledgers:
        ledger.close()


def test_marks_that_cannot_be_read_or_written(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    marks = tmp_path / "a.keys.seen"
    before = marks.read_bytes()
    marks.write_text("no marks\n")
    with pytest.raises(FileFormatError, match="high-water marks"):
        account.spend(0.1)
    marks.unlink()
    marks.symlink_to(tmp_path / "nowhere" / "marks")
    with pytest.warns(RuntimeWarning, match="older copy of the ledger would not be noticed"):
        account.spend(0.1)
    marks.unlink()
    marks.write_bytes(before)
    account.spend(0.1)
    assert spent(ledger)["clinic"] == 2 * Fraction(0.1) ** 2


def test_passwords_and_keys_are_in_no_message(tmp_path: Path) -> None:
    backend = PostgreSQL()
    url = backend.url(tmp_path)
    from ledger.server import PASSWORD  # noqa: PLC0415

    with Ledger.create(url, keys=tmp_path / "a.keys") as ledger:
        account = ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")
        assert PASSWORD not in ledger.address
        assert PASSWORD not in repr(ledger)
        paid_only(account, tmp_path / "a.npy", "a")
        (kept,) = ledger.pending()
        # The server's own words quote the whole row.
        backend.change(url, "ALTER TABLE pending ADD CHECK (length(sealed) < 3) NOT VALID")
        with pytest.raises(StorageError, match="check constraint") as caught:
            paid_only(account, tmp_path / "b.npy", "b")
        told = "".join(traceback.format_exception(caught.value))
        backend.change(url, "ALTER TABLE pending DROP CONSTRAINT pending_sealed_check")
    assert "Failing row" not in told
    assert kept.tag[:8] not in told
    word = PASSWORD.replace(" ", "%20")
    wrong = [
        url.replace("postgresql+psycopg", "mysql"),
        url.replace("127.0.0.1", "127.0.0.1:port"),
        url.replace("tests:", "nobody:"),
        url.replace("127.0.0.1:", "127.0.0.1:1"),
        url + "&nonsense=1",
    ]
    for each in wrong:
        with pytest.raises(MatrixDPError) as refused:
            Ledger.open(each)
        told = "".join(traceback.format_exception(refused.value))
        assert PASSWORD not in told, each
        assert word not in told, each


def test_a_server_that_loses_commits_is_refused(tmp_path: Path) -> None:
    backend = PostgreSQL()
    url = backend.url(tmp_path)
    backend.change(url, "ALTER ROLE tests SET synchronous_commit = off")
    try:
        with Ledger.create(url, keys=tmp_path / "a.keys") as ledger:
            shown = ledger.write(lambda rows: rows.execute("SHOW synchronous_commit"))
            assert shown == [("on",)]
            account = ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")
    finally:
        backend.change(url, "ALTER ROLE tests RESET synchronous_commit")
    backend.change(url, "ALTER SYSTEM SET fsync = off")
    try:
        backend.change(url, "SELECT pg_reload_conf()")
        with pytest.raises(StorageError, match="fsync=off"):
            _until_refused(account)
    finally:
        backend.change(url, "ALTER SYSTEM RESET fsync")
        backend.change(url, "SELECT pg_reload_conf()")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_server_with_another_isolation(tmp_path: Path, level: str) -> None:
    backend = PostgreSQL()
    url = backend.url(tmp_path)
    backend.change(url, f"ALTER ROLE tests SET default_transaction_isolation = '{level}'")
    try:
        with Ledger.create(url, keys=tmp_path / "a.keys") as ledger:
            account = ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")
            with ThreadPoolExecutor(4) as threads:
                list(threads.map(account.spend, [0.001] * 100))
            assert spent(ledger) == {"a": 100 * Fraction(0.001) ** 2}
    finally:
        backend.change(url, "ALTER ROLE tests RESET default_transaction_isolation")


def _until_refused(account: LedgerAccount) -> None:
    """Pay until the server has read its new settings."""
    for _ in range(1000):
        account.spend(0.001)


def test_a_server_that_may_only_be_read(tmp_path: Path) -> None:
    backend = PostgreSQL()
    url = backend.url(tmp_path)
    with Ledger.create(url, keys=tmp_path / "a.keys") as ledger:
        ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace").spend(0.1)
    backend.change(url, "ALTER ROLE tests SET default_transaction_read_only = on")
    try:
        with reopened(url, tmp_path) as ledger, pytest.raises(StorageError, match="read-only"):
            ledger.account("a").spend(0.1)
    finally:
        backend.change(url, "ALTER ROLE tests RESET default_transaction_read_only")
    with reopened(url, tmp_path) as ledger:
        assert spent(ledger) == {"a": Fraction(0.1) ** 2}


@pytest.mark.parametrize("url", ["", "a.ledger", "sqlite:///", "sqlite://a", "mysql://h/d", 3])
def test_addresses_that_are_none(url: object, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="address of a ledger"):
        Ledger.create(url, keys=tmp_path / "keys")  # type: ignore[arg-type]
