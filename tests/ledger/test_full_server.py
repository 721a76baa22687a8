"""A server whose disk is full: a clear error, nothing lost, and payments once there is room."""

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from ledger.steps import LITTLE, MECHANISM, MU, check_chain, reopened, spent
from matrixdp import Budget
from matrixdp.errors import StorageError
from matrixdp.ledger import Ledger

SIZE = 96 * 2**20


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Yield a folder on a small file system of its own, which the server can reach."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if mounted:
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    if not mounted:
        pytest.skip("mounting a small file system is not permitted here")


def fill(path: Path) -> None:
    """Fill what is left of a disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_a_full_disk(small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrixdp.ledger.stores.store._PAUSES", (0.1, 0.2))
    from ledger.server import started_in  # noqa: PLC0415 - skips without the extra `ledger`

    server = started_in(small_disk)
    if server is None:
        pytest.skip("there is no PostgreSQL server: install Debian's package `postgresql`")
    target = tmp_path / "out.npy"
    try:
        with Ledger.create(server.url(), keys=tmp_path / "a.keys") as ledger:
            account = ledger.open_account("a", Budget(4.0, 1e-5), neighbouring="replace")
            fill(small_disk / "filler")
            paid = 0
            with pytest.raises(StorageError):  # noqa: PT012 - how many fit is not known
                for paid in range(100_000):  # noqa: B007
                    account.spend(LITTLE)
            with pytest.raises(StorageError):
                MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
            assert not target.exists()
        (small_disk / "filler").unlink()
        server = server.restarted()
        with reopened(server.url(), tmp_path) as ledger:
            # Of the last one, and of the release, nobody was told.
            known = [entry.kind for entry in ledger.history()]
            assert 0 <= known.count("spend") - paid <= 1
            MECHANISM.release_to(
                target, np.eye(3), privacy_filter=ledger.account("a"), request="monday"
            )
            total = known.count("spend") * Fraction(LITTLE) ** 2 + MU**2
            assert spent(ledger) == {"a": total}
            assert ledger.pending() == []
            check_chain(ledger, ledger.history())
    finally:
        server.stop()
