"""Names decide which column is which: their order does not matter, and a missing one is refused."""

import contextlib
import importlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import Budget, MatrixMechanism
from matrixdp.errors import InvalidParameterError
from matrixdp.queries import (
    Bins,
    ClippedRecords,
    ContingencyTable,
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
from matrixdp.workloads import marginals

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

RNG = np.random.default_rng(3)
COUNT = 50
VALUES = {
    "age": RNG.uniform(17, 90, COUNT),
    "hours": RNG.uniform(1, 99, COUNT),
    "gain": RNG.uniform(0, 1e5, COUNT),
}
ORDER = ["gain", "age", "hours"]
ROWS = np.column_stack([VALUES[name] for name in ORDER])
BOX = PublicBounds(ORDER, lower=[0, 17, 1], upper=[1e5, 90, 99])
PARTS = PublicBounds(ORDER[:2], lower=[0, 17], upper=[1e5, 90]), PublicBounds(["hours"], norm=99.0)
QUERIES: list[Query] = [
    Sum(BOX, "add-remove"),
    Mean(BOX, "replace", count=COUNT),
    Gram(BOX, "replace"),
    SampleCovariance(BOX, "replace", count=COUNT),
    CrossMoment(*PARTS, "replace"),
    JointMoments(*PARTS, "replace"),
    Features(BOX, "replace", count=COUNT),
    ClippedRecords(BOX, "replace"),
    ContingencyTable(
        [Bins("gain", [0, 5e4, 1e5]), Bins("age", [17, 50, 90]), Bins("hours", [0, 40, 99])],
        "replace",
    ),
]
Maker = Callable[[dict[str, Any]], Any]
TABLES: dict[str, Maker] = {
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
    "arrow": pa.table,
    "arrow batches": lambda columns: pa.table(columns).to_reader(max_chunksize=7),
    "blocks of frames": lambda columns: iter(
        [pd.DataFrame(columns)[:20], pd.DataFrame(columns)[20:][list(columns)[::-1]]]
    ),
}
every_query = pytest.mark.parametrize("query", QUERIES, ids=lambda query: type(query).__name__)
every_table = pytest.mark.parametrize("make", TABLES.values(), ids=TABLES)


@every_query
@every_table
def test_the_order_of_columns_does_not_matter(query: Query, make: Maker) -> None:
    expected = query.evaluate(ROWS)
    for names in (["age", "hours", "gain"], ["gain", "age", "hours"], ["hours", "age", "gain"]):
        columns = {name: VALUES[name] for name in names}
        np.testing.assert_array_equal(query.evaluate(make(columns)), expected)
        # Other columns are none of the query's business, whatever they hold.
        more = {"note": ["x"] * COUNT, **columns, "more": np.ones(COUNT)}
        np.testing.assert_array_equal(query.evaluate(make(more)), expected)


@every_query
@every_table
def test_a_missing_column_is_refused(query: Query, make: Maker) -> None:
    wrong = {"age": VALUES["age"], "Hours": VALUES["hours"], "gain": VALUES["gain"]}
    with pytest.raises(InvalidParameterError, match="no column 'hours'"):
        query.evaluate(make(wrong))


@every_query
def test_an_ambiguous_column_is_refused(query: Query) -> None:
    twice = pd.DataFrame(ROWS[:, [0, 1, 2, 2]], columns=[*ORDER, "hours"])
    with pytest.raises(InvalidParameterError, match="more than one column 'hours'"):
        query.evaluate(twice)


def test_age_is_binned_as_age() -> None:
    frame = pd.DataFrame({"age": [30, 30, 70], "hours": [5, 15, 15]})
    bins = [Bins("hours", [0, 10, 20]), Bins("age", [0, 50, 100])]
    counts = ContingencyTable(bins, "replace").counts(frame[["age", "hours"]])
    assert counts.tolist() == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    "query",
    [
        Gram(PublicBounds(2, lower=0, upper=[1, 2]), "replace"),
        Sum(PublicBounds(2, lower=[0, 1], upper=3), "replace"),
        JointMoments(PublicBounds(1, norm=1.0), PublicBounds(1, norm=1.0), "replace"),
    ],
)
def test_names_in_the_data_alone_are_refused_where_order_matters(query: Query) -> None:
    frame = pd.DataFrame({"a": [0.5], "b": [0.5]})
    with pytest.raises(InvalidParameterError, match="name them"):
        query.evaluate(frame)
    # Names that were made up say nothing.
    for unnamed in (pd.DataFrame([[0.5, 0.5]]), pl.DataFrame(np.array([[0.5, 0.5]]))):
        np.testing.assert_array_equal(query.evaluate(unnamed), query.evaluate([[0.5, 0.5]]))


@pytest.mark.parametrize(
    "rows",
    [
        lambda frame: list(frame.itertuples(index=False)),
        lambda frame: [row for _, row in frame.iterrows()],
        lambda frame: frame.to_dict("records"),
        lambda frame: frame.to_records(index=False),
        lambda frame: iter([list(frame.itertuples(index=False))]),
    ],
    ids=["named tuples", "rows of a frame", "dictionaries", "structured", "blocks of them"],
)
@every_query
def test_rows_with_names_of_their_own_are_refused(query: Query, rows: Maker) -> None:
    # Their order is that of the frame, and would have been taken for that of the query.
    frame = pd.DataFrame({"gain": [1.0], "hours": [3.0], "age": [2.0]})
    with pytest.raises(InvalidParameterError, match="names of their own"):
        query.evaluate(rows(frame))


def test_bounds_that_treat_columns_alike_need_no_names() -> None:
    frame = pd.DataFrame({"b": [0.5, 0.25], "a": [0.0, 1.0]})
    for bounds in (PublicBounds(2, norm=2.0), PublicBounds(2, lower=0, upper=1)):
        assert Sum(bounds, "replace").evaluate(frame).tolist() == [[0.75, 1.0]]


def test_one_column_with_a_name() -> None:
    query = Sum(PublicBounds(["age"], norm=1.0), "replace")
    for series in (pd.Series([0.5], name="age"), pd.Series([0.5]), pl.Series("age", [0.5])):
        assert query.evaluate(series).tolist() == [[0.5]]
    ages = ContingencyTable([Bins("age", [0, 1])], "replace")
    for answer in (query.evaluate, ages.evaluate):
        with pytest.raises(InvalidParameterError, match="no column 'age'"):
            answer(pd.Series([0.5], name="hours"))


def test_names_of_bounds() -> None:
    assert PublicBounds(tuple(ORDER), lower=[0, 17, 1], upper=[1e5, 90, 99]) == BOX
    assert PublicBounds(3, lower=[0, 17, 1], upper=[1e5, 90, 99]) != BOX
    for wrong in (["a", "a"], ["a", 1], [], "age"):
        with pytest.raises(InvalidParameterError, match="columns"):
            PublicBounds(wrong, norm=1.0)  # type: ignore[arg-type]
    one, other = PublicBounds(["a"], norm=1.0), PublicBounds(1, norm=1.0)
    for parts in ((one, other), (other, one), (one, one)):
        with pytest.raises(InvalidParameterError, match="or none"):
            CrossMoment(*parts, "replace")
    with pytest.raises(InvalidParameterError, match="more than one column 'a'"):
        ContingencyTable([Bins("a", [0, 1]), Bins("a", [0, 2])], "replace").counts(
            pd.DataFrame({"a": [0.5], "b": [0.5]})
        )


def test_blocks_of_a_file_keep_their_names(tmp_path: Path) -> None:
    importlib.import_module("pyarrow.parquet").write_table(
        pa.table(VALUES), tmp_path / "in.parquet"
    )
    for names in (["hours", "age", "gain"], ORDER):
        blocks = parquet_blocks(tmp_path / "in.parquet", names)
        np.testing.assert_array_equal(
            Gram(BOX, "replace").evaluate(blocks), Gram(BOX, "replace").evaluate(ROWS)
        )


def test_workloads_refuse_names_that_they_cannot_match() -> None:
    workload = marginals([2, 3], [(0, 1)])
    mechanism = MatrixMechanism(workload, Budget(1.0, 1e-5), neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="ContingencyTable"):
        mechanism.release_records(pd.DataFrame({"b": [0, 1], "a": [0, 1]}))
    assert mechanism.release_records(pd.DataFrame([[0, 1], [1, 2]])).table((0, 1)).shape == (2, 3)


def test_names_as_they_are_made_up_count_where_the_query_has_them() -> None:
    bounds = PublicBounds(["column_1", "column_0"], lower=0, upper=[100, 3])
    bins = [Bins("column_1", [0, 60, 100]), Bins("column_0", [0, 1.5, 3])]
    columns = {"column_0": [1.0, 2.0], "column_1": [50.0, 70.0]}
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        assert Sum(bounds, "replace").evaluate(make(columns)).tolist() == [[120.0, 3.0]]
        assert ContingencyTable(bins, "replace").counts(make(columns)).tolist() == [[1, 0], [0, 1]]
    only_one = Sum(PublicBounds(["column_1"], lower=0, upper=100), "replace")
    assert only_one.evaluate(pl.DataFrame(columns)).tolist() == [[120.0]]
    with pytest.raises(InvalidParameterError, match="no column 'age'"):
        Sum(PublicBounds(["column_1", "age"], norm=1.0), "replace").evaluate(pl.DataFrame(columns))


def test_rows_of_a_database_are_refused() -> None:
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        database.row_factory = sqlite3.Row
        rows = database.execute("SELECT 20 AS age, 40 AS hours").fetchall()
    bounds = PublicBounds(["hours", "age"], lower=0, upper=[99, 90])
    with pytest.raises(InvalidParameterError, match="names of their own"):
        Sum(bounds, "replace").evaluate(rows)


def test_the_name_of_an_index_counts() -> None:
    bins = ContingencyTable([Bins("hours", [0, 20, 100])], "replace")
    assert bins.counts(pd.Index([10, 40], name="hours")).tolist() == [1, 1]
    with pytest.raises(InvalidParameterError, match="no column 'hours'"):
        bins.counts(pd.Index([10, 40], name="age"))
