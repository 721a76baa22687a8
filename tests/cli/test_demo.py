"""``matrixdp demo``: a release that is checked, and what it refuses."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from cli.json_answers import answer
from matrixdp import IMGM, Release
from matrixdp.cli.commands import demo
from matrixdp.cli.main import main
from matrixdp.errors import StorageError


def test_demo_works_twice_and_leaves_a_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made" / "here"
    for _ in range(2):
        reply = answer(capsys, "demo", "--folder", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == [
        "second_moments.csv",
        "second_moments.csv.json",
        "second_moments.png",
    ]
    assert (folder / "second_moments.png").read_bytes().startswith(b"\x89PNG")
    release = Release.load(folder / "second_moments.csv")
    assert release.guarantee.epsilon == 1.0
    errors = reply["expected_error"]
    assert isinstance(errors, dict)
    assert list(errors) == sorted(errors, key=errors.__getitem__, reverse=True)
    assert errors["IMGM, symmetric"] < 0.76 * errors["analytic Gaussian"]  # sqrt((1 + 1/7) / 2)
    # 28 independent entries: the error is within a factor of two of what is expected.
    actual = reply["actual_error"]
    assert isinstance(actual, float)
    assert 0.5 < actual / errors["IMGM, symmetric"] < 2
    assert main(["demo", "--folder", str(tmp_path)]) == 0
    assert "differential privacy" in capsys.readouterr().out


def test_a_month_moves_the_demo_by_no_more_than_its_sensitivity() -> None:
    rows = demo._monthly_returns()
    norms = np.linalg.norm(rows, axis=1)
    assert len(rows) <= demo._MOST_MONTHS
    assert norms.max() == pytest.approx(demo._CLIP)  # some months are clipped, the others are not
    assert np.count_nonzero(norms < 0.99 * demo._CLIP) > 100
    whole = demo._second_moments(rows)
    moved = [
        np.linalg.norm(whole - demo._second_moments(np.delete(rows, month, axis=0)))
        for month in range(len(rows))
    ]
    assert 0.999 * demo._SENSITIVITY.bound < max(moved) <= demo._SENSITIVITY.bound


def test_a_figure_that_cannot_be_written_does_not_undo_the_release_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(demo, "write_all", full)
    assert main(["demo", "--folder", str(tmp_path)]) == 4
    assert "the release is out" in capsys.readouterr().err
    assert Release.verify(tmp_path / "second_moments.csv").epsilon == 1.0


def test_the_demo_refuses_a_place_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "second_moments.png").mkdir()
    assert main(["demo", "--folder", str(tmp_path)]) == 2
    assert "second_moments.png" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["second_moments.png"]


def test_the_picture_of_the_readme_is_of_the_release_beside_it() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "figures" / "demo"
    readme = (folder.parents[2] / "README.md").read_text()
    assert readme.count("docs/figures/demo/second_moments.png") == 1
    truth = demo._second_moments(demo._monthly_returns())
    kept = Release.load(folder / "second_moments.csv")
    again = IMGM(demo._SENSITIVITY, demo._BUDGET).release(truth)
    shown = imread(folder / "second_moments.png")
    # Up to what another version of matplotlib draws differently: less than another release.
    off, other = (
        float(np.abs(imread(BytesIO(demo._figure_bytes(truth, drawn))) - shown).mean())
        for drawn in (kept, again)
    )
    assert off < 0.3 * other
