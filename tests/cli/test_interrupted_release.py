"""Ctrl-C while a release is saved: nothing is out, or the exit code says that it is."""

import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Release
from matrixdp.cli import streams
from matrixdp.cli.main import main
from matrixdp.files import atomic, csv_format

BUDGET = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "add-remove"]
RELEASE = ["release", "in.csv", "out.csv", *BUDGET, "--sensitivity", "1"]
SUM = ["query", "sum", "records.csv", "out.csv", *BUDGET, "--columns", "a", "--norm", "1"]
MEAN = ["query", "mean", "records.csv", "out.csv", *BUDGET, "--columns", "a", "--norm", "1"]
COMMANDS = {
    "release": RELEASE,
    "streamed": ["release", "in.npy", "out.npy", *BUDGET, "--sensitivity", "1"],
    "sum": SUM,
    "touched": [*SUM, "--touched-share", "0.1"],
    "mean": [*MEAN, "--private-count"],
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


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.ones((3, 2)))
    Path("in.csv").write_text("1,1\n1,1\n1,1\n")
    Path("records.csv").write_text("a\n0.5\n0.25\n")
    return tmp_path


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


@pytest.mark.parametrize("name", COMMANDS)
def test_before_the_names_nothing_is_out(
    name: str, interrupt_at: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in Path().iterdir()}
    interrupt_at("_force")
    assert main(COMMANDS[name]) == 130
    assert capsys.readouterr().err.strip() == "matrixdp: interrupted"
    made = {path.name for path in Path().rglob("*")} - before - {"out"}
    assert made == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_while_names_are_given_the_release_is_out(
    name: str, interrupt_at: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    interrupt_at("_give_name")
    assert main(COMMANDS[name]) == 4
    error = capsys.readouterr().err
    assert "interrupted, but the release is out, its budget is spent and" in error
    statement = Path(error.split("spent and ")[1].split(" is its")[0])
    assert statement.is_file()
    assert main(["verify", str(statement).removesuffix(".json")]) == 0


def test_a_forced_release_is_told_from_the_former_one(
    interrupt_at: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(RELEASE) == 0
    former = Release.load("out.csv").value
    capsys.readouterr()
    interrupt_at("_force")
    assert main([*RELEASE, "--force"]) == 130
    np.testing.assert_array_equal(Release.load("out.csv").value, former)


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
    monkeypatch.setattr("matrixdp.cli.query_source.LARGE_FILE", 1)
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
