"""Real deaths, by `kill -9`: hidden files stay on disk, and every kind of release is finished."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ledger.doors import BUDGET, files_in, path_doors
from ledger.test_killed_releases import kinds
from matrixdp import Budget
from matrixdp.files.publishing import atomic, lasting, paid
from matrixdp.files.publishing.verification import verified_file
from matrixdp.ledger import Ledger
from matrixdp.ledger import account as payments
from matrixdp.noise.keys import release_key

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

DOORS = {str(door): door for door in path_doors()}
PLACES = {
    "before it draws": (release_key, "NoiseStream", 1),
    "amid a hidden file": (atomic, "_force", 1),
    "before the first name": (atomic, "_give_names", 1),
    "after the statement": (lasting, "write_all", 2),
    "amid the last hidden file": (atomic, "_give_names", 2),
    "before the folder is forced": (paid, "force_folder", 1),
    "before it is noted": (payments, "publish", 1),
}


def release(name: str, folder: Path, place: Any = None) -> Ledger:
    """Release with a payment for June; die at a place, if one is named."""
    ledger = Ledger.open(f"sqlite:///{folder}/ledger/a.ledger", keys=folder / "ledger/a.keys")
    if place is not None:
        module, function, call = place
        original, calls = getattr(module, function), [0]

        def deadly(*arguments: Any, **options: Any) -> Any:
            calls[0] += 1
            if calls[0] == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        setattr(module, function, deadly)
    door = DOORS[name]
    assert door.release_to is not None
    door.release_to(folder, privacy_filter=ledger.account("clinic"), request="June")
    return ledger


def die(name: str, folder: Path, place: Any) -> int:
    """Return by which signal a child died that released."""
    child = os.fork()
    if child == 0:
        try:
            release(name, folder, place)
        finally:
            os._exit(0)
    return -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    "name",
    ["stream", "Mean, private count"]
    + [
        pytest.param(name, marks=pytest.mark.thorough)
        for name in ("IMGM", "MatrixMechanism", "Sum")
    ],
)
def test_a_killed_release_is_finished(name: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()
    url, keys = f"sqlite:///{tmp_path}/ledger/a.ledger", tmp_path / "ledger/a.keys"
    with Ledger.create(url, keys=keys) as ledger:
        ledger.open_account("clinic", Budget(4.0, 1e-5), neighbouring="add-remove")
    assert die(name, tmp_path, PLACES[place]) == signal.SIGKILL
    left = files_in(tmp_path)
    with release(name, tmp_path) as ledger:
        account = ledger.account("clinic")
        assert kinds(account) == ["pay", "publish"]
        assert account.balance.spent.mu_squared <= BUDGET.mu_squared
        made = files_in(tmp_path)
        assert not any(hidden.startswith(".") for hidden in made)
        # What had its name keeps its bits.
        assert all(made[each] == data for each, data in left.items() if not each.startswith("."))
        verified_file(Path(ledger.history()[1].facts["target"]))
