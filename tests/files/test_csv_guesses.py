"""Guesses at what is wrong with a text file: right, or not made."""

import io
from typing import Any

import pytest

from matrixdp.errors import FileFormatError
from matrixdp.files.csv_guesses import guessed_header_delimiter
from matrixdp.files.matrices import read_matrix

OFFERED = ("--header", "--index", "--delimiter", "--columns")


def refusal(content: str | bytes, suffix: str = ".csv", **options: Any) -> str:
    """Return the error of a file that cannot be read."""
    data = content if isinstance(content, bytes) else content.encode()
    with pytest.raises(FileFormatError) as found:
        read_matrix(io.BytesIO(data), suffix, f"in{suffix}", **{"offered": OFFERED, **options})
    return str(found.value)


@pytest.mark.parametrize(
    ("content", "options", "guess"),
    [
        # Decimal commas, alone and with semicolons between cells.
        ("1,5;2,5\n3,5;4,5\n", {}, "by semicolons, and decimals are written with commas: pass --d"),
        ("a;b\n1;2,5\n", {"header": True}, "by semicolons, and decimals are written with commas"),
        (
            "1,5;2,5\n",
            {"delimiter": ";"},
            "row 1, column 1: the cell is not a finite number; its d",
        ),
        (
            'a,b\n"1,5",2\n',
            {"header": True},
            "its decimals are written with a comma: write a point",
        ),
        ('"1,5"\n"2,5"\n', {}, "its decimals are written with a comma"),
        ("1,5\n2,5\n", {"suffix": ".tsv"}, "by commas, unless these belong to the numbers"),
        # Signs between thousands.
        ('"1,234",5\n', {}, "it has signs between thousands, or a comma for decimals"),
        ('"1,234.5",5\n', {}, "it has signs between thousands"),
        ('"1.234,5",5\n', {}, "it has signs between thousands"),
        ("1'234,5\n", {}, "it has signs between thousands"),
        ("1 234\n5 678\n", {}, "it has signs between thousands"),
        # Quotation marks.
        ('1,2\n3,"4\n5,6\n', {}, "in.csv, row 2: a quotation mark is opened and not closed"),
        (
            '1,2\n"3,4\n5,6"\n7,8\n',
            {},
            "row 2 has 1 cells, but row 1 has 2: rows must have one len",
        ),
        ('1,2\n"3,4\n5,6"\n7,8\n', {}, "goes over several lines, so that a quotation mark is prob"),
        ('1,2\n"3\n4",6\n', {}, "row 2, column 1: the cell is not a finite number; it goes over s"),
        ('1,2\n"3"x,4\n', {}, "in.csv, row 2: a quotation mark ends before its cell does"),
        ('1, "2"\n', {}, "there is a space before its quotation mark"),
        # A cell that does not end, for one of two reasons.
        (
            '"' + 200_000 * "x",
            {},
            "row 1: a cell has more than 131,072 characters: a quotation",
        ),
        (100_000 * "1\t" + "1\n", {}, "not closed, or the cells are separated by another sign"),
        # Cells that are not there, or not finite.
        ("1,\n2,3\n", {}, "row 1, column 2: the cell is not a finite number; it is empty"),
        ("NA,NA\n1,2\n", {}, "it is a word for a missing value"),
        ("1,inf\n", {}, "it is infinite"),
        ("5%,1\n", {}, "it has a percent sign"),
        # Labels.
        (
            ",a,b\nx,1,2\n",
            {},
            "the first row is text: if it is labels, add --header, and the first",
        ),
        ("2019-01-01,1\n2019-01-02,2\n", {}, "the first column is text: if it is labels, add --in"),
        ("a,b\n1,2\n", {"offered": ()}, "the first row is text: if it is labels, leave it out"),
        # Other signs between cells.
        ("1.0e+00 2.0e+00\n3.0e+00 4.0e+00\n", {}, "by spaces: pass --delimiter ' '"),
        ("1,2,3\n4,5,6\n", {"suffix": ".tsv"}, "by commas: pass --delimiter ',', or save the"),
        ("1;2\n3;4\n", {"offered": ()}, "separated by semicolons: save the file with commas"),
        # Not text.
        ("1,2\n".encode("utf-16"), {}, "in.csv is text in UTF-16"),
        ("1,2\n".encode("utf-16-le"), {}, "it holds zero bytes, as text in UTF-16 does"),
        ("é,2\n".encode("latin-1"), {}, "in.csv is not text in UTF-8"),
        (b"PK\x03\x04\xff", {}, "in.csv is a spreadsheet"),
        (b"PAR1\xff", {}, "in.csv is a Parquet file"),
        (b"\x1f\x8b\x08\xff", {}, "in.csv is compressed"),
    ],
)
def test_right_guesses(content: str | bytes, options: dict[str, Any], guess: str) -> None:
    assert guess in refusal(content, **options)


@pytest.mark.parametrize(
    "content",
    [
        "1,2\nbob,3\n",  # a slip in a column of numbers, not an index
        "1,x\nbob,3\n",
        "x;y,1,bad\nz;w,2,3\n",  # semicolons within labels
        "1;2,3\n4,5\n",
        "[[1,2],[3,4]]\n",
        "<html>\n<body>\n",
        "1;2\n3;4;5\n",
        "$5,1\n",
        "1_000,2\n",
        "1   2\n30 4\n",
        "true,1\n",
    ],
)
def test_nothing_is_guessed_where_nothing_is_clear(content: str) -> None:
    assert refusal(content).endswith(
        "the cell is not a finite number; every cell must be one, with a point for the decimals "
        "and nothing else"
    )


def test_spaces_around_numbers_and_names_do_not_matter() -> None:
    file = io.BytesIO(b" a , b \n 1 , 2\n3,4 \n")
    found = read_matrix(file, ".csv", "in.csv", header=True, columns=["b", "a"])
    assert found.array.tolist() == [[2.0, 1.0], [4.0, 3.0]]


def test_a_header_names_the_column_with_another_delimiter() -> None:
    assert "by semicolons" in guessed_header_delimiter(["a; b;c"], "b", ",")
    assert guessed_header_delimiter(["a; b;c"], "d", ",") == ""
    assert guessed_header_delimiter(["a", "b"], "d", ",") == ""
