"""Arrays and tables that are stored or computed in parts: never loaded whole without a word."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

import matrixdp as mdp
from matrixdp.errors import FileFormatError
from matrixdp.queries import Categories, ContingencyTable, Features, Gram, PublicBounds
from matrixdp.queries.names import Columns
from matrixdp.queries.sources import record_blocks
from matrixdp.workloads import Prefix

DATA = np.random.default_rng(0).normal(size=(1000, 4))
SIGNS = (DATA > 0).astype(np.int64)
QUERY = Gram(PublicBounds(4, norm=2.0), "replace")
ROWS = Features(PublicBounds(4, norm=2.0), "replace", count=1000)
TABLE = ContingencyTable([Categories(name, [0, 1]) for name in "abcd"], "replace")


class Stored:
    """An array of zarr or h5py as far as it is used here, which counts the rows that are read."""

    __module__ = "zarr.core.array"

    def __init__(self, data: Any, chunks: tuple[int, ...] | None) -> None:
        self._data, self.chunks, self.shape = data, chunks, data.shape
        self.read: list[int] = []

    def __getitem__(self, rows: slice) -> Any:
        self.read.append(len(self._data[rows]))
        return self._data[rows]

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise AssertionError("loaded whole")


class Part:
    def __init__(self, data: Any) -> None:
        self.compute = lambda: data


class Computed:
    """An array of Dask as far as it is used here."""

    __module__ = "dask.array.core"

    def __init__(self, data: Any) -> None:
        self.blocks = [Part(part) for part in np.array_split(data, 13)]
        self.numblocks = (13, 2)

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise AssertionError("loaded whole")


KINDS: dict[str, Callable[[Any], Any]] = {
    "chunks": lambda data: Stored(data, (33, 2)),
    "no chunks": lambda data: Stored(data, None),
    "computed": Computed,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_queries_read_it_in_parts(kind: Callable[[Any], Any]) -> None:
    np.testing.assert_array_equal(ROWS.evaluate(kind(DATA)), ROWS.evaluate(DATA))
    if kind is not Computed:  # of which sums are made on workers: see tests/on_dask
        np.testing.assert_array_equal(QUERY.evaluate(kind(DATA)), QUERY.evaluate(DATA))
        np.testing.assert_array_equal(TABLE.evaluate(kind(SIGNS)), TABLE.evaluate(SIGNS))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_whatever_needs_it_whole_refuses(kind: Callable[[Any], Any]) -> None:
    budget = mdp.Budget(1.0, 1e-5)
    with pytest.raises(mdp.InvalidParameterError, match="loaded whole: queries read it in parts"):
        mdp.MatrixMechanism(Prefix(4), budget, neighbouring="replace").release(kind(SIGNS[0]))
    for query in (QUERY, TABLE):
        with pytest.raises(mdp.InvalidParameterError, match="which would be loaded whole"):
            query.evaluate(iter([kind(SIGNS)]))
    with pytest.raises(mdp.InvalidParameterError, match=r"matrix is a .*: pass an? .*array"):
        mdp.IMGM(QUERY, budget).release(kind(DATA))
    pytest.importorskip("sklearn", reason="private estimators need the extra `sklearn`")
    estimators = importlib.import_module("matrixdp.estimators")
    with pytest.raises(
        mdp.InvalidParameterError, match=r"X is an array .* pass numpy.asarray\(X\)"
    ):
        estimators.PrivatePCA(data_norm=1.0).fit(kind(DATA))


@pytest.mark.parametrize(
    ("chunks", "most"), [((7, 2), 2**18), ((300_000, 4), 300_000), (None, 2**16)]
)
def test_each_chunk_is_read_once_and_memory_is_bounded(chunks: Any, most: int) -> None:
    data = np.broadcast_to(np.ones((1, 4)), (1_000_000, 4))
    stored = Stored(data, chunks)
    assert sum(map(len, record_blocks(stored, Columns(4), rows=2048))) == 1_000_000
    assert max(stored.read) <= most
    rows = 1 if chunks is None else chunks[0]
    assert all(read % rows == 0 for read in stored.read[:-1])


def test_a_group_of_arrays_is_refused() -> None:
    group = type("Group", (), {"__module__": "h5py._hl.group", "__iter__": lambda _: iter("ab")})
    for query in (QUERY, TABLE):
        with pytest.raises(mdp.InvalidParameterError, match="data is a Group of h5py"):
            query.evaluate(group())


def test_datasets_of_arrow() -> None:
    arrow = pytest.importorskip("pyarrow")
    datasets = importlib.import_module("pyarrow.dataset")
    for query, data in ((QUERY, DATA), (TABLE, SIGNS)):
        table = arrow.table({name: data[:, index] for index, name in enumerate("abcd")})
        for source in (
            datasets.dataset(table),
            datasets.dataset(table).scanner(batch_size=7),
            table,
        ):
            np.testing.assert_array_equal(query.evaluate(source), query.evaluate(data))


def test_zarr_itself(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    for query, data in ((QUERY, DATA), (TABLE, SIGNS)):
        path = tmp_path / f"{data.dtype.kind}.zarr"
        stored = zarr.create_array(path, data=data, chunks=(33, 2), shards=(99, 2))
        for source in (stored, path, str(path), [path]):
            np.testing.assert_array_equal(query.evaluate(source), query.evaluate(data))
    zarr.create_group(tmp_path / "group.zarr")
    with pytest.raises(FileFormatError, match="not an array of zarr"):
        QUERY.evaluate(tmp_path / "group.zarr")


def test_h5py_itself(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")  # in no extra
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for query, data in ((QUERY, DATA), (TABLE, SIGNS)):
            kind = data.dtype.kind
            for source in (
                file.create_dataset(f"one {kind}", data=data),
                file.create_dataset(f"chunks {kind}", data=data, chunks=(100, 2)),
            ):
                np.testing.assert_array_equal(query.evaluate(source), query.evaluate(data))
        with pytest.raises(mdp.InvalidParameterError, match="of h5py"):
            QUERY.evaluate(file)
