"""Formats beside plain CSV: what is written reads back, and errors say what is wrong."""

import gzip
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall, InvalidParameterError, Release
from matrixdp.errors import FileFormatError, MissingExtraError
from matrixdp.files.formats.matrices import read_matrix, write_matrix
from matrixdp.files.formats.suffixes import ARROW, FORMATS, LABELLED, TEXT, format_of, with_word
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.queries import Mean, MeanRelease, PublicBounds

MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
MATRIX = MatrixFile(
    np.array([[0.1, 5e-324], [-1.7976931348623157e308, 1 / 3]]), ["a;b", "c"], ["x\ty", "z"], "id"
)


@pytest.fixture(params=FORMATS)
def suffix(request: pytest.FixtureRequest) -> str:
    if request.param in ARROW:
        pytest.importorskip("pyarrow")
    return str(request.param)


def written(matrix: MatrixFile, suffix: str) -> bytes:
    file = io.BytesIO()
    write_matrix(file, matrix, suffix)
    return file.getvalue()


def read(content: bytes, suffix: str, **options: Any) -> MatrixFile:
    return read_matrix(io.BytesIO(content), suffix, f"in{suffix}", **options)


def test_numbers_and_labels_come_back(suffix: str) -> None:
    labelled = suffix in LABELLED
    back = read(written(MATRIX, suffix), suffix, header=labelled, index=labelled)
    np.testing.assert_array_equal(back.array, MATRIX.array)
    if labelled:
        assert (back.columns, back.index, back.corner) == (["a;b", "c"], ["x\ty", "z"], "id")


def test_a_matrix_without_labels_comes_back(suffix: str) -> None:
    back = read(written(MatrixFile(MATRIX.array), suffix), suffix)
    np.testing.assert_array_equal(back.array, MATRIX.array)
    assert (back.columns, back.index) == (None, None)


def test_the_same_matrix_makes_the_same_file(suffix: str) -> None:
    if suffix != ".npz":  # which holds the time
        assert written(MATRIX, suffix) == written(MATRIX, suffix)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_releases_are_saved_and_proven(suffix: str, dtype: type, tmp_path: Path) -> None:
    release = MECHANISM.release(np.ones((3, 2), dtype=dtype))
    # The case of the name does not matter.
    release.save(tmp_path / f"OUT{suffix.upper()}")
    back = Release.load(tmp_path / f"OUT{suffix.upper()}")
    np.testing.assert_array_equal(back.value, release.value)
    assert back.value.dtype == dtype
    assert Release.verify(tmp_path / f"OUT{suffix.upper()}") == release.guarantee


def test_labels_of_a_frame_are_kept_or_missed(suffix: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.ones((2, 2)), columns=["a", "b"], index=["x", "y"])
    release = MECHANISM.release(frame)
    path = tmp_path / f"out{suffix}"
    if suffix in LABELLED:
        release.save(path)
        with path.open("rb") as file:
            back = read_matrix(file, suffix, "out", header=True, index=True)
        assert (back.columns, back.index) == (["a", "b"], ["x", "y"])
    else:
        with pytest.warns(UserWarning, match="labels are left out"):
            release.save(path)
    np.testing.assert_array_equal(Release.load(path).value, release.value)


def test_means_over_a_private_count(suffix: str, tmp_path: Path) -> None:
    means = Mean(PublicBounds(2, norm=1.0), "add-remove").release(
        np.ones((9, 2)), Budget(1.0, 1e-5)
    )
    means.save(tmp_path / f"means{suffix}", columns=["a", "b"])
    assert (tmp_path / f"means.sum{suffix}.json").exists()
    back = MeanRelease.load(tmp_path / f"means{suffix}")
    np.testing.assert_array_equal(back.value, means.value)


def test_columns_are_chosen_in_the_order_asked(suffix: str) -> None:
    if suffix not in LABELLED:
        return
    matrix = MatrixFile(np.array([[1.0, 2.0, 3.0]]), ["a", "b", "c"], ["row"])
    back = read(written(matrix, suffix), suffix, header=True, index=True, columns=["c", "a"])
    assert back.array.tolist() == [[3.0, 1.0]]
    assert back.columns == ["c", "a"]
    for wrong in (["a", "d"], ["row"], ["index"]):
        with pytest.raises(FileFormatError, match="must have exactly one column"):
            read(written(matrix, suffix), suffix, header=True, index=True, columns=wrong)


def test_text_in_columns_that_are_not_chosen_is_not_read() -> None:
    content = b"name,age,town\nsecret,3,secret\n"
    assert read(content, ".csv", header=True, columns=["age"]).array.tolist() == [[3.0]]
    with pytest.raises(FileFormatError, match="row 2, column 3") as refusal:
        read(content, ".csv", header=True, columns=["age", "town"])
    assert "secret" not in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "suffix", "sign"),
    [
        ("1;2\n3;4\n", ".csv", "','"),
        ("a;b\n3;4\n", ".csv", "','"),
        ("1\t2\n3\t4\n", ".csv", "','"),
        ("1|2\n3|4\n", ".csv", "','"),
        ("1,2\n3,4\n", ".tsv", r"'\t'"),
    ],
)
def test_cells_between_another_delimiter(content: str, suffix: str, sign: str) -> None:
    expected = (
        f"in{suffix}, row 1, column 1: the cell is not a finite number with a point for the "
        f"decimals; cells are between {sign}"
    )
    with pytest.raises(FileFormatError) as refusal:
        read(content.encode(), suffix, offered=["--delimiter", "--header", "--index"])
    assert str(refusal.value) == (
        f"{expected} unless --delimiter names another character, and labels need --header and "
        "--index"
    )
    with pytest.raises(FileFormatError) as refusal:
        read(content.encode(), suffix)
    assert str(refusal.value) == f"{expected}, and leave labels out"


def test_a_delimiter_can_be_given() -> None:
    assert read(b"1;2\n3;4\n", ".csv", delimiter=";").array.tolist() == [[1.0, 2.0], [3.0, 4.0]]


PACKED = gzip.compress(b"1,2\n", mtime=0)


@pytest.mark.parametrize(
    "content",
    [b"1,2\n", b"", PACKED[:-6], PACKED[:12] + b"junk"],
    ids=["not packed", "empty", "cut short", "damaged"],
)
def test_damaged_compressed_files(content: bytes) -> None:
    with pytest.raises(FileFormatError):
        read(content, ".csv.gz")


@pytest.mark.parametrize("suffix", ARROW)
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, 2**53 + 1], r"in.*, row 2, column 2: the integer is beyond 2\*\*53"),
        ([1.0, None], "row 2, column 2: the value is missing"),
        (["secret", "b"], "column 2: the column is text"),
        ([float("nan"), 8675309.0], "row 1, column 2: the number is not finite"),
    ],
)
def test_bad_columns(suffix: str, values: list[object], message: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    content = table_bytes(arrow.table({"a": [1.0, 2.0], "b": values}), suffix)
    with pytest.raises(FileFormatError, match=message) as refusal:
        read(content, suffix)
    assert "secret" not in str(refusal.value)
    assert "8675309" not in str(refusal.value)


@pytest.mark.parametrize("suffix", ARROW)
def test_types_of_columns(suffix: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    singles = arrow.array(np.array([1.5, 2.5], dtype=np.float32))
    counts, flags = arrow.array([-(2**53), 2**53]), arrow.array([True, False])
    mixed = read(
        table_bytes(arrow.table([singles, counts, flags], names=list("abc")), suffix), suffix
    )
    assert mixed.array.tolist() == [[1.5, -(2.0**53), 1.0], [2.5, 2.0**53, 0.0]]
    assert read(table_bytes(arrow.table({"a": singles}), suffix), suffix).array.dtype == np.float32
    money = arrow.array([1, 2]).cast(arrow.decimal128(30, 2))
    with pytest.raises(FileFormatError, match="is of type decimal128"):
        read(table_bytes(arrow.table({"a": money}), suffix), suffix)


@pytest.mark.parametrize("suffix", ARROW)
def test_damaged_and_empty_tables(suffix: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    for content in (b"8675309", written(MATRIX, suffix)[:-20]):
        with pytest.raises(FileFormatError, match="or is cut short or damaged") as refusal:
            read(content, suffix)
        assert "8675309" not in str(refusal.value)
    with pytest.raises(FileFormatError, match="no rows or no columns"):
        read(table_bytes(arrow.table({"a": arrow.array([], arrow.float64())}), suffix), suffix)


def table_bytes(table: Any, suffix: str) -> bytes:
    """Write an Arrow table with pyarrow alone."""
    from pyarrow import ipc, parquet  # type: ignore[import-untyped]  # noqa: PLC0415

    file = io.BytesIO()
    if suffix == ".parquet":
        parquet.write_table(table, file)
    else:
        with ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return file.getvalue()


def test_what_is_not_installed_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for work in (lambda: written(MATRIX, ".parquet"), lambda: read(b"", ".arrow")):
        with pytest.raises(MissingExtraError, match=r"not installed: pip install '\.\[data\]'"):
            work()


def test_names_of_files() -> None:
    assert format_of("a/b.CSV.GZ") == ".csv.gz"
    assert format_of("data.gz") == ".gz"
    assert format_of(".csv") == ""
    assert with_word(Path("a/means.TSV"), "sum") == Path("a/means.sum.TSV")
    assert set(TEXT) < set(LABELLED) < set(FORMATS)
    with pytest.raises(InvalidParameterError, match="is not known"):
        written(MATRIX, ".txt")
