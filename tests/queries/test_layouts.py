"""Files as they come: without names, with other characters, missing cells and empty rows."""

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixdp import Release
from matrixdp.cli.main import main
from matrixdp.files.formats.decimals import grouped_float
from matrixdp.mechanisms.workload_release import WorkloadRelease

ADDING = ["--mu", "1000", "--delta", "1e-6", "--neighbouring", "add-remove"]
REPLACING = [*ADDING[:-1], "replace"]
SUM = ["query", "sum"]
BOX = ["--columns", "age,income", "--lower", "0", "--upper", "100,9000"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def released(name: str, *options: str, promise: list[str] = ADDING) -> Any:
    assert main([*SUM, name, "out.csv", *BOX, *options, *promise, "--force"]) == 0
    # Noise has a scale of 1 and of 9.
    return (np.round(Release.load("out.csv").value / [10, 100]) * [10, 100]).tolist()


def message(
    capsys: pytest.CaptureFixture[str], name: str, *options: str, relation: str = ""
) -> str:
    capsys.readouterr()
    promise = REPLACING if relation == "replace" else ADDING
    assert main([*SUM, name, "refused.csv", *BOX, *options, *promise]) == 2
    assert not Path("refused.csv").exists()
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_empty_rows_at_the_end_mean_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("age,income\n30,1000\n50,4000\n\n\n")
    assert released("in.csv") == [[80.0, 5000.0]]
    Path("gap.csv").write_text("age,income\n30,1000\n\n50,4000\n")
    assert "gap.csv, row 3 is empty: remove it" in message(capsys, "gap.csv")


def test_names_for_files_that_have_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("a,30,1000\nb,50,4000\n")
    np.save("in.npy", [[9.0, 30.0, 1000.0], [9.0, 50.0, 4000.0]])
    for name in ("in.csv", "in.npy"):
        assert released(name, "--names", "id, age,income") == [[80.0, 5000.0]]
        assert "age,income" in Path("out.csv").read_text()
        assert "--names has 2 names" in message(capsys, name, "--names", "age,income")
        assert "'income' is not among --names" in message(capsys, name, "--names", "a,age,b")
        assert "must be names, each once" in message(capsys, name, "--names", "age,age,income")
    error = message(capsys, "in.csv")
    assert "--names is for files without such a row" in error
    # A first row of names is read as a record, and is none.
    Path("named.csv").write_text("id,age,income\nb,50,4000\n")
    error = message(capsys, "named.csv", "--names", "id,age,income")
    assert "named.csv, row 1, column 'age'" in error


def test_other_characters_are_stated_and_not_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("age;income\n30,5;1.000\n50,5;4.000,00\n")
    european = ["--delimiter", ";", "--decimal", ",", "--thousands", "."]
    assert released("in.csv", *european) == [[80.0, 5000.0]]
    Path("quoted.csv").write_text('age,income\n30,"1,000"\n50,4000\n')
    assert released("quoted.csv", "--thousands", ",") == [[80.0, 5000.0]]
    Path("spaces.csv").write_text("age,income\n30,1 000\n50,4 000\n")
    assert released("spaces.csv", "--thousands", "space") == [[80.0, 5000.0]]
    for name, options in (("in.csv", european[:2]), ("quoted.csv", []), ("spaces.csv", [])):
        error = message(capsys, name, *options)
        assert "row 2" in error
        assert "--decimal and --thousands how numbers are written" in error
        assert "000" not in error
    assert "are both ','" in message(capsys, "in.csv", "--decimal", ",", "--thousands", ",")
    np.save("in.npy", np.ones((2, 2)))
    assert "--thousands is for .csv" in message(capsys, "in.npy", "--thousands", ",")


@given(
    st.integers(-(10**12), 10**12),
    st.integers(0, 999),
    st.sampled_from([(".", ","), (",", "."), (",", " "), (".", "'")]),
)
def test_numbers_in_groups_are_what_they_are_without(
    whole: int, decimals: int, marks: tuple[str, str]
) -> None:
    decimal, thousands = marks
    text = f"{whole:,}".replace(",", thousands) + f"{decimal}{decimals:03}"
    assert grouped_float(text, decimal=decimal, thousands=thousands) == float(
        f"{whole}.{decimals:03}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "1,23",
        "1,2345",
        ",123",
        "1,,234",
        "12,34,567",
        "1.234,5",
        "1,234e3",
        "+-1,234",
        "1_000",
        "",
        ",",
        "nan",
        "\u0661,234",
    ],
)
def test_what_is_not_in_groups_of_three_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"number|float"):
        grouped_float(text, decimal=".", thousands=",")


def parquet(name: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    columns = {"age": [30, None, 50], "income": [1000.0, 2000.0, None], "sex": ["F", None, "M"]}
    importlib.import_module("pyarrow.parquet").write_table(arrow.table(columns), name)


def test_missing_cells_are_left_out_or_filled(capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.csv").write_text("age,income\n30,1000\nNA,2000\n50, ? \n70,\n")
    parquet("in.parquet")
    np.save("in.npy", [[30.0, 1000.0], [np.nan, 2000.0], [50.0, np.nan]])
    for name, words, last in (("in.csv", "NA,?,", 70.0), ("in.parquet", "null", 0.0)):
        assert released(name, "--missing", words) == [[30.0, 1000.0]]
        filled = released(name, "--missing", words, "--fill", "10,3000", promise=REPLACING)
        assert filled == [[90.0 + last, 6000.0 + (3000.0 if last else 0.0)]]
    names = ["--names", "age,income", "--missing", "nan", "--fill", "0"]
    assert released("in.npy", *names) == [[80.0, 3000.0]]
    for name in ("in.csv", "in.parquet"):
        message(capsys, name)  # refused where nothing is said
        error = message(capsys, name, "--missing", "NA", relation="replace")
        assert "--missing needs --fill under replace" in error
    assert "row 4, column 'income'" in message(capsys, "in.csv", "--missing", "NA")
    assert "--fill needs --missing" in message(capsys, "in.csv", "--fill", "0")
    error = message(capsys, "in.csv", "--missing", "NA", "--fill", "1,2,3")
    assert "--fill has 3 values: pass one, or one for each of the 2 columns" in error


@pytest.mark.parametrize(
    ("fill", "why"),
    [
        ("1,2,3,4", "--fill has 4 values: pass one, or one for each of the 3 columns sex,age,pay"),
        ("x", "--fill 'x' for column 'sex' is not among its --categories"),
        ("F,x,1", "--fill 'x' for column 'age' is not a number"),
        ("F,101,1", "--fill '101' for column 'age' is in none of its --bins"),
        ("F,1,nan", "--fill 'nan' for column 'pay' is not a number"),
    ],
)
def test_what_missing_cells_count_as_is_refused_before_any_is_read(
    fill: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # There is no file, so that nothing can have been read.
    asked = ["query", "groups", "none.csv", "out.csv", "--columns", "pay", "--by", "sex,age"]
    asked += ["--categories", "sex=F,M", "--bins", "age=0,40,100", "--lower", "0", "--upper", "9"]
    assert main([*asked, *ADDING, "--missing", "?", "--fill", fill]) == 2
    assert capsys.readouterr().err == f"matrixdp: {why}\n"
    main([*asked, *ADDING, "--missing", "?", "--fill", "F,1,1"])
    assert capsys.readouterr().err.startswith("matrixdp: none.csv does not exist")


def test_groups_of_records_with_filled_cells() -> None:
    Path("in.csv").write_text("pay,sex\n3,F\n?,F\n5,?\n")
    asked = ["query", "groups", "in.csv", "out.csv", "--columns", "pay", "--by", "sex", *ADDING]
    asked += ["--categories", "sex=F,M", "--lower", "0", "--upper", "9"]
    assert main([*asked, "--missing", "?", "--fill", "M,7"]) == 0
    np.testing.assert_allclose(Release.load("out.csv").value, [[2, 10], [1, 5]], atol=0.2)


@pytest.mark.parametrize("suffix", ["npy", "parquet", "csv"])
def test_numbers_as_categories(suffix: str) -> None:
    if suffix == "npy":
        np.save("in.npy", [[0.5], [1.0], [0.5]])
    elif suffix == "parquet":
        arrow = pytest.importorskip("pyarrow")
        table = arrow.table({"0": [0.5, 1.0, 0.5]})
        importlib.import_module("pyarrow.parquet").write_table(table, "in.parquet")
    else:
        Path("in.csv").write_text("0\n0.5\n1\n0.5\n")
    for missing in ([], ["--missing", "?"]):
        asked = ["query", "histogram", f"in.{suffix}", "out.csv", "--categories", "0=0.5,1"]
        assert main([*asked, *ADDING, *missing, "--force"]) == 0
        np.testing.assert_allclose(Release.load("out.csv").value, [[2], [1]], atol=0.1)


def test_the_statement_says_what_missing_cells_count_as() -> None:
    Path("in.csv").write_text("age,income\n30,1000\nNA,2000\n")
    for options, words in (
        ([], "; records with a missing cell ('NA' or '?') are left out"),
        (["--fill", "40,0"], "; missing cells ('NA' or '?') count as 40, 0"),
    ):
        released("in.csv", "--missing", "NA,?", *options)
        statement = json.loads(Path("out.csv.json").read_text())
        assert statement["query"] == (
            f"sum of records, columns 'age', 'income', column ranges 0 to 100, 0 to 9000{words}"
        )


@pytest.mark.parametrize("said", [[], ["--unit", "person"]])
def test_the_statement_of_marginals_says_it_too(said: list[str]) -> None:
    Path("in.csv").write_text("sex,age\nF,30\n?,50\nM,NA\n")
    asked = ["query", "marginals", "in.csv", "out.npz", "--ways", "1", "--categories", "sex=F,M"]
    assert main([*asked, *ADDING, "--missing", "?,NA", *said]) == 0
    about = json.loads(Path("out.npz.json").read_text())["about"]
    rule = "records with a missing cell ('?' or 'NA') are left out"
    assert about == {"missing": rule} | ({"unit": "person"} if said else {})
    loaded = WorkloadRelease.load("out.npz")
    np.testing.assert_allclose(loaded.answers, [1, 1], atol=0.1)


def test_missing_categories() -> None:
    Path("in.csv").write_text("sex,age\nF,30\n?,50\nM,NA\n")
    asked = [
        "query",
        "histogram",
        "in.csv",
        "out.csv",
        "--bins",
        "age=0,40,100",
        "--force",
        *ADDING,
    ]
    for options, expected in (
        (["--categories", "sex=F,M"], [[1, 0], [0, 0]]),
        (["--categories", "sex=F,M,X", "--fill", "X,90"], [[1, 0], [0, 1], [0, 1]]),
    ):
        assert main([*asked, *options, "--missing", "?,NA"]) == 0
        np.testing.assert_allclose(Release.load("out.csv").value, expected, atol=0.1)
    parquet("in.parquet")
    asked[2] = "in.parquet"
    assert main([*asked, "--categories", "sex=F,M,X", "--missing", "null", "--fill", "X,90"]) == 0
    expected = [[1, 0], [0, 1], [0, 1]]
    np.testing.assert_allclose(Release.load("out.csv").value, expected, atol=0.1)
