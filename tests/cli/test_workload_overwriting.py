"""``matrixdp workload`` never replaces a file that it reads."""

from pathlib import Path

import numpy as np
import pytest

from cli.workload_asked import BUDGET, PREFIX
from matrixdp import WorkloadRelease
from matrixdp.cli.main import main
from matrixdp.files.publishing.strategies import load_strategy

pytestmark = pytest.mark.usefixtures("workload_folder")


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("counts.npz", "counts.npz"),
        ("counts.npz", "./counts.npz"),
        ("link.npz", "counts.npz"),
        ("counts.npz", "link.npz"),
        ("counts.npz", "hard.npz"),
        ("linked/counts.npz", "counts.npz"),
    ],
)
def test_the_input_is_never_replaced(
    source: str, target: str, workload_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("counts.npz", np.full((16, 1), 20))
    (workload_folder / "link.npz").symlink_to("counts.npz")
    (workload_folder / "hard.npz").hardlink_to("counts.npz")
    (workload_folder / "linked").symlink_to(".")
    before = Path("counts.npz").read_bytes()
    assert main(["workload", "answer", source, target, *PREFIX, *BUDGET, "--force"]) == 2
    assert "which is read" in capsys.readouterr().err
    assert Path("counts.npz").read_bytes() == before


def test_strategies_and_releases_are_never_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "optimise", *PREFIX, "--output", "s.npz"]) == 0
    saved = ["--strategy", "s.npz", "--force"]
    assert main(["workload", "answer", "counts.npy", "s.npz", *PREFIX, *BUDGET, *saved]) == 2
    assert load_strategy("s.npz").workload == "Prefix(16)"
    assert main(["workload", "answer", "counts.npy", "out.npz", *PREFIX, *BUDGET]) == 0
    Path("answers.csv").symlink_to("out.npz")
    capsys.readouterr()
    assert main(["workload", "export", "out.npz", "answers.csv", "--force"]) == 2
    assert "which is read" in capsys.readouterr().err
    WorkloadRelease.load("out.npz")


@pytest.mark.parametrize("target", ["queries.npz", "./queries.npz", "link.npz"])
def test_files_of_queries_are_never_replaced(
    target: str, workload_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("queries.npz", np.eye(16))
    (workload_folder / "link.npz").symlink_to("queries.npz")
    before = Path("queries.npz").read_bytes()
    queries = ["--workload", "total:16 + queries.npz", "--neighbouring", "add-remove", "--force"]
    assert main(["workload", "answer", "counts.npy", target, *queries, *BUDGET]) == 2
    assert "which is read" in capsys.readouterr().err
    assert main(["workload", "optimise", *queries, "--output", target]) == 2
    assert "which is read" in capsys.readouterr().err
    assert Path("queries.npz").read_bytes() == before
