"""Refusals before anything is computed, run or written, and the counts of the rest."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from matrixdp.errors import CalibrationError, StorageError
from matrixdp_experiments.command import main
from matrixdp_experiments.gradients import accounts
from matrixdp_experiments.grid import folders

DIGITS = ("run", "type-one", "--dataset", "digits")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*DIGITS, "--mechanism", "none,imgm-pld", "--seed=-1"], "seed=-1 is not between 0 and"),
        ([*DIGITS, "--seed", str(2**63)], "seed=9223372036854775808 is not between 0 and"),
        (["run", "type-one", "--dataset", ""], "leave --dataset out"),
        ([*DIGITS, "--epsilon", ""], "leave --epsilon out"),
        ([*DIGITS, "--epsilon", "0.1,,1"], "leave --epsilon out"),
        ([*DIGITS, "--seed", " "], "leave --seed out"),
        (["run", "type-two", "--dataset", "digits", "--method", ""], "leave --method out"),
        (["choose", "type-one", "--dataset", ""], "leave --dataset out"),
        ([*DIGITS, "--parallel", "0"], "parallel=0 must be"),
        (["choose", "type-one", "--dataset", "digits", "--parallel=-2"], "parallel=-2 must be"),
        (
            ["run", "type-one", "--mechanism", "matrix", "--dataset", "adult,mnist"],
            "dataset='mnist' has no cells with these mechanisms",
        ),
    ],
)
def test_wrong_options_run_nothing(
    arguments: list[str], message: str, toy_results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(toy_results)
    assert main([*arguments, "--results", str(toy_results)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "failed" not in said  # as it would be of a run
    assert files(toy_results) == before


def test_the_largest_seed_is_run(toy_results: Path) -> None:
    arguments = [*DIGITS, "--mechanism", "none", "--seed", str(2**63 - 1)]
    assert main([*arguments, "--results", str(toy_results)]) == 0


@pytest.mark.parametrize("command", [["choose", "type-one"], ["run", "type-two"]])
def test_data_that_are_not_there_are_told_once(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    results, data = tmp_path / "results", tmp_path / "data"
    arguments = [*command, "--dataset", "mnist,svhn", "--results", str(results)]
    monkeypatch.delenv("MATRIXDP_DATA", raising=False)
    assert main(arguments) == 2
    (line,) = errors(capsys)
    assert "set MATRIXDP_DATA to one; `python -m " in line
    assert "data fetch mnist svhn` puts there" in line
    assert "--folder" not in line
    monkeypatch.setenv("MATRIXDP_DATA", str(data))
    assert main(arguments) == 2
    (line,) = errors(capsys)
    assert f"{data} has no mnist.npz, svhn.npz: get what is missing by `python -m" in line
    assert not results.exists()


def errors(capsys: pytest.CaptureFixture[str]) -> list[str]:
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if "warning: " not in line]


def test_data_of_a_run_are_told_once_and_only_if_they_are_needed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    toy_results: Path,
) -> None:
    monkeypatch.setenv("MATRIXDP_DATA", str(tmp_path))
    # The toy needs no folder, whether it is there or not.
    assert main([*DIGITS, "--mechanism", "none", "--results", str(toy_results)]) == 0
    capsys.readouterr()
    path = toy_results / "type_one" / "choices.json"
    path.write_text(path.read_text().replace("digits", "adult"))
    arguments = ["run", "type-one", "--dataset", "adult", "--mechanism", "none", "--results"]
    assert main([*arguments, str(toy_results)]) == 2
    (line,) = errors(capsys)
    assert "adult.data, adult.test" in line
    for name in ("adult.data", "adult.test"):
        (tmp_path / name).touch()
    assert main([*arguments, str(toy_results)]) == 0
    # What is finished needs no data.
    monkeypatch.delenv("MATRIXDP_DATA")
    assert main([*arguments, str(toy_results)]) == 0
    assert "0 runs made, 0 failed; 3 cells were finished already" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command",
    [
        ["run", "type-one"],
        ["run", "type-two"],
        ["choose", "type-one"],
        ["accounts", "type-one"],
    ],
)
def test_results_that_cannot_be_written(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("mine")
    for folder in (occupied, Path("/proc/results")):
        assert main([*command, "--dataset", "digits", "--results", str(folder)]) == 2
        said = capsys.readouterr().err
        assert f"results cannot be written to {folder}/type_" in said
        assert "name another folder by --results" in said
    assert files(tmp_path) == {str(occupied): b"mine"}


def test_results_on_a_read_only_disk(toy_results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    # Simulated: an administrator, who may run these tests, is refused by no permission.
    monkeypatch.setattr(tempfile, "TemporaryFile", refused)
    with pytest.raises(StorageError, match=r"type_one \(Read-only file system\)"):
        folders.check_results(toy_results / "type_one")


def test_cells_that_are_finished_or_do_not_apply_are_counted(
    toy_results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*DIGITS, "--mechanism", "classic", "--epsilon", "1,1000", "--seed", "0,1"]
    for made, finished in ((2, 0), (0, 2)):
        assert main([*arguments, "--results", str(toy_results), "--json"]) == 0
        shown = capsys.readouterr()
        tally = {"made": made, "failed": 0, "finished": finished, "inapplicable": 2}
        assert json.loads(shown.out) == tally
        assert shown.err.count("digits, classic, epsilon 1000 does not apply: no split") == 1
    assert main([*arguments, "--results", str(toy_results)]) == 0
    said = "0 runs made, 0 failed; 2 cells were finished already, 2 do not apply"
    assert capsys.readouterr().out.splitlines()[-1] == said


def test_noise_that_training_has_no_epsilon_for(
    toy_results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: Any) -> float:
        raise CalibrationError("losses are not resolved: change it, or use RDP")

    monkeypatch.setattr(accounts, "plan_epsilon", refused)
    arguments = [*DIGITS, "--mechanism", "mvg", "--epsilon", "1e-9", "--seed", "0"]
    assert main([*arguments, "--results", str(toy_results)]) == 0
    shown = capsys.readouterr()
    assert "0 runs made, 0 failed; 0 cells were finished already, 1 do not apply" in shown.out
    assert "epsilon 1e-09 does not apply: its noise multiplier would be 3.6e+12" in shown.err
    assert "RDP" not in shown.err


def test_claims_that_no_report_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MATRIXDP_DATA", raising=False)
    arguments = ["run", "type-two", "--dataset", "mnist", "--mechanism", "imgm", "--protocol"]
    # Without data nothing is run, but it is said first.
    main([*arguments, "exact", "--epsilon", "1,2", "--results", str(tmp_path)])
    said = capsys.readouterr().err
    assert "protocol exact has no epsilon of 2 on its grid" in said
    assert "epsilon of 1 on its grid" not in said


def test_a_page_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path), "--docs", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert f"docs='{tmp_path}' has no experiments.md: name the folder" in said
    assert "Errno" not in said
