"""Releases whose process dies after the payment: finished with the same bits, whatever they are."""

import errno
import json
import secrets
import threading
import time
from datetime import datetime, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from ledger.doors import (
    BALL,
    BUDGET,
    MATRIX,
    Door,
    Killed,
    files_in,
    killed_at,
    opened,
    path_doors,
)
from matrixdp import IMGM, Budget, InvalidParameterError
from matrixdp.errors import StorageError
from matrixdp.files.publishing import atomic, lasting, paid
from matrixdp.files.publishing.verification import verified_file
from matrixdp.files.schemas import about
from matrixdp.ledger import LedgerAccount
from matrixdp.ledger import account as payments
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.noise.keys import release_key

DOORS = {str(door): door for door in path_doors()}
each_door = pytest.mark.parametrize("door", path_doors(), ids=str)

# Where a process dies, and which of the calls is the one.
PLACES = {
    "before it draws": (release_key, "NoiseStream", 1),
    "before the first name": (lasting, "write_all", 1),
    "after the statement": (lasting, "write_all", 2),
    "before it is noted": (payments, "publish", 1),
}
each_place = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)

FORMATS = ["npy", "npz", "csv", "tsv", "csv.gz", "tsv.gz", "parquet", "arrow"]


def die(door: Door, place: Any, folder: Path, account: LedgerAccount, **options: Any) -> None:
    """Pay for June's release, and die."""
    assert door.release_to is not None
    module, name, call = place
    with pytest.MonkeyPatch.context() as patched:
        killed_at(patched, module, name, call=call)
        with pytest.raises(Killed):
            door.release_to(folder, privacy_filter=account, request="June", **options)


def without_payments(files: dict[str, bytes]) -> dict[str, Any]:
    """Return files without what statements say of their payment."""
    return {
        name: json.loads(data) | {"payment": None} if name.endswith(".json") else data
        for name, data in files.items()
    }


def pending(account: LedgerAccount) -> list[str]:
    return [one.release for one in account.ledger.pending()]  # type: ignore[attr-defined]


def kinds(account: LedgerAccount) -> list[str]:
    """Return the kinds of all entries after the opening."""
    return [entry.kind for entry in account.ledger.history()][1:]  # type: ignore[attr-defined]


@each_door
@each_place
def test_a_retry_pays_nothing_and_makes_the_same_files(
    door: Door, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release_to is not None
    # One secret, so that a release that nothing happens to shows which bits are the right ones.
    always = SimpleNamespace(
        token_bytes=lambda size: bytes([7] * size), token_hex=secrets.token_hex
    )
    monkeypatch.setattr(paid, "secrets", always)
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    door.release_to(tmp_path / "whole")
    with opened(tmp_path) as account:
        die(door, place, tmp_path / "killed", account)
        assert pending(account) == ["June"]
        spent = account.balance.spent
        # The secret of the first attempt is what counts.
        monkeypatch.setattr(paid, "secrets", secrets)
        released = door.release_to(tmp_path / "killed", privacy_filter=account, request="June")
        assert account.balance.spent == spent
        assert kinds(account) == ["pay", "publish"]
        assert pending(account) == []
        files = files_in(tmp_path / "killed")
        assert without_payments(files) == without_payments(files_in(tmp_path / "whole"))
        # Calling once more loads what is there.
        again = door.release_to(tmp_path / "killed", privacy_filter=account, request="June")
        if hasattr(released, "value"):
            np.testing.assert_array_equal(np.asarray(again.value), np.asarray(released.value))
        assert kinds(account) == ["pay", "publish"]
        assert files_in(tmp_path / "killed") == files


class Tomorrow(datetime):
    """A clock that is some years ahead."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        """Return the time."""
        return cls(2031, 1, 1, tzinfo=tz)


@each_door
def test_what_has_a_statement_is_finished_on_another_day(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release_to is not None
    with opened(tmp_path) as account:
        die(door, PLACES["after the statement"], tmp_path, account)
        monkeypatch.setattr(about, "datetime", Tomorrow)
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]
        (statement,) = tmp_path.glob("*.json")
        assert json.loads(statement.read_text())["date"] == "2031-01-01"
        verified_file(statement.with_suffix(""))


@each_door
@each_place
def test_another_value_is_refused_under_the_same_request(
    door: Door, place: Any, tmp_path: Path
) -> None:
    assert door.release_to is not None
    with opened(tmp_path) as account:
        die(door, place, tmp_path, account)
        before = files_in(tmp_path)
        with pytest.raises(InvalidParameterError, match="another value"):
            door.release_to(tmp_path, 1, privacy_filter=account, request="June")
        assert files_in(tmp_path) == before
        assert pending(account) == ["June"]
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert pending(account) == []


@each_door
def test_what_is_complete_is_not_drawn_again(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Directional noise is turned by BLAS, and another one may end with other digits.
    assert door.release_to is not None
    with opened(tmp_path) as account:
        die(door, PLACES["before it is noted"], tmp_path, account)
        killed_at(monkeypatch, release_key, "NoiseStream")
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]


@pytest.mark.parametrize("out", [False, True], ids=["pending", "published"])
def test_another_release_is_refused_under_the_same_request(*, out: bool, tmp_path: Path) -> None:
    mechanism, path = IMGM(BALL, BUDGET), tmp_path / "out.npy"
    (tmp_path / "other").mkdir()
    with opened(tmp_path) as account:
        call: dict[str, Any] = {"privacy_filter": account, "request": "June"}
        if out:
            mechanism.release_to(path, MATRIX, **call)
        else:
            die(DOORS["IMGM"], PLACES["before it draws"], tmp_path, account)
        spent, files = account.balance.spent, files_in(tmp_path)
        for other, target in (
            (mechanism, tmp_path / "other" / "out.npy"),
            (mechanism, tmp_path / "out.csv"),
            (IMGM(BALL, Budget(0.4, 1e-5)), path),
            (IMGM(BALL, Budget(1.6, 1e-5)), path),
        ):
            with pytest.raises(InvalidParameterError, match="request='June' was"):
                other.release_to(target, MATRIX, **call)
        assert account.balance.spent == spent
        assert files_in(tmp_path) == files
        assert kinds(account) == (["pay", "publish"] if out else ["pay"])


@each_door
def test_the_same_call_makes_the_same_files_at_another_time(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.release_to is not None
    with opened(tmp_path) as account:
        die(door, PLACES["before it is noted"], tmp_path, account)
        first = files_in(tmp_path)
        for name in first:
            (tmp_path / name).unlink()
        later(monkeypatch)
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert files_in(tmp_path) == first


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_is_the_same_at_another_time(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix in {"parquet", "arrow"}:
        pytest.importorskip("pyarrow", reason="an extra")
    mechanism, path = IMGM(BALL, BUDGET), tmp_path / f"out.{suffix}"
    labelled = suffix not in {"npy", "npz"}
    matrix: Any = MATRIX
    if labelled:
        matrix = MatrixFile(MATRIX, columns=list("abcd"), index=list("xyz"), corner="at")

    def release(account: LedgerAccount) -> Any:
        return mechanism.release_to(path, matrix, privacy_filter=account, request="June")

    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            killed_at(patched, payments, "publish")
            with pytest.raises(Killed):
                release(account)
        first = files_in(tmp_path)
        for name in first:
            (tmp_path / name).unlink()
        later(monkeypatch)
        made = release(account)
        assert files_in(tmp_path) == first
        assert set(first) == {path.name, f"{path.name}.json"}
        loaded = type(made).load(path)
        np.testing.assert_array_equal(np.asarray(loaded.value), np.asarray(made.value))
        if labelled:
            assert loaded.labels.columns == list("abcd")


@pytest.mark.parametrize(
    "other",
    [
        MATRIX,
        MatrixFile(MATRIX, columns=list("abce"), index=list("xyz")),
        MatrixFile(MATRIX, columns=list("abcd"), index=list("xzy")),
        MatrixFile(MATRIX, columns=list("abcd"), index=list("xyz"), corner="at"),
        MatrixFile(MATRIX, columns=list("abcd")),
    ],
)
def test_other_labels_would_be_another_file(other: Any, tmp_path: Path) -> None:
    mechanism, labelled = IMGM(BALL, BUDGET), MatrixFile(MATRIX, list("abcd"), list("xyz"))

    def release_to(folder: Path, **options: Any) -> Any:
        return mechanism.release_to(folder / "out.csv", labelled, **options)

    with opened(tmp_path) as account:
        die(Door("labels", None, release_to), PLACES["before it draws"], tmp_path, account)
        with pytest.raises(InvalidParameterError, match="another value"):
            mechanism.release_to(
                tmp_path / "out.csv", other, privacy_filter=account, request="June"
            )
        release_to(tmp_path, privacy_filter=account, request="June")


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be three days later."""
    now, real = time.time() + 3 * 86_400, time.localtime
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "localtime", lambda seconds=None: real(seconds or now))


@each_door
def test_statements_name_the_entry_that_paid(door: Door, tmp_path: Path) -> None:
    assert door.release_to is not None
    with opened(tmp_path) as account:
        door.release_to(tmp_path, privacy_filter=account, request="June")
        paying = account.ledger.history()[1]  # type: ignore[attr-defined]
        assert (paying.kind, paying.release) == ("pay", "June")
        target = Path(paying.facts["target"])
        stated = json.loads((tmp_path / f"{target.name}.json").read_text())["payment"]
        assert stated == {
            "ledger": account.ledger.identity,
            "account": "clinic",
            "sequence": paying.sequence,
            "digest": paying.digest,
        }
        assert target.parent == tmp_path
        verified_file(target)
        # No file says it of a release that no ledger paid for.
        assert paying.facts["about"]


@each_door
def test_a_full_disk_leaves_what_can_be_finished(
    door: Door, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "no space")

    assert door.release_to is not None
    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            patched.setattr(atomic, "_force", full)
            with pytest.raises(StorageError, match="no space") as caught:
                door.release_to(tmp_path, privacy_filter=account, request="June")
        assert "request='June' is paid and not lost" in caught.value.__notes__[0]
        assert pending(account) == ["June"]
        assert files_in(tmp_path) == {}
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]


def test_interrupts_leave_what_can_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    mechanism = IMGM(BALL, BUDGET)
    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            patched.setattr(release_key, "NoiseStream", interrupted)
            with pytest.raises(KeyboardInterrupt):
                mechanism.release_to(
                    tmp_path / "out.npy", MATRIX, privacy_filter=account, request="June"
                )
        assert pending(account) == ["June"]
        assert files_in(tmp_path) == {}
        mechanism.release_to(tmp_path / "out.npy", MATRIX, privacy_filter=account, request="June")
        assert pending(account) == []


@each_door
@pytest.mark.parametrize("started", [False, True], ids=["at once", "after a death"])
def test_many_attempts_at_once_make_one_release(
    door: Door, *, started: bool, tmp_path: Path
) -> None:
    assert door.release_to is not None
    many, errors = 4, list[BaseException]()
    with opened(tmp_path) as account:
        if started:
            die(door, PLACES["after the statement"], tmp_path, account)
        else:
            door.release_to(tmp_path, privacy_filter=None, force=True)  # makes its sources
            for name in files_in(tmp_path):
                (tmp_path / name).unlink()
        together = threading.Barrier(many)

        def attempt() -> None:
            together.wait()
            try:
                door.release_to(tmp_path, privacy_filter=account, request="June")  # type: ignore[misc]
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        threads = [threading.Thread(target=attempt) for _ in range(many)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert kinds(account) == ["pay", "publish"]
        verified_file(Path(account.ledger.history()[1].facts["target"]))  # type: ignore[attr-defined]
        assert not any(name.startswith(".") for name in files_in(tmp_path))


def test_a_ledger_that_cannot_note_a_release_says_that_it_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise StorageError("the ledger cannot be used")

    with opened(tmp_path) as account:
        monkeypatch.setattr(payments, "publish", full)
        with pytest.raises(StorageError) as caught:
            IMGM(BALL, BUDGET).release_to(
                tmp_path / "out.npy", MATRIX, privacy_filter=account, request="June"
            )
        assert "request='June' is paid and not lost" in caught.value.__notes__[0]
