"""Folders of chunks that hold more than they declare, or other numbers, are refused."""

import hashlib
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip(
    "matrixdp.distributed", reason="arrays of Dask need the extra `dask`", exc_type=ImportError
)

import dask.array as da

from matrixdp import IMGM, Budget, FrobeniusBall, Release, RowBox
from matrixdp.cli.main import main
from matrixdp.errors import FileFormatError
from matrixdp.files.formats.chunk_layout import root_digest
from matrixdp.files.formats.zarr_folder import ZarrLayout
from matrixdp.report import report_on
from matrixdp.report.page import page_of

BUDGET = Budget(1.0, 1e-5)
BALL = IMGM(FrobeniusBall(1.0, "replace"), BUDGET)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    target = tmp_path / "out.zarr"
    BALL.release_to(target, da.zeros((10, 6), chunks=(4, 3)))
    return target


def sign_again(folder: Path) -> None:
    """Make the statement name the digests of what is in a folder."""
    beside = folder.with_name(folder.name + ".json")
    statement = json.loads(beside.read_text())
    layout = ZarrLayout.read(folder)
    digests = [
        hashlib.sha256((folder / layout.chunk_file(index)).read_bytes()).hexdigest()
        for index in layout.indices()
    ]
    statement["file"]["chunk_sha256"] = digests
    statement["file"]["sha256"] = root_digest(layout.metadata(), digests)
    beside.write_text(json.dumps(statement))


def test_honest_folders_pass(saved: Path) -> None:
    sign_again(saved)
    assert Release.verify(saved) == BALL.guarantee


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_scales_of_columns_are_those_of_the_chunk(dtype: str, tmp_path: Path) -> None:
    # Scales so different that a chunk checked with those of another would be refused.
    mechanism = IMGM(RowBox(np.logspace(-6, 6, 6), "replace"), BUDGET)
    target = tmp_path / "out.zarr"
    mechanism.release_to(target, da.zeros((10, 6), chunks=(4, 3), dtype=dtype))
    assert Release.verify(target) == mechanism.guarantee
    left, right = target / "c/0/0", target / "c/0/1"
    data = left.read_bytes()
    left.write_bytes(right.read_bytes())
    right.write_bytes(data)
    sign_again(target)
    with pytest.raises(FileFormatError, match="no release with the noise"):
        Release.verify(target)


def change_chunk(name: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    def changed(folder: Path) -> None:
        path = folder / name
        numbers = np.frombuffer(path.read_bytes()).copy()
        change(numbers.reshape(4, 3))
        path.write_bytes(numbers.tobytes())

    return changed


def fill(value: float, *index: Any) -> Callable[[Any], None]:
    def filled(numbers: Any) -> None:
        numbers[index or ...] = value

    return filled


def more_metadata(folder: Path) -> None:
    path = folder / "zarr.json"
    known = json.loads(path.read_text())
    known["attributes"] = {"names": ["Ada"]}
    path.write_text(json.dumps(known, indent=2) + "\n")


def other_layout(folder: Path) -> None:
    path = folder / "zarr.json"
    path.write_text(path.read_text().replace("0.0", "1.0"))


def linked(folder: Path) -> None:
    chunk = folder / "c/1/1"
    chunk.rename(folder.parent / "elsewhere")
    chunk.symlink_to(folder.parent / "elsewhere")


ALTERED: dict[str, Callable[[Path], Any]] = {
    "a file more": lambda folder: (folder / "notes.txt").touch(),
    "a hidden file": lambda folder: (folder / "c" / ".notes").touch(),
    "a folder more": lambda folder: (folder / "c" / "9").mkdir(),
    "a chunk more": lambda folder: (folder / "c/0/2").touch(),
    "a chunk fewer": lambda folder: (folder / "c/2/1").unlink(),
    "a link": linked,
    "a pipe": lambda folder: os.mkfifo(folder / "c/0/p"),
    "attributes": more_metadata,
    "another fill": other_layout,
    "a number beyond the matrix": change_chunk("c/2/1", fill(1.0, 3, 0)),
    "a signed zero beyond the matrix": change_chunk("c/2/0", fill(-0.0, 2, 1)),
    "off the grid": change_chunk("c/1/0", fill(np.pi, 0, 0)),
    "not finite": change_chunk("c/1/0", fill(np.inf, 0, 0)),
    "no noise in one chunk": change_chunk("c/1/1", fill(3.0)),
    "cut short": lambda folder: (folder / "c/0/0").write_bytes(
        (folder / "c/0/0").read_bytes()[:-8]
    ),
    "longer": lambda folder: (folder / "c/0/0").write_bytes(
        (folder / "c/0/0").read_bytes() + b"12345678"
    ),
}


def test_a_folder_that_promises_more_files_than_fit_in_memory(saved: Path) -> None:
    layout = ZarrLayout((1 << 40, 1 << 40), "float64", (1, 1))
    (saved / "zarr.json").write_bytes(layout.metadata())
    beside = saved.with_name("out.zarr.json")
    statement = json.loads(beside.read_text())
    statement["file"] |= {"shape": layout.shape, "chunks": layout.chunks}
    beside.write_text(json.dumps(statement))
    with pytest.raises(FileFormatError, match="not whole"):
        Release.verify(saved)


@pytest.mark.parametrize("alter", ALTERED.values(), ids=ALTERED)
def test_altered_folders_are_refused_signed_again_or_not(
    alter: Callable[[Path], Any], saved: Path
) -> None:
    alter(saved)
    with pytest.raises(FileFormatError):
        Release.verify(saved)
    try:
        sign_again(saved)
    except (FileFormatError, OSError):
        return  # nobody could sign that
    with pytest.raises(FileFormatError):
        Release.verify(saved)


STATED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a smaller mu": lambda s: s["guarantee"].update(mu=0.01),
    "less noise": lambda s: s["covariance"].update(scale=s["covariance"]["scale"] / 2),
    "other words": lambda s: s.update(in_words="(0, 0)-differential privacy"),
    "another shape": lambda s: s["file"].update(shape=[10, 5]),
    "a digest in capitals": lambda s: s["file"]["chunk_sha256"].__setitem__(
        0, s["file"]["chunk_sha256"][0].upper()
    ),
    "no digest": lambda s: s["file"]["chunk_sha256"].__setitem__(0, "Ada"),
    "a digest fewer": lambda s: s["file"]["chunk_sha256"].pop(),
    "a field more": lambda s: s.update(names="Ada"),
    "another root": lambda s: s["file"].update(sha256="0" * 64),
}


@pytest.mark.parametrize("alter", STATED.values(), ids=STATED)
def test_altered_statements_are_refused(
    alter: Callable[[dict[str, Any]], Any], saved: Path
) -> None:
    beside = saved.with_name("out.zarr.json")
    statement = json.loads(beside.read_text())
    alter(statement)
    beside.write_text(json.dumps(statement))
    with pytest.raises(FileFormatError):
        Release.verify(saved)


def test_the_command_proves_a_folder(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(saved)]) == 0
    assert "proves its guarantee" in capsys.readouterr().out
    (saved / "notes.txt").touch()
    assert main(["verify", str(saved)]) == 5


@pytest.mark.usefixtures("client")
def test_a_cluster_proves_the_same(saved: Path, cluster: Any) -> None:
    address = cluster.scheduler_address
    assert main(["verify", str(saved), "--scheduler", address]) == 0
    change_chunk("c/1/1", fill(3.0))(saved)
    sign_again(saved)
    assert main(["verify", str(saved), "--scheduler", address]) == 5


def test_a_report_of_a_folder(saved: Path) -> None:
    found = report_on([saved])
    assert found.problems == 0
    page = page_of(found, datetime.now(UTC)).decode()
    assert "a matrix of 10 rows and 6 columns" in page
    assert "4 by 3" in page
    chunk = saved / ZarrLayout.read(saved).chunk_file((0, 0))
    chunk.chmod(0o600)
    chunk.write_bytes(bytes(len(chunk.read_bytes())))
    assert report_on([saved]).problems == 1
