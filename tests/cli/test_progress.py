"""The progress bar of streamed files: on a terminal, and nowhere else."""

from pathlib import Path

import numpy as np
import pytest

from matrixdp.cli.main import main

OPTIONS = ["--sensitivity", "1", "--neighbouring", "replace", "--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.zeros((20, 30)))
    return tmp_path


def test_it_is_silent_off_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "in.npy", "out.npy", *OPTIONS, "--json"]) == 0
    assert "Adding noise" not in capfd.readouterr().err


def test_it_reaches_the_end(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    assert main(["release", "in.npy", "out.npy", *OPTIONS]) == 0
    shown = capfd.readouterr().err
    assert "Adding noise" in shown
    assert "100%" in shown
