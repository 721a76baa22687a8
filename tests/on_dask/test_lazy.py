"""Releases that are computed when they are needed: always the same bits, or refused."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import cloudpickle
import dask.array as da
from distributed import Client

from matrixdp import (
    IMGM,
    Budget,
    BudgetExceededError,
    FrobeniusBall,
    InvalidParameterError,
    PrivacyFilter,
    RowBounds,
    SymmetricBall,
)
from matrixdp.distributed import lazy, release_lazily
from matrixdp.errors import KeyStateError, MatrixDPError, StorageError
from matrixdp.noise import ReleaseKey
from on_dask.test_secrets import found_in

BALL = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
VALUE = np.random.default_rng(11).normal(size=(60, 35))
SECRET = bytes(range(32))


def key() -> ReleaseKey:
    return ReleaseKey.from_bytes(SECRET)


def test_bits_are_those_of_one_machine(client: Client) -> None:
    mechanism = IMGM(RowBounds(np.linspace(1.0, 2.0, 60), "replace"), Budget(1.0, 1e-5))
    expected = mechanism.release(VALUE, key=key()).value
    for chunks in ((60, 35), (17, 9)):
        noisy = mechanism.release(da.from_array(VALUE, chunks=chunks), key=key()).value
        for _ in range(2):
            assert np.array_equal(noisy.compute(), expected)
        assert np.array_equal(noisy[20:41, ::2].compute(), expected[20:41, ::2])
        assert np.array_equal(noisy[17:34].rechunk((4, 4)).compute(), expected[17:34])
        assert np.array_equal(noisy.T.compute(scheduler="threads"), expected.T)
    persisted = client.persist(noisy)
    assert np.array_equal(persisted.compute(), expected)


class Changing:
    """A source whose chunks have other values whenever they are computed."""

    def __init__(self) -> None:
        self.seen: list[NDArray[np.float64]] = []

    def array(self, shape: tuple[int, int], chunks: tuple[int, int]) -> da.Array:
        def other(block: NDArray[Any]) -> NDArray[Any]:
            self.seen.append(np.random.default_rng().normal(size=block.shape))
            return self.seen[-1]

        return da.map_blocks(other, da.zeros(shape, chunks=chunks), meta=np.empty((0, 0)))


def test_another_value_never_gets_the_same_noise() -> None:
    source = Changing()
    noisy = release_lazily(BALL, source.array((6, 4), (6, 4)), key=key(), check=False).value
    first = noisy.compute()
    assert np.array_equal(first, BALL.release(source.seen[0], key=key()).value)
    for _ in range(2):
        with pytest.raises(KeyStateError, match="computed before with another value"):
            noisy.compute()
    # The pass before the payment leaves no codes: it does not choose the value.
    assert BALL.release(source.array((6, 4), (6, 4))).value.compute().shape == (6, 4)


def test_of_many_at_once_one_value_gets_the_noise() -> None:
    source, got = Changing(), []
    noisy = release_lazily(BALL, source.array((6, 4), (6, 4)), key=key(), check=False).value

    def compute() -> None:
        try:
            got.append(noisy.compute(scheduler="synchronous"))
        except KeyStateError:
            got.append(None)

    threads = [threading.Thread(target=compute) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(got) == 8
    (only,) = [one for one in got if one is not None]
    assert any(np.array_equal(only, BALL.release(v, key=key()).value) for v in source.seen)


def test_a_slice_that_takes_the_place_of_another_chunk_is_refused() -> None:
    # As if a planner had moved a slice below the noise: chunk 0 is another part of the matrix.
    noisy = release_lazily(BALL, da.from_array(VALUE, chunks=(20, 35)), key=key())
    task = next(iter(noisy.value.dask.layers.values()))
    assert task is not None
    work = lazy._NoisyChunks(*_parts_of(noisy.value))
    assert work(VALUE[:20], (0, 0)).shape == (20, 35)
    with pytest.raises(KeyStateError, match="another value"):
        work(VALUE[20:40], (0, 0))
    with pytest.raises(MatrixDPError, match="whose shape is not"):
        work(VALUE[:10], (0, 0))


def _parts_of(value: da.Array) -> tuple[Any, ...]:
    (work,) = [
        task.value if hasattr(task, "value") else task
        for name, task in value.dask.to_dict().items()
        if isinstance(name, str) and name.endswith("-work")
    ]
    return work.noise, work.layout, work.secret, work.codes


def test_it_is_paid_at_once_and_only_once() -> None:
    privacy_filter = PrivacyFilter(Budget(1.0, 1e-5), neighbouring="replace")
    array = da.from_array(VALUE, chunks=(20, 35))
    noisy = BALL.release(array, privacy_filter=privacy_filter).value
    assert privacy_filter.spent == BALL.mu
    noisy.compute()
    assert privacy_filter.spent == BALL.mu
    unspent = key()
    with pytest.raises(BudgetExceededError):
        BALL.release(array, privacy_filter=privacy_filter, key=unspent)
    assert BALL.release(array, key=unspent).shape == (60, 35)
    with pytest.raises(KeyStateError, match="already bound"):
        BALL.release(array, key=unspent)


def test_what_cannot_be_lazy_is_refused() -> None:
    square = IMGM(SymmetricBall(1.0, "replace"), Budget(1.0, 1e-5))
    with pytest.raises(InvalidParameterError, match=r"use release_to\('out.zarr'"):
        square.release(da.zeros((4, 4)))
    with pytest.raises(InvalidParameterError, match="must be finite"):
        BALL.release(da.from_array(VALUE + np.nan, chunks=(20, 35)))
    with pytest.raises(InvalidParameterError, match="workers have their threads"):
        BALL.release(da.zeros((4, 4)), threads=2)
    with pytest.raises(InvalidParameterError, match="would be loaded whole"):
        BALL.simulate(da.zeros((4, 4)), np.random.Generator(np.random.PCG64(1)))


def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "codes"
    noisy = release_lazily(
        BALL, da.from_array(VALUE, chunks=(20, 35)), key=key(), folder=folder
    ).value
    expected = BALL.release(VALUE, key=key()).value
    assert np.array_equal(noisy.compute(), expected)
    # Another process can compute it as long as the folder is there.
    graph = cloudpickle.dumps(noisy)
    assert np.array_equal(cloudpickle.loads(graph).compute(), expected)
    assert found_in(graph, [SECRET]) == []
    (codes,) = [path for path in folder.iterdir() if path.is_dir()]
    assert sorted(path.name for path in codes.iterdir()) == ["0-0", "1-0", "2-0"]
    for path in codes.iterdir():
        path.unlink()
    codes.rmdir()
    with pytest.raises(StorageError, match="does not hold the codes"):
        noisy.compute()


def test_a_folder_that_others_can_read_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "codes"
    folder.mkdir(mode=0o755)
    with pytest.raises(InvalidParameterError, match="chmod 700"):
        release_lazily(BALL, da.from_array(VALUE, chunks=(20, 35)), folder=folder)
