"""``matrixdp workload export``: answers as plain numbers, also post-processed."""

import json
from pathlib import Path

import numpy as np
import pytest

from cli.workload_asked import BUDGET, PREFIX
from matrixdp import WorkloadRelease
from matrixdp.cli.main import main
from matrixdp.errors import CalibrationError
from matrixdp.files.formats.matrices import read_matrix

pytestmark = pytest.mark.usefixtures("workload_folder")


@pytest.mark.parametrize("target", ["answers.csv", "answers.npy"])
def test_an_export_is_plain_numbers(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]) == 0
    capsys.readouterr()
    assert main(["workload", "export", "out.npz", target]) == 0
    output = capsys.readouterr()
    assert output.out == ""
    assert "without a certificate" in output.err
    assert "out.npz.json" in output.err
    assert not Path(f"{target}.json").exists()
    text = target.endswith(".csv")
    with Path(target).open("rb") as file:
        written = read_matrix(file, Path(target).suffix, target, header=text, index=text)
    release = WorkloadRelease.load("out.npz")
    np.testing.assert_array_equal(written.array[:, 0], release.answers)
    if text:
        assert (written.corner, written.columns) == ("query", ["answer", "standard_error"])
        assert written.index == [f"0..{last}" for last in range(16)]
        np.testing.assert_array_equal(written.array[:, 1], release.standard_errors())
    assert main(["workload", "export", "out.npz", target]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["workload", "export", "out.npz", target, "--integer", "--force", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["whole"], said["non_negative"], said["epsilon"]) == (True, False, 1.0)
    if text:  # the standard errors are not those of integers
        assert Path(target).read_text().startswith("query,answer\n0..0,")


def test_post_processing_can_be_repeated() -> None:
    assert main(["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]) == 0
    for options in (["--non-negative", "--integer"], ["--integer"], ["--non-negative"], []):
        assert main(["workload", "export", "out.npz", "a.npy", *options, "--force"]) == 0
        answers = np.load("a.npy").ravel()
        if "--integer" in options:
            np.testing.assert_array_equal(answers, np.rint(answers))
        if "--non-negative" in options:
            assert np.all(np.diff(answers) >= 0)
        if not options:
            np.testing.assert_array_equal(answers, WorkloadRelease.load("out.npz").answers)


def test_post_processing_that_fails_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise CalibrationError("it did not converge")

    assert main(["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]) == 0
    capsys.readouterr()
    monkeypatch.setattr("matrixdp.postprocess.counts.nonnegative_estimate", fail)
    assert main(["workload", "export", "out.npz", "a.csv", "--non-negative"]) == 2
    assert "did not converge" in capsys.readouterr().err
    assert not Path("a.csv").exists()
