"""``matrixdp workload`` on marginals: tables of counts, also from records."""

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from matrixdp import WorkloadRelease
from matrixdp.cli.commands.workload.options import read_workload
from matrixdp.cli.main import main
from matrixdp.errors import InvalidParameterError
from matrixdp.workloads import marginals, optimal_strategy

SMALL = ["--workload", "marginals:4x3x2:2", "--neighbouring", "replace"]
# 10**16 cells.
LARGE = ["--workload", "marginals:" + "x".join(["100"] * 8) + ":2", "--neighbouring", "add-remove"]
BUDGET = ["--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with counts and records."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    rng = np.random.default_rng(0)
    np.save("counts.npy", np.full((24, 1), 20))
    np.save("records.npy", rng.integers(0, 100, (500, 8)))
    np.savetxt("small.csv", rng.integers(0, 2, (30, 3)), delimiter=",", fmt="%d")
    np.savetxt("halves.csv", rng.integers(0, 2, (30, 3)) / 2, delimiter=",")
    return tmp_path


def test_marginals_are_named_by_sizes_and_ways() -> None:
    asked = read_workload("marginals:4x3x2:2 + marginals:4x3x2:0")
    pairs = [(0, 1), (0, 2), (1, 2), ()]
    assert repr(asked) == repr(marginals([4, 3, 2], pairs))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("marginals:4x3", "not understood"),
        ("marginals:4x3:", "not understood"),
        (f"marginals:{'9' * 5000}:0", "not understood"),
        (f"marginals:4x3:{'9' * 5000}", "not understood"),
        ("marginals:4x-3:1", "not understood"),
        ("marginals:4x3:3", "tables of 3 attributes, and there are 2"),
        ("marginals:4x0:1", "dimensions=0"),
        ("marginals:4x3:1*total:5", "not understood"),
    ],
)
def test_what_names_no_marginals_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        read_workload(text)


def test_counts_are_answered_and_exported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "evaluate", *SMALL, "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["rmse"]
    best = optimal_strategy(read_workload(SMALL[1]), neighbouring="replace")
    assert errors["optimal"] == pytest.approx(best.rmse)
    assert main(["workload", "optimise", *SMALL, "--output", "s.npz"]) == 0
    answer = ["workload", "answer", "counts.npy", "out.npz", *SMALL, *BUDGET]
    assert main([*answer, "--strategy", "s.npz"]) == 0
    assert main(["workload", "export", "out.npz", "out.csv", "--non-negative"]) == 0
    rows = Path("out.csv").read_text().splitlines()
    assert rows[0] == "query,answer"
    assert len(rows) == 1 + 12 + 8 + 6


def test_records_of_any_number_of_cells_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "evaluate", *LARGE]) == 0
    assert "28 tables of 100 x 100" in capsys.readouterr().out
    answer = ["workload", "answer", "records.npy", "out.npz", *LARGE, *BUDGET]
    assert main([*answer, "--records"]) == 0
    release = WorkloadRelease.load("out.npz")
    assert release.table((2, 5)).shape == (100, 100)
    assert release.estimate is None  # its cells do not fit in memory
    assert main(["workload", "evaluate", *LARGE, *BUDGET]) == 0
    assert main(["workload", "export", "out.npz", "out.npy"]) == 0
    assert np.load("out.npy").shape == (280000, 1)
    assert main(["workload", "answer", "small.csv", "small.npz", *SMALL, *BUDGET, "--records"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["records.npy", "out.npz", *LARGE], "released from records"),
        (["counts.npy", "out.npz", *LARGE, "--records"], "8 columns"),
        (["records.npy", "out.npz", *SMALL, "--records"], "3 columns"),
        (
            ["halves.csv", "out.npz", *SMALL, "--records"],
            "row 1, column 3: the number is not an integer",
        ),
    ],
)
def test_other_input_writes_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workload", "answer", *arguments, *BUDGET]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not Path("out.npz").exists()


@pytest.mark.parametrize(
    ("bad", "place"),
    [
        ("0,x,0", "row 3, column 2"),
        ("0,1", "row 3 has 2 cells"),
        ("0,inf,0", "row 3, column 2"),
        ("0,0.1,0", "row 3, column 2"),
        ("0,0.5,0", "row 3, column 2"),
        # A number that can be read is data, and its place is not shown.
        ("0,77,0", "in column 2, counted from 1"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named(
    bad: str, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.csv").write_text(f"0,1,1\n0,1,1\n{bad}\n0,1,1\n")
    assert main(["workload", "answer", "bad.csv", "out.npz", *SMALL, *BUDGET, "--records"]) == 2
    error = capsys.readouterr().err
    assert place in error
    assert "77" not in error
    assert ("row" in error) == place.startswith("row")
    assert not Path("out.npz").exists()


@pytest.mark.parametrize("kind", ["U3", "complex128", "datetime64[D]", "bool", "longdouble"])
def test_records_of_another_type_are_refused(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("bad.npy", np.zeros((4711, 3), dtype=kind))
    assert main(["workload", "answer", "bad.npy", "out.npz", *SMALL, *BUDGET, "--records"]) == 2
    error = capsys.readouterr().err
    assert "IN h" in error or "bad.npy holds an array of dtype" in error
    assert "4711" not in error


@pytest.mark.parametrize(
    ("name", "values", "options", "message"),
    [
        (
            "bad.csv",
            [[3, 0, 1], [4, -77, 2]],
            [],
            "IN, row 2, column 2: the number is not a cou",
        ),
        ("bad.csv", [[3, 0.5, 1, 4, 5, 2]], [], "IN, row 1, column 2: the number is not a cou"),
        ("bad.npy", [3, 0, 1, 4, -77, 2], [], "IN, entry 5: the number is not a count"),
        ("bad.npy", [3, 0, 1, 4, 77, 2**30], [], "at most 1073741824 records in all"),
        ("bad.npy", [[0, 1], [77, 1]], ["--records"], "in column 1, counted from 1"),
        ("bad.npy", [[0, 1, 1]], ["--records"], "2 columns"),
    ],
)
def test_what_cannot_be_counted_is_refused_before_the_search(
    name: str,
    values: ArrayLike,
    options: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if name.endswith(".npy"):
        np.save(name, values)
    else:
        np.savetxt(name, values, delimiter=",", fmt="%g")
    monkeypatch.delattr("matrixdp.cli.commands.workload.measuring.optimal_strategy")
    asked = ["--workload", "prefix:2*prefix:3", "--neighbouring", "replace", *BUDGET]
    assert main(["workload", "answer", name, "out.npz", *asked, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "77" not in error
