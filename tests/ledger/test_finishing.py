"""`Ledger.finish` and `Ledger.forfeit`: what a value can finish, and what is left on disk."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.doors import BALL, BUDGET, MATRIX, RECORDS, Door, files_in, opened, path_doors
from ledger.test_killed_releases import PLACES, die, kinds, pending
from matrixdp import IMGM, InvalidParameterError, Release
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.publishing import atomic, lasting, releases
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.queries import PublicBounds, Sum

DOORS = {str(door): door for door in path_doors()}
# What is released, as finish takes it; None where a value does not tell all of the release.
COMPUTED = [
    "MatrixMechanism",
    "MatrixMechanism, records",
    "Mean, private count",
    "Mean of one column",
]
SUM = Sum(PublicBounds(3, norm=1.0), "add-remove")


def ledger_of(account: LedgerAccount) -> Ledger:
    assert isinstance(account.ledger, Ledger)
    return account.ledger


def matrix_of(name: str, folder: Path) -> Any:
    """Return what a door of mechanisms was called with."""
    if name in {"stream", "release_npy"}:
        return folder / "in0.npy"
    if name == "IMGM, float32":
        return MATRIX.astype(np.float32)
    return MATRIX[:, :3] + MATRIX[:, :3].T if name == "IMGM, symmetric" else MATRIX


RELEASED = ["IMGM", "IMGM, float32", "IMGM, bounded rows", "IMGM, symmetric", "ClassicGaussian"]
RELEASED += ["AnalyticGaussian", "MVG", "MVG, directions", "stream", "release_npy"]


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_value_finishes_what_the_call_would(name: str, place: Any, tmp_path: Path) -> None:
    door = DOORS[name]
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(door, place, tmp_path, account)
        value = matrix_of(name, tmp_path)
        other = value if isinstance(value, Path) else np.asarray(value) / 2
        if isinstance(value, Path):
            np.save(tmp_path / "in1.npy", MATRIX * 2)
            other = tmp_path / "in1.npy"
        with pytest.raises(InvalidParameterError, match="another value"):
            ledger.finish("June", other)
        assert ledger.finish("June", value) == tmp_path / "out.npy"
        assert pending(account) == []
        assert kinds(account) == ["pay", "publish"]
        files = files_in(tmp_path)
        # The call itself finds what it would have made.
        assert door.release_to is not None
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert files_in(tmp_path) == files
        assert ledger.finish("June", value) == tmp_path / "out.npy"


@pytest.mark.parametrize("name", DOORS)
@pytest.mark.parametrize("place", PLACES)
def test_without_a_value_only_complete_files_are_published(
    name: str, place: str, tmp_path: Path
) -> None:
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(DOORS[name], PLACES[place], tmp_path, account)
        before = files_in(tmp_path)
        if place != "before it is noted":
            with pytest.raises(InvalidParameterError, match="repeat the same call"):
                ledger.finish("June")
            assert pending(account) == ["June"]
        else:
            assert ledger.finish("June").parent == tmp_path
            assert kinds(account) == ["pay", "publish"]
            assert ledger.finish("June").parent == tmp_path
        assert files_in(tmp_path) == before


@pytest.mark.parametrize("name", COMPUTED)
def test_what_a_value_does_not_tell_is_to_be_called_again(name: str, tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        die(DOORS[name], PLACES["before it draws"], tmp_path, account)
        with pytest.raises(InvalidParameterError, match="repeat the same call with request='June'"):
            ledger_of(account).finish("June", MATRIX)
        assert pending(account) == ["June"]


def test_the_answer_of_a_query_finishes_it(tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        die(DOORS["Sum"], PLACES["before it draws"], tmp_path, account)
        path = ledger_of(account).finish("June", SUM.evaluate(RECORDS))
        assert '"query": "sum of records' in Path(f"{path}.json").read_text()
        assert Release.load(path).shape == (1, 3)


@pytest.mark.parametrize("damage", ["cut short", "altered", "of another payment", "no statement"])
def test_damaged_files_are_not_published(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "out.npy"
    beside = tmp_path / "out.npy.json"
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(DOORS["IMGM"], PLACES["before it is noted"], tmp_path, account)
        if damage == "cut short":
            path.write_bytes(path.read_bytes()[:-8])
        elif damage == "altered":
            beside.write_text(beside.read_text().replace('"epsilon": 0.8', '"epsilon": 0.7'))
        elif damage == "of another payment":
            beside.write_text(beside.read_text().replace('"sequence": 2', '"sequence": 3'))
        else:
            beside.unlink()
        with pytest.raises(InvalidParameterError, match="not complete"):
            ledger.finish("June")
        # Nobody knows whose file that is, so it is replaced by force alone.
        if damage != "no statement":
            with pytest.raises(InvalidParameterError, match=r"exists|meanwhile"):
                ledger.finish("June", MATRIX)
        ledger.finish("June", MATRIX, force=True)
        assert Release.verify(path).mu == IMGM(BALL, BUDGET).mu
        assert kinds(account) == ["pay", "publish"]


def test_only_what_is_pending_is_finished(tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        with pytest.raises(InvalidParameterError, match="it was never paid"):
            ledger.finish("May")
        account.spend(0.1)
        die(DOORS["IMGM"], PLACES["before it draws"], tmp_path, account)
        ledger.forfeit("June")
        with pytest.raises(InvalidParameterError, match="'forfeit'"):
            ledger.finish("June", MATRIX)
        with pytest.raises(InvalidParameterError, match="forfeited"):
            IMGM(BALL, BUDGET).release_to(
                tmp_path / "out.npy", MATRIX, privacy_filter=account, request="June"
            )
        assert files_in(tmp_path) == {}


def test_a_file_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    mechanism = IMGM(BALL, BUDGET)
    with opened(tmp_path) as account:
        call = {"privacy_filter": account, "request": "June"}
        mechanism.release_to(tmp_path / "out.npy", MATRIX, **call)  # type: ignore[arg-type]
        (tmp_path / "out.npy").unlink()
        with pytest.raises(InvalidParameterError, match="not there any more"):
            mechanism.release_to(tmp_path / "out.npy", MATRIX, **call)  # type: ignore[arg-type]


LEFT_OVER = f".out.npy.{'ab' * 8}.unfinished"
LEFT_STATEMENT = f".out.npy.json.{'01' * 8}.unfinished"
OTHERS = [
    f".other.npy.{'ab' * 8}.unfinished",
    f".out.npy.gz.{'ab' * 8}.unfinished",
    ".out.npy.mine.unfinished",
    f"out.npy.{'ab' * 8}.unfinished",
]


@pytest.mark.parametrize("way", ["finish", "finish with the value", "call again", "forfeit"])
def test_leftovers_of_the_target_go_and_no_others(way: str, tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        place = PLACES["before it is noted" if way == "finish" else "after the statement"]
        die(DOORS["IMGM"], place, tmp_path, account)
        for name in (LEFT_OVER, LEFT_STATEMENT, *OTHERS):
            (tmp_path / name).write_bytes(b"noisy")
        match way:
            case "finish":
                ledger.finish("June")
            case "finish with the value":
                ledger.finish("June", MATRIX)
            case "call again":
                IMGM(BALL, BUDGET).release_to(
                    tmp_path / "out.npy", MATRIX, privacy_filter=account, request="June"
                )
            case _:
                ledger.forfeit("June")
                (tmp_path / LEFT_OVER).write_bytes(b"noisy")
                ledger.forfeit("June")  # as after a death amid it
        made = set() if way == "forfeit" else {"out.npy", "out.npy.json"}
        assert set(files_in(tmp_path)) == {*OTHERS, *made}
        # The name is free for another release, or taken by this one.
        if way == "forfeit":
            IMGM(BALL, BUDGET).release_to(tmp_path / "out.npy", MATRIX, privacy_filter=account)


def test_a_live_attempt_outlasts_the_removal_of_its_hidden_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism, path = IMGM(BALL, BUDGET), tmp_path / "out.npy"
    with opened(tmp_path) as account:
        ledger = ledger_of(account)

        def slow(*arguments: Any) -> None:
            monkeypatch.setattr(releases, "write_matrix", write_matrix)
            # Meanwhile somebody takes this attempt for dead.
            ledger.finish("June", MATRIX)
            write_matrix(*arguments)

        monkeypatch.setattr(releases, "write_matrix", slow)
        mechanism.release_to(path, MATRIX, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]
        assert Release.verify(path).mu == IMGM(BALL, BUDGET).mu
        assert set(files_in(tmp_path)) == {"out.npy", "out.npy.json"}


def test_two_releases_that_are_forced_to_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, write_all, others = tmp_path / "out.npy", atomic.write_all, list[threading.Thread]()
    with opened(tmp_path) as account:

        def release(request: str) -> None:
            IMGM(BALL, BUDGET).release_to(
                target, MATRIX, privacy_filter=account, request=request, force=True
            )

        def with_another_behind(*arguments: Any, **options: Any) -> None:
            write_all(*arguments, **options)
            if not others:  # the statement is there, and the file is not
                others.append(threading.Thread(target=release, args=("July",)))
                others[0].start()
                others[0].join(1.0)

        monkeypatch.setattr(lasting, "write_all", with_another_behind)
        release("June")
        others[0].join()
        assert sorted(kinds(account)) == ["pay", "pay", "publish", "publish"]
        Release.verify(target)  # the file and the statement of one of them


def test_two_recoveries_at_once(tmp_path: Path) -> None:
    errors: list[BaseException] = []
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(DOORS["stream"], PLACES["after the statement"], tmp_path, account)
        together = threading.Barrier(4)

        def recover() -> None:
            together.wait()
            try:
                ledger.finish("June", tmp_path / "in0.npy")
            except BaseException as error:  # noqa: BLE001 - shown below
                errors.append(error)

        threads = [threading.Thread(target=recover) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert kinds(account) == ["pay", "publish"]


def test_doors_are_many() -> None:
    assert {*RELEASED, *COMPUTED, "Sum", "Gram", "ClippedRecords", "Mean, public count"} == set(
        DOORS
    )
    assert all(isinstance(door, Door) for door in DOORS.values())
