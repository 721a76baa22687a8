"""``matrixdp release`` and ``query`` on text of other kinds, Parquet and Arrow."""

import gzip
import io
import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp import FrobeniusBall, Release
from matrixdp.cli.main import main

NOISE = ["--neighbouring", "replace", "--epsilon", "1000", "--delta", "1e-5"]
OPTIONS = ["--sensitivity", "1", *NOISE]
TEXT = "id;age;visits\na;30;2\nb;41;0\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("T.CSV").write_text(TEXT.replace(";", ","))
    Path("semicolons.csv").write_text(TEXT)
    Path("t.tsv").write_text(TEXT.replace(";", "\t"))
    Path("t.csv.gz").write_bytes(gzip.compress(TEXT.replace(";", ",").encode()))
    return tmp_path


def tabular(suffix: str) -> str:
    """Make a Parquet or Arrow file of the same table."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet  # type: ignore[import-untyped]  # noqa: PLC0415

    table = arrow.table({"id": ["a", "b"], "age": [30, 41], "visits": [2.0, 0.0]})
    if suffix == ".parquet":
        parquet.write_table(table, "t.parquet")
    else:
        with ipc.new_file("t.arrow", table.schema) as writer:
            writer.write_table(table)
    return f"t{suffix}"


READ = {
    "T.CSV": ["--header"],
    "t.tsv": ["--header"],
    "t.csv.gz": ["--header"],
    "semicolons.csv": ["--header", "--delimiter", ";"],
    "t.parquet": [],
    "t.arrow": [],
}


@pytest.mark.parametrize("target", ["out.csv", "out.tsv", "out.csv.gz", "out.parquet", "out.npy"])
@pytest.mark.parametrize("source", READ)
def test_matrices(source: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    if Path(source).suffix in {".parquet", ".arrow"}:
        tabular(Path(source).suffix)
    if target.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    assert main(["release", source, target, *READ[source], "--index", *OPTIONS]) == 0
    output = capsys.readouterr().err
    if target == "out.npy":
        assert output.startswith("matrixdp: labels are left out: .npy cannot hold them")
    else:
        assert "labels published as they are: 2 of columns, 2 of rows" in output
        assert "left out" not in output
    value = Release.load(target).value
    np.testing.assert_allclose(value, [[30.0, 2.0], [41.0, 0.0]], atol=1.0)
    assert main(["verify", target]) == 0


@pytest.mark.parametrize("source", READ)
def test_chosen_columns(source: str) -> None:
    if Path(source).suffix in {".parquet", ".arrow"}:
        tabular(Path(source).suffix)
    assert main(["release", source, "o.csv", *READ[source], "--columns", "visits", *OPTIONS]) == 0
    assert Path("o.csv").read_text().startswith("visits\n")
    np.testing.assert_allclose(Release.load("o.csv").value, [[2.0], [0.0]], atol=1.0)


@pytest.mark.parametrize("source", READ)
def test_queries(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    if Path(source).suffix in {".parquet", ".arrow"}:
        tabular(Path(source).suffix)
    delimiter = READ[source][1:]
    asked = ["--columns", "age,visits", "--lower", "0", "--upper", "100", *delimiter, *NOISE]
    assert main(["query", "sum", source, "sums.tsv", *asked]) == 0
    np.testing.assert_allclose(Release.load("sums.tsv").value, [[71.0, 2.0]], atol=30.0)
    assert Path("sums.tsv").read_text().startswith("\tage\tvisits\n")
    capsys.readouterr()
    assert main(["query", "sum", source, "sums.npy", *asked, "--json"]) == 0
    output = capsys.readouterr()
    assert "labels are left out" in output.err
    assert json.loads(output.out)["shape"] == [1, 2]
    counted = ["--categories", "id=a,b", *delimiter, *NOISE]
    assert main(["query", "histogram", source, "counts.csv", *counted]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["release", "semicolons.csv", "o.csv", *OPTIONS], "unless --delimiter names"),
        (["release", "T.CSV", "o.csv", "--columns", "age", *OPTIONS], "add --header"),
        (["release", "T.CSV", "o.csv", "--columns", "age,age", "--header", *OPTIONS], "each once"),
        (["release", "T.CSV", "o.csv", "--columns", "no", "--header", *OPTIONS], "column 'no'"),
        (["release", "T.CSV", "o.csv", "--delimiter", "ab", *OPTIONS], "'ab' is not one character"),
        (["release", "T.CSV", "o.csv", "--delimiter", "5", *OPTIONS], "'5' is not one character"),
        (["release", "n.npy", "o.npy", "--delimiter", ";", *OPTIONS], "IN is .npy"),
        (["release", "n.npy", "o.npy", "--columns", "a", *OPTIONS], "IN is .npy"),
        (["release", "T.CSV", "o.txt", *OPTIONS], "is of format '.txt'"),
        (
            ["query", "sum", "semicolons.csv", "o.csv", "--columns", "age", "--norm", "1", *NOISE],
            "unless --delimiter names another character",
        ),
        (
            ["query", "sum", "cut.csv.gz", "o.csv", "--columns", "age", "--norm", "1", *NOISE],
            "cut short",
        ),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("n.npy", np.zeros((2, 2)))
    Path("cut.csv.gz").write_bytes(Path("t.csv.gz").read_bytes()[:-9])
    assert main(arguments) == 2
    assert message in capsys.readouterr().err
    assert not Path("o.csv").exists()


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_names_that_may_be_data_must_be_declared_public(
    suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import ipc, parquet  # noqa: PLC0415

    table = arrow.table({"2019": [1.0, 2.0]})
    if suffix == ".parquet":
        parquet.write_table(table, "years.parquet")
    else:
        with ipc.new_file("years.arrow", table.schema) as writer:
            writer.write_table(table)
    release = ["release", f"years{suffix}", "o.csv", *OPTIONS]
    assert main(release) == 2
    assert "could be data" in capsys.readouterr().err
    assert main([*release, "--header=public"]) == 0


@pytest.mark.parametrize("source", READ)
def test_rounding_of_decimals_is_covered_in_every_text_format(source: str) -> None:
    if Path(source).suffix in {".parquet", ".arrow"}:
        tabular(Path(source).suffix)
    options = [*READ[source], "--columns", "age,visits", *OPTIONS]
    assert main(["release", source, "o.npy", *options]) == 0
    stated = Release.load("o.npy").sensitivity
    assert isinstance(stated, FrobeniusBall)
    if Path(source).suffix in {".parquet", ".arrow"}:
        assert stated.bound == 1.0  # they hold floats, which nobody rounds
    else:
        # 2^-52 R sqrt(k) is added, with R = 2^32 / sqrt(k) by default.
        assert stated.bound == pytest.approx(1.0 + 2.0**-20, rel=1e-12)
        assert main(["release", source, "p.npy", *options, "--range", "40"]) == 2


def test_rounding_of_decimals_is_covered_on_standard_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = io.TextIOWrapper(io.BytesIO(b"30\t2\n41\t0\n"))
    monkeypatch.setattr("sys.stdin", text)
    assert main(["release", "-", "o.npy", "--input-format", "tsv", *OPTIONS]) == 0
    stated = Release.load("o.npy").sensitivity
    assert isinstance(stated, FrobeniusBall)
    assert stated.bound > 1.0


def test_names_in_capitals() -> None:
    np.save("in.npy", np.zeros((2, 2)))
    Path("in.npy").rename("IN.NPY")
    assert main(["release", "IN.NPY", "OUT.NPY", *OPTIONS]) == 0  # in parts
    assert main(["verify", "OUT.NPY"]) == 0
    np.save("counts.npy", np.arange(4))
    workload = ["--workload", "prefix:4", *NOISE]
    assert main(["workload", "answer", "counts.npy", "A.NPZ", *workload]) == 0
    assert main(["workload", "export", "A.NPZ", "A.CSV"]) == 0
    assert Path("A.CSV").read_text().startswith("query,answer,standard_error\n0..0,")


@pytest.mark.parametrize("text", ["a,a\n1,2\n", "index,index\nx,1\n"])
def test_names_that_parquet_cannot_keep_apart(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyarrow")
    Path("twice.csv").write_text(text)
    labels = ["--header", "--index"] if "index" in text else ["--header"]
    assert main(["release", "twice.csv", "out.parquet", *labels, *OPTIONS]) == 2
    assert "is there twice" in capsys.readouterr().err
    # Nothing was drawn, and other formats can.
    assert not Path("out.parquet").exists()
    assert not Path("out.parquet.json").exists()
    assert main(["release", "twice.csv", "out.arrow", *labels, *OPTIONS]) == 0


def test_the_name_of_row_labels_gives_way() -> None:
    pytest.importorskip("pyarrow")
    Path("named.csv").write_text(",index,b\nx,1,2\ny,3,4\n")
    assert main(["release", "named.csv", "out.parquet", "--header", "--index", *OPTIONS]) == 0
    assert main(["verify", "out.parquet"]) == 0
    from pyarrow import parquet  # noqa: PLC0415

    assert parquet.ParquetFile("out.parquet").schema.names == ["_index", "index", "b"]


@pytest.mark.parametrize(
    ("columns", "place"), [("d,b", "row 3, column 5"), ("b,2019", "row 1, column 4")]
)
def test_positions_are_those_of_the_file_if_columns_are_chosen(
    columns: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("chosen.csv").write_text("id,a,b,2019,d\nx,1,2,3,4\ny,5,6,7,1e300\n")
    labels = ["--header", "--index", "--columns", columns]
    assert main(["release", "chosen.csv", "o.csv", *labels, *OPTIONS]) == 2
    assert place in capsys.readouterr().err
