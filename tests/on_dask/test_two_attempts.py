"""Two attempts at one request at a time, from a source that changes: one key serves one value."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import dask.array as da

from ledger.doors import opened
from matrixdp import IMGM, Budget, FrobeniusBall, Release
from matrixdp.distributed.chunks import ChunkTags
from matrixdp.distributed.keys import SealedSecret, key_file_for
from matrixdp.errors import StorageError
from matrixdp.files.formats.zarr_folder import ZarrLayout
from matrixdp.files.publishing.chunk_folder import UnfinishedFolder
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.noise.keys.value_tag import ValueTag
from on_dask.conftest import left_in

BALL = IMGM(FrobeniusBall(1.0, "add-remove"), Budget(0.5, 1e-5))
VALUE = np.random.default_rng(6).normal(size=(20, 6))
OUT = ["ledger", "out.zarr", "out.zarr.json"]


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("change", [0.0, 1.0])
def test_one_that_comes_late_draws_nothing_from_another_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float, *, moved: bool
) -> None:
    target, gone = tmp_path / "out.zarr", tmp_path / "gone"
    gone.mkdir()
    now, begun, drawn = [0.0], [], []

    def as_it_is_now(block: NDArray[np.float64]) -> NDArray[np.float64]:
        return block + now[0]

    array = da.from_array(VALUE, chunks=(10, 6)).map_blocks(as_it_is_now, dtype=float)
    make, noisy = UnfinishedFolder.make, BlockNoise.noisy

    def make_late(folder: UnfinishedFolder) -> None:
        begun.append(folder)
        if len(begun) == 1:  # the other attempt is quicker, and its release is taken away
            BALL.release_to(target, array, privacy_filter=account, request="June")
            for name in OUT[1:] if moved else []:
                (tmp_path / name).rename(gone / name)
            now[0] = change
        make(folder)

    def noted(
        noise: BlockNoise, block: object, origin: tuple[int, int], secret: bytes
    ) -> NDArray[np.float64]:
        drawn.append((origin, np.array(block).tobytes(), secret))
        return noisy(noise, block, origin, secret)

    monkeypatch.setattr(UnfinishedFolder, "make", make_late)
    monkeypatch.setattr(BlockNoise, "noisy", noted)
    with opened(tmp_path) as account:
        if moved and change:
            with pytest.raises(StorageError, match="another value than when it was paid for"):
                BALL.release_to(target, array, privacy_filter=account, request="June")
        else:
            BALL.release_to(target, array, privacy_filter=account, request="June")
    assert len(begun) == 2
    # Whatever was drawn twice was drawn from the same value.
    assert len(set(drawn)) == 2
    if not moved:
        assert left_in(tmp_path) == sorted([*OUT, "gone"])


@pytest.mark.parametrize("name", ["out.zarr", "out.npy", "out.parquet"])
def test_one_that_is_overtaken_waits_for_the_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    target, array = tmp_path / name, da.from_array(VALUE, chunks=VALUE.shape)
    write, give_names = UnfinishedFolder.write, UnfinishedFolder._give_names
    first, begun, naming, over = Lock(), Event(), Event(), Event()

    def write_late(folder: UnfinishedFolder, *arguments: Any) -> str:
        if first.acquire(blocking=False):  # the other attempt is as far as its names
            begun.set()
            naming.wait(30)
        return write(folder, *arguments)

    def slowly(folder: UnfinishedFolder, *arguments: Any) -> None:
        naming.set()
        over.wait(0.3)
        give_names(folder, *arguments)

    def release() -> None:
        BALL.release_to(target, array, privacy_filter=account, request="June")

    monkeypatch.setattr(UnfinishedFolder, "write", write_late)
    monkeypatch.setattr(UnfinishedFolder, "_give_names", slowly)
    with opened(tmp_path) as account, ThreadPoolExecutor(1) as other:
        late = other.submit(release)
        late.add_done_callback(lambda _: over.set())
        assert begun.wait(30)
        release()
        late.result()
    assert Release.verify(target) == BALL.guarantee
    assert left_in(tmp_path) == sorted(["ledger", name, f"{name}.json"])


def test_codes_of_two_values_are_as_random_numbers() -> None:
    # A bare GMAC of two values with one key differs by a polynomial of their difference.
    layout = ZarrLayout((2, 2), "float64", (2, 2))
    noise = BlockNoise(BALL.proof, layout.shape, "float64")
    with key_file_for(None) as keys:
        tags = ChunkTags(noise, layout, SealedSecret.of(bytes(32), b"", keys), b"")
        one, again, other = (tags(np.full((2, 2), x), (0, 0)) for x in (1.0, 1.0, 2.0))
    assert one == again != other
    assert len(one) == 32 != len(ValueTag(bytes(32), noise.context, b"").digest())
