"""Keys: sealed until a release is out, gone after that, and opened by the right file only."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from ledger.backends import Backend
from ledger.steps import MECHANISM, paid_only
from matrixdp import Budget, Release
from matrixdp.errors import InvalidParameterError, LedgerError
from matrixdp.ledger import Ledger, LedgerAccount, PayingCommand, key_file
from matrixdp.ledger.key_file import KeyFile


def held(ledger: Ledger, folder: Path, sealed: str) -> bool:
    """Return whether the database has a sealed key: its rows, and the files of SQLite."""
    rows = ledger.read(lambda rows: rows.execute("SELECT sealed FROM pending"))
    files = [path.read_bytes() for path in folder.glob("a.ledger*")]
    return (sealed,) in rows or any(sealed.encode() in content for content in files)


@pytest.mark.parametrize("end", ["publish", "forfeit"])
def test_a_key_is_gone_at_the_end(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path, end: str
) -> None:
    target = tmp_path / "out.npy"
    # Somebody else has the ledger open: SQLite would tidy up when the last one closes it.
    with Ledger.open(_url(ledger, tmp_path)) as other:
        other.accounts()
        paid_only(account, target, "monday")
        sealed = ledger.pending()[0].sealed
        assert held(ledger, tmp_path, sealed)
        if end == "publish":
            MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
        else:
            ledger.forfeit("monday")
        assert not held(ledger, tmp_path, sealed)


def _url(ledger: Ledger, folder: Path) -> str:
    """Return an address with which a ledger can be opened again."""
    if ledger.address.startswith("sqlite"):
        return f"sqlite:///{folder}/a.ledger"
    from ledger.server import server  # noqa: PLC0415

    started = server()
    assert started is not None
    return started.url(ledger.address.rpartition("%3D")[2])


def test_rotation(ledger: Ledger, account: LedgerAccount, tmp_path: Path) -> None:
    target, fresh = tmp_path / "out.npy", tmp_path / "fresh.keys"
    url = _url(ledger, tmp_path)
    paid_only(account, target, "monday")
    sealed = ledger.pending()[0].sealed
    with Ledger.open(url, keys=tmp_path / "a.keys") as other:
        behind = other.account("clinic")
        ledger.rotate_keys(fresh)
        ledger.rotate_keys(fresh)
        assert (tmp_path / "fresh.keys.seen").exists()
        with pytest.raises(InvalidParameterError, match="is not the key file"):
            MECHANISM.release_to(tmp_path / "b.npy", np.eye(3), privacy_filter=behind)
    assert len(ledger.pending()) == 1
    assert not held(ledger, tmp_path, sealed)
    with pytest.raises(InvalidParameterError, match="is not the key file"):
        Ledger.open(url, keys=tmp_path / "a.keys")
    with Ledger.open(url, keys=fresh) as later:
        same = later.account("clinic/ann")
        release = MECHANISM.release_to(target, np.eye(3), privacy_filter=same, request="monday")
        assert later.pending() == []
    np.testing.assert_array_equal(Release.load(target).value, release.value)


def test_the_noise_is_that_of_the_first_key(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    target = tmp_path / "out.npy"
    paid_only(account, target, "monday")
    release = MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    paid_only(account, tmp_path / "b.npy", "tuesday")
    other = MECHANISM.release_to(
        tmp_path / "b.npy", np.eye(3), privacy_filter=account, request="tuesday"
    )
    assert not np.array_equal(release.value, other.value)
    assert ledger.pending() == []


def test_wrong_key_files(backend: Backend, tmp_path: Path) -> None:
    url, keys = backend.url(tmp_path), tmp_path / "a.keys"
    with Ledger.create(url, keys=keys) as ledger:
        assert ledger.keys is not None
    with Ledger.create(f"sqlite:///{tmp_path}/b.ledger", keys=tmp_path / "b.keys"):
        pass
    for name in ("b.keys", "none.keys"):
        with pytest.raises(InvalidParameterError, match="key file"):
            Ledger.open(url, keys=tmp_path / name)
    open_to_all = tmp_path / "c.keys"
    shutil.copy(keys, open_to_all)
    open_to_all.chmod(0o640)
    with pytest.raises(InvalidParameterError, match="chmod 600"):
        Ledger.open(url, keys=open_to_all)
    for content in ("", "matrixdp-ledger-key-1 0g", "matrixdp-ledger-key-1 " + "zz" * 32):
        open_to_all.write_text(content)
        open_to_all.chmod(0o600)
        with pytest.raises(InvalidParameterError, match="not a key file"):
            Ledger.open(url, keys=open_to_all)


def test_a_ledger_that_exists_gets_no_other_key_file(tmp_path: Path) -> None:
    url, keys = f"sqlite:///{tmp_path}/a.ledger", tmp_path / "a.keys"
    Ledger.create(url, keys=keys).close()
    keys.unlink()
    with pytest.raises(InvalidParameterError, match="exists"):
        Ledger.create(url, keys=keys)
    assert not keys.exists()


def test_the_name_of_a_key_file_is_forced_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[Path] = []
    monkeypatch.setattr(key_file, "force_folder", forced.append)
    KeyFile.create(tmp_path / "a.keys")
    assert forced == [tmp_path]


def test_a_sealed_key_belongs_to_one_release(
    ledger: Ledger, account: LedgerAccount, backend: Backend, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        paid_only(account, tmp_path / f"{name}.npy", name)
    other = ledger.pending()[1].sealed
    backend.change(_url(ledger, tmp_path), f"UPDATE pending SET sealed = '{other}'")  # noqa: S608
    with pytest.raises(LedgerError, match="cannot be opened"):
        MECHANISM.release_to(tmp_path / "a.npy", np.eye(3), privacy_filter=account, request="a")


def test_without_keys(ledger: Ledger, account: LedgerAccount, tmp_path: Path) -> None:
    with Ledger.open(_url(ledger, tmp_path)) as keyless:
        same = keyless.account("clinic/ann")
        same.spend(0.1)
        with pytest.raises(InvalidParameterError, match="without keys"):
            MECHANISM.release_to(tmp_path / "a.npy", np.eye(3), privacy_filter=same)
    assert ledger.history()[-1].kind == "spend"
    assert account.balance.spent.mu_squared > 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE pending SET target = '/tmp/b.npy'",
        "UPDATE pending SET account = 'clinic'",
        "UPDATE pending SET draft = replace(draft, 'IMGM', 'MVG')",
        "UPDATE pending SET tag = replace(tag, substr(tag, 1, 1), 'g')",
        """UPDATE entries SET body = replace(body, '"arguments":["', '"arguments":["x')""",
        """UPDATE entries SET body = replace(body, '"folder":"/', '"folder":"/x')""",
        """UPDATE entries SET body = replace(body, '"command":', '"comment":')""",
    ],
)
def test_who_has_no_key_file_alters_nothing_of_a_pending_release(
    ledger: Ledger, backend: Backend, tmp_path: Path, change: str
) -> None:
    ledger.open_account("clinic", Budget(8.0, 1e-5), neighbouring="replace")
    ledger.open_account("clinic/ann", Budget(8.0, 1e-5), neighbouring="replace")
    command = PayingCommand("/somewhere", ("release", "--request", "a"))
    paid_only(ledger.account("clinic/ann", command=command), tmp_path / "a.npy", "a")
    assert ledger.paying_account("a").command == command
    url = _url(ledger, tmp_path)
    backend.change(url, change)
    with pytest.raises(LedgerError, match="cannot be opened by"):
        ledger.paying_account("a")
    assert any("cannot be opened by" in each for each in ledger.verify().findings)
    with pytest.raises(LedgerError, match="cannot be opened by"):
        ledger.rotate_keys(tmp_path / "fresh.keys")
    ledger.forfeit("a")
    ledger.rotate_keys(tmp_path / "fresher.keys")


def test_a_command_is_proven_by_the_key_file_alone(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    command = PayingCommand("/somewhere", ("release", "--request", "a"))
    paid_only(ledger.account(account.name, command=command), tmp_path / "a.npy", "a")
    paid_only(account, tmp_path / "b.npy", "b")
    with Ledger.open(_url(ledger, tmp_path)) as keyless:
        with pytest.raises(InvalidParameterError, match="only its key file proves"):
            keyless.paying_account("a")
        assert keyless.paying_account("b").command is None
    ledger.rotate_keys(tmp_path / "fresh.keys")
    assert ledger.paying_account("a").command == command
    with pytest.raises(InvalidParameterError, match="it was never paid"):
        ledger.paying_account("c")
    ledger.forfeit("a")
    with pytest.raises(InvalidParameterError, match="its last entry is 'forfeit'"):
        ledger.paying_account("a")


def test_a_lost_key_file_is_replaced(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    url, fresh = _url(ledger, tmp_path), tmp_path / "fresh.keys"
    paid_only(account, tmp_path / "a.npy", "a")
    spent = account.balance.spent
    ledger.close()
    (tmp_path / "a.keys").unlink()
    with pytest.raises(InvalidParameterError, match="If it is lost, open the ledger without it"):
        Ledger.open(url, keys=tmp_path / "a.keys")
    with Ledger.open(url) as keyless:
        with pytest.raises(InvalidParameterError, match=r"lost, make another one with .*rotate"):
            MECHANISM.release_to(
                tmp_path / "b.npy", np.eye(3), privacy_filter=keyless.account(account.name)
            )
        with pytest.raises(InvalidParameterError, match=r"'a' is pending.*forfeit the release"):
            keyless.rotate_keys(fresh)
        keyless.forfeit("a")
        keyless.rotate_keys(fresh)
        # The same object has the keys now.
        again = keyless.account(account.name)
        assert again.balance.spent == spent
        MECHANISM.release_to(tmp_path / "a.npy", np.eye(3), privacy_filter=again)
    with Ledger.open(url, keys=fresh) as later:
        assert later.verify().good
        assert later.history()[-3].facts["former"] != later.history()[-3].facts["key"]
