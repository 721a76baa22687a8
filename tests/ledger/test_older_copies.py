"""Ledgers that are replaced, by an older copy or another one: their clients notice."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from ledger.backends import Backend
from ledger.steps import reopened, spent
from matrixdp import Budget
from matrixdp.errors import (
    FileFormatError,
    LedgerError,
)
from matrixdp.ledger import Ledger, LedgerAccount


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
