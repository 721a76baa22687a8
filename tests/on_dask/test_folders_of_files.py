"""Releases in folders of ``.npy`` and Parquet files: as those of zarr, and read by others."""

import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)
pytest.importorskip("pyarrow", reason="Parquet needs the extra `data`")

import dask.array as da
import zarr

from matrixdp import (
    IMGM,
    Budget,
    FrobeniusBall,
    InvalidParameterError,
    PrivacyFilter,
    Release,
    RowBox,
)
from matrixdp.cli.main import main
from matrixdp.distributed.folders import read_folder
from matrixdp.errors import FileFormatError, MissingExtraError, ShapeError
from matrixdp.files.formats.chunk_folders import read_layout_of
from matrixdp.files.formats.chunk_layout import root_digest
from matrixdp.files.formats.stacked_folder import NpyFolder
from matrixdp.noise import ReleaseKey
from matrixdp.report import report_on
from on_dask.conftest import left_in

BUDGET = Budget(1.0, 1e-5)
BALL = IMGM(FrobeniusBall(1.0, "replace"), BUDGET)
BOX = IMGM(RowBox(np.linspace(1.0, 3.0, 6), "replace"), BUDGET)
VALUE = np.random.default_rng(4).normal(size=(25, 6)) * 30
WORDS = ["--epsilon=1", "--delta=1e-5", "--neighbouring=replace", "--sensitivity=1"]
KINDS = ("npy", "parquet")


def pandas() -> Any:
    return importlib.import_module("pandas")


def pyarrow_parquet() -> Any:
    return importlib.import_module("pyarrow.parquet")


def by_others(folder: Path) -> NDArray[Any]:
    """Return what numpy or pandas reads of a folder."""
    if folder.suffix == ".parquet":
        return pandas().read_parquet(folder).to_numpy()
    return np.concatenate([np.load(file) for file in sorted(folder.iterdir())])


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / f"out.{request.param}"


@pytest.fixture
def saved(target: Path) -> Path:
    BALL.release_to(target, da.zeros((25, 6), chunks=(10, 6)))
    return target


@pytest.mark.parametrize("mechanism", [BALL, BOX], ids=["ball", "row box"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_bits_are_those_of_one_machine(
    mechanism: IMGM, dtype: str, target: Path, known_key: bytes
) -> None:
    value = VALUE.astype(dtype)
    expected = mechanism.release(value, key=ReleaseKey.from_bytes(known_key)).value
    for rows in (25, 10, 1):
        path = target.with_stem(f"by {rows}")
        release = mechanism.release_to(path, da.from_array(value, chunks=(rows, 6)))
        assert release.value.dtype == value.dtype
        assert release.value.chunks == da.from_array(value, chunks=(rows, 6)).chunks
        assert np.array_equal(release.value.compute(), expected)
        assert np.array_equal(by_others(path), expected)
        assert Release.verify(path) == mechanism.guarantee
    assert left_in(path)[0] == f"part-00000{target.suffix}"


def sign_again(folder: Path) -> None:
    """Make the statement name the digests of what is in a folder."""
    beside = folder.with_name(f"{folder.name}.json")
    statement = json.loads(beside.read_text())
    layout = read_layout_of(folder)
    digests = [
        hashlib.sha256((folder / layout.chunk_file(index)).read_bytes()).hexdigest()
        for index in layout.indices()
    ]
    statement["file"] |= {"chunk_sha256": digests, "sha256": root_digest(b"", digests)}
    beside.write_text(json.dumps(statement))


def rewritten(change: Callable[[NDArray[Any]], Any]) -> Callable[[Path], None]:
    """Return what writes the numbers of the second chunk again, changed."""

    def alter(folder: Path) -> None:
        file = sorted(folder.iterdir())[1]
        layout = read_layout_of(folder)
        numbers = np.array(layout.numbers(file.read_bytes(), (1, 0)))
        changed = change(numbers)
        with file.open("wb") as output:
            output.writelines(layout.contents(numbers if changed is None else changed))

    return alter


def more_bytes(folder: Path) -> None:
    file = min(folder.iterdir())
    file.write_bytes(file.read_bytes() + b"Ada")


def with_a_note(folder: Path) -> None:
    """Write the second chunk with a note that readers pass over."""
    file = sorted(folder.iterdir())[1]
    if folder.suffix == ".npy":
        file.write_bytes(file.read_bytes().replace(b"     \n", b" #Ada\n", 1))
        return
    table = pyarrow_parquet().read_table(file).replace_schema_metadata({"author": "Ada"})
    pyarrow_parquet().write_table(table, file, compression="none", use_dictionary=False)


ALTERED: dict[str, Callable[[Path], Any]] = {
    "a file more": lambda folder: (folder / "notes.txt").touch(),
    "a chunk more": lambda folder: (folder / f"part-00003{folder.suffix}").touch(),
    "a chunk fewer": lambda folder: sorted(folder.iterdir())[1].unlink(),
    "off the grid": rewritten(lambda numbers: numbers.__setitem__((0, 0), np.pi)),
    "not finite": rewritten(lambda numbers: numbers.__setitem__((0, 0), np.inf)),
    "no noise in one chunk": rewritten(lambda numbers: numbers.fill(3.0)),
    "a row fewer": rewritten(lambda numbers: numbers[1:]),
    "another type": rewritten(lambda numbers: numbers.astype(np.float32)),
    "longer": more_bytes,
    "a note": with_a_note,
}


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_altered_folders_are_refused_signed_again_or_not(
    alter: Callable[[Path], Any], saved: Path
) -> None:
    sign_again(saved)
    assert Release.verify(saved) == BALL.guarantee
    before = {file: file.read_bytes() for file in saved.iterdir()}
    alter(saved)
    assert before != {file: file.read_bytes() for file in saved.iterdir()}
    with pytest.raises(FileFormatError):
        Release.verify(saved)
    try:
        sign_again(saved)
    except (FileFormatError, OSError):
        return  # nobody could sign that
    with pytest.raises(FileFormatError):
        Release.verify(saved)


def test_a_file_has_whole_rows(target: Path) -> None:
    with pytest.raises(ShapeError, match=r"call matrix.rechunk\(\{1: -1\}\)"):
        BALL.release_to(target, da.zeros((10, 6), chunks=(5, 3)))
    with pytest.raises(InvalidParameterError, match=r"ends in \.zarr, \.npy, \.parquet"):
        BALL.release_to(target.with_suffix(".csv"), da.zeros((10, 6), chunks=(5, 6)))
    assert left_in(target.parent) == []


@pytest.mark.usefixtures("client")
def test_commands_go_by_the_names_of_folders(
    target: Path, cluster: Any, known_key: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    stored, folder = target.parent / "in.zarr", target.with_stem("in")
    zarr.create_array(stored, data=VALUE, chunks=(20, 6))
    folder.mkdir()
    for number, rows in enumerate(np.split(VALUE, [7, 19])):  # uneven, as others write them
        file = folder / f"{number}{target.suffix}"
        if target.suffix == ".npy":
            np.save(file, rows)
        else:
            pandas().DataFrame(rows, columns=list("abcdef")).to_parquet(file)
    expected = BALL.release(VALUE, key=ReleaseKey.from_bytes(known_key)).value
    scheduler = ["--scheduler", cluster.scheduler_address]
    pattern = f"{folder}/[0-9]*{target.suffix}"
    made_of = {stored: target, folder: target.with_stem("out2"), pattern: target.with_stem("out3")}
    for source, made in made_of.items():
        assert main(["release", str(source), str(made), *WORDS, *scheduler]) == 0
        assert np.array_equal(by_others(made), expected)
        assert main(["verify", str(made), *scheduler]) == 0
        assert main(["verify", str(made)]) == 0
        assert report_on([made]).problems == 0
    assert "proves its guarantee" in capsys.readouterr().out
    assert main(["release", str(folder), str(target.with_suffix(".csv")), *WORDS]) == 2
    assert "is released into another one" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--columns=a", "--header", "--index"])
@pytest.mark.parametrize("source", ["", "/*.parquet"])
def test_options_of_one_file_are_refused_for_folders(
    source: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What was left out would be released, by a sensitivity that is not its own.
    folder = tmp_path / "in.parquet"
    folder.mkdir()
    pandas().DataFrame(VALUE, columns=list("abcdef")).to_parquet(folder / "0.parquet")
    target = str(tmp_path / "out.parquet")
    assert main(["release", f"{folder}{source}", target, *WORDS, option]) == 2
    assert f"{option.removesuffix('=a')} is for a file" in capsys.readouterr().err
    assert left_in(tmp_path) == ["in.parquet"]


def test_a_missing_library_is_noticed_before_paying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paying = PrivacyFilter(BUDGET, neighbouring="replace")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="pyarrow"):
        BALL.release_to(tmp_path / "out.parquet", da.zeros((4, 2)), privacy_filter=paying)
    assert (paying.spent, left_in(tmp_path)) == (0.0, [])


def test_folders_that_hold_no_matrix_are_refused(target: Path) -> None:
    target.mkdir()
    with pytest.raises(FileFormatError, match="has no"):
        read_folder(target)
    for number, columns in enumerate(("ab", "abc")):
        file = target / f"{number}{target.suffix}"
        if target.suffix == ".npy":
            np.save(file, np.zeros((2, len(columns))))
        else:
            pandas().DataFrame(np.zeros((2, len(columns))), columns=list(columns)).to_parquet(file)
    with pytest.raises(FileFormatError, match="different columns"):
        read_folder(target)
    if target.suffix == ".parquet":
        pandas().DataFrame({"a": ["Ada"]}).to_parquet(target / "0.parquet")
        with pytest.raises(FileFormatError, match="cast its columns"):
            read_folder(target)


def test_columns_in_another_order_are_refused(tmp_path: Path) -> None:
    # By their indices, numbers of one column would get the noise of another.
    folder = tmp_path / "in.parquet"
    folder.mkdir()
    frame = pandas().DataFrame({"age": [50.0], "income": [9e5]})
    frame.to_parquet(folder / "0.parquet")
    frame[["income", "age"]].to_parquet(folder / "1.parquet")
    with pytest.raises(FileFormatError, match="in another order"):
        read_folder(folder)


def test_rows_are_in_the_order_of_the_numbers_in_names(target: Path) -> None:
    # Bounds of rows are for these rows: `part.10` is not the second file.
    value, stored = np.arange(24.0).reshape(12, 2), da.arange(24.0, chunks=2).reshape(12, 2)
    if target.suffix == ".npy":
        da.to_npy_stack(str(target), stored)
    else:
        stored.to_dask_dataframe(columns=["a", "b"]).to_parquet(target, write_index=False)
    assert len(list(target.glob(f"*{target.suffix}"))) == 12
    assert np.array_equal(read_folder(target).compute(), value)


def test_chunks_are_proven_without_pythons_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    # In Python 3.11 it fails at times when several threads use it at once.
    def fail(*_arguments: Any) -> Any:
        raise SystemError("AST constructor recursion depth mismatch")

    layout = NpyFolder((25, 6), "float64", (10, 6))
    content = b"".join(layout.contents(VALUE[:10]))
    monkeypatch.setattr("builtins.compile", fail)
    found = layout.numbers(content, (0, 0))
    assert found is not None
    assert np.array_equal(found, VALUE[:10])
