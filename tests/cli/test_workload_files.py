"""Files with queries in ``--workload``, in every format that a matrix may have."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp.cli.commands.workload.options import read_workload, workload_files
from matrixdp.cli.main import main
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.arrow_format import write_arrow
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import ARROW, FORMATS, format_of
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.workloads import Dense, optimal_strategy

QUERIES = np.array([[1.0, 0.0, 0.25], [0.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.5, 0.0, 2.0]])
RELATION = ["--neighbouring", "add-remove"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def saved(name: str, queries: np.ndarray = QUERIES) -> str:
    """Make a file of these queries."""
    if format_of(name) in ARROW:
        pytest.importorskip("pyarrow")
    with Path(name).open("wb") as file:
        write_matrix(file, MatrixFile(queries), format_of(name))
    return name


@pytest.mark.parametrize("ending", [*FORMATS, *(each.upper() for each in FORMATS), ".Tsv.Gz"])
def test_every_format(ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = saved(f"queries{ending}")
    assert main(["workload", "optimise", "--workload", name, *RELATION, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    best = optimal_strategy(Dense(QUERIES), neighbouring="add-remove")
    assert (found["queries"], found["cells"]) == (4, 3)
    assert found["rmse"] == pytest.approx(best.rmse, rel=1e-12)


@pytest.mark.parametrize("ending", FORMATS)
def test_the_rows_are_the_queries(ending: str) -> None:
    name = saved(f"a+b{ending}")
    queries = read_workload(f'"{name}" * total:2 + "{name}" * identity:2')
    assert queries.dimensions == (3, 2)
    assert queries.rows == 4 + 4 * 2
    cells = np.arange(6.0).reshape(3, 2)
    expected = np.concatenate([QUERIES @ cells.sum(axis=1), (QUERIES @ cells).ravel()])
    np.testing.assert_allclose(queries.apply(cells), expected, rtol=1e-14)


def test_files_that_are_read_are_known_in_every_format() -> None:
    text = " + ".join(f'"queries{ending}"*total:2' for ending in (*FORMATS, ".Csv.GZ"))
    assert [path.name for path in workload_files(text)] == [
        f"queries{ending}" for ending in (*FORMATS, ".Csv.GZ")
    ]


@pytest.mark.parametrize("name", ["queries.NPZ", "queries.npz"])
def test_what_is_read_is_not_overwritten(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path(saved(name)).read_bytes()
    asked = ["workload", "optimise", "--workload", name, *RELATION, "--output", name, "--force"]
    assert main(asked) == 2
    assert "which is read" in capsys.readouterr().err
    assert Path(name).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("w.CSV", "1,2\n0,x\n", "w.CSV, row 2, column 2: the cell is not a finite number"),
        ("w.tsv", "1\t2\n0\tnan\n", "w.tsv, row 2, column 2: the cell is not a finite number"),
        ("w.csv.gz", "1,2\n3\n", "w.csv.gz, row 2 has 1 cells, but row 1 has 2"),
        ("w.tsv.gz", "1,2\n0,1\n", r"w.tsv.gz, row 1, column 1: .* cells are between '\\t'"),
        ("w.csv.gz", "1,2\n0,0\n", "w.csv.gz: matrix has a row of zeros at index 1"),
        ("w.csv", "", "w.csv has no rows of numbers"),
    ],
)
def test_errors_in_text_say_where(name: str, text: str, message: str) -> None:
    packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    Path(name).write_bytes(packed)
    with pytest.raises(FileFormatError, match=message):
        read_workload(f"{name}*total:3")


@pytest.mark.parametrize("suffix", ARROW)
def test_errors_in_columns_say_where(suffix: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    wrong = QUERIES.copy()
    wrong[2, 1] = np.inf
    with Path(f"w{suffix}").open("wb") as file:
        write_arrow(file, MatrixFile(wrong), suffix)
    with pytest.raises(FileFormatError, match=f"w{suffix}, row 3, column 2: .* not finite"):
        read_workload(f"w{suffix}")
    from pyarrow import ipc, parquet  # type: ignore[import-untyped]  # noqa: PLC0415

    table = arrow.table({"id": ["a", "b"], "cell": [1.0, 0.0]})
    if suffix == ".parquet":
        parquet.write_table(table, f"t{suffix}")
    else:
        with ipc.new_file(f"t{suffix}", table.schema) as writer:
            writer.write_table(table)
    with pytest.raises(FileFormatError, match=f"t{suffix}, column 1: .* save the file without it"):
        read_workload(f"t{suffix}")


@pytest.mark.parametrize("ending", [*FORMATS, ".CSV", ".Parquet"])
def test_a_file_of_another_kind(ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    if format_of(f"x{ending}") in ARROW:
        pytest.importorskip("pyarrow")
    Path(f"x{ending}").write_bytes(b"\x93\xff not a matrix")
    assert main(["workload", "optimise", "--workload", f"x{ending}", *RELATION]) == 2
    assert f"x{ending}" in capsys.readouterr().err


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (0, 3)])
def test_an_array_that_is_no_matrix_is_named(shape: tuple[int, ...]) -> None:
    np.save("good.npy", QUERIES)
    np.save("w.npy", np.ones(shape))
    with pytest.raises(FileFormatError, match=r"w\.npy: matrix has shape"):
        read_workload("good.npy * w.npy")


@pytest.mark.parametrize("name", ["w.txt", "w.gz", ".csv", "w.csv.bz2", "w.npy.gz", '"w.txt"'])
def test_other_formats_are_not_understood(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=r"not understood.*\.csv\.gz.*\.parquet"):
        read_workload(name)


def test_help_names_the_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "optimise", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(each in shown for each in FORMATS)
