"""Releases of Dask arrays: the bits of one machine, whatever the chunks and whoever computes."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import cloudpickle
import dask
import dask.array as da
import zarr
from dask.base import optimize

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    PrivacyFilter,
    Release,
    RowBounds,
    RowBox,
    SymmetricBall,
)
from matrixdp.covariance import Kronecker
from matrixdp.distributed import release_to
from matrixdp.distributed.chunks import ChunkTags, chunk_answers
from matrixdp.distributed.keys import SealedSecret
from matrixdp.errors import MatrixDPError, ShapeError, StorageError
from matrixdp.files.formats.zarr_folder import ZarrLayout
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.noisy_block import BlockNoise
from matrixdp.noise import ReleaseKey
from on_dask.conftest import left_in

BUDGET = Budget(1.0, 1e-5)
BALL = IMGM(FrobeniusBall(1.0, "replace"), BUDGET)
SHAPE = (60, 35)
VALUE = np.random.default_rng(4).normal(size=SHAPE) * 30
MECHANISMS: dict[str, Any] = {
    "ball": BALL,
    "row bounds": IMGM(RowBounds(np.linspace(1.0, 3.0, SHAPE[0]), "replace"), BUDGET),
    "row box": IMGM(RowBox(np.linspace(1.0, 3.0, SHAPE[1]), "replace"), BUDGET),
}
CHUNKS = [(60, 35), (17, 35), (60, 8), (13, 9), (1, 35)]


def on_one_machine(mechanism: Mechanism[Release], value: NDArray[Any], secret: bytes) -> Any:
    return mechanism.release(value, key=ReleaseKey.from_bytes(secret)).value


def paying() -> PrivacyFilter:
    return PrivacyFilter(Budget(2.0, 1e-5), neighbouring="replace")


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.thorough)])
def test_bits_are_those_of_one_machine(
    name: str, dtype: str, tmp_path: Path, known_key: bytes
) -> None:
    mechanism, value = MECHANISMS[name], VALUE.astype(dtype)
    expected = on_one_machine(mechanism, value, known_key)
    for number, chunks in enumerate(CHUNKS):
        path = tmp_path / f"{number}.zarr"
        release = mechanism.release_to(path, da.from_array(value, chunks=chunks))
        assert release.value.dtype == value.dtype
        assert np.array_equal(release.value.compute(), expected)
        assert np.array_equal(zarr.open_array(path)[...], expected)  # by its own reader
        assert Release.verify(path) == mechanism.guarantee


@pytest.mark.usefixtures("client")
def test_a_cluster_gives_the_same_bits(tmp_path: Path, known_key: bytes) -> None:
    array = da.from_array(VALUE, chunks=(13, 9))
    expected = on_one_machine(BALL, VALUE, known_key)
    release = BALL.release_to(tmp_path / "out.zarr", array)
    # Read again, sliced, with other chunks: it is out, so it stays as it is.
    for _ in range(2):
        assert np.array_equal(release.value.compute(), expected)
    assert np.array_equal(release.value[5:40, ::3].compute(), expected[5:40, ::3])
    assert np.array_equal(release.value.rechunk((60, 4)).compute(), expected)
    # What is released may be made of other arrays in any way.
    doubled = (array.rechunk((20, 35)) * 2.0)[::-1][::-1] / 2.0
    again = BALL.release_to(tmp_path / "again.zarr", doubled)
    assert np.array_equal(again.value.compute(), expected)
    assert left_in(tmp_path) == ["again.zarr", "again.zarr.json", "out.zarr", "out.zarr.json"]


def test_symmetric_noise_is_drawn_for_one_chunk(tmp_path: Path, known_key: bytes) -> None:
    mechanism, value = IMGM(SymmetricBall(1.0, "replace"), BUDGET), VALUE[:35] + VALUE[:35].T
    array = da.from_array(value, chunks=(10, 10))
    with pytest.raises(InvalidParameterError, match=r"4 x 4 chunks.*rechunk\(matrix.shape\)"):
        mechanism.release_to(tmp_path / "out.zarr", array)
    release = mechanism.release_to(tmp_path / "out.zarr", array.rechunk(array.shape))
    assert np.array_equal(release.value.compute(), on_one_machine(mechanism, value, known_key))
    assert Release.verify(tmp_path / "out.zarr") == mechanism.guarantee
    skewed = da.from_array(VALUE[:35], chunks=(35, 35))
    with pytest.raises(InvalidParameterError, match="not symmetric"):
        mechanism.release_to(tmp_path / "other.zarr", skewed)


def test_directional_noise_is_drawn_for_one_chunk(tmp_path: Path, known_key: bytes) -> None:
    rows = np.diag([1.0, 2.0, 4.0]) + 0.1
    mechanism = IMGM(
        FrobeniusBall(1.0, "replace"),
        BUDGET,
        covariance=Kronecker(rows, np.eye(2)).rescaled_for(FrobeniusBall(1.0, "replace"), BUDGET),
    )
    value = VALUE[:3, :2]
    release = mechanism.release_to(tmp_path / "out.zarr", da.from_array(value, chunks=(3, 2)))
    assert np.array_equal(release.value.compute(), on_one_machine(mechanism, value, known_key))
    assert Release.verify(tmp_path / "out.zarr") == mechanism.guarantee


def test_a_graph_holds_the_noise_once_for_all_chunks() -> None:
    mechanism = IMGM(RowBounds(np.ones(100_000), "replace"), BUDGET)
    noise = BlockNoise(mechanism.proof, (100_000, 10), "float64")
    layout = ZarrLayout((100_000, 10), "float64", (1000, 10))
    work = ChunkTags(noise, layout, SealedSecret("", b"", ""), b"")
    answers = chunk_answers(da.zeros((100_000, 10), chunks=(1000, 10)), work)
    (optimised,) = optimize(answers)
    assert len(cloudpickle.dumps(optimised.dask)) < 2 * len(cloudpickle.dumps(work))


def test_a_place_that_cannot_be_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    privacy_filter = paying()
    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StorageError, match="Operation not permitted"):
        BALL.release_to(tmp_path / "out.zarr", FLOATS, privacy_filter=privacy_filter)
    assert privacy_filter.spent == 0.0
    assert left_in(tmp_path) == []


def test_it_is_paid_once(tmp_path: Path) -> None:
    privacy_filter = paying()
    array = da.from_array(VALUE, chunks=(20, 20))
    BALL.release_to(tmp_path / "out.zarr", array, privacy_filter=privacy_filter)
    assert privacy_filter.spent == BALL.mu
    with pytest.raises(InvalidParameterError, match="exists and is never overwritten"):
        BALL.release_to(tmp_path / "out.zarr", array, privacy_filter=privacy_filter)
    assert privacy_filter.spent == BALL.mu


class _Odd(np.ndarray):
    """An array that is not numpy's own."""


def lying(array: da.Array, block: NDArray[Any]) -> da.Array:
    return da.map_blocks(
        lambda _: block, array, dtype=array.dtype, chunks=array.chunks, meta=VALUE[:0]
    )


FLOATS = da.from_array(VALUE, chunks=(20, 20))
REFUSED: dict[str, tuple[Any, type[MatrixDPError], str]] = {
    "integers": (FLOATS.astype(int), InvalidParameterError, r"astype\('float64'\)"),
    "big-endian": (FLOATS.astype(">f8"), InvalidParameterError, "cast it"),
    "three axes": (FLOATS[None], ShapeError, "3 axes"),
    "empty": (FLOATS[:0], ShapeError, "must not be empty"),
    "unknown chunks": (FLOATS[FLOATS[:, 0] > 0], ShapeError, "compute_chunk_sizes"),
    "uneven chunks": (FLOATS.rechunk(((7, 20, 33), 35)), ShapeError, r"rechunk\(\(33, 35\)\)"),
    "larger last chunk": (FLOATS.rechunk(((20, 40), 35)), ShapeError, r"rechunk\(\(40, 35\)\)"),
    "not a number": (FLOATS + np.nan, InvalidParameterError, "must be finite"),
    "too large": (FLOATS * 1e30, InvalidParameterError, "must be finite and"),
    "another shape": (lying(FLOATS, VALUE[:3]), InvalidParameterError, "whose shape is not"),
    "another type": (
        lying(FLOATS, VALUE[:20, :20].astype("f4")),
        InvalidParameterError,
        "block of float32",
    ),
    "another kind": (
        lying(FLOATS[:20, :20], VALUE[:20, :20].view(_Odd)),
        InvalidParameterError,
        "not a numpy array",
    ),
}


@pytest.mark.parametrize(("array", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_refusals_cost_nothing(
    array: da.Array, error: type[MatrixDPError], words: str, tmp_path: Path
) -> None:
    privacy_filter = paying()
    with pytest.raises(error, match=words) as refused:
        BALL.release_to(tmp_path / "out.zarr", array, privacy_filter=privacy_filter)
    assert privacy_filter.spent == 0.0
    assert left_in(tmp_path) == []
    assert not any(str(number)[:6] in str(refused.value) for number in VALUE.ravel())


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="not the name of a folder of chunks"):
        BALL.release_to(tmp_path / "out.csv", FLOATS)
    with pytest.raises(InvalidParameterError, match="a folder is never replaced"):
        BALL.release_to(tmp_path / "out.zarr", FLOATS, force=True)
    with pytest.raises(InvalidParameterError, match="made of an array of Dask"):
        release_to(BALL, tmp_path / "out.zarr", VALUE)


def test_what_is_not_checked_is_paid_and_lost(tmp_path: Path) -> None:
    privacy_filter, computed = paying(), []

    def noted(block: NDArray[Any]) -> NDArray[Any]:
        computed.append(1)
        return block

    with dask.config.set(scheduler="synchronous"):
        array = FLOATS.map_blocks(noted, dtype=float, meta=VALUE[:0])
        release_to(BALL, tmp_path / "out.zarr", array, privacy_filter=privacy_filter, check=False)
        assert len(computed) == array.npartitions  # one pass
        spent = privacy_filter.spent
        with pytest.raises(StorageError, match="must be finite"):
            release_to(
                *(BALL, tmp_path / "bad.zarr", FLOATS + np.nan),
                privacy_filter=privacy_filter,
                check=False,
            )
    assert privacy_filter.spent > spent
    assert left_in(tmp_path) == ["out.zarr", "out.zarr.json"]


@pytest.mark.usefixtures("client")
def test_a_source_that_fails_says_so_and_costs_nothing(tmp_path: Path) -> None:
    def fail(_: NDArray[Any]) -> NDArray[Any]:
        raise ValueError("37 000 patients")

    privacy_filter = paying()
    array = FLOATS.map_blocks(fail, dtype=float, meta=VALUE[:0])
    with pytest.raises(StorageError, match=r"could not be computed \(ValueError\)") as refused:
        BALL.release_to(tmp_path / "out.zarr", array, privacy_filter=privacy_filter)
    assert "37 000" not in str(refused.value)
    assert privacy_filter.spent == 0.0
    assert left_in(tmp_path) == []


def test_progress_counts_every_chunk_twice(tmp_path: Path) -> None:
    done: list[int] = []
    release_to(BALL, tmp_path / "out.zarr", FLOATS, advance=done.append)
    assert sum(done) == 2 * FLOATS.npartitions
