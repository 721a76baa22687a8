"""Ctrl-C ends long work at once, even within one call that Python cannot interrupt."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from matrixdp.cli.commands.workload.options import status_line
from matrixdp.cli.shared.interrupts import interrupted_at_once

# The sum is one instruction of Python and takes hours, as a decomposition does.
CODE = """
import signal, sys, matrixdp.cli.main as program
signal.signal(signal.SIGINT, signal.default_int_handler)
import matrixdp.cli.commands.workload.evaluate as evaluating
import matrixdp.cli.commands.workload.export as exporting
def slow(*_, **__):
    print("ready", flush=True)
    sum(range(10**12))
evaluating.optimal_strategy = slow
exporting.WorkloadRelease.load = slow
sys.exit(program.main(sys.argv[1:]))
"""


QUERIES = ["--workload", "prefix:8", "--neighbouring", "replace"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["optimise", *QUERIES], id="optimise"),
        pytest.param(["evaluate", *QUERIES], id="evaluate", marks=pytest.mark.thorough),
        pytest.param(["export", "no.npz", "nothing.npy"], id="export", marks=pytest.mark.thorough),
    ],
)
def test_an_interrupt_of_long_work(arguments: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", CODE, "workload", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        # Within a second on an idle machine; the sum itself would take hours.
        process.communicate(timeout=20)
        assert process.returncode == -signal.SIGINT
    finally:
        process.kill()


def test_the_handler_comes_back() -> None:
    with interrupted_at_once():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(ZeroDivisionError), interrupted_at_once():
        _ = 1 // 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_stays() -> None:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupted_at_once():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)


def test_other_threads_change_nothing() -> None:
    seen = []

    def work() -> None:
        with interrupted_at_once():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]


def test_a_status_line_is_replaced_and_wiped_out(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with status_line() as show:
        show("unseen")
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with status_line() as show:
        show("searching")
        show("done")
    assert capfd.readouterr().err == "\rsearching\rdone     \r    \r"


def test_an_interrupt_while_importing_ends_with_130() -> None:
    code = (
        "import signal, sys, types\n"
        "class Slow(types.ModuleType):\n"
        "    def __getattr__(self, name):\n        raise KeyboardInterrupt\n"
        "sys.modules['matrixdp.cli.main'] = Slow('matrixdp.cli.main')\n"
        "import matrixdp_command\n"
        "matrixdp_command.start()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "matrixdp: interrupted\n"


def test_an_interrupt_ends_with_130() -> None:
    code = (
        "import signal, sys, time, matrixdp.cli.main as program\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import matrixdp.cli.commands.curve as command\n"
        "def slow(*_):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "command.privacy_delta = slow\n"
        "sys.exit(program.main(['curve', '--mu', '1']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.strip() == "matrixdp: interrupted"
