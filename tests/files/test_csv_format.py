"""CSV text as a matrix: what is read, and errors that give the place but never the cell."""

import io

import numpy as np
import pytest

from matrixdp.errors import FileFormatError
from matrixdp.files.formats.decimals import Decimals
from matrixdp.files.formats.matrices import read_matrix, write_matrix
from matrixdp.mechanisms.labelled import MatrixFile


def read(
    text: str, *, header: bool = False, index: bool = False, decimals: Decimals = "nearest"
) -> MatrixFile:
    return read_matrix(
        io.BytesIO(text.encode()),
        ".csv",
        "in.csv",
        header=header,
        index=index,
        decimals=decimals,
        offered=("--header", "--index"),
    )


def test_labels_and_corner_come_back() -> None:
    matrix = read("id,a,b\nx,1,2\ny,3,4\n", header=True, index=True)
    assert (matrix.corner, matrix.columns, matrix.index) == ("id", ["a", "b"], ["x", "y"])
    np.testing.assert_array_equal(matrix.array, [[1.0, 2.0], [3.0, 4.0]])
    written = io.BytesIO()
    write_matrix(written, matrix, ".csv")
    assert written.getvalue() == b"id,a,b\r\nx,1.0,2.0\r\ny,3.0,4.0\r\n"


def test_written_floats_read_back_unchanged() -> None:
    array = np.array([[0.1, 5e-324], [-1.7976931348623157e308, 1 / 3]])
    written = io.BytesIO()
    write_matrix(written, MatrixFile(array), ".csv")
    np.testing.assert_array_equal(read(written.getvalue().decode()).array, array)


def test_ways_to_read_decimals() -> None:
    assert read("0.3\n").array.item() == 0.3
    assert read("0.3\n", decimals="up").array.item() > 0.3
    assert read("9007199254740993\n", decimals="up").array.item() == 2**53 + 2
    assert read("0.25,9007199254740992\n", decimals="exact").array.tolist() == [[0.25, 2.0**53]]
    for inexact in ("0.3", "3.00000000000000000001", "9007199254740993"):
        with pytest.raises(FileFormatError, match=r"row 2, column 3: .* not exactly") as refusal:
            read(f"1,2,3\n1,2,{inexact}\n", decimals="exact")
        assert inexact not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1,2\n3,secret\n", {}, "in.csv, row 2, column 2: the cell is not a finite number"),
        ("1,2\n3,\n", {}, "row 2, column 2: "),
        ("1,2\nnan,3\n", {}, "row 2, column 1: "),
        ("1,2\n3,1e999\n", {}, "row 2, column 2: "),
        ("a,b\n1,2\n", {}, "row 1, column 1: the cell is not a finite number"),
        ("a,b\n1,secret\n", {"header": True}, "row 2, column 2: the cell is not a finite"),
        ("x,1\ny,2\n", {}, "row 1, column 1: the cell is not a finite number"),
        ("id,a\nx,1\n", {"index": True}, "row 1, column 2: the cell is not a finite number"),
        ("id,a\nx,1\n", {"header": True}, "row 2, column 1: the cell is not a finite number"),
        ("NA,52000,33\n1,2,3\n", {}, "row 1, column 1: the cell is not a finite number"),
        ("1,2\n3\n", {}, "row 2 has 1 cells, but row 1 has 2"),
        ("1\n\n3\n", {}, "row 2 has 0 cells, but row 1 has 1"),
        ("a,b\n", {"header": True}, "no rows of numbers"),
        ("a\nb\n", {"index": True}, "no columns of numbers"),
        ("\n\n", {}, "in.csv has no rows of numbers"),
        ('"1","2\n', {}, "in.csv, row 1, is not .csv text in UTF-8"),
    ],
)
def test_errors_give_the_position(text: str, options: dict[str, bool], message: str) -> None:
    with pytest.raises(FileFormatError) as refusal:
        read(text, **options)  # type: ignore[arg-type]
    assert message in str(refusal.value)
    assert "secret" not in str(refusal.value)
    assert "52000" not in str(refusal.value)
