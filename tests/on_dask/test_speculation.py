"""A task that runs twice at the same time, on two workers: one version of a chunk, one digest."""

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

from distributed import Client

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.distributed.chunks import ChunkWrites
from matrixdp.distributed.keys import SealedSecret, key_file_for
from matrixdp.files.formats.chunk_folders import layout_kind
from matrixdp.files.publishing.chunk_folder import UnfinishedFolder
from matrixdp.mechanisms.noisy_block import BlockNoise
from on_dask.conftest import left_in

BALL = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
CHUNKS = 24


def at(moment: float, work: ChunkWrites, value: float, row: int) -> str:
    """Write a chunk at a moment: together with the other worker, as far as clocks tell."""
    time.sleep(max(0.0, moment - time.time()))
    digest = work(np.full((8, 4), value), (row, 0))
    assert isinstance(digest, str)
    return digest


@pytest.mark.parametrize("name", ["out.zarr", "out.npy"])
def test_two_workers_make_one_version_of_a_chunk(client: Client, tmp_path: Path, name: str) -> None:
    layout = layout_kind(tmp_path / name)((8 * CHUNKS, 4), "float64", (8, 4))
    folder = UnfinishedFolder(tmp_path / name, "0" * 16, layout)
    folder.make()
    noise = BlockNoise(BALL.proof, layout.shape, layout.dtype)
    workers = list(client.scheduler_info()["workers"])
    with key_file_for(None) as keys:
        work = ChunkWrites(noise, folder, SealedSecret.of(bytes(32), b"", keys))
        begin = time.time() + 0.3
        # The source has another value on each worker.
        made = [
            [
                client.submit(
                    at, begin + row / 50, work, float(value), row, workers=worker, pure=False
                )
                for value, worker in enumerate(workers[:2])
            ]
            for row in range(CHUNKS)
        ]
        client.gather(made)
        for row, pair in enumerate(made):
            content = (folder.path / "array" / layout.chunk_file((row, 0))).read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            assert [future.result() for future in pair] == [digest, digest]
            numbers = layout.numbers(content, (row, 0))
            versions = [
                noise.noisy(np.full((8, 4), v), (8 * row, 0), bytes(32)) for v in (0.0, 1.0)
            ]
            assert sum(np.array_equal(numbers, one) for one in versions if numbers is not None) == 1
    assert left_in(folder.path / "drafts") == []
