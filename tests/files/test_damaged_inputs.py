"""Inputs that once ended as defects: the command names the file and what is wrong with it."""

import io
import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import format as npy

from matrixdp.cli.main import main
from matrixdp.cli.shared.exit_codes import BAD_INPUT
from matrixdp.errors import FileFormatError
from matrixdp.files.formats.matrices import read_matrix
from matrixdp.files.formats.numpy_format import read_layout
from matrixdp.files.formats.opening import opened
from matrixdp.files.formats.pandas_index import pandas_index
from matrixdp.queries.names import Columns
from matrixdp.queries.sources import arrow_blocks, record_blocks

PROMISE = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "replace"]
RELEASE = [*PROMISE, "--sensitivity", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(source: str, capsys: pytest.CaptureFixture[str], *said: str) -> None:
    """Raise unless the command refuses a file by its name, and writes nothing."""
    before = set(Path().iterdir())
    assert main(["release", source, "out.csv", *RELEASE]) == BAD_INPUT
    error = capsys.readouterr().err
    assert source in error
    for words in said:
        assert words in error
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("array", [np.float64(7.5), np.ones(3)], ids=["scalar", "vector"])
def test_an_array_with_too_few_axes(
    array: Any, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (np.save if suffix == ".npy" else np.savez)(f"in{suffix}", array)
    before = set(Path().iterdir())
    for command in (
        ["release", f"in{suffix}", "out.csv", *RELEASE],
        [
            "workload",
            "answer",
            f"in{suffix}",
            "out.npz",
            *PROMISE,
            "--workload",
            "prefix:2*total:2",
        ],
    ):
        assert main(command) == BAD_INPUT
        assert "defect" not in capsys.readouterr().err
    assert set(Path().iterdir()) == before


@pytest.mark.parametrize(
    "metadata",
    [
        b"[]",
        b"3",
        b"\xff",
        b'{"index_columns": 3, "columns": {}}',
        b'{"index_columns": [["a"], {"kind": "range", "start": "0"}], "columns": [1, {}]}',
        b'{"index_columns": ["a"], "columns": [{"field_name": ["a"], "name": {}}]}',
        b'{"index_columns": [{"kind": "range", "start": 0, "stop": 9, "step": 0}]}',
        10_000 * b"[" + 10_000 * b"]",
    ],
)
def test_pandas_metadata_of_wrong_types(metadata: bytes) -> None:
    stated = pandas_index({b"pandas": metadata}, ["a", "b"])
    assert set(stated.positions) <= {0}
    assert stated.numbers is None


def test_pandas_metadata_of_many_levels() -> None:
    arrow = pytest.importorskip("pyarrow")
    levels = [f"level {number}" for number in range(100_000)]
    described = json.dumps({"index_columns": levels, "columns": []}).encode()
    table = arrow.table({"a": [1.0, 2.0]}).replace_schema_metadata({b"pandas": described})
    content = io.BytesIO()
    with arrow.ipc.new_file(content, table.schema) as writer:
        writer.write_table(table)
    matrix = read_matrix(io.BytesIO(content.getvalue()), ".arrow", "in.arrow", header=True)
    np.testing.assert_array_equal(matrix.array, [[1.0], [2.0]])


def test_parquet_with_a_column_twice(capsys: pytest.CaptureFixture[str]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    column = arrow.array([1.0, 2.0])
    parquet.write_table(arrow.Table.from_arrays([column, column], names=["a", "a"]), "in.parquet")
    command = ["query", "sum", "in.parquet", "out.csv", *PROMISE, "--columns", "a", "--norm", "1"]
    assert main(command) == BAD_INPUT
    assert "in.parquet has more than one column 'a'" in capsys.readouterr().err
    assert not Path("out.csv").exists()


def test_arrow_text_that_is_not_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    arrow = pytest.importorskip("pyarrow")
    text = arrow.Array.from_buffers(
        arrow.string(),
        2,
        [None, arrow.py_buffer(np.array([0, 1, 3], np.int32)), arrow.py_buffer(b"A\xff\xfe")],
    )
    table = arrow.table({"who": text, "a": [1.0, 2.0]})
    with arrow.OSFile("in.arrow", "wb") as file, arrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    arguments = ["release", "in.arrow", "out.csv", *RELEASE, "--header", "--index"]
    assert main(arguments) == BAD_INPUT
    assert "in.arrow" in capsys.readouterr().err
    assert not Path("out.csv").exists()


@pytest.mark.parametrize("ends", [[0, 1, 9], [-1, 1, 2], [1, 2, 3], [0, 2, 1]])
def test_arrow_text_that_is_not_where_it_should_be(ends: list[int]) -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"who": ["A", "B"], "a": [1.0, 2.0]})
    content = io.BytesIO()
    with arrow.ipc.new_file(content, table.schema) as writer:
        writer.write_table(table)
    valid = np.array([0, 1, 2], np.int32).tobytes()
    assert content.getvalue().count(valid) == 1
    damaged = content.getvalue().replace(valid, np.array(ends, np.int32).tobytes())
    # Other memory would become labels.
    with pytest.raises(FileFormatError, match=r"in\.arrow is not an Arrow file"):
        read_matrix(io.BytesIO(damaged), ".arrow", "in.arrow", header=True, index=True)


def test_arrow_columns_that_are_no_arrays() -> None:
    arrow = pytest.importorskip("pyarrow")
    kinds = arrow.array([0, 0], arrow.int8())
    union = arrow.UnionArray.from_sparse(kinds, [arrow.array([1.0, 2.0])])
    table = arrow.table({"a": union})
    with arrow.ipc.new_file("in.arrow", table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(FileFormatError, match=r"in\.arrow is not .* columns of numbers"):
        list(arrow_blocks("in.arrow", ["a"]))
    with pytest.raises(FileFormatError, match=r"data is not .* columns of numbers"):
        list(record_blocks(table, Columns(1), 10))


def test_torn_npy_headers(capsys: pytest.CaptureFixture[str]) -> None:
    content = io.BytesIO()
    np.save(content, np.ones((2, 2)))
    whole = content.getvalue()
    for length in range(len(whole)):
        Path("in.npy").write_bytes(whole[:length])
        with pytest.raises(FileFormatError, match=r"in\.npy"):
            read_layout(Path("in.npy"))
    for header in (
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (-2, 2)}",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (True, 4)}",
        b"{'descr': ',', 'fortran_order': False, 'shape': (2, 2)}",
        b"{'descr': '<f8', 'shape': (2, 2)}",
        b"{" * 5_000,
        b"\xff\x00(",
    ):
        head = npy.magic(1, 0) + len(header).to_bytes(2, "little") + header
        Path("in.npy").write_bytes(head + whole[-32:])
        refused("in.npy", capsys)


def test_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("in.csv")
    # Were the pipe opened, the command would wait for this writer, which would wait for it.
    threading.Thread(target=lambda: Path("in.csv").write_text("1,2\n"), daemon=True).start()
    refused("in.csv", capsys, "is not a regular file but a pipe or a device")
    os.mkfifo("in.npy")
    refused("in.npy", capsys, "is not a regular file but a pipe or a device")
    with Path("in.csv").open() as reader:  # which lets the writer end
        reader.read()


def test_an_archive_too_large_for_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez("in.npz", np.ones((3, 2)))

    def full(*_arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr("matrixdp.files.formats.numpy_format.np.empty", full)
    refused("in.npz", capsys, "in.npz needs more memory than there is")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileFormatError, match="does not exist"), opened("missing.csv"):
        pass
