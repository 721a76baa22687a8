"""The progress bar of commands: on a terminal, where it takes long, and nowhere else."""

import io
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from matrixdp.cli.main import main
from matrixdp.cli.shared.progress import progress_bar
from matrixdp.errors import MissingExtraError

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


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("_terminal")
def test_what_is_done_soon_shows_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with progress_bar(1, "Accounting", after=600.0) as advance:
        advance(1)
    assert capfd.readouterr().err == ""
    assert not any(isinstance(thread, threading.Timer) for thread in threading.enumerate())


@pytest.mark.usefixtures("_terminal")
def test_what_takes_long_is_shown(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the wait were over at once.
    waited = threading.Timer.start

    def start(timer: threading.Timer) -> None:
        waited(timer)
        timer.finished.wait(10.0)

    monkeypatch.setattr(threading.Timer, "start", start)
    with progress_bar(1, "Accounting", after=1e-9) as advance:
        advance(1)
    shown = capfd.readouterr().err
    assert "Accounting" in shown
    assert "100%" in shown


@pytest.mark.usefixtures("_terminal")
def test_an_account_waits_before_it_shows_progress(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = [
        "--noise-multiplier",
        "1",
        "--sampling-rate",
        "1",
        "--steps",
        "2",
        "--delta",
        "1e-5",
        "--neighbouring",
        "replace",
    ]
    # On a slow machine it may take more than a second.
    monkeypatch.setattr("matrixdp.cli.commands.account._LONG_WAIT", 600.0)
    assert main(["account", *plan, "--json"]) == 0
    assert capfd.readouterr().err == ""


def test_what_is_not_installed_is_not_said_to_be_inapplicable(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: object) -> float:
        raise MissingExtraError("it is not installed: pip install '.[data]'")

    monkeypatch.setattr("matrixdp.cli.commands.account.accounted_epsilon", missing)
    plan = [
        "--noise-multiplier",
        "1",
        "--sampling-rate",
        "1",
        "--steps",
        "2",
        "--delta",
        "1e-5",
        "--neighbouring",
        "replace",
    ]
    assert main(["account", *plan]) == 2
    output = capfd.readouterr()
    assert "not installed" in output.err
    assert "does not apply" not in output.out + output.err


class _ClosedTerminal(io.StringIO):
    """Standard error whose terminal was closed after some writes."""

    left = 1

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")
        return len(text)


# The bar's own thread may be the first to find the terminal closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize("writes", range(4))
def test_a_closed_terminal_does_not_hide_a_release(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = _ClosedTerminal()
    terminal.left = writes
    monkeypatch.setattr(sys, "stderr", terminal)
    # Not 2, which says that nothing was released.
    assert main(["release", "in.npy", "out.npy", *OPTIONS]) == 4
    assert Path("out.npy").is_file()
    assert Path("out.npy.json").is_file()
