"""Queries on Dask: the bits of one machine, whatever the chunks, and no value in an error."""

import importlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matrixdp as mdp
from matrixdp.errors import FileFormatError, ShapeError
from matrixdp.queries import (
    AdditiveQuery,
    Bins,
    Categories,
    ClippedRecords,
    ContingencyTable,
    CrossMoment,
    Features,
    Gram,
    GroupMoments,
    JointMoments,
    Mean,
    PublicBounds,
    SampleCovariance,
    Sum,
)

dask = pytest.importorskip("dask", reason="the extra `dask`")
arrays = importlib.import_module("dask.array")
on_workers = importlib.import_module("matrixdp.distributed").on_workers

ROWS = 900
NAMES = ["a", "b", "c"]
BOUNDS = PublicBounds(NAMES, norm=2.0, lower=-1, upper=[1, 2, 3])
X, Y = PublicBounds(["a", "b"], norm=1.0), PublicBounds(["c"], lower=-1, upper=2)
SIGN = Categories("sign", [-1, 1])
NUMBERS = np.random.default_rng(5).normal(size=(ROWS, 3)).astype(np.float32)
SIGNS = np.where(NUMBERS[:, 1] < 0, -1, 1)
TABLE = ContingencyTable([SIGN, Bins("b", [-99, -1, 0, 99])], "replace")
OF_NUMBERS: list[AdditiveQuery] = [
    Sum(BOUNDS, "replace"),
    Mean(BOUNDS, "replace", count=ROWS),
    Gram(BOUNDS, "add-remove"),
    SampleCovariance(BOUNDS, "replace", count=ROWS),
    CrossMoment(X, Y, "replace"),
    JointMoments(X, Y, "replace"),
    ClippedRecords(BOUNDS, "replace"),
]
OF_FRAMES: list[AdditiveQuery] = [
    *OF_NUMBERS,
    TABLE,
    GroupMoments(Y, "replace", by=[SIGN], order=2),
]
BUDGET = mdp.Budget(1.0, 1e-5)


def named(query: Any) -> str:
    return type(query).__name__


@pytest.fixture(scope="module")
def frame() -> Any:
    pandas = pytest.importorskip("pandas")
    columns = {"c": NUMBERS[:, 2], "sign": SIGNS, "a": NUMBERS[:, 0], "b": NUMBERS[:, 1]}
    return pandas.DataFrame(columns | {"other": "text"})


@pytest.mark.parametrize("query", OF_NUMBERS, ids=named)
@pytest.mark.parametrize("chunks", [(7, 3), (100, 2), (ROWS, 1), ((0, 899, 1), (1, 2))])
def test_arrays_give_the_bits_of_one_machine(query: AdditiveQuery, chunks: Any) -> None:
    found = query.evaluate(arrays.from_array(NUMBERS, chunks=chunks))
    np.testing.assert_array_equal(found, query.evaluate(NUMBERS))


@pytest.mark.parametrize("query", OF_FRAMES, ids=named)
def test_frames_go_by_name(query: AdditiveQuery, frame: Any) -> None:
    frames = importlib.import_module("dask.dataframe")
    divided = frames.from_pandas(frame, npartitions=5)
    np.testing.assert_array_equal(query.evaluate(divided), query.evaluate(frame))
    with pytest.raises(mdp.InvalidParameterError, match="no column"):
        query.evaluate(divided[["other"]])


@pytest.mark.parametrize("query", OF_FRAMES, ids=named)
def test_files_that_workers_read(query: AdditiveQuery, frame: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frames = importlib.import_module("dask.dataframe")
    for part, rows in enumerate(np.array_split(np.arange(ROWS), 4)):
        frame.iloc[rows].to_parquet(tmp_path / f"part-{part}.parquet")
    sources = [
        on_workers(tmp_path),
        on_workers(f"{tmp_path}/part-*.parquet"),
        frames.read_parquet(f"{tmp_path}/part-*.parquet"),
    ]
    for source in sources:
        np.testing.assert_array_equal(query.evaluate(source), query.evaluate(frame))


@pytest.mark.parametrize("query", OF_FRAMES, ids=named)
def test_columns_in_the_names_of_folders(query: AdditiveQuery, frame: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("pyarrow.dataset")
    frames = importlib.import_module("dask.dataframe")
    frame.to_parquet(tmp_path, partition_cols=["sign"])
    assert {path.name for path in tmp_path.iterdir()} == {"sign=-1", "sign=1"}
    expected = query.evaluate(frame)
    for source in (
        datasets.dataset(tmp_path, partitioning="hive"),
        frames.read_parquet(tmp_path),
    ):
        np.testing.assert_array_equal(query.evaluate(source), expected)
    # Paths alone: what the files themselves hold.
    for source in (tmp_path, f"{tmp_path}/*/*.parquet", on_workers(tmp_path)):
        if "sign" in (query.columns_read or ()):
            with pytest.raises(FileFormatError, match=r"(?s)name of a folder.*partitioning='hive'"):
                query.evaluate(source)
        else:
            np.testing.assert_array_equal(query.evaluate(source), expected)


def test_arrays_of_zarr_that_workers_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr = pytest.importorskip("zarr")
    monkeypatch.setattr("matrixdp.queries.stored_arrays._NUMBERS_OF_A_TASK", 600)
    stored = zarr.create_array(tmp_path / "x.zarr", data=NUMBERS, chunks=(100, 2))
    query = Sum(BOUNDS, "replace")
    for source in (stored, tmp_path / "x.zarr", str(tmp_path / "x.zarr")):
        records = on_workers(source)
        assert len(records.pieces) == 5
        np.testing.assert_array_equal(query.evaluate(records), query.evaluate(NUMBERS))


def test_marginals_of_records_on_workers(frame: Any) -> None:
    frames = importlib.import_module("dask.dataframe")
    mechanism = mdp.MatrixMechanism(
        TABLE.marginals([("sign",), ("sign", "b")]), BUDGET, neighbouring="replace"
    )
    divided = frames.from_pandas(frame, npartitions=4)
    expected = mechanism._measured("records", TABLE.cells(frame))
    np.testing.assert_array_equal(mechanism._measured("records", TABLE.cells(divided)), expected)
    cells = np.concatenate(list(TABLE.cells(frame)))
    records = arrays.from_array(cells, chunks=(111, 1))
    np.testing.assert_array_equal(mechanism._measured("records", records), expected)
    assert mechanism.release_records(TABLE.cells(divided)).table((0,)).shape == (2,)


def test_releases_of_dask_objects() -> None:
    records = arrays.from_array(NUMBERS, chunks=(300, 3))
    query = Gram(BOUNDS, "add-remove")
    key = bytes(32)
    found, expected = (
        query.release(data, BUDGET, key=mdp.ReleaseKey.from_bytes(key)).value
        for data in (records, NUMBERS)
    )
    np.testing.assert_array_equal(found, expected)
    means = Mean(BOUNDS, "add-remove").release(records, BUDGET)
    assert means.shape == (1, 3)
    rows = Features(BOUNDS, "replace", count=ROWS)  # which are no sum, and read in order
    np.testing.assert_array_equal(rows.evaluate(records), rows.evaluate(NUMBERS))


def test_what_dask_has_and_no_query_takes() -> None:
    for data in (arrays.ones(3).sum(), dask.delayed(NUMBERS)):
        with pytest.raises(mdp.InvalidParameterError, match="of dask"):
            Gram(PublicBounds(3, norm=1.0), "replace").evaluate(data)
    with pytest.raises(mdp.InvalidParameterError, match="of builtins"):
        on_workers([1.0])


SHOWN_BY_OTHERS = "8675309"


def failing(block: Any) -> Any:
    raise ZeroDivisionError(f"{SHOWN_BY_OTHERS}: {block}")


def test_errors_of_tasks_are_named_and_not_quoted() -> None:
    records = arrays.from_array(NUMBERS, chunks=(100, 3))
    wrong = records.map_blocks(failing, meta=np.empty((0, 3)))
    not_finite = arrays.concatenate([records, np.full((1, 3), np.nan)])
    for data, kind, message in (
        (wrong, mdp.InvalidParameterError, "ZeroDivisionError"),
        (on_workers(records).mapped(failing), mdp.InvalidParameterError, "ZeroDivisionError"),
        (not_finite, mdp.InvalidParameterError, "NaN or infinity"),
        (records[:, :2], ShapeError, "rows of 2"),
        (records[:0], ShapeError, "no records"),
    ):
        paying = mdp.PrivacyFilter(BUDGET, neighbouring="add-remove")
        with pytest.raises(kind, match=message) as refusal:
            Gram(BOUNDS, "add-remove").release(data, BUDGET, privacy_filter=paying)
        assert SHOWN_BY_OTHERS not in str(refusal.value)
        assert refusal.value.__cause__ is None
        assert paying.spent == 0.0


def test_parts_are_small_and_show_nothing() -> None:
    query = Gram(PublicBounds(3, norm=9.0), "replace")
    part = query.partial(np.tile(NUMBERS, (100, 1)))
    assert len(pickle.dumps(part)) < 1000
    for shown in (repr(part), str(part), repr(part.sums), repr(on_workers(Path("x.npy")))):
        assert not any(digit in shown for digit in "0123456789")
    again = pickle.loads(pickle.dumps(part))  # noqa: S301 - made on the line before
    np.testing.assert_array_equal(query.finish(again), query.finish(part))
