"""``matrixdp release`` of CSV files: decimals that are rounded, and labels that are published."""

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Diagonal, FrobeniusBall, Release, RowBounds, RowBox
from matrixdp.cli.main import main
from matrixdp.cli.shared.labels import is_name

PROMISE = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "replace"]
BALL = [*PROMISE, "--sensitivity", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with two small matrices."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("0,0\n0,0\n0,0\n")
    Path("labelled.csv").write_text("id,a,b\nx,0,0\ny,0,0\nz,0,0\n")
    return tmp_path


# Decimals


@pytest.mark.parametrize("options", [[], ["--range", "1e11"]])
def test_neighbouring_decimals_are_as_close_as_stated(options: list[str]) -> None:
    cells = ("10000000000.0000009", "10000000000.0000010")
    Path("near.csv").write_text(f"{cells[0]}\n")
    if main(["release", "near.csv", "out.csv", *PROMISE, "--box", "1e-7", *options]) == 2:
        assert options == []
        assert not Path("out.csv").exists()
        return
    release = Release.load("out.csv")
    assert isinstance(release.covariance, Diagonal)
    distance = abs(Fraction(float(cells[0])) - Fraction(float(cells[1])))
    assert distance / Fraction(float(release.covariance.scales.min())) <= Fraction(
        release.guarantee.mu
    )


def test_the_statement_has_the_set_that_was_covered() -> None:
    assert main(["release", "in.csv", "box.csv", *PROMISE, "--box", "1,2"]) == 0
    box = Release.load("box.csv").sensitivity
    assert isinstance(box, RowBox)
    assert box.bounds.tolist() == [1 + 2.0**-20, 2 + 2.0**-19]
    options = [*PROMISE, "--row-bounds", "1,2,4", "--range", str(2**52)]
    assert main(["release", "in.csv", "rows.npy", *options]) == 0
    rows = Release.load("rows.npy").sensitivity
    assert isinstance(rows, RowBounds)
    np.testing.assert_allclose(rows.bounds, np.array([1, 2, 4]) + math.sqrt(2), rtol=1e-15)
    np.save("in.npy", np.zeros((3, 2)))
    assert main(["release", "in.npy", "ball.npy", *BALL]) == 0
    assert Release.load("ball.npy").sensitivity == FrobeniusBall(1.0, "replace")


def test_a_number_beyond_the_range_is_refused_by_position(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("far.csv").write_text("name,a,b\nx,1,2\ny,3,-87654321\n")
    arguments = ["release", "far.csv", "out.csv", *BALL, "--header", "--index", "--range"]
    assert main([*arguments, "87654320"]) == 2
    error = capsys.readouterr().err
    assert "far.csv, row 3, column 3: the number is outside the range of 87654320.0 either" in error
    assert "87654321" not in error
    assert not Path("out.csv").exists()
    assert main([*arguments, "87654321"]) == 0


def test_decimal_bounds_are_rounded_up() -> None:
    np.save("in.npy", np.zeros((1, 2)))
    above = [math.nextafter(0.3, 1.0), 0.1]  # the float 0.3 is below three tenths, 0.1 above one
    assert main(["release", "in.npy", "ball.npy", *PROMISE, "--sensitivity", "0.3"]) == 0
    assert Release.load("ball.npy").sensitivity == FrobeniusBall(above[0], "replace")
    Path("bounds.csv").write_text("0.3\n0.1\n")
    for target, given in [("list.npy", "0.3,0.1"), ("file.npy", "bounds.csv")]:
        assert main(["release", "in.npy", target, *PROMISE, "--box", given]) == 0
        box = Release.load(target).sensitivity
        assert isinstance(box, RowBox)
        assert box.bounds.tolist() == above


# Labels


def test_labels_of_csv_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["release", "labelled.csv", "out.csv", *BALL, "--header", "--index"]
    assert main(arguments) == 0
    said = "a 3 by 2 matrix with noise; labels published as they are: 2 of columns, 3 of rows"
    assert said in capsys.readouterr().err
    lines = Path("out.csv").read_text().splitlines()
    assert lines[0] == "id,a,b"
    assert [line.split(",")[0] for line in lines[1:]] == ["x", "y", "z"]
    assert Release.load("out.csv").shape == (3, 2)
    assert main([*arguments, "--force", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["shape"], reply["column_labels"], reply["row_labels"]) == ([3, 2], 2, 3)


def test_without_labels_the_report_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "in.csv", "out.csv", *BALL]) == 0
    assert "a 3 by 2 matrix with noise; no labels" in capsys.readouterr().err
    # A .npy file cannot hold labels.
    options = ["--header", "--index", "--json"]
    assert main(["release", "labelled.csv", "out.npy", *BALL, *options]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["shape"], reply["column_labels"], reply["row_labels"]) == ([3, 2], 0, 0)


def test_a_byte_order_mark_is_not_data() -> None:
    Path("marked.csv").write_bytes(b"\xef\xbb\xbf" + Path("in.csv").read_bytes())
    assert main(["release", "marked.csv", "out.csv", *BALL]) == 0
    assert Release.load("out.csv").shape == (3, 2)
    Path("titled.csv").write_bytes(b"\xef\xbb\xbf" + Path("labelled.csv").read_bytes())
    assert main(["release", "titled.csv", "t.csv", *BALL, "--header", "--index"]) == 0
    assert Path("t.csv").read_text().startswith("id,a,b")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("NA,52000,33\n1,2,3\n", "row 1, column 1"),
        ("2019,2020\n1,2\n", "row 1, column 1"),
        ("a,52000,b\n1,2,3\n", "row 1, column 2"),
        ("a,\n1,2\n", "row 1, column 2"),
    ],
)
def test_a_first_row_that_could_be_data_needs_a_word(
    text: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("doubtful.csv").write_text(text)
    assert main(["release", "doubtful.csv", "out.csv", *BALL, "--header"]) == 2
    error = capsys.readouterr().err
    assert f"--header would publish the first row of IN as it is, but {place} could be" in error
    assert "pass --header=public" in error
    assert "52000" not in error
    assert not Path("out.csv").exists()
    assert main(["release", "doubtful.csv", "out.csv", *BALL, "--header=public"]) == 0
    assert Path("out.csv").read_text().splitlines()[0] == text.splitlines()[0]


@pytest.mark.parametrize("corner", ["52000", "NA", "?"])
def test_a_corner_that_could_be_data_needs_a_word(
    corner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("corner.csv").write_text(f"{corner},a,b\nx,0,0\n")
    arguments = ["release", "corner.csv", "out.csv", *BALL, "--index"]
    assert main([*arguments, "--header"]) == 2
    error = capsys.readouterr().err
    assert "row 1, column 1 could be data" in error
    assert corner not in error
    assert not Path("out.csv").exists()
    assert main([*arguments, "--header=public"]) == 0


def test_a_first_column_that_could_be_data_needs_a_word(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("numbered.csv").write_text(",a,b\nx,1,2\n8051,3,4\n")
    arguments = ["release", "numbered.csv", "out.csv", *BALL, "--header"]
    assert main([*arguments, "--index"]) == 2
    error = capsys.readouterr().err
    assert "--index would publish the first column of IN as it is, but row 3, column 1" in error
    assert "8051" not in error
    assert main([*arguments, "--index=public"]) == 0
    assert [line.split(",")[0] for line in Path("out.csv").read_text().split()] == ["", "x", "8051"]


def test_a_lone_option_takes_nothing_that_follows() -> None:
    assert main(["release", "--header", "--index", "labelled.csv", "out.csv", *BALL]) == 0
    Path("--header").write_text("")
    assert main(["release", *BALL, "--", "in.csv", "--header"]) == 2


def test_names_and_data() -> None:
    for name in ("income", "y2019", "_id", "Größe", "Q1", "nano", " padded ", "x"):
        assert is_name(name), name
    for data in (
        *("", " ", "1", "-2.5", "1e5", "12 kg", "$5", "2019-05-01", "50%", "<5", "١٢"),
        *("NA", "n/a", "NaN", "NULL", "None", "-", "?", ".", "#N/A", "inf", "TRUE", " na "),
    ):
        assert not is_name(data), data


def test_text_without_header_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "labelled.csv", "out.csv", *BALL]) == 2
    error = capsys.readouterr().err
    assert "labelled.csv, row 1, column 1: the cell is not a finite number" in error
    assert "--header" in error
    assert "--index" in error
