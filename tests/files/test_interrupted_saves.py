"""Files are written in parts, which an interrupt may come between; names are given all or none."""

import io
import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, Release
from matrixdp.errors import StorageError
from matrixdp.files.formats import arrow_format, csv_format, matrices
from matrixdp.files.formats.matrices import read_matrix, write_matrix
from matrixdp.files.formats.suffixes import ARROW, FORMATS
from matrixdp.files.publishing import atomic
from matrixdp.files.publishing.atomic import write_all
from matrixdp.files.publishing.releases import save_release
from matrixdp.interrupts import interrupts_held
from matrixdp.mechanisms.labelled import MatrixFile

MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
MATRIX = MatrixFile(
    np.random.default_rng(0).normal(size=(40, 3)), ["a", "b", "c"], [f"r{n}" for n in range(40)]
)
IN_PARTS = tuple(suffix for suffix in FORMATS if suffix != ".npz")


@pytest.fixture(params=IN_PARTS)
def suffix(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a format whose files are written in parts of a few rows."""
    if request.param in ARROW:
        pytest.importorskip("pyarrow")
    for module in (arrow_format, csv_format, matrices):
        monkeypatch.setattr(module, "_CELLS_TOGETHER", 12)
    monkeypatch.setattr(arrow_format, "_FEWEST_ROWS", 4)
    monkeypatch.setattr(csv_format, "_ROWS_TOGETHER", 4)
    return str(request.param)


def test_shares_add_up(suffix: str) -> None:
    file, written, taken = io.BytesIO(), list[float](), list[float]()
    write_matrix(file, MATRIX, suffix, written.append)
    assert len(written) == 10
    assert sum(written) == pytest.approx(1.0)
    file.seek(0)
    labelled = suffix != ".npy"
    found = read_matrix(file, suffix, "in", header=labelled, index=labelled, advance=taken.append)
    np.testing.assert_array_equal(found.array, MATRIX.array)
    if labelled:
        assert found.index == MATRIX.index
        assert len(taken) >= 10
        assert sum(taken) == pytest.approx(1.0)


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz"])
def test_rows_longer_than_a_part(suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, parts = io.BytesIO(), io.BytesIO()
    wide = MatrixFile(MATRIX.array.reshape(2, 60), None, ["", "y"])
    write_matrix(whole, wide, suffix)
    monkeypatch.setattr(csv_format, "_CELLS_TOGETHER", 7)
    write_matrix(parts, wide, suffix)
    assert parts.getvalue() == whole.getvalue()


def test_large_tables_have_groups_of_rows() -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    file = io.BytesIO()
    write_matrix(file, MatrixFile(np.zeros((5000, 512))), ".parquet")
    assert parquet.ParquetFile(file).num_row_groups == 3


@pytest.mark.parametrize("force", [False, True])
def test_an_interrupt_between_parts_leaves_nothing(
    suffix: str,
    force: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    target = tmp_path / f"out{suffix}"
    if force:
        MECHANISM.release(np.eye(2)).save(target)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    release, told = MECHANISM.release(MATRIX), list[float]()

    def interrupt(share: float) -> None:
        told.append(share)
        if len(told) == 2:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        save_release(release, target, force=force, advance=interrupt)
    assert len(told) == 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    # The release itself is not lost: it can be saved again.
    save_release(release, target, force=force)
    np.testing.assert_array_equal(Release.load(target).value, np.asarray(release.value))


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_between_names_waits_for_the_last(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, give = [], atomic._give_name

    def interrupted(fresh: Path, path: Path, *, force: bool) -> None:
        give(fresh, path, force=force)
        given.append(path.name)
        if len(given) == number:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(atomic, "_give_name", interrupted)
    release = MECHANISM.release(np.eye(2))
    with pytest.raises(KeyboardInterrupt):
        release.save(tmp_path / "out.npy")
    assert given == ["out.npy.json", "out.npy"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(given)
    assert Release.verify(tmp_path / "out.npy") == release.guarantee
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_failure_is_reported_before_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fresh: Path, path: Path, *, force: bool) -> None:
        signal.raise_signal(signal.SIGINT)
        raise StorageError(f"{path} {force}")

    monkeypatch.setattr(atomic, "_give_name", fail)
    with pytest.raises(StorageError):
        write_all([(tmp_path / "a", b"1"), (tmp_path / "b", b"2")])
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_and_handlers_are_left_alone() -> None:
    seen = list[object]()

    def work() -> None:
        with interrupts_held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
    former = signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))
    try:
        with interrupts_held():
            signal.raise_signal(signal.SIGINT)
            assert len(seen) == 1
        assert seen[1:] == ["handled"]
    finally:
        signal.signal(signal.SIGINT, former)
