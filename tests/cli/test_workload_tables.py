"""Tables of ``matrixdp workload``: other delimiters are read, and every table format is written."""

from pathlib import Path

import numpy as np
import pytest

from cli.workload_asked import BUDGET
from matrixdp import WorkloadRelease
from matrixdp.cli.main import main
from matrixdp.files.formats.matrices import read_matrix
from matrixdp.files.formats.suffixes import ARROW, LABELLED, format_of

QUERIES = ["--workload", "queries.csv", "--neighbouring", "add-remove"]
ANSWER = ["workload", "answer", "cells.csv", "out.npz", *BUDGET]
PREFIX = ["--workload", "prefix:4", "--neighbouring", "add-remove"]


@pytest.fixture(autouse=True)
def _semicolons(workload_folder: Path) -> None:
    assert Path.cwd() == workload_folder.resolve()
    Path("cells.csv").write_text("3;4;5;6\n")
    Path("queries.csv").write_text("1;0;0;1\n0;1;1;0\n1;1;1;1\n0;0;1;1\n")
    Path("records.csv").write_text("0;1\n1;1\n")


@pytest.mark.parametrize("command", ["optimise", "evaluate"])
def test_queries_with_another_delimiter(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", command, *QUERIES]) == 2
    error = capsys.readouterr().err
    assert "queries.csv, row 1, column 1" in error
    assert "cells are between ',' unless --delimiter names another character" in error
    assert main(["workload", command, *QUERIES, "--delimiter", ";"]) == 0
    assert main(["workload", command, *PREFIX, "--delimiter", ";"]) == 2
    assert "no such file is read: leave it out" in capsys.readouterr().err


def test_counts_and_records_with_another_delimiter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ANSWER, *PREFIX]) == 2
    assert "unless --delimiter names another character" in capsys.readouterr().err
    assert main([*ANSWER, *QUERIES, "--delimiter", ";"]) == 0
    # It is for text alone: other files that are read are not in its way.
    np.save("counts.npy", np.full(4, 3))
    arguments = ["counts.npy" if each == "cells.csv" else each for each in ANSWER]
    assert main([*arguments, *QUERIES, "--delimiter", ";", "--force"]) == 0
    records = ["records.csv" if each == "cells.csv" else each for each in ANSWER]
    two = ["--workload", "identity:2*identity:2", "--neighbouring", "add-remove", "--force"]
    assert main([*records, *two, "--records", "--delimiter", ";"]) == 0


@pytest.mark.parametrize("text", ["a;b\n3;4\n", "x;3\ny;4\n"])
def test_no_option_is_advised_that_the_command_lacks(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cells.csv").write_text(text)
    assert main([*ANSWER, *PREFIX, "--delimiter", ";"]) == 2
    error = capsys.readouterr().err
    assert "leave labels out" in error
    assert "--header" not in error
    assert "--index" not in error


def test_no_option_is_advised_for_columns_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": ["secret", "y"], "b": [3, 4]}), "cells.parquet")
    arguments = ["cells.parquet" if each == "cells.csv" else each for each in ANSWER]
    assert main([*arguments, *PREFIX]) == 2
    error = capsys.readouterr().err
    assert "column 1: the column is text, not numbers; save the file without it" in error
    assert "secret" not in error


def test_records_with_names_are_not_taken_by_position(capsys: pytest.CaptureFixture[str]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    words = ["workload", "answer", "in.parquet", "out.npz", "--records", *BUDGET]
    asked = [*words, "--neighbouring", "replace", "--workload", "marginals:3x3:1"]
    parquet.write_table(arrow.table({"sex": [0, 1], "age": [2, 1]}), "in.parquet")
    assert main(asked) == 2
    assert "use `query marginals`" in capsys.readouterr().err
    assert not Path("out.npz").exists()
    parquet.write_table(arrow.table({"0": [0, 1], "1": [2, 1]}), "in.parquet")
    assert main(asked) == 0


@pytest.mark.parametrize("name", [f"a{suffix}" for suffix in LABELLED] + ["A.TSV"])
def test_answers_in_every_table_format(name: str) -> None:
    if format_of(name) in ARROW:
        pytest.importorskip("pyarrow")
    assert main([*ANSWER, *PREFIX, "--delimiter", ";"]) == 0
    assert main(["workload", "export", "out.npz", name]) == 0
    with Path(name).open("rb") as file:
        found = read_matrix(file, format_of(name), name, header=True, index=True)
    release = WorkloadRelease.load("out.npz")
    assert (found.corner, found.columns) == ("query", ["answer", "standard_error"])
    assert found.index == ["0..0", "0..1", "0..2", "0..3"]
    np.testing.assert_array_equal(found.array[:, 0], release.answers)
    np.testing.assert_array_equal(found.array[:, 1], release.standard_errors())


def test_other_formats_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ANSWER, *PREFIX, "--delimiter", ";"]) == 0
    for name in ("a.npz", "a.txt"):
        assert main(["workload", "export", "out.npz", name]) == 2
        assert "use one of .npy, .csv" in capsys.readouterr().err
