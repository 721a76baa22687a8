"""What was drawn is paid for, and never lost: failures, a full disk, and Ctrl-C at any moment."""

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp.cli.main import main
from matrixdp.errors import CalibrationError
from matrixdp.files import atomic
from matrixdp.files.answers import load_answers, save_answers
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease
from matrixdp.postprocess.counts import whole_counts
from matrixdp.workloads import Prefix

QUESTION = ["--workload", "prefix:16", "--neighbouring", "add-remove"]
COMMAND = ["answer", "counts.npy", "out.npy", *QUESTION, "--epsilon", "1", "--delta", "1e-5"]
POST_PROCESSED = ["workload", *COMMAND, "--nonnegative", "--whole"]

pytestmark = pytest.mark.usefixtures("interruptible")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a histogram; temporary folders are made in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    np.save("counts.npy", np.full((16, 1), 20))
    return tmp_path


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[WorkloadRelease]:
    """Keep what is drawn, to be compared with what is written."""
    releases: list[WorkloadRelease] = []
    draw = MatrixMechanism.release

    def release(mechanism: MatrixMechanism, counts: np.ndarray) -> WorkloadRelease:
        releases.append(draw(mechanism, counts))
        return releases[-1]

    monkeypatch.setattr(MatrixMechanism, "release", release)
    return releases


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def interrupt(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(10)
    pytest.fail("no interrupt came")


@pytest.mark.parametrize("step", ["nonnegative_estimate", "whole_counts"])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (CalibrationError("it did not converge"), "it did not converge"),
        (MemoryError(), "MemoryError"),
        (np.linalg.LinAlgError("SVD"), "SVD"),
        (OSError(28, "No space left"), "No space left"),
    ],
)
def test_post_processing_that_fails(
    step: str,
    error: Exception,
    told: str,
    drawn: list[WorkloadRelease],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(f"matrixdp.postprocess.counts.{step}", failing(error))
    assert main([*POST_PROCESSED, "--json"]) == 0
    complaint = capsys.readouterr().err
    assert "not post-processed: " in complaint
    assert told in complaint
    assert complaint.count("\n") == 1
    saved = load_answers("out.npy")
    assert saved.post_processing == ()
    np.testing.assert_array_equal(saved.answers, drawn[0].answers)


def test_post_processing_that_is_interrupted(
    drawn: list[WorkloadRelease],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("matrixdp.postprocess.counts.nonnegative_estimate", interrupt)
    before = signal.getsignal(signal.SIGINT)
    assert main(POST_PROCESSED) == 130
    assert signal.getsignal(signal.SIGINT) is before
    told = capsys.readouterr().err
    assert "not post-processed: interrupted" in told
    assert "wrote out.npy and out.npy.json" in told
    saved = load_answers("out.npy")
    assert saved.post_processing == ()
    np.testing.assert_array_equal(saved.answers, drawn[0].answers)


def test_an_interrupt_while_drawing_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = MatrixMechanism.release

    def release(mechanism: MatrixMechanism, counts: np.ndarray) -> WorkloadRelease:
        os.kill(os.getpid(), signal.SIGINT)
        return draw(mechanism, counts)

    monkeypatch.setattr(MatrixMechanism, "release", release)
    assert main(POST_PROCESSED) == 130
    assert "not post-processed: interrupted" in capsys.readouterr().err
    assert load_answers("out.npy").post_processing == ()


def test_nothing_is_lost_where_nothing_can_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("matrixdp.postprocess.counts.whole_counts", failing(MemoryError()))
    monkeypatch.setattr("matrixdp.cli.paid_answers.typer.echo", failing(BrokenPipeError()))
    assert main(POST_PROCESSED) == 2
    assert load_answers("out.npy").post_processing == ()


def test_an_interrupt_while_writing_waits(
    drawn: list[WorkloadRelease], monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(*arguments: Any, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save_answers(*arguments, **options)

    monkeypatch.setattr("matrixdp.cli.paid_answers.save_answers", save)
    assert main(POST_PROCESSED) == 130
    assert len(drawn) == 1
    assert load_answers("out.npy").post_processing == ("non-negative", "whole")


def test_an_interrupt_before_anything_is_drawn_draws_nothing(
    drawn: list[WorkloadRelease], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr("matrixdp.cli.paid_answers.check_answers_target", interrupt)
    assert main(POST_PROCESSED) == 130
    assert drawn == []
    assert sorted(path.name for path in folder.iterdir()) == ["counts.npy"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError()])
def test_a_target_that_fails_after_all_has_a_refuge(
    error: Exception,
    drawn: list[WorkloadRelease],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    write = atomic._write_hidden
    count = iter(range(10))

    def fill_up(fresh: Path, content: bytes, path: Path) -> None:
        if path.name == "out.npy" and next(count) == 1:  # after the rehearsal, which is the first
            raise error
        write(fresh, content, path)

    monkeypatch.setattr(atomic, "_write_hidden", fill_up)
    assert main(["workload", *COMMAND]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert not Path("out.npy").exists()
    assert not Path("out.npy.json").exists()
    (refuge,) = folder.glob("matrixdp-*/out.npy")
    assert str(refuge) in told
    np.testing.assert_array_equal(load_answers(refuge).answers, drawn[0].answers)


def test_answers_that_can_be_written_nowhere_are_said_to_be_lost(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    full = failing(OSError(28, "No space left on device"))
    monkeypatch.setattr("matrixdp.cli.paid_answers.save_answers", full)
    assert main(["workload", *COMMAND]) == 2
    assert "they are lost" in capsys.readouterr().err
    assert not list(folder.glob("**/out.npy"))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_no_space_is_told_before_anything_is_drawn(
    suffix: str,
    drawn: list[WorkloadRelease],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    folder: Path,
) -> None:
    lengths: dict[str, int] = {}
    write = atomic._write_hidden

    def measure(fresh: Path, content: bytes, path: Path) -> None:
        lengths.setdefault(path.name, len(content))  # the rehearsal comes first
        assert len(content) <= lengths[path.name] or path.suffix == ".json"
        write(fresh, content, path)

    command = [part if part != "out.npy" else f"out{suffix}" for part in COMMAND]
    monkeypatch.setattr(atomic, "_write_hidden", measure)
    assert main(["workload", *command]) == 0
    for path in folder.glob("out*"):
        path.unlink()
    drawn.clear()
    monkeypatch.setattr(atomic, "_write_hidden", failing(OSError(28, "No space left")))
    capsys.readouterr()
    assert main(["workload", *command]) == 2
    assert "No space left" in capsys.readouterr().err
    assert drawn == []
    assert [path.name for path in folder.iterdir()] == ["counts.npy"]


def test_too_little_memory_is_told_before_anything_is_drawn(
    drawn: list[WorkloadRelease],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Prefix, "apply", failing(MemoryError()))
    assert main(["workload", *COMMAND]) == 2
    assert "16 answers" in capsys.readouterr().err
    assert drawn == []


def test_ignored_interrupts_stay_ignored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    came: list[object] = []

    def interrupted(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            came.append(signal.getsignal(signal.SIGINT))
            os.kill(os.getpid(), signal.SIGINT)
            return call(*arguments, **options)

        return run

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as under nohup
    monkeypatch.setattr(MatrixMechanism, "release", interrupted(MatrixMechanism.release))
    monkeypatch.setattr("matrixdp.postprocess.counts.whole_counts", interrupted(whole_counts))
    monkeypatch.setattr("matrixdp.cli.paid_answers.save_answers", interrupted(save_answers))
    assert main(POST_PROCESSED) == 0
    assert came == [signal.SIG_IGN] * 3
    assert "interrupted" not in capsys.readouterr().err
    assert load_answers("out.npy").post_processing == ("non-negative", "whole")


def test_it_works_in_a_thread_of_its_own() -> None:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(main(POST_PROCESSED)))
    thread.start()
    thread.join()
    assert codes == [0]
    assert load_answers("out.npy").post_processing == ("non-negative", "whole")
