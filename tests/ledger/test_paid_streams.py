"""Files larger than memory: tagged before the payment and while they are drawn."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.doors import BALL, BUDGET, Killed, files_in, killed_at, opened
from ledger.test_killed_releases import kinds, pending
from matrixdp import IMGM, Budget, Diagonal, InvalidParameterError, PrivacyFilter, Release
from matrixdp.errors import FileFormatError, StorageError
from matrixdp.files import release_npy
from matrixdp.files.publishing import npy_stream, paid
from matrixdp.ledger import Ledger
from matrixdp.ledger.pending import unsealed
from matrixdp.noise.keys import release_key

ROWS, COLUMNS = 301, 37
MECHANISM = IMGM(BALL, BUDGET)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file of many chunks, the last of which is a short one."""
    monkeypatch.setattr(npy_stream, "_CHUNK_ELEMENTS", 1009)
    path = tmp_path / "in.npy"
    np.save(path, np.random.default_rng(0).uniform(-1, 1, (ROWS, COLUMNS)))
    return path


def change_after(
    monkeypatch: pytest.MonkeyPatch, source: Path, change: Any, *, passes: int = 1
) -> None:
    """Change the source once it was read so many times."""
    chunks, done = npy_stream._chunks, [0]

    def changing(path: Path, layout: Any) -> Any:
        yield from chunks(path, layout)
        done[0] += 1
        if done[0] == passes:
            matrix = np.load(source)
            change(matrix)
            np.save(source, matrix)

    monkeypatch.setattr(npy_stream, "_chunks", changing)


def one_number(matrix: Any) -> None:
    matrix[150, 20] += 1e-9


def not_finite(matrix: Any) -> None:
    matrix[-1, -1] = np.nan


def test_a_source_that_changes_is_forfeited_and_never_published(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as account:
        kept = np.load(source)
        change_after(monkeypatch, source, one_number)
        with pytest.raises(StorageError, match="changed while it was being read") as caught:
            MECHANISM.release_to(
                tmp_path / "out.npy", source, privacy_filter=account, request="June"
            )
        assert not hasattr(caught.value, "__notes__")  # nothing can be repeated
        assert files_in(tmp_path) == {}
        assert kinds(account) == ["pay", "forfeit"]
        assert pending(account) == []
        # Not even the first value is finished: all of another one was on the disk, with its noise.
        np.save(source, kept)
        with pytest.raises(InvalidParameterError, match="forfeited"):
            MECHANISM.release_to(
                tmp_path / "out.npy", source, privacy_filter=account, request="June"
            )


@pytest.mark.parametrize("paid_for", [True, False])
def test_a_source_that_changes_is_not_published_for_a_filter(
    *, paid_for: bool, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paying = PrivacyFilter(Budget(2.0, 1e-5), neighbouring="add-remove")
    change_after(monkeypatch, source, one_number)
    with pytest.raises(StorageError, match="changed while it was being read"):
        release_npy(
            MECHANISM, source, tmp_path / "out.npy", privacy_filter=paying if paid_for else None
        )
    assert files_in(tmp_path) == {}
    assert paying.spent == (MECHANISM.mu if paid_for else 0.0)


def test_a_source_that_cannot_be_released_any_more_can_be_brought_back(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = source.read_bytes()
    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            change_after(patched, source, not_finite)
            with pytest.raises(InvalidParameterError, match="NaN"):
                MECHANISM.release_to(
                    tmp_path / "out.npy", source, privacy_filter=account, request="June"
                )
        assert files_in(tmp_path) == {}
        source.write_bytes(whole)
        MECHANISM.release_to(tmp_path / "out.npy", source, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]


def test_a_source_that_is_cut_short_can_be_brought_back(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = source.read_bytes()
    chunks, done = npy_stream._chunks, [0]

    def cutting(path: Path, layout: Any) -> Any:
        yield from chunks(path, layout)
        done[0] += 1
        if done[0] == 1:
            source.write_bytes(whole[: len(whole) // 2])

    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            patched.setattr(npy_stream, "_chunks", cutting)
            with pytest.raises(FileFormatError, match="cut short"):
                MECHANISM.release_to(
                    tmp_path / "out.npy", source, privacy_filter=account, request="June"
                )
        assert pending(account) == ["June"]
        assert files_in(tmp_path) == {}
        source.write_bytes(whole)
        MECHANISM.release_to(tmp_path / "out.npy", source, privacy_filter=account, request="June")
        assert kinds(account) == ["pay", "publish"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("noise", ["same", "by row"])
def test_a_stream_has_the_bits_of_its_key(
    order: Any, noise: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = np.asarray(np.load(source), order=order)
    np.save(source, matrix)
    wide = Diagonal(np.linspace(9.0, 12.0, ROWS)[:, None])
    mechanism = MECHANISM if noise == "same" else IMGM(BALL, BUDGET, wide)
    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            killed_at(patched, release_key, "NoiseStream")
            with pytest.raises(Killed):
                mechanism.release_to(
                    tmp_path / "out.npy", source, privacy_filter=account, request="June"
                )
        ledger = account.ledger
        assert isinstance(ledger, Ledger)
        assert ledger.keys is not None
        (kept,) = ledger.pending()
        secret = unsealed(ledger.keys, ledger.identity, kept, ledger.payment("June"))
        # By rows, a file in Fortran order is its transpose, whose noise is numbered along it.
        key = release_key.ReleaseKey.from_bytes(secret)
        released = mechanism.release_to(
            tmp_path / "out.npy", source, privacy_filter=account, request="June", threads=2
        )
        if order == "C":
            expected = mechanism.release(matrix, key=key).value
            np.testing.assert_array_equal(released.value, expected)
        assert isinstance(released.value, np.memmap)
        assert Release.verify(tmp_path / "out.npy") == mechanism.guarantee


def test_nothing_is_paid_for_a_bad_file(source: Path, tmp_path: Path) -> None:
    matrix = np.load(source)
    with opened(tmp_path) as account:
        for bad in (np.nan, 1e300):
            matrix[200, 3] = bad
            np.save(source, matrix)
            with pytest.raises(InvalidParameterError):
                MECHANISM.release_to(tmp_path / "out.npy", source, privacy_filter=account)
        with pytest.raises(InvalidParameterError, match=r"does not end in \.npy"):
            MECHANISM.release_to(tmp_path / "out.csv", source, privacy_filter=account)
        with pytest.raises(InvalidParameterError, match="would replace"):
            MECHANISM.release_to(source, source, privacy_filter=account, force=True)
        assert kinds(account) == []
    assert files_in(tmp_path) == {}


def test_a_first_attempt_reads_twice_and_a_second_no_more(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def release(account: Any) -> None:
        release_npy(
            MECHANISM,
            source,
            tmp_path / "out.npy",
            privacy_filter=account,
            request="June",
            advance=read.append,
        )

    with opened(tmp_path) as account:
        with monkeypatch.context() as patched:
            killed_at(patched, paid, "force_folder")
            with pytest.raises(Killed):
                release(account)
        assert sum(read) == 2 * ROWS * COLUMNS
        (tmp_path / "out.npy").unlink()
        read.clear()
        release(account)
        assert sum(read) == 2 * ROWS * COLUMNS
        assert kinds(account) == ["pay", "publish"]
