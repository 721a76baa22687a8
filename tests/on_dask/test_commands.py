"""``matrixdp release`` of folders of zarr: on a running cluster, or one of its own."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import dask.array as da
import zarr

from matrixdp import IMGM, Budget, FrobeniusBall, Release
from matrixdp.cli.main import main
from matrixdp.noise import ReleaseKey
from on_dask.conftest import left_in

VALUE = np.random.default_rng(9).normal(size=(50, 12))
BUDGET = ["--epsilon=1", "--delta=1e-5", "--neighbouring=replace", "--sensitivity=1"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.zarr"
    zarr.create_array(path, data=VALUE, chunks=(20, 12))  # compressed, as zarr does by itself
    return path


def released(source: Path, *words: str) -> int:
    return main(["release", str(source), str(source.parent / "out.zarr"), *BUDGET, *words])


def test_a_running_cluster(
    source: Path, cluster: Any, known_key: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = source.parent / "study.keys"
    words = ["--scheduler", cluster.scheduler_address, "--worker-keys", str(keys), "--json"]
    assert released(source, *words, "--dataset", "June") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["shape"] == [50, 12]
    mechanism = IMGM(FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5))
    expected = mechanism.release(VALUE, key=ReleaseKey.from_bytes(known_key)).value
    target = source.parent / "out.zarr"
    assert np.array_equal(da.from_zarr(str(target)).compute(), expected)
    assert Release.verify(target) == mechanism.guarantee
    assert json.loads((source.parent / "out.zarr.json").read_text())["about"] == {"dataset": "June"}
    assert left_in(source.parent) == ["in.zarr", "out.zarr", "out.zarr.json", "study.keys"]


@pytest.mark.thorough
def test_a_cluster_of_its_own_and_a_ledger(source: Path) -> None:
    url = f"sqlite:///{source.parent / 'a.ledger'}"
    account = ["--ledger", url, "--account", "clinic"]
    opening = ["ledger", "create", *account, "--epsilon=2", "--delta=1e-5"]
    assert main([*opening, "--neighbouring=replace"]) == 0
    assert released(source, *account, "--request=June", "--no-check") == 0
    assert released(source, *account, "--request=June") == 0  # out already: it is paid once
    target = str(source.parent / "out.zarr")
    assert main(["ledger", "verify", "--ledger", url, target]) == 0
    assert main(["verify", target]) == 0


REFUSED = {
    "into a file": (["out.csv"], "a folder of chunks is released into another one"),
    "threads": (["out.zarr", "--threads=2"], "--threads is not for folders"),
    "replaced": (["out.zarr", "--force"], "remove it first"),
    "no scheduler": (["out.zarr", "--scheduler=nowhere"], "does not answer"),
    "range": (["out.zarr", "--range=2"], "--range is for"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED)
def test_refusals(
    words: list[str], said: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, *more = words
    assert main(["release", str(source), str(source.parent / target), *BUDGET, *more]) == 2
    assert said in capsys.readouterr().err
    assert left_in(source.parent) == ["in.zarr"]


def test_options_of_clusters_are_for_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "in.npy", VALUE)
    files = [str(tmp_path / "in.npy"), str(tmp_path / "out.npy")]
    assert main(["release", *files, *BUDGET, "--scheduler=tcp://localhost:1"]) == 2
    assert "are for folders of chunks" in capsys.readouterr().err
    not_zarr = tmp_path / "other.zarr"
    not_zarr.mkdir()
    assert main(["release", str(not_zarr), str(tmp_path / "out.zarr"), *BUDGET]) == 2
    assert "not an array of zarr" in capsys.readouterr().err


def test_a_preview_needs_no_cluster(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert released(source, "--preview", "--json") == 0
    assert json.loads(capsys.readouterr().out)["of_each"] == "entry"
