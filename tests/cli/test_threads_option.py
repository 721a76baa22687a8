"""Every command that releases takes ``--threads``, and says that a second run spends again."""

import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp import Budget, InvalidParameterError, PrivacyFilter
from matrixdp.cli.main import main
from matrixdp.mechanisms import gaussian
from matrixdp.noise.application.threads import checked_threads
from matrixdp.queries import Mean, PublicBounds

BUDGET = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "add-remove"]
NUMBERS = ["records.csv", "out.csv", *BUDGET, "--columns", "a", "--norm", "1"]
COMMANDS = {
    "release": ["release", "in.csv", "out.csv", *BUDGET, "--sensitivity", "1"],
    "streamed": ["release", "in.npy", "out.npy", *BUDGET, "--sensitivity", "1"],
    "sum": ["query", "sum", *NUMBERS],
    "gram and clipped": ["query", "gram", *NUMBERS, "--clipped-share", "0.1"],
    "mean": ["query", "mean", *NUMBERS, "--count", "2"],
    "private mean": ["query", "mean", *NUMBERS],
    "histogram": ["query", "histogram", "records.csv", "out.csv", *BUDGET, "--bins", "a=0,1"],
    "answer": ["workload", "answer", "in.csv", "out.npz", *BUDGET, "--workload", "identity:6"],
}
SPENDS = "a second run would draw new noise and spend as much again\n"


@pytest.fixture(autouse=True)
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Work in a folder with data; return the numbers of threads that draws are limited to."""
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.ones((6, 1)))
    Path("in.csv").write_text("1\n1\n1\n1\n1\n1\n")
    Path("records.csv").write_text("a\n0.5\n0.25\n")
    numbers: list[int] = []

    def checked(threads: int) -> int:
        numbers.append(threads)
        return checked_threads(threads)

    monkeypatch.setattr(gaussian, "checked_threads", checked)
    for module in ("paid_release", "paid_workload", "streamed_release"):
        monkeypatch.setattr(f"matrixdp.files.publishing.{module}.checked_threads", checked)
    monkeypatch.setattr("matrixdp.queries.private_count.checked_threads", checked)
    return numbers


@pytest.mark.parametrize("name", COMMANDS)
def test_threads_are_passed_on(name: str, used: list[int]) -> None:
    assert main(COMMANDS[name]) == 0
    assert used == []
    assert main([*COMMANDS[name], "--threads", "3", "--force"]) == 0
    assert used == [3]


@pytest.mark.parametrize("threads", ["0", "-1", "1.5", "many"])
def test_other_numbers_of_threads_are_refused(
    threads: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS["release"], "--threads", threads]) == 2
    assert f"'--threads': '{threads}' is not a" in capsys.readouterr().err
    assert not Path("out.csv").exists()


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("name", [*COMMANDS, "demo"])
def test_each_release_says_that_another_spends_again(
    name: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS.get(name, ["demo"]), *options]) == 0
    output = capsys.readouterr()
    assert output.err.endswith(SPENDS)
    assert output.err.count(SPENDS) == 1
    assert SPENDS not in output.out
    if options:
        assert json.loads(output.out)["epsilon"] == 1.0


def test_means_over_a_private_count_take_threads(used: list[int]) -> None:
    query = Mean(PublicBounds(1, norm=1.0), "add-remove")
    budget = Budget(1.0, 1e-5)
    paying = PrivacyFilter(budget, neighbouring="add-remove")
    for threads in (0, 1.5):
        with pytest.raises(InvalidParameterError, match="threads"):
            query.release([[0.5]], budget, privacy_filter=paying, threads=threads)  # type: ignore[arg-type]
    assert paying.spent == 0.0
    used.clear()
    query.release([[0.5]], budget, privacy_filter=paying, threads=2)
    assert used[-1] == 2
