"""Servers that are set in ways which lose payments, and what their errors show."""

import traceback
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.backends import PostgreSQL
from ledger.steps import paid_only, reopened, spent
from matrixdp import Budget
from matrixdp.errors import (
    MatrixDPError,
    StorageError,
)
from matrixdp.ledger import Ledger, LedgerAccount


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
