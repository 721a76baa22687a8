"""``matrixdp workload``, driven as a user would."""

import hashlib
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.workload_asked import BUDGET, PREFIX
from matrixdp import MatrixMechanism, WorkloadRelease
from matrixdp.cli.commands.workload.options import read_workload
from matrixdp.cli.main import main
from matrixdp.files.publishing.strategies import load_strategy, save_strategy
from matrixdp.workloads import (
    Certificate,
    OptimalStrategy,
    StackedStrategy,
)
from matrixdp.workloads.unions import search as unions

PLANES = ["--workload", "ranges:512*ranges:512", "--neighbouring", "add-remove"]
CUBE = ["--workload", "*".join(["prefix:8192"] * 3), "--neighbouring", "add-remove"]
MANY = ["--workload", "*".join(["prefix:16"] * 65), "--neighbouring"]
UNION = ["*".join(["prefix:8"] * 12), "*".join(["prefix:8"] * 11 + ["total:8"])]
REPLACE = ["--neighbouring", "replace"]

pytestmark = pytest.mark.usefixtures("workload_folder")


def test_optimise_saves_what_the_others_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "optimise", *PREFIX, "--output", "s.npz", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gap"] < 1e-9
    assert found["queries"] == 16
    assert main(["workload", "evaluate", *PREFIX, "--strategy", "s.npz", "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["rmse"]
    assert errors["s.npz"] == pytest.approx(found["rmse"])
    assert main(["workload", "evaluate", *PREFIX, "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["rmse"]
    assert errors["optimal"] == pytest.approx(found["rmse"])
    assert errors["SVD bound"] < errors["lower bound"] <= errors["optimal"] < errors["wavelet"]
    assert set(errors) >= {"identity", "direct", "hierarchical", "wavelet"}
    answer = ["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]
    assert main([*answer, "--strategy", "s.npz"]) == 0
    assert WorkloadRelease.load("out.npz").answers.shape == (16,)


def test_where_no_bound_is_known_there_is_no_gap(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("ramp.npy", np.arange(100.0)[None, :])
    question = ["--workload", "ramp.npy*ramp.npy", "--neighbouring", "replace"]
    assert main(["workload", "optimise", *question, "--output", "s.npz", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gap"] is None
    assert load_strategy("s.npz").certificate.lower_bound == 0.0


def test_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "optimise", *PREFIX]) == 0
    assert "no strategy is below" in capsys.readouterr().out
    assert (
        main(["workload", "evaluate", "--workload", "prefix:8", "--neighbouring", "replace"]) == 0
    )
    assert "hierarchical" in capsys.readouterr().out


def test_a_release_and_its_statement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    statement = json.loads(Path("out.npz.json").read_text())
    release = WorkloadRelease.load("out.npz")
    assert release.guarantee.epsilon == 1.0
    assert repr(release.workload) == "Prefix(16)"
    assert statement["guarantee"]["epsilon"] == said["epsilon"] == 1.0
    assert statement["file"]["sha256"] == hashlib.sha256(Path("out.npz").read_bytes()).hexdigest()
    assert said["expected_rmse"] < 10
    assert said["expected_rmse"] == pytest.approx(
        math.sqrt(float(np.mean(release.standard_errors() ** 2)))
    )
    again = ["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]
    assert main(again) == 2
    assert "exists" in capsys.readouterr().err
    assert main([*again, "--force"]) == 0
    message = capsys.readouterr().err
    assert "wrote out.npz and out.npz.json" in message
    assert "matrixdp workload export out.npz" in message
    assert message.endswith("a second run would draw new noise and spend as much again\n")


def test_a_part_is_spent_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    mu = "0.123456789012345"
    spend = [*PREFIX, "--mu", mu, "--delta", "1e-6", "--json"]
    assert main(["workload", "answer", "counts.npy", "out.npz", *spend]) == 0
    assert json.loads(capsys.readouterr().out)["mu"] <= float(mu)
    assert WorkloadRelease.load("out.npz").guarantee.mu == pytest.approx(float(mu), rel=1e-12)
    assert main(["workload", "answer", "counts.npy", "two.npz", *spend, "--epsilon", "1"]) == 2
    assert "exactly one of --epsilon and --mu" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_leaves_a_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ["workload", "answer", "counts.npy", *PREFIX, *BUDGET]
    with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main([*answer, "out.npz", "--json"]) == 4
    assert "the release is out, its budget is spent" in capsys.readouterr().err
    assert WorkloadRelease.load("out.npz").guarantee.epsilon == 1.0


def test_a_matrix_of_queries_and_several_attributes() -> None:
    queries = ["--workload", "queries.npy", "--neighbouring", "replace"]
    assert main(["workload", "answer", "counts.npy", "out.npz", *queries, *BUDGET]) == 0
    assert WorkloadRelease.load("out.npz").answers.shape == (16,)
    union = ["--workload", "prefix:4*total:4 + identity:4*ranges:4:2", "--neighbouring", "replace"]
    assert main(["workload", "answer", "counts.csv", "two.npz", *union, *BUDGET]) == 0
    assert main(["workload", "export", "two.npz", "two.csv"]) == 0
    assert len(Path("two.csv").read_text().splitlines()) == 1 + 4 + 4 * 7


@pytest.mark.parametrize(
    "name", ["a+b.npy", "a*b.npy", "a b.npy", " a.npy", "queries.npy", "a:b.npy"]
)
def test_a_file_of_any_name_can_be_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(name, np.tril(np.ones((16, 16))))
    quoted = ["--workload", f'total:16 + "{name}"', "--neighbouring", "add-remove"]
    assert main(["workload", "answer", "counts.npy", "out.npz", *quoted, *BUDGET]) == 0
    assert WorkloadRelease.load("out.npz").answers.shape == (17,)
    archive = name.replace(".npy", ".npz")
    np.savez(archive, np.tril(np.ones((16, 16))))
    quoted[1] = quoted[1].replace(name, archive)
    before = Path(archive).read_bytes()
    assert main(["workload", "answer", "counts.npy", archive, *quoted, *BUDGET, "--force"]) == 2
    assert "which is read" in capsys.readouterr().err
    assert Path(archive).read_bytes() == before


def test_the_error_is_known_before_anything_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    draw = MatrixMechanism.release_to

    def release_to(mechanism: MatrixMechanism, *given: Any, **options: Any) -> WorkloadRelease:
        drawn.append("expected_error" in vars(mechanism))
        return draw(mechanism, *given, **options)

    monkeypatch.setattr(MatrixMechanism, "release_to", release_to)
    assert main(["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]) == 0
    assert drawn == [True]


@pytest.mark.parametrize(
    "relation", ["add-remove", pytest.param("replace", marks=pytest.mark.thorough)]
)
@pytest.mark.parametrize(
    ("factor", "count"),
    [
        ("ranges:64", 10),
        pytest.param("prefix:16", 64, marks=pytest.mark.thorough),
        pytest.param("prefix:2", 200, marks=pytest.mark.thorough),
    ],
)
def test_more_queries_than_anything_holds_are_still_optimised(
    factor: str, count: int, relation: str, capsys: pytest.CaptureFixture[str]
) -> None:
    question = ["--workload", "*".join([factor] * count), "--neighbouring", relation, "--json"]
    assert main(["workload", "optimise", *question]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["queries"] > 2**53
    one = ["--workload", factor, "--neighbouring", "add-remove", "--json"]
    assert main(["workload", "optimise", *one]) == 0
    single = json.loads(capsys.readouterr().out)
    least = single["rmse"] ** count
    if relation == "add-remove":
        assert found["rmse"] == pytest.approx(least, rel=1e-6)
        assert found["gap"] < 1e-6
    else:
        assert found["rmse_lower_bound"] <= found["rmse"] <= 2.0 * least * (1 + 1e-6)
    assert main(["workload", "evaluate", *question]) == 0
    errors = json.loads(capsys.readouterr().out)["rmse"]
    assert errors["lower bound"] <= errors["optimal"] == found["rmse"] <= errors["direct"]


@pytest.mark.parametrize("command", ["optimise", "evaluate"])
def test_too_little_memory_is_no_defect(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 4 GiB")

    monkeypatch.setattr("matrixdp.cli.commands.workload.evaluate.optimal_strategy", fail)
    assert main(["workload", command, *PREFIX]) == 2
    message = capsys.readouterr().err
    assert "not enough memory" in message
    assert message.count("\n") == 1


STACKED = "prefix:50*total:60 + total:50*prefix:60"
LARGE = ["--workload", STACKED, "--neighbouring", "add-remove"]


def save_stack() -> float:
    """Save a stack for the union in s.npz, and return its error."""
    workload = read_workload(STACKED)
    stack = unions.strategies_for_union(workload, "add-remove").best[-1]
    value = stack.sensitivity("add-remove") ** 2 * stack.squared_error(workload)
    save_strategy(OptimalStrategy(workload, stack, "add-remove", Certificate(value, 1.0)), "s.npz")
    return math.sqrt(value / workload.rows)


def test_large_unions_are_answered_by_stacks(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("many.npy", np.full((50, 60), 3))
    expected = save_stack()
    assert isinstance(load_strategy("s.npz").strategy, StackedStrategy)
    assert main(["workload", "optimise", *LARGE, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rmse"] <= expected * (1 + 1e-9)
    assert found["gap"] <= 1.0 + 1e-6
    assert main(["workload", "evaluate", *LARGE, "--strategy", "s.npz", "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["rmse"]
    assert errors["s.npz"] == pytest.approx(expected)
    assert errors["s.npz"] < min(errors["direct"], errors["identity"])
    options = [*LARGE, *BUDGET, "--strategy", "s.npz"]
    assert main(["workload", "answer", "many.npy", "out.npz", *options]) == 0
    assert main(["workload", "export", "out.npz", "a.npy", "--non-negative"]) == 0
    assert "not exact" not in capsys.readouterr().err
    answers = np.load("a.npy").ravel()
    assert answers[49] == pytest.approx(answers[-1], abs=1e-6)
    swapped = ["--workload", "total:50*prefix:60 + prefix:50*total:60"]
    options = [*swapped, "--neighbouring", "add-remove", *BUDGET, "--strategy", "s.npz"]
    assert main(["workload", "answer", "many.npy", "other.npz", *options]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_answers_of_a_search_without_end_come_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("many.npy", np.full((50, 60), 3))
    save_stack()
    monkeypatch.setattr("matrixdp.workloads.strategies.stacked._MOST_ITERATIONS", 3)
    options = [*LARGE, *BUDGET, "--strategy", "s.npz", "--json"]
    assert main(["workload", "answer", "many.npy", "out.npz", *options]) == 0
    assert main(["workload", "export", "out.npz", "a.npy", "--json"]) == 0
    message = capsys.readouterr().err
    assert "matrixdp: the least-squares estimate is not exact" in message
    assert len(message.splitlines()) == 2  # the other is of the release
    assert np.load("a.npy").shape == (110, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["optimise", "--workload", "prefix:x", "--neighbouring", "replace"], "'prefix:x'"),
        (["optimise", "--workload", "prefix", "--neighbouring", "replace"], "'prefix'"),
        (["optimise", "--workload", "total:4", "--neighbouring", "replace"], "subtract"),
        (["optimise", "--workload", "prefix:0", "--neighbouring", "replace"], "size=0"),
        (["optimise", "--workload", "prefix:9999", "--neighbouring", "replace"], "merge cells"),
        (["optimise", "--workload", "no.npy", "--neighbouring", "replace"], "no.npy"),
        (["optimise", "--workload", 'x+"a+b.npy', "--neighbouring", "replace"], "not closed"),
        (["optimise", "--workload", '"a+b.npy"', "--neighbouring", "replace"], "does not exist"),
        (["optimise", "--workload", '"a"b.npy', "--neighbouring", "replace"], "whole name"),
        (["optimise", "--workload", 'a"b"', "--neighbouring", "replace"], "whole name"),
        (["optimise", "--workload", '"prefix:4"', "--neighbouring", "replace"], "whole name"),
        (["optimise", "--workload", '""', "--neighbouring", "replace"], "whole name"),
        (["optimise", "--workload", "prefix:4*", "--neighbouring", "replace"], "not understood"),
        (["optimise", "--workload", "", "--neighbouring", "replace"], "not understood"),
        (["optimise", "--workload", "prefix:4+prefix:5", "--neighbouring", "replace"], "layout"),
        (["optimise", "--workload", "prefix:4", "--neighbouring", "swap"], "swap"),
        (["optimise", *PREFIX, "--output", "s.txt"], "s.txt"),
        (["optimise", *PREFIX, "--output", "no/s.npz"], "no/s.npz"),
        (["evaluate", *PREFIX, "--strategy", "no.npz"], "no.npz"),
        (["answer", "no.npy", "out.npz", *PREFIX, *BUDGET], "no.npy"),
        (["answer", "counts.txt", "out.npz", *PREFIX, *BUDGET], "counts.txt"),
        (["answer", "counts.npy", "out.npy", *PREFIX, *BUDGET], "does not end in .npz"),
        (["answer", "counts.npy", "objects.npz", *PREFIX, *BUDGET], "exists"),
        (["answer", "counts.npy", "taken.npz", *PREFIX, *BUDGET], "taken.npz.json exists"),
        (["optimise", *MANY, "add-remove"], "leave out attributes"),
        (["optimise", *MANY, "replace"], "leave out attributes"),
        (["evaluate", *MANY, "add-remove"], "leave out attributes"),
        (
            ["evaluate", "--workload", "*".join(["huge.npy"] * 8), "--neighbouring", "add-remove"],
            "scale",
        ),
        (
            ["evaluate", "--workload", f"{UNION[0]} + {UNION[1]}", "--neighbouring", "replace"],
            "leave out attributes",
        ),
        (["optimise", *PREFIX, "--output", "taken.npz"], "taken.npz.json exists"),
        (["evaluate", "--workload", "total:4", "--neighbouring", "replace"], "subtract"),
        (["answer", "counts.csv", "out.npz", *PREFIX, *BUDGET], "16 cells"),
        (["answer", "halves.npy", "out.npz", *PREFIX, *BUDGET], "an integer of at least 0"),
        (["answer", "counts.npy", "out.npz", *PREFIX, "--epsilon", "-1", "--delta", "1"], "-1.0"),
        (["answer", "counts.npy", "out.npz", *PREFIX, "--delta", "1e-5"], "--epsilon"),
        (["answer", "counts.npy", "out.npz", *PREFIX, "--epsilon", "1"], "--delta"),
        (["answer", ".", "out.npz", *PREFIX, *BUDGET], "is of format"),
        (["answer", "counts.npy", ".", *PREFIX, *BUDGET], ".npz"),
        (["export", "no.npz", "a.csv"], "no.npz does not exist"),
        (["export", "objects.npz", "a.csv"], "objects.npz.json is missing"),
        (["export", ".", "a.csv"], "folder"),
        (["export", "objects.npz", "a.npz"], "is of format"),
        (["export", "objects.npz", "no/a.csv"], "folder"),
        (["answer", "counts.npy", "out.npz", *PREFIX, *BUDGET, "--strategy", "."], "folder"),
        (["answer", "counts.npy", "out.npz", *PREFIX, *BUDGET, "--strategy", "/"], "folder"),
        (["evaluate", *PREFIX, "--strategy", "."], "folder"),
        (["optimise", *PREFIX, "--output", "."], ".npz"),
        (["answer", "counts.npy", "out.npz", *PLANES, *BUDGET], "17247043584 queries"),
        (["answer", "counts.npy", "out.npz", *CUBE, *BUDGET], "merge their cells"),
        (["answer", "labelled.csv", "out.npz", *PREFIX, *BUDGET], "leave labels out"),
        (["answer", "inexact.csv", "out.npz", *PREFIX, *BUDGET], "row 3, column 1"),
        (
            ["answer", "junk.npy", "out.npz", *PREFIX, *BUDGET],
            "junk.npy is not a .npy file",
        ),
        (
            ["answer", "folder.npy", "out.npz", *PREFIX, *BUDGET],
            "folder.npy is a folder",
        ),
        (
            ["optimise", "--workload", "folder.npy", *REPLACE],
            "folder.npy is a folder: name",
        ),
        (["optimise", "--workload", "labelled.csv", *REPLACE], "leave labels out"),
        (
            ["optimise", "--workload", "junk.npy", *REPLACE],
            "junk.npy is not a .npy file",
        ),
        (
            ["optimise", "--workload", "objects.npy", *REPLACE],
            "objects.npy holds an array",
        ),
        (
            ["optimise", "--workload", "objects.npz", *REPLACE],
            "objects.npz holds an array",
        ),
    ],
)
def test_bad_input_writes_nothing(
    arguments: list[str], message: str, workload_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("halves.npy", np.full(16, 0.5))
    np.save("huge.npy", np.full((1, 2), 2.0**100))
    np.save("objects.npy", np.array([[None]]), allow_pickle=True)
    np.savez("objects.npz", np.array([[None]]))
    Path("junk.npy").write_text("junk")
    Path("labelled.csv").write_text("a,b\n1,2\n")
    Path("inexact.csv").write_text("3\n3\n3.00000000000000000001\n" + 13 * "3\n")
    Path("folder.npy").mkdir()
    Path("taken.npz.json").write_text("{}")
    before = sorted(path.name for path in workload_folder.iterdir())
    assert main(["workload", *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert "pickle" not in output.err
    assert output.out == ""
    assert sorted(path.name for path in workload_folder.iterdir()) == before
