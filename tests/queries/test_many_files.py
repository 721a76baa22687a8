"""``matrixdp query`` on many files, arrays of zarr, and a cluster: the answer of one file."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import Release
from matrixdp.cli.main import main

# So little noise that the answer can be recognised: only for these tests.
CLEAR = ["--mu", "1000", "--delta", "1e-6", "--neighbouring", "replace"]
NUMBERS = np.random.default_rng(2).integers(0, 9, (300, 3)).astype(np.float64)
SUM = ["--columns", "a,c", "--lower", "0", "--upper", "10"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with the parts of a table."""
    monkeypatch.chdir(tmp_path)
    for part, rows in enumerate(np.array_split(NUMBERS, 3)):
        lines = [",".join(map(str, row)) for row in rows.tolist()]
        Path(f"part-{part}.csv").write_text("\n".join(["a,b,c", *lines, ""]))
    return tmp_path


def answer(*arguments: str) -> list[float]:
    assert main(["query", *arguments, *CLEAR, "--force"]) == 0
    value = np.asarray(Release.load(arguments[2]).value)
    return list(map(float, value.round().reshape(-1)))


TOTALS = NUMBERS.sum(axis=0)[[0, 2]].tolist()


def test_a_pattern_of_text_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer("sum", "part-*.csv", "out.csv", *SUM) == TOTALS
    counts = np.bincount(NUMBERS[:, 1].astype(int) // 3, minlength=3).tolist()
    assert answer("histogram", "part-*.csv", "out.csv", "--bins", "b=0,3,6,9") == counts
    capsys.readouterr()
    assert main(["query", "sum", "no-*.csv", "out.csv", *SUM, *CLEAR]) == 2
    assert "no file matches 'no-*.csv'" in capsys.readouterr().err
    assert main(["query", "sum", "part-*.csv", "part-1.csv", *SUM, *CLEAR, "--force"]) == 2
    assert "would replace part-1.csv" in capsys.readouterr().err


def test_patterns_and_folders_of_parquet_files() -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    Path("parts").mkdir()
    for part, rows in enumerate(np.array_split(NUMBERS, 4)):
        pandas.DataFrame(rows, columns=list("abc")).to_parquet(f"parts/{part}.parquet")
    for source in ("parts", "parts/*.parquet"):
        assert answer("sum", source, "out.csv", *SUM) == TOTALS


def test_arrays_of_zarr() -> None:
    zarr = pytest.importorskip("zarr")
    zarr.create_array("x.zarr", data=NUMBERS, chunks=(70, 2))
    columns = ["--columns", "0,2", "--lower", "0", "--upper", "10"]
    assert answer("sum", "x.zarr", "out.csv", *columns) == TOTALS
    bins = ["--bins", "1=0,3,6,9"]
    counts = np.bincount(NUMBERS[:, 1].astype(int) // 3, minlength=3).tolist()
    assert answer("histogram", "x.zarr", "out.csv", *bins) == counts


def test_a_stated_bound_of_the_number_of_records(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer("sum", "part-*.csv", "out.csv", *SUM, "--most-records", "17179869184") == TOTALS
    assert "at most 17179869184 records" in Path("out.csv.json").read_text()
    capsys.readouterr()
    assert main(["query", "sum", "part-*.csv", "o.csv", *SUM, *CLEAR, "--most-records", "99"]) == 2
    assert "more than 99 records" in capsys.readouterr().err


@pytest.fixture(scope="module")
def scheduler() -> Any:
    distributed = pytest.importorskip("distributed", reason="the extra `dask`")
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options, processes=False, protocol="tcp") as cluster:
        yield cluster.scheduler_address


def test_a_cluster_reads_the_files(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = ["--scheduler", scheduler]
    assert answer("sum", "part-*.csv", "out.csv", *SUM, *cluster) == TOTALS
    counts = np.bincount(NUMBERS[:, 1].astype(int) // 3, minlength=3).tolist()
    bins = ["--bins", "b=0,3,6,9"]
    assert answer("histogram", "part-*.csv", "out.csv", *bins, *cluster) == counts
    arguments = ["query", "marginals", "part-*.csv", "out.npz", *bins, "--ways", "1"]
    assert main([*arguments, *CLEAR, *cluster]) == 0
    monkeypatch.setattr("matrixdp.queries.stored_arrays._NUMBERS_OF_A_TASK", 300)
    importlib.import_module("zarr").create_array("x.zarr", data=NUMBERS, chunks=(70, 2))
    columns = ["--columns", "0,2", "--lower", "0", "--upper", "10"]
    assert answer("sum", "x.zarr", "out.csv", *columns, *cluster) == TOTALS


def test_a_cluster_that_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("distributed", reason="the extra `dask`")
    wrong = ["--scheduler", "nonsense://here"]
    assert main(["query", "sum", "part-*.csv", "out.csv", *SUM, *CLEAR, *wrong]) == 2
    assert "--scheduler nonsense://here does not answer" in capsys.readouterr().err
