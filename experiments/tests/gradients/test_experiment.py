"""Type I from end to end, on scikit-learn's digits: choose, run, interrupt, go on, report."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.privacy import (
    Accountant,
    noise_multiplier_for,
    plan_epsilon,
)
from matrixdp_experiments.command import main
from matrixdp_experiments.gradients import accounts
from matrixdp_experiments.gradients import experiment as type_one
from matrixdp_experiments.gradients.account_book import AccountBook
from matrixdp_experiments.gradients.accounts import MECHANISMS as MECHANISM_TABLE
from matrixdp_experiments.gradients.cells import Cell, grid
from matrixdp_experiments.gradients.experiment import choose, run_grid
from matrixdp_experiments.gradients.planning import Choices, account_of, planned_runs
from matrixdp_experiments.gradients.settings import SETTINGS
from matrixdp_experiments.gradients.training import train_and_test
from matrixdp_experiments.grid.outcomes import AnyRun, outcome_path, read_outcomes
from matrixdp_experiments.grid.runner import Tell, Work
from matrixdp_experiments.grid.runs import Run, run_key
from matrixdp_experiments.report.gradients_table import Row, gathered_rows
from matrixdp_experiments.report.tables import read_table, table_as_csv

MECHANISMS = ["none", "imgm-pld", "analytic", "matrix", "mvg"]
CELLS = grid(["digits"], MECHANISMS, [1.0], [0, 1])
ARGUMENTS = [
    *("run", "type-one", "--dataset", "digits", "--mechanism", ",".join(MECHANISMS)),
    *("--epsilon", "1", "--seed", "0", "--seed", "1", "--results"),
]


@contextmanager
def quiet(_: Sequence[AnyRun]) -> Iterator[Tell]:
    yield lambda _run, _failure: None


def work_in(folder: Path) -> Work:
    return Work(folder=folder / "type_one", parallel=1, progress=quiet)


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in (folder / "type_one/runs").iterdir()}


@pytest.fixture(scope="module")
def chosen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of results in which hyper-parameters were chosen."""
    folder = tmp_path_factory.mktemp("results")
    with pytest.MonkeyPatch.context() as patch:
        # In place of the tight accountant one that takes milliseconds. The accounts are kept, and
        # tested elsewhere; this is about what is made of them.
        patch.setattr(accounts, "noise_multiplier_for", with_renyi(noise_multiplier_for))
        patch.setattr(
            accounts,
            "plan_epsilon",
            lambda plan, delta, _: plan_epsilon(plan, delta, Accountant.RDP),
        )
        assert choose(["digits"], work_in(folder)).failed == 0
        # The choosing runs are not what these tests count.
        for path in (folder / "type_one/runs").iterdir():
            path.unlink()
        for cell in grid(["digits"], seeds=[0]):
            if cell.epsilon is not None:
                account_of(cell, AccountBook(folder / "type_one"))
    return folder


def with_renyi(find: Callable[..., float]) -> Callable[..., float]:
    def found(epsilon: float, delta: float, **given: Any) -> float:
        sampled = given["sampling_rate"] < 1.0 and given["accountant"] is Accountant.PLD
        return find(epsilon, delta, **(given | ({"accountant": Accountant.RDP} if sampled else {})))

    return found


@pytest.fixture
def folder(chosen: Path, tmp_path: Path) -> Path:
    """Return a folder of its own with the same choices and accounts."""
    for name in ("choices.json", "accounts.json"):
        content = (chosen / "type_one" / name).read_bytes()
        (tmp_path / "type_one").mkdir(exist_ok=True)
        (tmp_path / "type_one" / name).write_bytes(content)
    return tmp_path


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs end at once, with an accuracy that depends on noise and seed."""
    monkeypatch.setattr(type_one, "train_and_test", pretended_accuracy)


def pretended_accuracy(run: Run) -> float:
    return round(0.9 / (1.0 + (run.noise_multiplier or 0.0)) - 0.01 * run.seed, 6)


def test_the_choice_is_the_best_candidate(chosen: Path) -> None:
    choices = json.loads((chosen / "type_one/choices.json").read_text())
    assert [one["family"] for one in choices] == ["plain", "isotropic", "mvg"]
    for one in choices:
        best = max(one["tried"], key=lambda tried: tried["accuracy"])
        assert one["chosen"] == best["candidate"]
    assert choices[1]["tried"][0]["accuracy"] > 0.6


def test_the_learning_rate_falls_as_noise_grows(folder: Path) -> None:
    book, choices = AccountBook(folder / "type_one"), Choices(folder / "type_one")
    cells = grid(["digits"], ["imgm-pld", "analytic", "mvg"], [0.1, 1.0], [0])
    reference = book.reference_multiplier(SETTINGS["digits"], "test")
    for cell, run in planned_runs(cells, book, choices).items():
        assert run is not None
        noise = max([run.noise_multiplier or 0.0, *run.layers.values()])
        family = MECHANISM_TABLE[cell.mechanism].family
        rate = choices.chosen("digits", family).learning_rate
        assert noise >= reference
        assert run.learning_rate * noise == pytest.approx(rate * reference, rel=1e-12)


def test_mvg_alone_bounds_the_norm_of_the_sum(folder: Path) -> None:
    # What its theorem takes for granted: no sum is above the expected lot times the clip norm.
    book, choices = AccountBook(folder / "type_one"), Choices(folder / "type_one")
    cells = grid(["digits"], ["imgm-pld", "mvg"], [1.0], [0])
    isotropic, mvg = planned_runs(cells, book, choices).values()
    assert isotropic is not None
    assert isotropic.sum_norm is msgspec.UNSET
    assert mvg is not None
    assert mvg.sum_norm == mvg.lot_size * (mvg.clip_norm or 0.0)


def test_accounts_are_kept_and_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (folder / "type_one/accounts.json").read_bytes()
    command = ["accounts", "type-one", "--dataset", "digits", "--results"]
    assert main([*command, str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["accounts"]
    assert len(found) == 10 * 4
    assert {one["epsilon"] for one in found} == {0.01, 0.1, 0.5, 1.0}
    assert all(one["true_epsilon"] <= one["epsilon"] for one in found)
    assert main([*command, str(folder)]) == 0
    assert "imgm-pld" in capsys.readouterr().out
    # All of them were there already, those of the choice included.
    assert (folder / "type_one/accounts.json").read_bytes() == before


@pytest.mark.usefixtures("pretended")
def test_equal_cells_are_one_run_and_nothing_is_made_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_grid(CELLS, work_in(folder)).failed == 0
    made = times(folder)
    # Two seeds of four: the Matrix Mechanism has the analytic Gaussian's noise.
    assert len(made) == 8
    monkeypatch.setattr(type_one, "train_and_test", lambda _run: pytest.fail("made twice"))
    assert run_grid(CELLS, work_in(folder)).failed == 0
    assert times(folder) == made


def test_outcomes_have_provenance_and_learn(folder: Path) -> None:
    cells = grid(["digits"], ["none", "imgm-pld", "mvg"], [1.0], [0])
    run_grid(cells, work_in(folder))
    runs = planned_runs(cells, AccountBook(folder / "type_one"), Choices(folder / "type_one"))
    outcomes = read_outcomes(folder / "type_one", Run)
    plain, private, mvg = (outcomes[run_key(run)] for run in runs.values())
    assert plain.accuracy > 0.85
    assert private.accuracy > 0.75
    assert mvg.accuracy < 0.4  # noise and nothing else
    assert private.provenance.commit
    assert private.provenance.device
    assert private.provenance.torch
    assert private.seconds > 0.0


def test_a_seed_gives_the_same_run_again(folder: Path) -> None:
    run = planned_runs(CELLS, AccountBook(folder / "type_one"), Choices(folder / "type_one"))[
        Cell("digits", "imgm-pld", 1.0, 0)
    ]
    assert run is not None
    assert train_and_test(run) == train_and_test(run)


def test_an_interrupted_grid_goes_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def interrupted(run: Run) -> float:
        calls.append(run)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return pretended_accuracy(run)

    monkeypatch.setattr(type_one, "train_and_test", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_grid(CELLS, work_in(folder))
    before = times(folder)
    assert len(before) == 3
    assert run_grid(CELLS, work_in(folder)).failed == 0
    after = times(folder)
    assert len(after) == 8
    assert before.items() <= after.items()
    assert len(calls) == 4 + 5


def test_a_failed_run_stops_no_other_and_is_tried_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(run: Run) -> float:
        if run.noise_multiplier is None and run.seed == 1:
            raise RuntimeError("out of memory")
        return 0.5

    monkeypatch.setattr(type_one, "train_and_test", failing)
    assert main([*ARGUMENTS, str(folder), "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"made": 7, "failed": 1, "finished": 0, "inapplicable": 0}
    assert "digits failed: RuntimeError: out of memory" in shown.err
    monkeypatch.setattr(type_one, "train_and_test", lambda _run: 0.5)
    assert main([*ARGUMENTS, str(folder)]) == 0
    # Nine cells of seven runs: that of the Matrix Mechanism is the analytic Gaussian's.
    said = "1 runs made, 0 failed; 9 cells were finished already, 0 do not apply\n"
    assert capsys.readouterr().out == said


@pytest.mark.usefixtures("pretended")
def test_report(folder: Path, empty_docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_grid(CELLS, work_in(folder))
    command = ["report", "--results", str(folder), "--docs", str(empty_docs)]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] > 10
    rows = read_table(folder / "type_one.csv", Row)
    assert table_as_csv(rows, Row) == (folder / "type_one.csv").read_bytes()
    analytic, matrix = (
        [
            (row.seed, row.accuracy, row.run, row.true_epsilon)
            for row in rows
            if row.mechanism == one
        ]
        for one in ("analytic", "matrix")
    )
    assert analytic == matrix
    assert [row.note for row in rows if row.mechanism == "moments"] == ["not run"] * 4
    text = (empty_docs / "experiments.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    tables = (empty_docs / "tables/type_one.md").read_text()
    mean = 50 * sum(float(row.accuracy) for row in rows if row.mechanism == "none")
    assert f"| no noise | {mean:.1f} |" in text
    assert f"Without noise: {mean:.1f} (" in tables
    assert "Not run: MNIST, Adult, Cora, CIFAR-10, SVHN." in tables
    drawn = (empty_docs / "figures/type_one.svg").read_text()
    assert "IMGM, subsampled PLD" in drawn
    assert "always the most frequent class" in drawn
    missing = sum(row.note == "not run" for row in rows)
    # One cell without noise, and ten mechanisms at four epsilons each.
    assert f"{missing} of 41 cells not run" in drawn
    # Where the files of single runs were not kept, the table makes the same pages.
    for path in (folder / "type_one/runs").iterdir():
        path.unlink()
    assert main(command) == 0
    assert (empty_docs / "experiments.md").read_text() == text
    assert (empty_docs / "tables/type_one.md").read_text() == tables


def test_a_page_without_markers_is_left_alone(tmp_path: Path, folder: Path) -> None:
    page = tmp_path / "experiments.md"
    page.write_text("nothing\n")
    assert main(["report", "--results", str(folder), "--docs", str(tmp_path)]) == 2
    assert page.read_text() == "nothing\n"
    assert not (folder / "type_one.csv").exists()


def test_rows_of_other_data_sets_are_kept(folder: Path) -> None:
    kept = [Row(dataset=name, mechanism="none", accuracy="0.9") for name in ("svhn", "mnist")]
    assert [row.dataset for row in gathered_rows(folder / "type_one", kept)] == ["mnist", "svhn"]


@pytest.mark.usefixtures("pretended")
def test_a_broken_outcome_is_named(folder: Path) -> None:
    run_grid(grid(["digits"], ["none"], [1.0], [0]), work_in(folder))
    (path,) = (folder / "type_one/runs").iterdir()
    path.write_text(path.read_text()[:40])
    with pytest.raises(FileFormatError, match=path.name):
        read_outcomes(folder / "type_one", Run)


def test_nothing_runs_before_a_choice(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="choose type-one --dataset mnist"):
        run_grid(grid(["mnist"], ["none"], [1.0], [0]), work_in(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "type-three"], "type-three"),
        (["run", "type-one", "--dataset", "digit"], "digit"),
        (["run", "type-one", "--mechanism", "imgm-pld,laplace"], "laplace"),
        (["run", "type-one", "--epsilon", "one"], "one"),
        (["run", "type-one", "--seed", "1.5"], "1.5"),
        (["choose", "type-one", "--dataset", "mnist,letters"], "letters"),
    ],
)
def test_wrong_input(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--results", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("pretended")
@pytest.mark.thorough
@pytest.mark.parametrize("parallel", ["1", "2"])
def test_a_killed_process_leaves_whole_files(folder: Path, parallel: str) -> None:
    """Kill a process that makes runs, or two for a third; then go on in this one."""
    # Blocked packages: a machine that only trains has none of them.
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['matplotlib', 'pooch'])); "
        "from matrixdp_experiments.command import main; sys.exit(main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, *ARGUMENTS, str(folder)]
    # Enough seeds that the grid is not finished when it is killed.
    many = [*command, "--seed", ",".join(map(str, range(2, 200))), "--parallel", parallel]
    process = subprocess.Popen(many, stderr=subprocess.DEVNULL, start_new_session=True)
    runs = folder / "type_one/runs"
    deadline = time.monotonic() + 120
    while len(list(runs.glob("*.json"))) < 3:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)  # to the parent alone
    process.wait()
    while _is_alive(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    finished = times(folder)
    assert 3 <= len(finished) < 4 * 200
    # A file that was being written has a hidden name, and is not taken for an outcome.
    assert len(read_outcomes(folder / "type_one", Run)) <= len(finished)
    assert main([*ARGUMENTS, str(folder)]) == 0
    assert finished.items() <= times(folder).items()
    for cell, run in planned_runs(
        CELLS, AccountBook(folder / "type_one"), Choices(folder / "type_one")
    ).items():
        assert run is not None, cell
        assert outcome_path(folder / "type_one", run).exists()


def _is_alive(group: int) -> bool:
    """Return whether any process of a group is left."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


@pytest.mark.usefixtures("pretended")
def test_any_run_is_told_about(folder: Path) -> None:
    told: list[tuple[AnyRun, str | None]] = []

    @contextmanager
    def listening(runs: Sequence[AnyRun]) -> Iterator[Tell]:
        assert len(runs) == 1
        yield lambda run, failure: told.append((run, failure))

    work = Work(folder=folder / "type_one", parallel=1, progress=listening)
    run_grid(grid(["digits"], ["none"], [1.0], [5]), work)
    assert [(run.steps, failure) for run, failure in told] == [(30, None)]
