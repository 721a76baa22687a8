"""Parquet and Arrow files of pandas: the index of a frame is labels, and never data."""

import io
import json
from typing import Any

import numpy as np
import pytest

from matrixdp.files.formats.matrices import read_matrix, write_matrix
from matrixdp.files.formats.pandas_index import PandasIndex, pandas_index
from matrixdp.files.formats.suffixes import ARROW
from matrixdp.mechanisms.labelled import MatrixFile

NUMBERS = [[1.0, 3.0], [2.0, 4.0]]


def saved(index: Any, columns: Any, suffix: str) -> bytes:
    """Return a frame as pandas saves it."""
    pandas, arrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    file, frame = io.BytesIO(), pandas.DataFrame(NUMBERS, index=index, columns=columns)
    if suffix == ".parquet":
        frame.to_parquet(file)
    else:
        table = arrow.Table.from_pandas(frame)
        with arrow.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()


def read(content: bytes, suffix: str, *, index: bool, **options: Any) -> MatrixFile:
    return read_matrix(
        io.BytesIO(content), suffix, "in", header=True, index=index, offered=["--index"], **options
    )


@pytest.mark.parametrize("suffix", ARROW)
@pytest.mark.parametrize("name", ["id", None, "a"])
def test_an_index_is_labels(suffix: str, name: str | None) -> None:
    pandas = pytest.importorskip("pandas")
    content = saved(pandas.Index(["x", "y"], name=name), ["a", "b"], suffix)
    found = read(content, suffix, index=True)
    assert (found.columns, found.index, found.corner) == (["a", "b"], ["x", "y"], name or "")
    assert found.array.tolist() == NUMBERS
    with pytest.warns(UserWarning, match="in: the index of its pandas frame is left out; --index"):
        plain = read(content, suffix, index=False)
    assert (plain.columns, plain.index) == (["a", "b"], None)
    assert plain.array.tolist() == NUMBERS
    chosen = read(content, suffix, index=True, columns=["b"])
    assert (chosen.index, chosen.array.tolist()) == (["x", "y"], [[3.0], [4.0]])


def test_an_index_of_numbers_is_not_data() -> None:
    content = saved([7, 9999], ["a", "b"], ".parquet")
    assert read(content, ".parquet", index=True).index == ["7", "9999"]
    with pytest.warns(UserWarning, match="left out"):
        assert read(content, ".parquet", index=False).array.tolist() == NUMBERS


def test_levels_are_joined() -> None:
    pandas = pytest.importorskip("pandas")
    index = pandas.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["p", "q"])
    found = read(saved(index, ["a", "b"], ".parquet"), ".parquet", index=True)
    assert (found.index, found.corner) == (["x/1", "y/2"], "p/q")


def test_a_range_is_no_column() -> None:
    content = saved(None, ["a", "b"], ".parquet")
    assert read(content, ".parquet", index=False).array.tolist() == NUMBERS
    # One that does more than count has labels, which are not in any column.
    pandas = pytest.importorskip("pandas")
    years = saved(pandas.RangeIndex(1990, 1992), ["a", "b"], ".parquet")
    assert read(years, ".parquet", index=False).array.tolist() == NUMBERS
    found = read(years, ".parquet", index=True)
    assert (found.index, found.array.tolist()) == (["1990", "1991"], NUMBERS)


def test_a_first_column_of_text_is_labels_beside_a_range() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame({"name": ["u", "v", "w"], "a": [1.0, 2.0, 3.0]})[1:]
    file = io.BytesIO()
    frame.to_parquet(file)
    found = read(file.getvalue(), ".parquet", index=True)
    assert (found.corner, found.index, found.columns) == ("name", ["v", "w"], ["a"])


@pytest.mark.parametrize("suffix", ARROW)
@pytest.mark.parametrize("columns", [None, ["0", "1"], ["1990", "1991"], ["1", "0"], ["a", "b"]])
@pytest.mark.parametrize("index", [None, ["x", "y"], ["0", "1"]])
def test_own_files_read_back(
    suffix: str, columns: list[str] | None, index: list[str] | None
) -> None:
    pytest.importorskip("pyarrow")
    file = io.BytesIO()
    write_matrix(file, MatrixFile(np.array(NUMBERS), columns, index), suffix)
    found = read(file.getvalue(), suffix, index=index is not None)
    assert found.array.tolist() == NUMBERS
    assert found.index == index
    # Names that only count from 0 are what columns without a name are called.
    assert found.columns == (None if columns == ["0", "1"] else columns)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (None, PandasIndex((), "")),
        (b"not json", PandasIndex((), "")),
        (b"[]", PandasIndex((), "")),
        ({"index_columns": "ab"}, PandasIndex((), "")),
        ({"index_columns": ["gone"]}, PandasIndex((), "")),
        ({"index_columns": ["b"], "columns": [None, 3]}, PandasIndex((1,), "b")),
        ({"index_columns": [{"kind": "range"}]}, PandasIndex((), "")),
        (
            {"index_columns": [{"kind": "range", "start": 0, "stop": 10**40, "step": 1}]},
            PandasIndex((), ""),
        ),
        (
            {"index_columns": [{"kind": "range", "start": 5, "stop": 1, "step": -2}]},
            PandasIndex((), "", range(5, 1, -2)),
        ),
    ],
)
def test_metadata(stated: Any, expected: PandasIndex) -> None:
    content = stated if isinstance(stated, bytes) else json.dumps(stated).encode()
    metadata = None if stated is None else {b"pandas": content}
    assert pandas_index(metadata, ["a", "b"]) == expected
