"""``matrixdp query`` with counts that are paid for, and histograms of every kind of file."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Release
from matrixdp.cli.main import main
from matrixdp.queries import MeanRelease

ADDING = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "add-remove"]
# So little noise that released counts can be recognised: only for these tests.
CLEAR = ["--mu", "1000", "--delta", "1e-6", "--neighbouring", "add-remove"]
BOX = ["--columns", "age,income", "--lower", "0", "--upper", "100,3"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a small table."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("age,income,sex\n30,1.5,F\n200,2.5,M\n50,-7,F\n20,0,M\n")
    return tmp_path


@pytest.mark.parametrize("command", ["sum", "mean", "gram", "covariance"])
def test_the_statement_says_how_many_records_the_bounds_changed_if_that_was_paid_for(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["query", command, "in.csv", "out.csv", *BOX, *CLEAR, "--force"]
    count = ["--count", "4"] if command in ("mean", "covariance") else []
    assert main([*arguments, *count]) == 0
    assert "counts" not in json.loads(Path("out.csv.json").read_text())
    alone = Release.load("out.csv").standard_errors().max()
    capsys.readouterr()
    assert main([*arguments, *count, "--clipped-share", "0.19", "--json"]) == 0
    statement = json.loads(Path("out.csv.json").read_text())
    clipped = statement["counts"]["clipped"]
    assert clipped["value"] == pytest.approx(2.0, abs=0.1)
    assert json.loads(capsys.readouterr().out)["counts"] == {"clipped": clipped["value"]}
    # The count has 0.19 of mu², the matrix the rest, and the guarantee is that of both.
    assert 1000 * clipped["noise_scale"] * 0.19**0.5 == pytest.approx(1.0)
    release = Release.load("out.csv")
    assert release.standard_errors().max() * 0.9 == pytest.approx(alone)
    assert Release.verify("out.csv").mu == pytest.approx(1000.0)
    assert release.proof.mu == pytest.approx(900.0)


def test_the_report_says_that_the_count_was_paid_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "sum", "in.csv", "o.csv", *BOX, *CLEAR, "--clipped-share", ".5"]) == 0
    error = capsys.readouterr().err
    assert "records changed by the bounds: 2.0, with a standard error of 0.00142" in error


def test_means_over_a_private_count(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["query", "mean", "in.csv", "means.csv", *BOX]
    assert main([*arguments, *CLEAR]) == 0
    assert "records in all: 4.0" in capsys.readouterr().err
    released = MeanRelease.load("means.csv")
    np.testing.assert_allclose(released.value, [[50.0, 1.0]], atol=0.5)
    written = np.genfromtxt("means.csv", delimiter=",", skip_header=1)[1:]
    np.testing.assert_array_equal(written, released.value[0])
    assert not Path("means.csv.json").exists()
    assert Release.verify("means.sum.csv") == released.guarantee
    assert main([*arguments, *CLEAR]) == 2
    assert "exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["mean", *ADDING, "--clipped-share", "0.1"], "--clipped-share"),
        (["mean", *ADDING[:-1], "replace"], "public"),
        (["sum", *ADDING, "--clipped-share", "0"], "clipped_share=0.0"),
        (["sum", *ADDING, "--clipped-share", "1"], "clipped_share=1.0"),
        (["sum", *ADDING, "--clipped-share", "nan"], "clipped_share=nan"),
        (["sum", *ADDING, "--clipped-share", "x"], "'x' is not a number"),
        (["covariance", *ADDING], "pass --count"),
        (["clipped", *ADDING, "--clipped-share", "0.1"], "--clipped-share"),
    ],
)
def test_refusals(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", options[0], "in.csv", "out.csv", *BOX, *options[1:]]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "200" not in error
    assert not list(Path().glob("out*"))


def test_categories_of_a_file_of_numbers() -> None:
    np.save("in.npy", np.array([[1.0, 5.0], [2.0, 7.5], [1.0, 7.5]]))
    arguments = ["query", "histogram", "in.npy", "out.npy", "--bins", "1=0,6,9", *CLEAR]
    assert main([*arguments, "--categories", "0=1,2"]) == 0
    np.testing.assert_allclose(Release.load("out.npy").value, [[1, 1], [0, 1]], atol=0.1)
    # 7.5 is not an integer, which could be a category.
    assert main(["query", "histogram", "in.npy", "o.npy", "--categories", "1=5,7", *CLEAR]) == 2


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is an extra")
def test_histograms_of_parquet_files(capsys: pytest.CaptureFixture[str]) -> None:
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    columns = {"age": [30, 50, 20], "sex": ["F", "M", "M"], "k": [1, 2, 2], "g": [1.0, None, 2.0]}
    parquet.write_table(arrow.table(columns), "in.parquet")
    arguments = ["query", "histogram", "in.parquet", "out.csv", "--force", *CLEAR]
    assert main([*arguments, "--categories", "sex=F,M", "--bins", "age=0,25,99"]) == 0
    np.testing.assert_allclose(Release.load("out.csv").value, [[0, 1], [1, 1]], atol=0.1)
    assert main([*arguments, "--categories", "k=1,2"]) == 0
    np.testing.assert_allclose(Release.load("out.csv").value, [[1], [2]], atol=0.1)
    for missing in (["--categories", "g=1,2"], ["--bins", "g=0,9"], ["--bins", "sex=0,9"]):
        assert main([*arguments, *missing]) == 2
    Path("bad.parquet").write_text("8675309")
    assert main(["query", "histogram", "bad.parquet", "o.csv", "--bins", "a=0,1", *CLEAR]) == 2
    error = capsys.readouterr().err
    assert "bad.parquet is not a Parquet file" in error
    assert "8675309" not in error
