"""The folder of data sets: its name, and the errors if there is none or a file is missing."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError, ShapeError
from matrixdp_experiments.datasets import DATASETS, Records, data_folder, load_dataset
from small_files import PERSON


def test_the_environment_names_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MATRIXDP_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    assert data_folder(Path("other")) == Path("other")
    (tmp_path / "adult.data").write_text(PERSON)
    with pytest.raises(FileFormatError, match=r"adult\.test is missing"):
        load_dataset("adult")


@pytest.mark.parametrize("value", [None, ""])
def test_no_folder(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("MATRIXDP_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("MATRIXDP_DATA", value)
    with pytest.raises(MatrixDPError, match=r"MATRIXDP_DATA.*data fetch"):
        load_dataset("mnist")


@pytest.mark.parametrize("name", DATASETS)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        FileFormatError,
        match=f"is missing: get it by `python -m .* data fetch {name}`",
    ):
        load_dataset(name, tmp_path)


def test_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="no data set 'kora': choose one of mnist"):
        load_dataset("kora", tmp_path)


def test_records_belong_together() -> None:
    with pytest.raises(ShapeError, match="one target for each input"):
        Records(np.zeros((3, 2), np.float32), np.zeros(2, np.int64))


def test_data_sets_need_no_extra() -> None:
    code = (
        "import sys, matrixdp_experiments.datasets\n"
        "print([name for name in ('torch', 'pooch', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
