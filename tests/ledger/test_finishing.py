"""`Ledger.finish` and `Ledger.forfeit`: what a value can finish, and what is left on disk."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.doors import (
    BALL,
    BUDGET,
    MATRIX,
    ONE_COLUMN,
    RECORDS,
    Door,
    files_in,
    opened,
    path_doors,
)
from ledger.test_killed_releases import PLACES, die, kinds, pending
from matrixdp import (
    IMGM,
    Guarantee,
    InvalidParameterError,
    MatrixMechanism,
    Release,
    WorkloadRelease,
)
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.publishing import atomic, lasting, releases, workload_releases
from matrixdp.files.publishing.paid_release import PaidMatrix, release_prepared_to
from matrixdp.files.publishing.releases import load_stated_release
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.privacy.composition import composed_mu
from matrixdp.queries import MeanRelease, PublicBounds, Sum
from matrixdp.workloads import Dense, Prefix, Product

DOORS = {str(door): door for door in path_doors()}
SUM = Sum(PublicBounds(3, norm=1.0), "add-remove")


def ledger_of(account: LedgerAccount) -> Ledger:
    assert isinstance(account.ledger, Ledger)
    return account.ledger


VALUES = {
    "IMGM, float32": MATRIX.astype(np.float32),
    "IMGM, symmetric": MATRIX[:, :3] + MATRIX[:, :3].T,
    "MatrixMechanism": np.array([3, 1, 4, 1]),
    "MatrixMechanism, records": np.random.default_rng(2).integers(0, 2, (40, 3)),
    "Mean, private count": SUM.evaluate(RECORDS),
    "Mean of one column": Sum(ONE_COLUMN, "add-remove").evaluate(RECORDS[:, :1]),
}


def value_of(name: str, folder: Path) -> Any:
    """Return what a door was called with, or what a query has computed."""
    return folder / "in0.npy" if name in {"stream", "release_npy"} else VALUES.get(name, MATRIX)


def counts_of(name: str) -> dict[str, int]:
    return {"records": 50} if name in MEANS else {}


MEANS = ["Mean, private count", "Mean of one column"]
RELEASED = ["IMGM", "IMGM, float32", "IMGM, bounded rows", "IMGM, symmetric", "ClassicGaussian"]
RELEASED += ["AnalyticGaussian", "MVG", "MVG, directions", "stream", "release_npy"]
RELEASED += ["MatrixMechanism", "MatrixMechanism, records", *MEANS]


@pytest.mark.parametrize("name", RELEASED)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_value_finishes_what_the_call_would(name: str, place: Any, tmp_path: Path) -> None:
    door = DOORS[name]
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(door, place, tmp_path, account)
        value, counts = value_of(name, tmp_path), counts_of(name)
        other = value if isinstance(value, Path) else value * (0 if value.dtype.kind == "i" else 2)
        if isinstance(value, Path):
            np.save(tmp_path / "in1.npy", MATRIX * 2)
            other = tmp_path / "in1.npy"
        with pytest.raises(InvalidParameterError, match="another value"):
            ledger.finish("June", other, counts=counts)
        if counts:
            with pytest.raises(InvalidParameterError, match="another value"):
                ledger.finish("June", value, counts={"records": 51})
        target = ledger.finish("June", value, counts=counts)
        assert target.parent == tmp_path
        assert pending(account) == []
        assert kinds(account) == ["pay", "publish"]
        files = files_in(tmp_path)
        assert len(files) == 2 + len(counts)
        if counts:
            means = MeanRelease.load(tmp_path / "out.csv").value
            np.testing.assert_array_equal(
                np.loadtxt(tmp_path / "out.csv", delimiter=",", ndmin=2), means
            )
        # The call itself finds what it would have made.
        assert door.release_to is not None
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert files_in(tmp_path) == files
        assert ledger.finish("June", value) == target


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


def test_counts_are_those_that_are_stated(tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        ledger = ledger_of(account)
        die(DOORS["Mean, private count"], PLACES["before it draws"], tmp_path, account)
        for wrong in ({}, {"clipped": 50}, {"records": 50, "clipped": 1}):
            with pytest.raises(InvalidParameterError, match="and the release has records"):
                ledger.finish("June", SUM.evaluate(RECORDS), counts=wrong)
        assert pending(account) == ["June"]
        assert files_in(tmp_path) == {}


def test_a_matrix_alone_has_no_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as account:
        die(DOORS["IMGM"], PLACES["before it draws"], tmp_path, account)
        with pytest.raises(InvalidParameterError, match=r"counts names records, .* has none"):
            ledger_of(account).finish("June", MATRIX, counts={"records": 50})


def test_counts_of_what_bounds_changed_are_finished(tmp_path: Path) -> None:
    total, count = IMGM(SUM, BUDGET.split([1, 1])[0]), IMGM(BALL, BUDGET.split([1, 1])[1])
    both = Guarantee.of_budget(
        BUDGET, mu=composed_mu([total.mu, count.mu]), neighbouring="add-remove"
    )
    main = total.prepared(SUM.evaluate(RECORDS))
    matrix = PaidMatrix(
        main=main._replace(promise=main.promise._replace(guarantee=both)),
        counts={"clipped": count.prepared([[3.0]])},
        query="a sum",
    )

    def release_to(folder: Path, **options: Any) -> Any:
        options = {"privacy_filter": None, "request": None, "force": False, **options}
        return release_prepared_to(matrix, folder / "out.npy", threads=None, **options)

    with opened(tmp_path) as account:
        die(Door("clipped", None, release_to), PLACES["before it draws"], tmp_path, account)
        path = ledger_of(account).finish("June", SUM.evaluate(RECORDS), counts={"clipped": 3})
        made = files_in(tmp_path)
        released = release_to(tmp_path, privacy_filter=account, request="June")
        assert load_stated_release(path).counts.keys() == {"clipped"}
        assert released.release.shape == (1, 3)
        assert files_in(tmp_path) == made


def test_a_large_strategy_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_releases, "_MOST_BYTES_KEPT", 100)
    door = DOORS["MatrixMechanism"]
    with opened(tmp_path) as account:
        die(door, PLACES["before it draws"], tmp_path, account)
        with pytest.raises(InvalidParameterError, match="repeat the call that paid"):
            ledger_of(account).finish("June", value_of("MatrixMechanism", tmp_path))
        assert door.release_to is not None
        door.release_to(tmp_path, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]


def test_dense_queries_and_strategies_are_kept(tmp_path: Path) -> None:
    queries = Product([Dense(np.tril(np.ones((3, 3)))), Prefix(4)])
    mechanism = MatrixMechanism(queries, BUDGET, neighbouring="add-remove")
    histogram = np.arange(12).reshape(3, 4)

    def release_to(folder: Path, **options: Any) -> Any:
        return mechanism.release_to(folder / "out.npz", histogram, **options)

    with opened(tmp_path) as account:
        die(Door("dense", None, release_to), PLACES["before it draws"], tmp_path, account)
        path = ledger_of(account).finish("June", histogram)
        made = files_in(tmp_path)
        release_to(tmp_path, privacy_filter=account, request="June")
        assert files_in(tmp_path) == made
        assert WorkloadRelease.verify(path) == mechanism.guarantee


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
        # Nobody knows whose file that is, so it is replaced by force alone; unlike a statement that
        # is missing, or names this payment.
        if damage in {"cut short", "of another payment"}:
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
    assert {*RELEASED, "Sum", "Gram", "ClippedRecords", "Mean, public count"} == set(DOORS)
    assert all(isinstance(door, Door) for door in DOORS.values())
