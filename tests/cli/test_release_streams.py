"""``matrixdp release`` with standard streams, and what happens to files when something fails."""

import errno
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp.cli.main import main

BALL = [
    *("--epsilon", "1", "--delta", "1e-5", "--neighbouring", "replace"),
    *("--sensitivity", "1"),
]
PROGRAM = [sys.executable, "-m", "matrixdp", "release"]
TO_STDOUT = ["-", "--output-format", "csv", "--statement", "said.json", *BALL]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a small matrix and one whose text no pipe holds at once."""
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.zeros((3, 2)))
    np.save("large.npy", np.zeros((300, 300)))
    Path("in.csv").write_text("0,0\n0,0\n0,0\n")
    return tmp_path


def shell(command: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=False)


def without_reader(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard output is a pipe that nobody reads from."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writer)


def test_standard_streams() -> None:
    command = [
        *(*PROGRAM, "-", "-", *BALL),
        *("--input-format", "npy", "--output-format", "npy", "--statement", "said.json"),
    ]
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((4, 5)))
    done = subprocess.run(command, input=buffer.getvalue(), capture_output=True, check=True)
    assert np.load(io.BytesIO(done.stdout)).shape == (4, 5)
    assert json.loads(Path("said.json").read_text())["guarantee"]["epsilon"] == 1.0
    assert b"differential privacy" in done.stderr
    assert b"a 4 by 5 matrix with noise" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("- out.npy --input-format npy <&-", b"stdin is closed"),
        ("in.npy - --output-format npy --statement said.json >&-", b"stdout is closed"),
    ],
)
def test_a_closed_stream_is_bad_input(arguments: str, message: bytes) -> None:
    done = shell(f"{' '.join(PROGRAM)} {' '.join(BALL)} {arguments}")
    assert done.returncode == 2
    assert message in done.stderr
    assert not Path("said.json").exists()
    assert not Path("out.npy").exists()


@pytest.mark.thorough
def test_all_of_a_large_release_comes_out() -> None:
    # Unbuffered, a stream takes only a part of a large write.
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [*PROGRAM, "large.npy", *TO_STDOUT]
    done = subprocess.run(command, capture_output=True, check=True, env=environment)
    said = json.loads(Path("said.json").read_text())
    assert hashlib.sha256(done.stdout).hexdigest() == said["file"]["sha256"]


def test_without_a_single_byte_nothing_was_released(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = without_reader([*PROGRAM, "in.npy", *TO_STDOUT])
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert not Path("said.json").exists()
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["release", "in.npy", *TO_STDOUT]) == 2
    assert "No space left" in capsys.readouterr().err
    assert not Path("said.json").exists()


@pytest.mark.thorough
def test_without_a_single_byte_the_former_statement_stays() -> None:
    # It is the statement of an earlier release, which is out.
    Path("said.json").write_text("of an earlier release")
    done = without_reader([*PROGRAM, "in.npy", *TO_STDOUT, "--force"])
    assert done.returncode == 2
    assert Path("said.json").read_text() == "of an earlier release"


def test_a_reader_that_goes_away_leaves_a_release() -> None:
    command = [*PROGRAM, "large.npy", *TO_STDOUT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(10)) == 10
        process.stdout.close()
        error = process.stderr.read()
        assert process.wait(60) == 4
    assert b"the release is out, at least in part" in error
    assert error.count(b"\n") == 1
    assert json.loads(Path("said.json").read_text())["file"]["shape"] == [300, 300]


def test_an_interrupt_while_writing_leaves_a_release() -> None:
    command = [*PROGRAM, "large.npy", *TO_STDOUT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.read(1)) == 1  # the rest does not fit in the pipe: it waits
        process.send_signal(signal.SIGINT)
        error = process.stderr.read()
        assert process.wait(60) == 4
    assert b"interrupted" in error
    assert error.count(b"\n") == 1
    assert Path("said.json").exists()


class NearlyFull(io.BytesIO):
    """A stream that takes 20 bytes and then fails."""

    @property
    def buffer(self) -> "NearlyFull":
        return self

    def write(self, data: Any) -> int:
        if self.tell():
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data[:20])


def test_a_full_disk_after_the_first_bytes_leaves_a_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", NearlyFull())
    assert main(["release", "in.npy", *TO_STDOUT]) == 4
    error = capsys.readouterr().err
    assert "cut short (No space left on device): the release is out, at least in part" in error
    assert Path("said.json").exists()


@pytest.mark.thorough
def test_a_report_that_nobody_reads_does_not_undo_a_release() -> None:
    done = without_reader([*PROGRAM, "in.npy", "out.npy", *BALL, "--json"])
    assert done.returncode == 4
    assert b"the release is out" in done.stderr
    assert done.stderr.count(b"\n") == 1
    assert Path("out.npy").exists()
    assert Path("out.npy.json").exists()


def test_a_result_that_nobody_reads_is_one_line_of_error() -> None:
    command = [*PROGRAM[:-1], "budget", "--epsilon", "1", "--delta", "1e-5", "--json"]
    done = without_reader(command)
    assert done.returncode == 2
    assert done.stderr == b"matrixdp: the output was closed before all of it was written\n"


def test_a_closed_stderr_sends_nothing_to_stdout() -> None:
    done = shell(f"{' '.join(PROGRAM)} missing.npy out.npy {' '.join(BALL)} 2>&-")
    assert (done.returncode, done.stdout) == (2, b"")


def other_names_of(path: str, folder: Path) -> list[str]:
    Path("hard.csv").hardlink_to(path)
    Path("soft.csv").symlink_to(path)
    return [path, f"./{path}", f"{folder}/../{folder.name}/{path}", "hard.csv", "soft.csv"]


def test_the_input_is_never_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("in.csv").read_bytes()
    for name in other_names_of("in.csv", folder):
        assert main(["release", "in.csv", name, *BALL, "--force"]) == 2
        assert "would replace in.csv, which is read" in capsys.readouterr().err
        assert main(["release", name, "in.csv", *BALL, "--force"]) == 2
        stream = ["-", "--output-format", "csv", "--statement", name]
        assert main(["release", "in.csv", *stream, *BALL, "--force"]) == 2
        assert Path("in.csv").read_bytes() == Path(name).read_bytes() == before
    assert not Path("in.csv.json").exists()


def test_statements_and_bounds_are_not_overwritten_either(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("out.npy.json").symlink_to("in.csv")
    assert main(["release", "in.csv", "out.npy", *BALL, "--force"]) == 2
    assert "would replace in.csv, which is read" in capsys.readouterr().err
    for option, values in (("--box", 2), ("--row-bounds", 3)):
        np.save("bounds.npy", np.ones(values))
        before = Path("bounds.npy").read_bytes()
        arguments = ["release", "in.npy", "bounds.npy", *BALL[:-2], option, "bounds.npy", "--force"]
        assert main(arguments) == 2
        assert "would replace bounds.npy" in capsys.readouterr().err
        assert Path("bounds.npy").read_bytes() == before


@pytest.mark.parametrize("written", ["csv", ".csv", "CSV"])
def test_a_format_may_be_written_with_its_point(
    written: str, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--output-format", written, "--statement", "said.json", *BALL]
    assert main(["release", "in.npy", "-", *options]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 3


def test_a_name_without_a_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "matrix", "out.csv", *BALL]) == 2
    assert "input 'matrix' does not end like a file of a known format" in capsys.readouterr().err
