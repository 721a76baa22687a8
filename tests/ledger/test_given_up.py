"""Releases that are given up while others finish them: no file stays beside a forfeited entry."""

from pathlib import Path
from typing import Any

import pytest

from ledger.doors import Killed, files_in, killed_at, opened, path_doors
from ledger.test_killed_releases import PLACES, die, kinds, pending
from matrixdp.errors import InvalidParameterError, StorageError
from matrixdp.files.publishing import (
    lasting,
    mean_files,
    releases,
    streamed_release,
    workload_releases,
)
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.ledger import account as ledger_account
from matrixdp.ledger.payments import forfeit
from matrixdp.privacy.payment import GivenUpError

DOORS = {str(door): door for door in path_doors()}
# One for each way by which files get their names.
WAYS = ["IMGM", "stream", "MatrixMechanism", "Mean, private count"]


def ledger_of(account: LedgerAccount) -> Ledger:
    assert isinstance(account.ledger, Ledger)
    return account.ledger


def given_up_before_the_names(
    monkeypatch: pytest.MonkeyPatch, ledger: Ledger, *, elsewhere: bool
) -> None:
    """Let somebody else give June up after it is drawn, just before its files get their names.

    On another machine, perhaps, where the folder is another one.
    """
    write_paid = lasting.write_paid

    def late(*arguments: Any, **options: Any) -> None:
        if elsewhere:
            ledger.write(lambda rows: forfeit(rows, "June"))
        else:
            ledger.forfeit("June")
        write_paid(*arguments, **options)

    for place in (releases, streamed_release, mean_files, workload_releases):
        monkeypatch.setattr(place, "write_paid", late)


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("name", WAYS)
def test_the_one_who_finishes_leaves_no_files(
    name: str,
    elsewhere: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with opened(tmp_path) as account:
        given_up_before_the_names(monkeypatch, ledger_of(account), elsewhere=elsewhere)
        release_to = DOORS[name].release_to
        assert release_to is not None
        # A hidden file goes with the release, and is missed by who wants to name it.
        with pytest.raises(
            (GivenUpError, StorageError), match=r"given up meanwhile|unfinished cannot be read"
        ):
            release_to(tmp_path, privacy_filter=account, request="June")
        assert files_in(tmp_path) == {}
        assert kinds(account) == ["pay", "forfeit"]
        # The names are free.
        monkeypatch.undo()
        release_to(tmp_path, privacy_filter=account, request="July")
        assert kinds(account) == ["pay", "forfeit", "pay", "publish"]


@pytest.mark.parametrize("name", WAYS[:-1])
def test_files_of_one_who_dies_go_when_it_is_given_up_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        with monkeypatch.context() as patched:
            given_up_before_the_names(patched, ledger, elsewhere=True)
            killed_at(patched, ledger_account, "publish")
            release_to = DOORS[name].release_to
            assert release_to is not None
            with pytest.raises(Killed):
                release_to(tmp_path, privacy_filter=account, request="June")
        (target,) = (path for path in tmp_path.glob("out.*") if path.suffix != ".json")
        (found,) = ledger.verify_statements([target])
        assert "gave it up, and yet it is there" in found
        ledger.forfeit("June")
        assert files_in(tmp_path) == {}
        assert kinds(account) == ["pay", "forfeit"]


@pytest.mark.parametrize("name", WAYS)
def test_what_is_out_is_not_given_up(name: str, tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(DOORS[name], PLACES["before it is noted"], tmp_path, account)
        files = files_in(tmp_path)
        with pytest.raises(InvalidParameterError, match=r"is out as .* remove the file before"):
            ledger.forfeit("June")
        assert pending(account) == ["June"]
        assert files_in(tmp_path) == files
        Path(ledger.pending()[0].target).unlink()
        ledger.forfeit("June")
        assert kinds(account) == ["pay", "forfeit"]
        assert not [file for file in files_in(tmp_path) if file.endswith(".json")]


def test_what_was_never_paid_is_not_given_up(tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        with pytest.raises(InvalidParameterError, match="was never paid"):
            ledger_of(account).forfeit("June")
        DOORS["IMGM"].release_to(tmp_path, privacy_filter=account, request="June")  # type: ignore[misc]
        with pytest.raises(InvalidParameterError, match="its last entry is 'publish'"):
            ledger_of(account).forfeit("June")
        assert len(files_in(tmp_path)) == 2
