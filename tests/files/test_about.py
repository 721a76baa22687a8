"""Statements say for people what they are about, what for, when, and by which version."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

import matrixdp as mdp
from matrixdp.cli.main import main
from matrixdp.ledger import Ledger
from matrixdp.mechanisms import About, WorkloadRelease
from matrixdp.queries import Mean, MeanRelease, PublicBounds, Sum
from matrixdp.workloads import Prefix

ABOUT = About(dataset="Adult 1994", purpose="table 3", unit="person")
SAID = {"dataset": "Adult 1994", "purpose": "table 3", "unit": "person"}
WORDS = ["--dataset", "Adult 1994", "--purpose", "table 3", "--unit", "person"]
BUDGET = mdp.Budget(1.0, 1e-5)
BALL = mdp.FrobeniusBall(1.0, "replace")
PROMISE = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "add-remove"]
QUERY = Sum(PublicBounds(2, norm=1.0), "replace")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.ones((2, 3)))
    np.save("counts.npy", np.full((8, 1), 3))
    Path("in.csv").write_text("a,b\n1,2\n3,4\n")


def statement(name: str) -> Any:
    return json.loads(Path(f"{name}.json").read_text())


IN_PYTHON: dict[str, Callable[[], Any]] = {
    "out.csv": lambda: mdp.IMGM(BALL, BUDGET).release([[1.0]]).save("out.csv", about=ABOUT),
    "to.npy": lambda: mdp.IMGM(BALL, BUDGET).release_to("to.npy", [[1.0]], about=ABOUT),
    "parts.npy": lambda: mdp.IMGM(BALL, BUDGET).release_to("parts.npy", "in.npy", about=ABOUT),
    "query.csv": lambda: QUERY.release_to("query.csv", [[0.5, 0.5]], BUDGET, about=ABOUT),
    "mean.sum.csv": lambda: Mean(QUERY.bounds, "add-remove").release_to(
        "mean.csv", [[0.5, 0.5]], BUDGET, about=ABOUT
    ),
    "workload.npz": lambda: mdp.MatrixMechanism(
        Prefix(4), BUDGET, neighbouring="replace"
    ).release_to("workload.npz", [1, 2, 3, 4], about=ABOUT),
    "saved.npz": lambda: (
        mdp.MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace")
        .release([1, 2, 3, 4])
        .save("saved.npz", about=ABOUT)
    ),
}
COLUMNS = ["--columns", "a,b", "--norm", "1"]
COMMANDS = {
    "release.csv": ["release", "in.npy", "release.csv", "--sensitivity", "1"],
    "parts.npy": ["release", "in.npy", "parts.npy", "--sensitivity", "1"],
    "sum.csv": ["query", "sum", "in.csv", "sum.csv", *COLUMNS],
    "gram.csv": ["query", "gram", "in.csv", "gram.csv", *COLUMNS, "--clipped-share", "0.1"],
    "mean.sum.csv": ["query", "mean", "in.csv", "mean.csv", *COLUMNS],
    "tables.npz": [
        *("query", "marginals", "in.csv", "tables.npz", "--ways", "1", "--bins", "a=0,2,5"),
    ],
    "answers.npz": ["workload", "answer", "counts.npy", "answers.npz", "--workload", "prefix:8"],
}


def check(name: str) -> None:
    said = statement(name)
    assert said["about"] == SAID
    assert said["version"] == mdp.__version__
    # The day may have changed in between.
    today = datetime.now(UTC).date()
    assert abs((today - datetime.fromisoformat(said["date"]).date()).days) <= 1
    kind: Any = WorkloadRelease if name.endswith(".npz") else mdp.Release
    assert kind.verify(name).delta in (1e-5, 1e-6)


@pytest.mark.parametrize("name", IN_PYTHON)
def test_what_was_said_in_python_is_stated(name: str) -> None:
    IN_PYTHON[name]()
    check(name)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_was_said_to_a_command_is_stated(name: str) -> None:
    assert main([*COMMANDS[name], *PROMISE, *WORDS]) == 0
    check(name)


def test_nothing_is_said_unless_somebody_says_it() -> None:
    assert main([*COMMANDS["sum.csv"], *PROMISE]) == 0
    said = statement("sum.csv")
    assert "about" not in said
    assert said["query"] == "sum of records, columns 'a', 'b', norm at most 1"
    assert said["guarantee"]["neighbouring"] == "add-remove"
    loaded = mdp.Release.load("sum.csv")
    assert loaded.about is None
    assert loaded.query == said["query"]


def test_it_is_loaded_and_saved_again() -> None:
    IN_PYTHON["query.csv"]()
    loaded = mdp.Release.load("query.csv")
    assert loaded.about == ABOUT
    loaded.save("again.csv")
    check("again.csv")
    IN_PYTHON["mean.sum.csv"]()
    assert MeanRelease.load("mean.csv").guarantee.delta == 1e-5


@pytest.mark.parametrize("wrong", ["", "two\nlines", "x" * 301, 5, "\x00"])
@pytest.mark.parametrize("field", ["dataset", "purpose", "unit"])
def test_only_short_lines_of_text(field: str, wrong: Any) -> None:
    with pytest.raises(mdp.InvalidParameterError, match=f"{field} must be a line of text"):
        About(**{field: wrong})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("date", "31 January"),
        ("date", "2026-1-31"),
        ("date", "20260131"),
        ("version", "0.1.0 secret"),
        ("version", "secret"),
        ("version", "0.1.123456789"),
        ("about", {"dataset": "x" * 301}),
        ("about", {"dataset": "a\nb"}),
        ("about", {"record": "secret"}),
        ("author", "secret"),
    ],
)
@pytest.mark.parametrize("name", ["query.csv", "saved.npz", "parts.npy"])
def test_altered_statements_prove_nothing(name: str, field: str, value: Any) -> None:
    IN_PYTHON[name]()
    said = statement(name) | {field: value}
    Path(f"{name}.json").write_text(json.dumps(said))
    kind: Any = WorkloadRelease if name.endswith(".npz") else mdp.Release
    with pytest.raises(mdp.errors.FileFormatError):
        kind.verify(name)


def test_a_release_that_is_finished_later_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is about is part of what was paid for; the date is that of the day it is written."""
    module = "matrixdp.files.publishing.releases"
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        account = ledger.open_account("clinic", mdp.Budget(4.0, 1e-5), neighbouring="replace")
        with monkeypatch.context() as broken:
            broken.setattr(f"{module}.write_paid", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                QUERY.release_to(
                    "late.csv",
                    [[0.5, 0.5]],
                    BUDGET,
                    privacy_filter=account,
                    request="June",
                    about=ABOUT,
                )
        assert not Path("late.csv").exists()
        monkeypatch.setattr(f"{module}.stamped", lambda said: replace(said, date="2031-07-01"))
        ledger.finish("June", QUERY.evaluate([[0.5, 0.5]]))
    said = statement("late.csv")
    assert said["about"] == SAID
    assert said["date"] == "2031-07-01"
    assert mdp.Release.verify("late.csv").neighbouring == "replace"
