"""The same bits whatever the blocks, their order, the source or the number of threads."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.errors import FileFormatError, MissingExtraError
from matrixdp.queries import (
    ClippedRecords,
    CrossMoment,
    Features,
    Gram,
    JointMoments,
    Mean,
    PublicBounds,
    Query,
    SampleCovariance,
    Sum,
    parquet_blocks,
)
from matrixdp.queries.names import Columns
from matrixdp.queries.sources import record_blocks

ROWS, COLUMNS = 3000, 6
BOUNDS = PublicBounds(COLUMNS, norm=2.2)
PARTS = PublicBounds(COLUMNS - 1, norm=2.0), PublicBounds(1, lower=-1, upper=2)
QUERIES: list[Query] = [
    Sum(BOUNDS, "replace"),
    Mean(BOUNDS, "add-remove", count=1234),
    Gram(BOUNDS, "replace"),
    SampleCovariance(BOUNDS, "replace", count=ROWS),
    CrossMoment(*PARTS, "replace"),
    JointMoments(*PARTS, "replace"),
    ClippedRecords(BOUNDS, "replace"),
    Features(BOUNDS, "replace", count=ROWS),
]
all_queries = pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)


def parts_of(query: Any) -> tuple[PublicBounds, ...]:
    return (query.x, query.y) if hasattr(query, "x") else (query.bounds,)


def records() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def blocks_of(size: int) -> Iterator[np.ndarray]:
    data = records()
    return (data[start : start + size] for start in range(0, ROWS, size))


def uneven() -> Iterator[np.ndarray]:
    data = records()
    cuts = [0, 0, 1, 2, 700, 2999, ROWS]
    return (data[start:end] for start, end in pairwise(cuts))


SOURCES: dict[str, Callable[[], Any]] = {
    "one record at a time": lambda: blocks_of(1),
    "blocks of 7": lambda: blocks_of(7),
    "blocks of 2500": lambda: blocks_of(2500),
    "uneven blocks, one empty": uneven,
    "float64": lambda: records().astype(np.float64),
    "nested lists": lambda: records().astype(np.float64).tolist(),
    "Fortran order": lambda: np.asfortranarray(records()),
    "every second row of a larger array": lambda: np.repeat(records(), 2, axis=0)[::2],
    "pandas": lambda: pytest.importorskip("pandas").DataFrame(records()),
    "polars": lambda: pytest.importorskip("polars").DataFrame(records()),
}


@all_queries
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_blocks_do_not_change_a_bit(query: Query, source: Callable[[], Any]) -> None:
    np.testing.assert_array_equal(query.evaluate(source()), query.evaluate(records()))


@all_queries
def test_the_order_of_records_does_not_change_a_bit(query: Query) -> None:
    if isinstance(query, Features):
        return  # its rows are in the order of the records
    order = np.random.default_rng(8).permutation(ROWS)
    np.testing.assert_array_equal(query.evaluate(records()[order]), query.evaluate(records()))


@all_queries
def test_threads_do_not_change_a_bit(query: Query) -> None:
    answers = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            answers.append(query.evaluate(records()))
    np.testing.assert_array_equal(answers[0], answers[1])


@all_queries
def test_memory_mapped_files(query: Query, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", records())
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = query.evaluate(records())
    np.testing.assert_array_equal(query.evaluate(mapped), expected)
    np.testing.assert_array_equal(query.evaluate(tmp_path / "rows.npy"), expected)
    np.testing.assert_array_equal(query.evaluate(str(tmp_path / "rows.npy")), expected)


def test_blocks_bound_the_memory() -> None:
    sizes = [len(block) for block in record_blocks(np.zeros((10_000, 2)), Columns(2), rows=512)]
    assert max(sizes) == 512
    assert sum(sizes) == 10_000

    def endless() -> Iterator[np.ndarray]:
        while True:
            yield np.zeros((5, 2))

    first = record_blocks(endless(), Columns(2), rows=512)
    assert next(first).shape == (510, 2)


def test_an_iterator_may_fill_one_array_again_and_again() -> None:
    def reused() -> Iterator[np.ndarray]:
        space = np.empty((7, COLUMNS), dtype=np.float32)
        for block in blocks_of(7):
            space[: len(block)] = block
            yield space[: len(block)]

    for query in QUERIES:
        np.testing.assert_array_equal(query.evaluate(reused()), query.evaluate(records()))


@pytest.mark.parametrize("kind", ["<i8", ">f8", "<u2", "?"])
def test_arrays_are_cut_before_they_are_converted(kind: str) -> None:
    # An array that could not be converted as a whole: it has 2**45 rows and no memory of its own.
    data = np.broadcast_to(np.ones(1, dtype=kind), (2**45, 1))
    first = next(record_blocks(data, Columns(1), rows=512))
    assert first.shape == (512, 1)
    assert first.dtype == np.float64


def test_one_column_may_have_one_axis() -> None:
    query = Sum(PublicBounds(1, lower=0, upper=10), "replace")
    assert query.evaluate([1, 2, 3]).tolist() == [[6.0]]
    assert query.evaluate(iter([np.array([1, 2]), np.array([3])])).tolist() == [[6.0]]


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is an extra")
def test_arrow_and_parquet(tmp_path: Path) -> None:
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    names = list("fedcba")
    table = arrow.table({name: records()[:, index] for index, name in enumerate(names)})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=700)
    for query in QUERIES:
        if not Columns.together(*(part.read for part in parts_of(query))).alike:
            continue  # goes by name: see test_names
        expected = query.evaluate(records())
        blocks = parquet_blocks(tmp_path / "rows.parquet", names)
        np.testing.assert_array_equal(query.evaluate(blocks), expected)
        np.testing.assert_array_equal(query.evaluate(table), expected)
        np.testing.assert_array_equal(query.evaluate(table.to_reader(max_chunksize=100)), expected)
    with pytest.raises(FileFormatError, match="no column 'z'"):
        next(parquet_blocks(tmp_path / "rows.parquet", ["a", "z"]))
    missing = arrow.table({"a": [1.0, None]})
    with pytest.raises(ValueError, match="missing values"):
        Sum(PublicBounds(1, norm=1.0), "replace").evaluate(missing)


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[data\]'"):
        next(parquet_blocks("rows.parquet", ["a"]))
