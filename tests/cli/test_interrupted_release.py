"""Ctrl-C around a release: the program says that it was interrupted only if nothing is out."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

import matrixdp_command
from matrixdp import Release
from matrixdp.cli.main import main
from matrixdp.cli.shared import streams
from matrixdp.files.formats import csv_format
from matrixdp.files.publishing import atomic
from matrixdp.interrupts import ProgramInterrupts

BUDGET = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "add-remove"]
RELEASE = ["release", "in.csv", "out.csv", *BUDGET, "--sensitivity", "1"]
SUM = ["query", "sum", "records.csv", "out.csv", *BUDGET, "--columns", "a", "--norm", "1"]
MEAN = ["query", "mean", "records.csv", "out.csv", *BUDGET, "--columns", "a", "--norm", "1"]
COMMANDS = {
    "release": RELEASE,
    "streamed": ["release", "in.npy", "out.npy", *BUDGET, "--sensitivity", "1"],
    "sum": SUM,
    "clipped": [*SUM, "--clipped-share", "0.1"],
    "mean": [*MEAN],
    "answer": [
        "workload",
        "answer",
        "in.csv",
        "out.npz",
        *BUDGET,
        "--workload",
        "prefix:3*prefix:2",
    ],
    "demo": ["demo", "--folder", "out"],
}
STREAM = ["--output-format", "csv", "--statement", "out.csv.json"]
TO_STDOUT = ["release", "in.csv", "-", *BUDGET, "--sensitivity", "1", *STREAM]

Program = Callable[[list[str]], int]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.ones((3, 2)))
    Path("in.csv").write_text("1,1\n1,1\n1,1\n")
    Path("records.csv").write_text("a\n0.5\n0.25\n")
    return tmp_path


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Return the program as a function; interrupts of this process are its own until the end."""

    def run(arguments: list[str]) -> int:
        monkeypatch.setattr(sys, "argv", ["matrixdp", *arguments])
        return matrixdp_command.main()

    former = signal.getsignal(signal.SIGINT)
    yield run
    signal.signal(signal.SIGINT, former)


@pytest.fixture
def interrupt_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that lets an interrupt come when a function of `atomic` is called."""

    def at(name: str) -> None:
        called = getattr(atomic, name)

        def interrupted(*arguments: object, **options: object) -> object:
            signal.raise_signal(signal.SIGINT)
            return called(*arguments, **options)

        monkeypatch.setattr(atomic, name, interrupted)

    return at


@pytest.mark.parametrize("name", [*COMMANDS, "stdout"])
def test_before_the_names_nothing_is_out(
    name: str,
    program: Program,
    interrupt_at: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = {path.name for path in Path().iterdir()}
    interrupt_at("_force")
    assert program(COMMANDS.get(name, TO_STDOUT)) == 130
    assert capsys.readouterr().err.strip() == "matrixdp: interrupted"
    made = {path.name for path in Path().rglob("*")} - before - {"out"}
    assert made == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_while_names_are_given_it_is_too_late(
    name: str,
    program: Program,
    interrupt_at: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupt_at("_give_name")
    assert program([*COMMANDS[name], "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    statement = Path(said.get("statement", "out/second_moments.csv.json"))
    assert statement.is_file()
    assert main(["verify", str(statement).removesuffix(".json")]) == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_after_the_release_it_is_too_late(
    name: str, program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    echo = typer.echo

    def interrupted(*arguments: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        echo(*arguments, **options)

    monkeypatch.setattr(typer, "echo", interrupted)
    assert program(COMMANDS[name]) == 0
    assert capsys.readouterr().err.endswith("spend as much again\n")
    signal.raise_signal(signal.SIGINT)
    # By the system: Python's own handlers end before the process does.
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_forced_release_leaves_the_former_one(
    program: Program, interrupt_at: Callable[[str], None]
) -> None:
    assert main(RELEASE) == 0
    former = Release.load("out.csv").value
    interrupt_at("_force")
    assert program([*RELEASE, "--force"]) == 130
    np.testing.assert_array_equal(Release.load("out.csv").value, former)


def test_commands_that_release_nothing_stay_interruptible(
    program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program(["curve", "--mu", "1", "--csv", "curve.csv"]) == 0
    assert "wrote curve.csv" in capsys.readouterr().err
    assert isinstance(signal.getsignal(signal.SIGINT), ProgramInterrupts)


def test_a_process_that_ignores_interrupts_goes_on_doing_so(program: Program) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert program(["budget", *BUDGET[:4], "--parts", "2"]) == 0
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def swallow_an_interrupt() -> None:
    """Let an interrupt come in a callback, where Python prints and forgets what is raised."""
    thing = threading.Event()
    gone = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
    del thing
    assert gone() is None


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_forgotten_interrupt_is_raised_again(
    name: str, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {path.name for path in Path().iterdir()}
    called = atomic.check_target

    def check_target(*arguments: Any, **options: Any) -> None:
        swallow_an_interrupt()
        called(*arguments, **options)

    for module in ("releases", "paid", "statement"):
        monkeypatch.setattr(f"matrixdp.files.publishing.{module}.check_target", check_target)
    assert program(COMMANDS[name]) == 130
    assert {path.name for path in Path().rglob("*")} - before - {"out"} == set()


@pytest.mark.parametrize("error", [KeyError, RuntimeError, OSError])
def test_an_interrupt_that_becomes_another_error_is_an_interrupt(
    error: type[Exception],
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # As numba does, if the interrupt comes while it looks for the compiled function.
    def lost(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise error from None

    monkeypatch.setattr(atomic, "_force", lost)
    assert program(RELEASE) == 130
    assert capsys.readouterr().err.strip() == "matrixdp: interrupted"
    assert not list(Path().glob("*out.csv*"))


class Interrupting(io.BytesIO):
    """A stream on which an interrupt comes after the first bytes, and again later."""

    @property
    def buffer(self) -> "Interrupting":
        return self

    def write(self, data: Any) -> int:
        written = super().write(data[:2])
        signal.raise_signal(signal.SIGINT)
        return written


@pytest.mark.parametrize("ignored", [False, True])
def test_a_stream_can_be_stopped_unless_interrupts_are_ignored(
    ignored: bool,  # noqa: FBT001
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdout", Interrupting())
    if ignored:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert program(TO_STDOUT) == (0 if ignored else 4)
    assert ("standard output was cut short (interrupted)" in capsys.readouterr().err) != ignored
    assert Path("out.csv.json").is_file()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


# An interrupt when the program has returned, and one when Python has cleared its handlers.
AT_THE_END = """
import atexit, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import matrixdp_command
class Last:
    def __del__(self, kill=os.kill, process=os.getpid(), number=signal.SIGINT):
        kill(process, number)
last = Last()
atexit.register(signal.raise_signal, signal.SIGINT)
matrixdp_command.start()
"""


@pytest.mark.parametrize("name", ["streamed", pytest.param("answer", marks=pytest.mark.thorough)])
def test_while_the_process_ends_it_is_too_late(name: str) -> None:
    command = [sys.executable, "-c", AT_THE_END, *COMMANDS[name]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("spend as much again\n")


# An interrupt while an import makes a class, which Python 3.11 turns into another error.
IN_A_CLASS = """
import signal, sys
class Marked:
    def __set_name__(self, owner, name):
        signal.raise_signal(signal.SIGINT)
class Interrupting:
    def find_spec(self, name, *_):
        if name == "matrixdp.cli.main":
            class Made:
                marked = Marked()
sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)
import matrixdp_command
matrixdp_command.start()
"""


def test_an_interrupt_while_a_class_is_made() -> None:
    command = [sys.executable, "-c", IN_A_CLASS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "matrixdp: interrupted\n")


CRASH_AT_THE_END = """
import ctypes
import matrixdp_command
crash = ctypes.cast(ctypes.CDLL(None).abort, ctypes.c_void_p)
ctypes.pythonapi.Py_AtExit(crash)
matrixdp_command.main = lambda: {code}
matrixdp_command.start()
"""


@pytest.mark.parametrize(("code", "ended"), [(130, 130), (0, -signal.SIGABRT)])
def test_a_crash_while_python_ends_does_not_replace_an_interrupt(code: int, ended: int) -> None:
    command = [sys.executable, "-c", CRASH_AT_THE_END.format(code=code)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == ended


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*COMMANDS, "stdout"])
def test_an_interrupt_at_any_time_says_what_happened(name: str) -> None:
    before = {path.name for path in Path().iterdir()}
    outcomes: set[str] = set()
    command = [sys.executable, "-m", "matrixdp", *COMMANDS.get(name, TO_STDOUT)]
    begin = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    whole = time.monotonic() - begin
    # Forty moments of one run; and later ones, on a machine that is busier now than it was then.
    for number in chain(range(40), takewhile(lambda _: len(outcomes) < 2, range(40, 400, 10))):
        for path in Path().rglob("*"):
            if path.is_file() and path.name not in before:
                path.unlink()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(whole * number / 40)
            os.kill(process.pid, signal.SIGINT)
            output, error = process.communicate(timeout=60)
        made = {path.name for path in Path().rglob("*") if path.is_file()} - before
        # The interpreter says so itself where it was interrupted before it ran anything.
        if b"init_import_site" not in error and b"Could not import runpy" not in error:
            assert process.returncode in {0, 4, 130, -signal.SIGINT}, error
        if process.returncode in {0, 4}:
            outcomes.add("released")
            assert any(name.endswith(".json") for name in made)
        else:
            outcomes.add("stopped")
            assert (made, output) == (set(), b"")
    assert outcomes == {"released", "stopped"}


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show progress bars at once, of small files too."""
    waited = threading.Timer.start

    def start(timer: threading.Timer) -> None:
        timer.interval = 0.0
        waited(timer)
        timer.finished.wait(10.0)

    monkeypatch.setattr(threading.Timer, "start", start)
    monkeypatch.setattr(streams, "LARGE_FILE", 1)
    monkeypatch.setattr("matrixdp.cli.commands.query.source.LARGE_FILE", 1)
    monkeypatch.setattr(csv_format, "_CELLS_TOGETHER", 2)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("name", ["release", "sum", "answer"])
def test_progress_is_shown(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS[name], "--json"]) == 0
    output = capfd.readouterr()
    assert json.loads(output.out)["epsilon"] == 1.0
    assert "Reading " in output.err
    assert "100%" in output.err
    assert ("Writing out.csv" in output.err) == (name == "release")


@pytest.mark.usefixtures("_soon")
def test_progress_of_an_export(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(COMMANDS["answer"]) == 0
    assert main(["workload", "export", "out.npz", "answers.csv"]) == 0
    assert "Writing answers.csv" in capfd.readouterr().err


@pytest.mark.usefixtures("_soon")
def test_progress_without_an_end_in_sight(capfd: pytest.CaptureFixture[str]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"a": [0.5, 0.25]}), "records.parquet")
    asked = [each.replace("records.csv", "records.parquet") for each in SUM]
    assert main(asked) == 0
    assert "Reading records.parquet" in capfd.readouterr().err
