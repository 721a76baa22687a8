"""Releases of Dask arrays that a ledger pays for: finished after a crash, with the same bits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import dask.array as da

from ledger.doors import Killed, killed_at, opened
from matrixdp import IMGM, Budget, FrobeniusBall, InvalidParameterError, Release
from matrixdp.distributed import release as releasing
from matrixdp.distributed.folders import read_folder
from matrixdp.files.publishing.chunk_folder import UnfinishedFolder
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.ledger import account as payments
from matrixdp.noise import ReleaseKey
from on_dask.conftest import left_in

BALL = IMGM(FrobeniusBall(1.0, "add-remove"), Budget(0.5, 1e-5))
VALUE = np.random.default_rng(6).normal(size=(40, 6))
ARRAY = da.from_array(VALUE, chunks=(10, 4))
OUT = ["ledger", "out.zarr", "out.zarr.json"]

PLACES: dict[str, tuple[Any, str, int]] = {
    "before it draws": (UnfinishedFolder, "make", 1),
    "amid the chunks": (UnfinishedFolder, "write", 4),
    "before the names": (UnfinishedFolder, "publish", 1),
    "after the statement": (Path, "rename", 1),
    "before it is noted": (payments, "publish", 1),
}


@pytest.fixture
def account(tmp_path: Path) -> Iterator[LedgerAccount]:
    with opened(tmp_path) as found:
        yield found


def ledger_of(account: LedgerAccount) -> Ledger:
    assert isinstance(account.ledger, Ledger)
    return account.ledger


def die(place: tuple[Any, str, int], target: Path, account: LedgerAccount) -> None:
    """Pay for June's release, and die."""
    owner, name, call = place
    with pytest.MonkeyPatch.context() as patched:
        killed_at(patched, owner, name, call=call)
        with pytest.raises(Killed):
            BALL.release_to(target, array_for(target), privacy_filter=account, request="June")


def array_for(target: Path) -> da.Array:
    """Return the array in chunks that a kind of folder can have."""
    return ARRAY if target.suffix == ".zarr" else ARRAY.rechunk({1: -1})


def kinds(account: LedgerAccount) -> list[str]:
    return [entry.kind for entry in ledger_of(account).history()][1:]


@pytest.mark.parametrize(
    ("name", "by"),
    [
        ("out.zarr", "the same call"),
        ("out.zarr", "Ledger.finish"),
        ("out.npy", "Ledger.finish"),
        ("out.parquet", "the same call"),
    ],
)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_crash_loses_nothing(
    place: tuple[Any, str, int],
    name: str,
    by: str,
    tmp_path: Path,
    account: LedgerAccount,
    known_key: bytes,
) -> None:
    target = tmp_path / name
    array = array_for(target)
    die(place, target, account)
    made = {path.read_bytes() for path in tmp_path.glob(".*/array/**/*") if path.is_file()}
    if by == "Ledger.finish":
        ledger_of(account).finish("June", array)
    else:
        BALL.release_to(target, array, privacy_filter=account, request="June")
    expected = BALL.release(VALUE, key=ReleaseKey.from_bytes(known_key)).value
    assert np.array_equal(read_folder(target).compute(), expected)
    assert Release.verify(target) == BALL.guarantee
    assert made <= {path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert kinds(account) == ["pay", "publish"]
    assert left_in(tmp_path) == ["ledger", name, f"{name}.json"]
    assert ledger_of(account).verify_statements([target]) == []
    assert ledger_of(account).verify().findings == ()
    # Again, it is out.
    BALL.release_to(target, array, privacy_filter=account, request="June")
    assert kinds(account) == ["pay", "publish"]


def test_a_complete_release_is_finished_without_its_value(
    tmp_path: Path, account: LedgerAccount
) -> None:
    die(PLACES["before it is noted"], tmp_path / "out.zarr", account)
    assert ledger_of(account).finish("June") == tmp_path / "out.zarr"
    assert kinds(account) == ["pay", "publish"]


@pytest.mark.parametrize("check", [True, False])
def test_another_value_never_gets_the_same_noise(
    tmp_path: Path, account: LedgerAccount, *, check: bool
) -> None:
    die(PLACES["amid the chunks"], tmp_path / "out.zarr", account)
    other = da.from_array(VALUE + 1.0, chunks=(10, 4))
    with pytest.raises(InvalidParameterError, match="paid for another value"):
        releasing.release_to(
            *(BALL, tmp_path / "out.zarr", other),
            privacy_filter=account,
            request="June",
            check=check,
        )
    with pytest.raises(InvalidParameterError, match="paid for another value"):
        ledger_of(account).finish("June", other)
    changing = da.zeros((40, 6), chunks=(10, 4)).map_blocks(
        lambda block: np.random.default_rng().normal(size=block.shape), dtype=float, meta=VALUE[:0]
    )
    with pytest.raises(InvalidParameterError, match="paid for another value"):
        ledger_of(account).finish("June", changing)
    assert kinds(account) == ["pay"]


def test_what_is_given_up_is_removed(tmp_path: Path, account: LedgerAccount) -> None:
    die(PLACES["amid the chunks"], tmp_path / "out.zarr", account)
    assert len(left_in(tmp_path)) == 2
    ledger_of(account).forfeit("June")
    assert left_in(tmp_path) == ["ledger"]
    assert kinds(account) == ["pay", "forfeit"]
    with pytest.raises(InvalidParameterError, match="was forfeited"):
        BALL.release_to(tmp_path / "out.zarr", ARRAY, privacy_filter=account, request="June")


def test_other_chunks_are_another_release(tmp_path: Path, account: LedgerAccount) -> None:
    die(PLACES["amid the chunks"], tmp_path / "out.zarr", account)
    with pytest.raises(InvalidParameterError, match="paid for another value"):
        BALL.release_to(
            tmp_path / "out.zarr", ARRAY.rechunk((20, 6)), privacy_filter=account, request="June"
        )
    # `Ledger.finish` knows the chunks that were paid for.
    ledger_of(account).finish("June", ARRAY.rechunk((20, 6)))
    assert left_in(tmp_path) == OUT


def test_an_altered_release_disagrees_with_the_ledger(
    tmp_path: Path, account: LedgerAccount
) -> None:
    target = tmp_path / "out.zarr"
    BALL.release_to(target, ARRAY, privacy_filter=account)
    chunk = target / "c" / "0" / "0"
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    (finding,) = ledger_of(account).verify_statements([target])[:1]
    assert "its digest differs" in finding
