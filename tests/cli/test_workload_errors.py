"""``matrixdp workload evaluate``: errors in counts, always beside the optimum."""

import json
import math
from pathlib import Path

import pytest

from matrixdp import Budget, MatrixMechanism
from matrixdp.cli.main import main
from matrixdp.workloads import Prefix

PREFIX = ["--workload", "prefix:16", "--neighbouring", "add-remove"]
REPLACE = ["--neighbouring", "replace"]
BUDGET = ["--epsilon", "1", "--delta", "1e-5"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


def test_errors_in_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "evaluate", *PREFIX, *BUDGET, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    mechanism = MatrixMechanism(Prefix(16), Budget(1.0, 1e-5), neighbouring="add-remove")
    errors = mechanism.standard_errors()
    optimal = found["in_counts"]["optimal"]
    assert found["mu"] == mechanism.budget.mu
    assert optimal["rms"] == pytest.approx(mechanism.expected_error)
    assert optimal["best"] == pytest.approx(errors.min())
    assert optimal["worst"] == pytest.approx(errors.max())
    assert optimal["best"] < optimal["rms"] < optimal["worst"]
    # Prefixes of the identity: the variance of the k-th is k, so that the mean is (16 + 1) / 2.
    assert found["in_counts"]["identity"]["rms"] == pytest.approx(math.sqrt(8.5) / found["mu"])
    assert main(["workload", "evaluate", *PREFIX, *BUDGET]) == 0
    table = capsys.readouterr().out
    for part in ("error in counts", "best query", "worst query", "at 1, 1e-05", "lower bound"):
        assert part in table
    assert main(["workload", "evaluate", *PREFIX, "--epsilon", "1"]) == 2
    assert "pass --delta with --epsilon" in capsys.readouterr().err


def test_a_strategy_for_the_other_relation_is_not_called_the_best(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = ["workload", "optimise", "--workload", "prefix:16", *REPLACE, "--output", "s.npz"]
    assert main(other) == 0
    capsys.readouterr()
    assert main(["workload", "evaluate", *PREFIX, "--strategy", "s.npz", "--json"]) == 0
    errors = json.loads(capsys.readouterr().out)["rmse"]
    assert errors["s.npz"] > 1.01 * errors["optimal"]
    assert errors["optimal"] >= errors["lower bound"]
    assert main(["workload", "evaluate", *PREFIX, "--strategy", "s.npz"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert any("optimal" in line and "1.000" in line for line in table)
    assert not any("s.npz" in line and "1.000" in line for line in table)
