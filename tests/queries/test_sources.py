"""Files, lazy frames and databases are read in blocks, by name, and never as a whole."""

import importlib
import sqlite3
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.queries import (
    AdditiveQuery,
    Bins,
    Categories,
    ContingencyTable,
    Gram,
    GroupMoments,
    PublicBounds,
    Sum,
)

NAMES = ["a", "b", "c"]
BOUNDS = PublicBounds(NAMES, lower=[-1, -2, -3], upper=[1, 2, 3])
SIGN = Categories("sign", ["less", "more"])
QUERIES: list[AdditiveQuery] = [
    Sum(BOUNDS, "replace"),
    Gram(BOUNDS, "replace"),
    ContingencyTable([SIGN, Bins("b", [-99, 0, 99])], "replace"),
    GroupMoments(PublicBounds(["c"], lower=-3, upper=3), "replace", by=[SIGN], order=2),
]
ROWS = 4000
NUMBERS = np.random.default_rng(3).normal(size=(ROWS, 3))
SIGNS = np.where(NUMBERS[:, 0] < 0, "less", "more")
every_query = pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)


def expected(query: AdditiveQuery) -> np.ndarray:
    """Return the answer from arrays, whose columns go by position."""
    if isinstance(query, Sum | Gram):
        return query.evaluate(NUMBERS)
    column = 1 if isinstance(query, ContingencyTable) else 2
    return query.evaluate(list(zip(SIGNS.tolist(), NUMBERS[:, column].tolist(), strict=True)))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of Parquet files, whose columns are in other orders."""
    arrow = pytest.importorskip("pyarrow")
    write = importlib.import_module("pyarrow.parquet").write_table
    folder = tmp_path_factory.mktemp("parts")
    (folder / "deeper").mkdir()
    (folder / "_metadata.parquet").write_text("not of records")
    for number, rows in enumerate(np.array_split(np.arange(ROWS), 5)):
        columns = {"sign": SIGNS[rows], "other": SIGNS[rows]}
        columns |= {name: NUMBERS[rows, place] for place, name in enumerate(NAMES)}
        order = sorted(columns, reverse=number % 2 == 0)
        place = folder / "deeper" if number == 4 else folder
        write(arrow.table({name: columns[name] for name in order}), place / f"p{number}.parquet")
    return folder


@every_query
def test_folders_patterns_and_lists_of_parquet_files(query: AdditiveQuery, parquet: Path) -> None:
    files = sorted(parquet.rglob("p?.parquet"))
    assert len(files) == 5
    for source in (parquet, str(parquet), f"{parquet}/**/p*.parquet", files, files[::-1]):
        np.testing.assert_array_equal(query.evaluate(source), expected(query))


@every_query
def test_lazy_frames_of_polars(query: AdditiveQuery, parquet: Path) -> None:
    polars = pytest.importorskip("polars")
    frames = [polars.scan_parquet(file) for file in sorted(parquet.rglob("p?.parquet"))]
    lazy = polars.concat([frame.select("sign", *NAMES) for frame in frames])
    np.testing.assert_array_equal(query.evaluate(lazy), expected(query))


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    connection.execute("create table t (c real, sign text, a real, b real)")
    values = zip(NUMBERS[:, 2], SIGNS, NUMBERS[:, 0], NUMBERS[:, 1], strict=True)
    connection.executemany("insert into t values (?, ?, ?, ?)", values)
    connection.commit()
    yield connection
    connection.close()


@every_query
def test_cursors_of_databases(query: AdditiveQuery, database: sqlite3.Connection) -> None:
    np.testing.assert_array_equal(
        query.evaluate(database.execute("select * from t")), expected(query)
    )


@every_query
def test_results_of_sqlalchemy(query: AdditiveQuery, database: sqlite3.Connection) -> None:
    sql = pytest.importorskip("sqlalchemy")
    engine = sql.create_engine("sqlite://", creator=lambda: database)
    with engine.connect() as connection:
        found = connection.execution_options(yield_per=100).execute(sql.text("select * from t"))
        np.testing.assert_array_equal(query.evaluate(found), expected(query))


def test_what_a_database_returns_is_matched_by_name(database: sqlite3.Connection) -> None:
    for columns, message in (("a, b", "no column 'c'"), ("a, b, c, c", "more than one column 'c'")):
        with pytest.raises(InvalidParameterError, match=message):
            QUERIES[0].evaluate(database.execute(f"select {columns} from t"))  # noqa: S608
    alike = Sum(PublicBounds(2, norm=3.0), "replace")
    plain = alike.evaluate(NUMBERS[:, :2])
    np.testing.assert_array_equal(alike.evaluate(database.execute("select a, b from t")), plain)
    with pytest.raises(InvalidParameterError, match="have none: name them"):
        Sum(PublicBounds(2, lower=0, upper=[1, 2]), "replace").evaluate(
            database.execute("select a, b from t")
        )
    with pytest.raises(InvalidParameterError, match="cursor without rows"):
        QUERIES[0].evaluate(database.cursor())
    missing = database.execute("select a, b, null as c from t")
    with pytest.raises(InvalidParameterError, match="dtype object"):
        QUERIES[0].evaluate(missing)


def test_a_file_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    # Its records would count twice, and change the sum by twice the sensitivity.
    np.save(tmp_path / "x.npy", NUMBERS)
    (tmp_path / "y.npy").symlink_to(tmp_path / "x.npy")
    for source in ([tmp_path / "x.npy"] * 2, f"{tmp_path}/*.npy"):
        with pytest.raises(InvalidParameterError, match="twice"):
            QUERIES[0].evaluate(source)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for source, message in (
        (tmp_path, "without .parquet files"),
        (f"{tmp_path}/*.npy", "no file matches"),
        (tmp_path / "x.npy", "does not exist"),
    ):
        with pytest.raises(FileFormatError, match=message):
            QUERIES[0].evaluate(source)


def test_only_a_block_is_in_memory(tmp_path: Path) -> None:
    rows, width = 50_000, 4
    for number in range(8):  # 12.8 megabytes
        np.save(tmp_path / f"{number}.npy", np.full((rows, width), 0.5))
    query = Gram(PublicBounds(width, norm=1.0), "replace")
    connection = sqlite3.connect(tmp_path / "x.db")
    connection.execute("create table t (a real, b real, c real, d real)")
    values = ([0.5] * width for _ in range(rows))
    connection.executemany("insert into t values (?, ?, ?, ?)", values)
    sources: list[Any] = [f"{tmp_path}/*.npy", connection.execute("select * from t")]
    for source in sources:
        tracemalloc.start()
        found = query.evaluate(source)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found[0, 0] in (rows / 4, 8 * rows / 4)
        assert peak < 4_000_000
    connection.close()
