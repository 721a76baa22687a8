"""No chunk is ever out in two versions: sources that change, retries, and workers that die."""

import os
import signal
import threading
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import dask.array as da
from distributed import Client

from matrixdp import IMGM, Budget, FrobeniusBall, Release, RowBounds
from matrixdp.distributed.chunks import ChunkWrites
from matrixdp.distributed.keys import SealedSecret, key_file_for
from matrixdp.files.formats.zarr_folder import ZarrLayout
from matrixdp.files.publishing.chunk_folder import UnfinishedFolder
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.noise import NoiseContext, ReleaseKey
from on_dask.conftest import left_in
from reference.noise import by_specification

BALL = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
SHAPE = (40, 24)


def test_the_first_version_of_a_chunk_stays(tmp_path: Path) -> None:
    layout = ZarrLayout(SHAPE, "float64", (10, 24))
    folder = UnfinishedFolder(tmp_path / "out.zarr", "0" * 16, layout)
    folder.make()
    noise = BlockNoise(BALL.proof, SHAPE, "float64")
    with key_file_for(None) as keys:
        work = ChunkWrites(noise, folder, SealedSecret.of(bytes(32), b"", keys))
        first = work(np.zeros((10, 24)), (1, 0))
        (chunk,) = folder.path.glob("array/c/1/*")
        content = chunk.read_bytes()
        # A retry with another value, and a worker that had begun before the first one ended.
        assert work(np.ones((10, 24)), (1, 0)) == first
        assert folder.write((1, 0), noise.noisy(np.ones((10, 24)), (10, 0), bytes(32))) == first
    assert chunk.read_bytes() == content
    assert left_in(folder.path / "drafts") == []


def test_a_source_that_changes_is_released_once(tmp_path: Path, known_key: bytes) -> None:
    seen: list[NDArray[np.float64]] = []

    def other_each_time(block: NDArray[Any]) -> NDArray[Any]:
        seen.append(np.random.default_rng().normal(size=block.shape))
        return seen[-1]

    array = da.zeros(SHAPE, chunks=SHAPE).map_blocks(
        other_each_time, dtype=float, meta=np.empty((0, 0))
    )
    release = BALL.release_to(tmp_path / "out.zarr", array).value.compute()
    # It was computed twice, and has the noise of the key with one of the values.
    candidates = [BALL.release(v, key=ReleaseKey.from_bytes(known_key)).value for v in seen]
    assert [bool(np.array_equal(release, one)) for one in candidates] == [False, True]


def test_neighbours_through_the_program_in_exact_rationals(
    tmp_path: Path, known_key: bytes
) -> None:
    bounds = np.linspace(0.5, 2.0, 6)
    mechanism = IMGM(RowBounds(bounds, "replace"), Budget(1.0, 1e-5))
    one = np.random.default_rng(1).normal(size=(6, 5))
    other = one.copy()
    change = np.array([3.0, -1.0, 2.0, -1.0, 1.0]) / 4.0  # of norm 1
    other[4] = one[4] + change
    scales = np.broadcast_to(mechanism.covariance.entry_scales((6, 5)), (6, 5))
    # One record changes row 4 by at most its bound: the loss of the pair is within the promise.
    moved = sum(
        (Fraction(a) - Fraction(b)) ** 2 / Fraction(s) ** 2
        for a, b, s in zip(one.ravel(), other.ravel(), scales.ravel(), strict=True)
    )
    assert bounds[4] >= 1.0
    assert moved <= Fraction(mechanism.guarantee.mu) ** 2
    # And what comes out is, number by number, the exact rounding of value and noise.
    for name, value in (("one", one), ("other", other)):
        array = da.from_array(value, chunks=(4, 2))
        release = mechanism.release_to(tmp_path / f"{name}.zarr", array).value.compute()
        own = mechanism.covariance.scales  # type: ignore[attr-defined]
        context = NoiseContext.describe(shape=(6, 5), dtype="float64", scale=own)
        with ReleaseKey.from_bytes(known_key).bind(context) as stream:
            words = stream.words(0, 30)
            exact = by_specification(value.ravel(), scales.ravel(), stream, words)
        assert np.array_equal(release.ravel(), exact)


def slowly(block: NDArray[Any]) -> NDArray[Any]:
    time.sleep(0.15)
    return block


@pytest.mark.thorough
def test_workers_that_are_killed_change_no_bit(
    client: Client, tmp_path: Path, known_key: bytes
) -> None:
    value = np.random.default_rng(2).normal(size=(600, 64))
    array = da.from_array(value, chunks=(5, 64)).map_blocks(slowly, dtype=float, meta=value[:0])
    stop, killed = threading.Event(), list[int]()

    def kill() -> None:
        while not stop.wait(2.0) and len(killed) < 4:
            with suppress(OSError):  # a worker that is just starting
                for pid in list(client.run(os.getpid).values())[:1]:
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        release = BALL.release_to(tmp_path / "out.zarr", array)
    finally:
        stop.set()
        killer.join()
    assert len(killed) >= 3
    expected = BALL.release(value, key=ReleaseKey.from_bytes(known_key)).value
    assert np.array_equal(release.value.compute(), expected)
    assert Release.verify(tmp_path / "out.zarr") == BALL.guarantee
    assert left_in(tmp_path) == ["out.zarr", "out.zarr.json"]
