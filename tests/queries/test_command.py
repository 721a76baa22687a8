"""``matrixdp query``: files of records, what the statement says, and what is refused."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Release
from matrixdp.cli.main import main
from matrixdp.sensitivity import ScaledSymmetricBall

PROMISE = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "replace"]
# So little noise that released counts can be recognised: only for these tests.
CLEAR = ["--mu", "1000", "--delta", "1e-6", "--neighbouring", "replace"]
TABLE = "name,age,income,sex\na,30,1.5,F\nb,200,2.5,M\nc,50,-7,F\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a small table."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text(TABLE)
    np.save("in.npy", np.array([[30.0, 1.5, 9.0], [200.0, 2.5, 9.0], [50.0, -7.0, 9.0]]))
    return tmp_path


BOX = ["--lower", "0", "--upper", "100,3"]


@pytest.mark.parametrize(
    ("source", "columns"), [("in.csv", ["age", "income"]), ("in.npy", ["0", "1"])]
)
@pytest.mark.parametrize(
    ("command", "options", "expected"),
    [
        ("sum", [], [[180.0, 4.0]]),
        ("mean", ["--count", "3"], [[60.0, 4 / 3]]),
        ("gram", [], [[13400.0, 295.0], [295.0, 8.5]]),
        ("covariance", ["--count", "3"], np.cov([[30, 100, 50], [1.5, 2.5, 0]], bias=True)),
        ("clipped", [], [[2.0]]),
    ],
)
def test_answers(
    source: str, columns: list[str], command: str, options: list[str], expected: list[list[float]]
) -> None:
    arguments = ["query", command, source, "out.csv", "--columns", ",".join(columns), *options]
    assert main([*arguments, *BOX, *CLEAR]) == 0
    release = Release.load("out.csv")
    allowed = 8 * release.standard_errors() + 1e-2
    assert bool(np.all(np.abs(release.value - expected) <= allowed))
    if command in ("gram", "covariance"):
        assert isinstance(release.sensitivity, ScaledSymmetricBall)
        assert Path("out.csv").read_text().startswith("," + ",".join(columns))


def test_the_statement_says_which_bounds_were_applied_and_no_count() -> None:
    arguments = ["query", "sum", "in.csv", "out.npy", "--columns", "age,income", *PROMISE]
    assert main([*arguments, *BOX, "--norm", "50"]) == 0
    statement = json.loads(Path("out.npy.json").read_text())
    assert (
        statement["query"] == "sum of records, columns 'age', 'income', "
        "column ranges 0 to 100, 0 to 3 and norm at most 50"
    )
    assert "clipped" not in json.dumps(statement)
    assert Release.verify("out.npy").neighbouring == "replace"


def test_releases_without_a_query_have_the_same_statement_as_before() -> None:
    arguments = ["release", "in.npy", "out.npy", *PROMISE, "--sensitivity", "1"]
    assert main(arguments) == 0
    assert "query" not in json.loads(Path("out.npy.json").read_text())


def test_histograms() -> None:
    arguments = ["query", "histogram", "in.csv", "out.csv", "--categories", "sex=F,M"]
    assert main([*arguments, "--bins", "age=0,40,inf", *CLEAR]) == 0
    np.testing.assert_allclose(Release.load("out.csv").value, [[1, 1], [0, 1]], atol=0.1)
    lines = Path("out.csv").read_text().splitlines()
    assert lines[0] == ",age=[0; 40),age=[40; inf]"
    assert lines[1].startswith("sex=F,")
    assert main(["query", "histogram", "in.npy", "n.npy", "--bins", "0=0,40,300", *CLEAR]) == 0
    np.testing.assert_allclose(Release.load("n.npy").value, [[1], [2]], atol=0.1)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["query", "gram", "in.csv", "out.npy", "--columns", "age", "--norm", "1"]
    assert main([*arguments, *PROMISE, "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["shape"] == [1, 1]
    assert reply["query"] == "Gram matrix of records, column 'age', norm at most 1"


SUM = ["query", "sum", "in.csv", "out.csv"]
AGE = ["--columns", "age", "--norm", "1"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*SUM, "--columns", "age", *PROMISE], "--norm"),
        ([*SUM, "--columns", "age", "--lower", "0", *PROMISE], "both lower and upper"),
        ([*SUM, "--columns", "age", "--lower", "x", "--upper", "1", *PROMISE], "'x' is not a"),
        ([*SUM, "--columns", "age,age", "--norm", "1", *PROMISE], "each once"),
        ([*SUM, "--columns", "age,", "--norm", "1", *PROMISE], "each once"),
        ([*SUM, "--columns", "weight", "--norm", "1", *PROMISE], "one column 'weight'"),
        ([*SUM, "--columns", "sex", "--norm", "1", *PROMISE], "column 'sex'"),
        ([*SUM, "--columns", "age", "--norm", "-1", *PROMISE], r"norm=-1.0"),
        (["query", "sum", "no.csv", "out.csv", *AGE, *PROMISE], "does not exist"),
        (["query", "sum", "in.txt", "out.csv", *AGE, *PROMISE], "'.txt'"),
        (["query", "sum", "in.csv", "out.txt", *AGE, *PROMISE], "'.txt'"),
        (["query", "sum", "in.csv", "in.csv", *AGE, *PROMISE, "--force"], "which is read"),
        (["query", "sum", "in.npy", "o.npy", "--columns", "3", "--norm", "1", *PROMISE], "0 to 2"),
        (["query", "sum", "in.npy", "o.npy", "--columns", "9" * 5000, *AGE[2:], *PROMISE], "0 to"),
        (["query", "sum", "in.csv", "", *AGE, *PROMISE], "is of format ''"),
        (["query", "gram", "in.csv", "/", *AGE, *PROMISE], "/ is of format ''"),
        (["query", "mean", "in.csv", "out.csv", *AGE, *PROMISE], "pass --count, the number"),
        (["query", "mean", "in.csv", "out.csv", *AGE, *PROMISE, "--count", "4"], "count=4"),
        (["query", "covariance", "in.csv", "out.csv", *AGE, *PROMISE], "pass --count"),
        (["query", "histogram", "in.csv", "out.csv", *PROMISE], "at least one"),
        (["query", "histogram", "in.csv", "out.csv", "--bins", "age", *PROMISE], "NAME=VALUES"),
        (["query", "histogram", "in.csv", "out.csv", "--bins", "age=0,x", *PROMISE], "not edges"),
        (["query", "histogram", "in.csv", "o.csv", "--bins", "age=0,99", *PROMISE], "'age'"),
        (["query", "histogram", "in.csv", "o.csv", "--categories", "sex=F", *PROMISE], "'sex'"),
        ([*SUM, *AGE, "--delta", "1e-6", "--epsilon", "1", "--neighbouring", "x"], "neighbouring"),
        ([*SUM, *AGE, "--delta", "1e-6", "--neighbouring", "replace"], "--epsilon"),
    ],
)
def test_refusals(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "200" not in error
    assert not list(Path().glob("o*.*"))


@pytest.mark.parametrize(
    "text",
    [
        "age\n8675309\nx\n",
        "age\n8675309\nnan\n",
        "age,b\n8675309,1\n8675309\n",
        "age\n",
        "",
        "8675309\n",
    ],
)
def test_errors_hold_no_cell(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.csv").write_text(text)
    assert main(["query", "sum", "bad.csv", "out.csv", *AGE, *PROMISE]) == 2
    assert "8675309" not in capsys.readouterr().err
    assert not Path("out.csv").exists()


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        (
            "secret",
            ", row 3, column 'age': the cell is not a finite number with a point for the",
        ),
        ("inf", ", row 3, column 'age': the cell is not a finite number"),
        ("", ", row 3 is empty: remove it, or fill its cells"),
        ("1,2", ", row 3 has 2 cells, but row 1 has 1"),
        ('"1,5"', ", row 3, column 'age': the cell is not a finite number with a point"),
        ('"1\n', ", row 3, is not .csv text in UTF-8"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(
    bad: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.csv").write_text(f"age\n1\n{bad}\n1\n")
    arguments = ["query", "sum", "bad.csv", "out.csv", "--columns", "age", "--norm", "1", *CLEAR]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert f"matrixdp: bad.csv{place}" in error
    assert "secret" not in error


def test_a_record_that_can_be_read_is_not_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.csv").write_text("age\n" + 4711 * "1\n" + "5\n")
    arguments = ["query", "histogram", "bad.csv", "out.csv", "--bins", "age=0,2", *CLEAR]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert "column 'age' of data has a value outside its bins" in error
    assert "47" not in error


def test_spaces_around_names_do_not_matter() -> None:
    Path("in.csv").write_text("age , income\n1,2\n")
    assert main([*SUM, "--columns", "income,age", "--norm", "1", *CLEAR]) == 0
    assert Path("out.csv").read_text().startswith(",income,age\n")


def test_another_kind_of_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_bytes(b"PK\x03\x04\xff")
    assert main([*SUM, *AGE, *CLEAR]) == 2
    assert "in.csv, after row 0, is not .csv text" in capsys.readouterr().err
    Path("in.csv").write_text("")
    assert main([*SUM, *AGE, *CLEAR]) == 2
    assert "in.csv is empty" in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is an extra")
def test_parquet() -> None:
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    table = arrow.table({"age": [30, 200, 50], "income": [1.5, 2.5, -7.0], "sex": ["F", "M", "F"]})
    parquet.write_table(table, "in.parquet")
    arguments = ["query", "sum", "in.parquet", "out.npy", "--columns", "income,age", *CLEAR]
    assert main([*arguments, "--lower", "0", "--upper", "3,100"]) == 0
    np.testing.assert_allclose(Release.load("out.npy").value, [[4.0, 180.0]], atol=1.0)
