"""``--preview`` and ``plan --query``: what would be released, and nothing read, paid or written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.json_answers import answer
from matrixdp import Release
from matrixdp.cli.main import main
from matrixdp.mechanisms.workload_release import WorkloadRelease

PROMISE = ["--epsilon", "1", "--delta", "1e-6", "--neighbouring", "replace"]
COLUMNS = ["--columns", "a,b", "--lower", "0", "--upper", "10,5"]
TABLE = "a,b\n1,2\n3,4\n"
COMMANDS = [
    ["query", "sum", "in.csv", "out.csv", *COLUMNS],
    ["query", "mean", "in.csv", "out.csv", *COLUMNS, "--count", "2"],
    ["query", "gram", "in.csv", "out.csv", *COLUMNS],
    ["query", "covariance", "in.csv", "out.csv", *COLUMNS, "--count", "2"],
    ["query", "clipped", "in.csv", "out.csv", *COLUMNS],
    ["query", "histogram", "in.csv", "out.csv", "--bins", "a=0,5,10", "--bins", "b=0,9"],
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return answer(capsys, *words)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[1])
def test_a_preview_states_the_errors_of_the_release(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, *PROMISE, "--preview"]) == 0
    shown = capsys.readouterr().out
    assert "(1, 1e-06)-differential privacy under replacing one record" in shown
    (preview,) = asked(capsys, *command, *PROMISE, "--preview")["previews"]
    assert list(Path().iterdir()) == []
    Path("in.csv").write_text(TABLE)
    assert main([*command, *PROMISE]) == 0
    release = Release.load("out.csv")
    np.testing.assert_array_equal(preview["standard_errors"], release.standard_errors())
    assert preview["mu"] == release.guarantee.mu
    assert preview["query"] == json.loads(Path("out.csv.json").read_text())["query"]


def test_previews_of_two_answers(capsys: pytest.CaptureFixture[str]) -> None:
    both = asked(capsys, *COMMANDS[0], *PROMISE, "--clipped-share", "0.1", "--preview")["previews"]
    assert [each["shape"] for each in both] == [[1, 2], [1, 1]]
    promise = [*PROMISE[:-1], "add-remove"]
    assert main(["query", "mean", "in.csv", "out.csv", *COLUMNS, *promise, "--preview"]) == 0
    assert "standard error of the number of records: 6.57" in capsys.readouterr().out
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("bounds", "errors"),
    [
        (["--sensitivity", "1"], [4.22467, 4.22467]),
        (["--sensitivity", "1", "--symmetric"], [4.22467, 2.98729]),
        (["--row-bounds", "1,2"], [4.22468, 8.44936]),
        (["--box", "1,2"], [7.31735, 10.3483]),
    ],
)
def test_a_release_previews_its_noise(
    bounds: list[str], errors: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["release", "in.npy", "out.npy", *PROMISE, *bounds]
    preview = asked(capsys, *command, "--preview")
    np.testing.assert_allclose(preview["standard_errors"], errors, rtol=1e-5)
    assert list(Path().iterdir()) == []
    np.save("in.npy", np.ones((2, 2)))
    assert main(command) == 0
    stated = Release.load("out.npy").standard_errors()
    found = stated[:, 0] if "--row-bounds" in bounds else stated[0]
    np.testing.assert_allclose(preview["standard_errors"], found, rtol=1e-12)


def test_a_release_says_if_the_range_is_smaller(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["release", "in.csv", "out.csv", *PROMISE, "--sensitivity", "1", "--preview"]
    for largest, hidden in (("2", True), ("3", False)):
        assert main([*command, "--range", largest]) == 0
        assert ("LARGER THAN THE RANGE" in capsys.readouterr().out) is hidden


def test_a_workload_previews_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["workload", "answer", "in.npy", "out.npz", "--workload", "prefix:8", *PROMISE]
    preview = asked(capsys, *command, "--preview")
    assert main([*command, "--preview"]) == 0
    assert "with fewer than 7 records the noise is larger" in capsys.readouterr().out
    assert list(Path().iterdir()) == []
    np.save("in.npy", np.full(8, 3))
    assert asked(capsys, *command)["expected_rmse"] == preview["expected_rmse"]
    assert WorkloadRelease.verify("out.npz").mu == preview["mu"]


QUERY = ["--query", "covariance", *COLUMNS, "--count", "500", "--neighbouring", "replace"]


def plan(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    return answer(capsys, "plan", *options, "--delta", "1e-6")


REPLACE = ["--neighbouring", "replace"]
SEX = ["--categories", "sex=F,M"]
AGE = ["--bins", "age=0,20,40,100"]


@pytest.mark.parametrize(
    "words",
    [
        ["histogram", *SEX, *AGE],
        ["groups", *COLUMNS, "--by", "sex", *SEX, "--order", "2"],
        ["marginals", *SEX, *AGE, "--categories", "site=a,b", "--ways", "2"],
        ["marginals", *SEX, *AGE, "--other", "sex", "--of", "age,sex", "--ways", "1"],
    ],
    ids=["histogram", "groups", "pairs", "columns"],
)
def test_counts_by_category_are_planned(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    kind, *options = words
    found = plan(capsys, "--query", kind, *options, *REPLACE, "--entry-error", "3")
    assert max(map(max, found["standard_errors"])) == pytest.approx(3.0, rel=1e-9)
    promise = ["--epsilon", repr(found["epsilon"]), "--delta", "1e-6", *REPLACE]
    target = "out.npz" if kind == "marginals" else "out.csv"
    preview = asked(capsys, "query", kind, "in.csv", target, *options, *promise, "--preview")
    if kind == "marginals":
        squares = np.square(found["standard_errors"])
        assert preview["expected_rmse"] == pytest.approx(np.sqrt(squares.mean()), rel=1e-9)
        assert preview["queries"] == len(squares)
    else:
        errors = preview["previews"][0]["standard_errors"]
        np.testing.assert_allclose(errors, found["standard_errors"], rtol=1e-9)


def test_a_plan_takes_a_query(capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(capsys, *QUERY, "--entry-error", "0.5", "--steps", "3")
    assert found["error"]["entry"] == pytest.approx(0.5, rel=1e-9)
    again = plan(capsys, *QUERY, "--epsilon", repr(found["epsilon"]), "--steps", "3")
    assert again["error"]["entry"] <= 0.5
    assert again["error"] == pytest.approx(found["error"], rel=1e-9)
    assert main(["plan", *QUERY, "--epsilon", "0.01", "--delta", "1e-6"]) == 0
    shown = capsys.readouterr().out
    assert "1 x the release below" in shown
    assert "covariance of records over the public count 500" in shown
    assert "LARGER THAN THE RANGE" in shown
    limit = ["--entry-error", "0.5", "--epsilon", "0.1", "--delta", "1e-6"]
    assert main(["plan", *QUERY, *limit]) == 3
    assert "needs epsilon=" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["sum", "mean", "gram", "covariance", "clipped"])
def test_every_kind_of_query_is_planned(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    count = ["--count", "500"] if kind in ("mean", "covariance") else []
    options = [*COLUMNS, "--neighbouring", "replace", *count]
    found = plan(capsys, "--query", kind, *options, "--epsilon", "1")
    command = ["query", kind, "in.csv", "out.csv", *COLUMNS, *count, *PROMISE, "--preview"]
    (preview,) = asked(capsys, *command)["previews"]
    assert found["standard_errors"] == preview["standard_errors"]


def test_a_mean_over_a_private_count_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    options = [*COLUMNS, "--neighbouring", "add-remove"]
    found = plan(capsys, "--query", "mean", *options, "--epsilon", "1")
    command = ["query", "mean", "in.csv", "out.csv", *options, *PROMISE[:4], "--preview"]
    (preview,) = asked(capsys, *command)["previews"]
    assert found["standard_errors"] == preview["standard_errors"]
    assert found["count_error"] == preview["count_error"] > 0.0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--epsilon", "1"], "pass --shape, or --query"),
        (["--shape", "2x2", "--norm", "1", "--epsilon", "1"], "pass --shape, or --query"),
        ([*QUERY, "--shape", "2x2", "--epsilon", "1"], "--query says the shape"),
        ([*QUERY, "--sensitivity", "2", "--epsilon", "1"], "--query says the shape"),
        (["--query", "sum", "--norm", "1", "--epsilon", "1"], "--query needs --neighbouring"),
        (["--query", "sum", *REPLACE, "--norm", "1", "--epsilon", "1"], "--query needs --columns"),
        ([*QUERY, "--by", "a", "--epsilon", "1"], "--by is not for --query covariance"),
        (["--query", "histogram", *REPLACE, *COLUMNS, "--epsilon", "1"], "--columns is not for"),
        (["--query", "groups", *REPLACE, *COLUMNS, *SEX, "--epsilon", "1"], "needs --by"),
        (["--query", "marginals", *REPLACE, *SEX, "--epsilon", "1"], "--ways 2 must be from 1"),
        (["--shape", "2x2", "--ways", "2", "--epsilon", "1"], "pass --shape, or --query"),
        (["--query", "mean", *COLUMNS, "--neighbouring", "replace", "--epsilon", "1"], "--count"),
        (QUERY, "pass --epsilon, or one of"),
        (["--shape", "2x2", "--sensitivity", "0", "--epsilon", "1"], "sensitivity=0.0"),
    ],
)
def test_plans_that_are_refused(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *options, "--delta", "1e-6"]) == 2
    assert named in capsys.readouterr().err


@pytest.mark.parametrize("words", [QUERY, ["--shape", "10x20"]], ids=["query", "shape"])
def test_a_figure_of_errors_against_epsilon(words: list[str]) -> None:
    options = ["plan", *words, "--epsilon", "1", "--delta", "1e-6", "--figure"]
    assert main([*options, "errors.png"]) == 0
    assert main([*options, "errors.svg"]) == 0
    assert Path("errors.png").read_bytes().startswith(b"\x89PNG")
    drawn = Path("errors.svg").read_text()
    assert "epsilon at delta 1e-06" in drawn
    assert ("range of an entry" in drawn) is (words is QUERY)
    assert main([*options, "errors.svg"]) == 2
    assert main([*options, "errors.svg", "--force"]) == 0
    assert Path("errors.svg").read_text() == drawn
