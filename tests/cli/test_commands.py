"""The command line, driven as a user would."""

import csv
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cli.changed_words import changed
from matrixdp import (
    Budget,
    Release,
    __version__,
    plan_for_budget,
    plan_for_error,
    privacy_delta,
    privacy_mu,
)
from matrixdp.cli.commands import demo
from matrixdp.cli.main import main
from matrixdp.errors import StorageError
from matrixdp.privacy import ErrorMeasure

BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
SHAPE = ["--shape", "10x20", "--delta", "1e-5"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "matrixdp", *arguments], capture_output=True, text=True, check=False
    )


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """Run a command with --json in this process and return what it printed."""
    assert main([*arguments, "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert isinstance(reply, dict)
    return reply


def test_the_program_runs_on_its_own() -> None:
    done = run("budget", *BUDGET)
    assert done.returncode == 0
    assert "0.2680511232" in done.stdout
    assert "3.730631635" in done.stdout
    assert done.stderr == ""


def test_version_and_help() -> None:
    assert run("--version").stdout == f"matrixdp {__version__}\n"
    help_text = run("--help").stdout
    for command in ("budget", "curve", "plan", "demo"):
        assert command in help_text
    assert "3 refused by a budget" in help_text
    assert run().stdout == help_text


@pytest.mark.parametrize("command", ["budget", "curve", "plan", "demo", "release"])
def test_every_command_offers_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert "--json" in capsys.readouterr().out


def test_budget(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "budget", *BUDGET, "--sensitivity", "2")
    mu = privacy_mu(1.0, 1e-5)
    assert reply["mu"] == mu
    parts = reply["parts"]
    assert isinstance(parts, list)
    scale = parts[0].pop("noise_scale")
    assert parts == [{"count": 1, "epsilon": 1.0, "delta": 1e-5, "mu": mu}]
    assert scale == pytest.approx(2 / mu, rel=1e-15)


def test_a_sensitivity_is_a_decimal_that_is_rounded_up(capsys: pytest.CaptureFixture[str]) -> None:
    # The nearest float is below three tenths; `release` draws noise for the next one.
    reply = answer(capsys, "budget", *BUDGET, "--sensitivity", "0.3")
    assert reply["sensitivity"] == math.nextafter(0.3, 1.0)
    assert main(["budget", *BUDGET, "--sensitivity", "0.3"]) == 0
    assert "sensitivity 0.3 " in capsys.readouterr().out


def test_curve_as_json_csv_and_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    table, figure = tmp_path / "curve.csv", tmp_path / "curve.png"
    reply = answer(
        capsys, "curve", "--mu", "0.5", "--from", "0", "--to", "2", "--points", "5",
        "--csv", str(table), "--figure", str(figure),
    )  # fmt: skip
    expected = [privacy_delta(0.5, epsilon) for epsilon in (0.0, 0.5, 1.0, 1.5, 2.0)]
    assert reply["delta"] == pytest.approx(expected, rel=1e-13)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["delta"]) for row in rows] == reply["delta"]
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.csv", "curve.png"]


def test_curve_of_a_budget_passes_through_it(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "curve", *BUDGET, "--from", "1", "--to", "2", "--points", "2")
    deltas = reply["delta"]
    assert isinstance(deltas, list)
    assert deltas[0] == pytest.approx(1e-5, rel=1e-11)
    assert main(["curve", "--mu", "1"]) == 0
    assert "7.2385" in capsys.readouterr().out


def test_curve_overwrites_only_when_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "curve.csv"
    target.write_text("precious")
    assert main(["curve", "--mu", "1", "--csv", str(target)]) == 2
    assert target.read_text() == "precious"
    assert "--force" in capsys.readouterr().err
    assert main(["curve", "--mu", "1", "--csv", str(target), "--force"]) == 0
    assert target.read_text().startswith("epsilon,delta")


def test_parts_of_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "budget", *BUDGET, "--parts", "100")
    part = Budget(1.0, 1e-5).split(100)[0]
    assert reply["parts"] == [
        {
            "count": 100,
            "epsilon": part.epsilon,
            "delta": 1e-5,
            "mu": part.mu,
            "noise_scale": plan_for_budget(part, rows=1, columns=1, sensitivity=1.0).noise_scale,
        }
    ]
    reply = answer(capsys, "budget", *BUDGET, "--weight", "9", "--weight", "16")
    parts = reply["parts"]
    assert isinstance(parts, list)
    assert [p["mu"] for p in parts] == [p.mu for p in Budget(1.0, 1e-5).split([9, 16])]
    assert main(["budget", *BUDGET, "--parts", "3"]) == 0
    assert "0.154759" in capsys.readouterr().out


def test_plan_answers_both_questions(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "plan", *SHAPE, "--epsilon", "1", "--steps", "7")
    plan = plan_for_budget(Budget(1.0, 1e-5), rows=10, columns=20, sensitivity=1.0, steps=7)
    assert reply["noise_scale"] == plan.noise_scale
    assert reply["error"] == {measure.value: plan.error(measure) for measure in ErrorMeasure}
    for option, measure in (
        ("--entry-error", ErrorMeasure.ENTRY),
        ("--frobenius-error", ErrorMeasure.FROBENIUS),
        ("--largest-error", ErrorMeasure.LARGEST),
    ):
        reply = answer(capsys, "plan", *SHAPE, option, "12.5")
        wanted = plan_for_error(12.5, measure, delta=1e-5, rows=10, columns=20, sensitivity=1.0)
        assert reply["epsilon"] == wanted.epsilon_at(1e-5)
    assert main(["plan", *SHAPE, "--epsilon", "1"]) == 0
    assert "52.7591" in capsys.readouterr().out


def test_an_error_that_costs_too_much_is_refused() -> None:
    done = run("plan", *SHAPE, "--entry-error", "2", "--epsilon", "1")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "needs epsilon=1.99309" in done.stderr
    assert run("plan", *SHAPE, "--entry-error", "2", "--epsilon", "2").returncode == 0


def test_what_a_plan_prints_buys_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *SHAPE, "--largest-error", "12.5", "--steps", "3"]) == 0
    printed = re.search(r"epsilon (\S+) at delta 1e-05", capsys.readouterr().out)
    assert printed is not None
    reply = answer(capsys, "plan", *SHAPE, "--epsilon", printed[1], "--steps", "3")
    assert isinstance(reply["error"], dict)
    assert reply["error"]["largest"] <= 12.5
    found = answer(capsys, "plan", *SHAPE, "--largest-error", "12.5", "--steps", "3")
    reply = answer(capsys, "plan", *SHAPE, "--epsilon", str(found["epsilon"]), "--steps", "3")
    assert isinstance(reply["error"], dict)
    assert reply["error"]["largest"] <= 12.5


@pytest.mark.parametrize(
    "command",
    [
        ["budget"],
        ["compare", "--shape", "2x2"],
        ["plan", "--shape", "2x2"],
    ],
)
def test_a_budget_is_printed_as_it_was_entered(
    capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    # Rounded in either direction it would be another budget.
    assert main([*command, "--epsilon", "0.123456789", "--delta", "1.23456789e-07"]) == 0
    printed = capsys.readouterr().out
    assert "0.123456789" in printed
    assert "1.23456789e-07" in printed


def test_demo_works_twice_and_leaves_a_release(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "made" / "here"
    for _ in range(2):
        reply = answer(capsys, "demo", "--folder", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == [
        "second_moments.csv",
        "second_moments.csv.json",
        "second_moments.png",
    ]
    assert (folder / "second_moments.png").read_bytes().startswith(b"\x89PNG")
    release = Release.load(folder / "second_moments.csv")
    assert release.guarantee.epsilon == 1.0
    errors = reply["expected_error"]
    assert isinstance(errors, dict)
    assert list(errors) == sorted(errors, key=errors.__getitem__, reverse=True)
    assert errors["IMGM, symmetric"] < 0.76 * errors["analytic Gaussian"]  # sqrt((1 + 1/7) / 2)
    # 28 independent entries: the error is within a factor of two of what is expected.
    actual = reply["actual_error"]
    assert isinstance(actual, float)
    assert 0.5 < actual / errors["IMGM, symmetric"] < 2
    assert main(["demo", "--folder", str(tmp_path)]) == 0
    assert "differential privacy" in capsys.readouterr().out


def test_a_month_moves_the_demo_by_no_more_than_its_sensitivity() -> None:
    rows = demo._monthly_returns()
    norms = np.linalg.norm(rows, axis=1)
    assert len(rows) <= demo._MOST_MONTHS
    assert norms.max() == pytest.approx(demo._CLIP)  # some months are clipped, the others are not
    assert np.count_nonzero(norms < 0.99 * demo._CLIP) > 100
    whole = demo._second_moments(rows)
    moved = [
        np.linalg.norm(whole - demo._second_moments(np.delete(rows, month, axis=0)))
        for month in range(len(rows))
    ]
    assert 0.999 * demo._SENSITIVITY.bound < max(moved) <= demo._SENSITIVITY.bound


def test_a_figure_that_cannot_be_written_does_not_undo_the_release_of_the_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(demo, "write_all", full)
    assert main(["demo", "--folder", str(tmp_path)]) == 4
    assert "the release is out" in capsys.readouterr().err
    assert Release.verify(tmp_path / "second_moments.csv").epsilon == 1.0


def test_the_demo_refuses_a_place_that_is_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "second_moments.png").mkdir()
    assert main(["demo", "--folder", str(tmp_path)]) == 2
    assert "second_moments.png" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["second_moments.png"]


def test_a_defect_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("this\nmust not happen")

    monkeypatch.setattr("matrixdp.cli.commands.curve.privacy_delta", broken)
    assert main(["curve", "--mu", "1"]) == 1
    message = capsys.readouterr().err
    # Not the error's own words, which may quote private data.
    assert message.startswith("matrixdp: unexpected RuntimeError in test_commands.py, line ")
    assert message.endswith("; please report it\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["budget", "--epsilon", "x", "--delta", "1e-5"], "--epsilon': 'x'"),
        (["budget", "--epsilon", "-1", "--delta", "1e-5"], "epsilon=-1.0"),
        (["budget", "--epsilon", "nan", "--delta", "1e-5"], "epsilon=nan"),
        (["budget", "--epsilon", "inf", "--delta", "1e-5"], "epsilon=inf"),
        (["budget", "--epsilon", "1", "--delta", "0"], "delta=0.0"),
        (["budget", "--epsilon", "1", "--delta", "1"], "delta=1.0"),
        (["budget", "--epsilon", "1"], "--delta"),
        (["budget", *BUDGET, "--sensitivity", "0"], "sensitivity=0.0"),
        (["budget", *BUDGET, "--sensitivity", "1e308"], "range of a float"),
        (["budget", *BUDGET, "--weight", "1e308", "--weight", "1e-308"], "fewer shares"),
        (
            ["plan", *changed(SHAPE, "--shape", "1" + 400 * "0" + "x2"), "--epsilon", "1"],
            "rows is an integer",
        ),
        (["plan", *SHAPE, "--epsilon", "1", "--sensitivity", "1e307", "--json"], "range of a"),
        (["curve", "--mu", "1", "--to", "nan"], "to=nan"),
        (["curve", "--mu", "1", "--from", "-1"], "from=-1.0"),
        (["curve", "--mu", "1e-13"], "--to"),
        (["curve", "--mu", "1", "--csv", "link.csv"], "link.csv"),
        (["budget", *BUDGET, "--loud"], "--loud"),
        (["curve"], "--mu"),
        (["curve", "--mu", "0"], "mu=0.0"),
        (["curve", "--mu", "1", "--epsilon", "1"], "--mu"),
        (["curve", "--mu", "1", "--points", "1"], "points=1"),
        (["curve", "--mu", "1", "--points", "many"], "'many'"),
        (["curve", "--mu", "1", "--from", "2", "--to", "1"], "from=2.0"),
        (["curve", "--mu", "1", "--csv", "curve.txt"], "curve.txt"),
        (["curve", "--mu", "1", "--figure", "no/such/folder/curve.png"], "no/such/folder"),
        (["budget", *BUDGET, "--parts", "2", "--weight", "1"], "--parts"),
        (["budget", *BUDGET, "--parts", "0"], "shares=0"),
        (["budget", *BUDGET, "--weight", "-3"], "shares=-3.0"),
        (["budget", *BUDGET, "merge"], "merge"),
        (["bound", *BUDGET], "bound"),
        (["plan", *SHAPE], "--epsilon"),
        (["plan", *SHAPE, "--entry-error", "1", "--largest-error", "1"], "--entry-error"),
        (["plan", *changed(SHAPE, "--shape", "0x2"), "--epsilon", "1"], "rows=0"),
        (["plan", *changed(SHAPE, "--shape", "1.5x2"), "--epsilon", "1"], "'1.5x2'"),
        (["plan", *changed(SHAPE, "--shape", "10"), "--epsilon", "1"], "such as 100x20"),
        (["plan", *SHAPE, "--epsilon", "1", "--steps", "0"], "'0' is not an integer of at least 1"),
        (["demo", "--folder", "a-file/inside"], "a-file"),
        (["dance"], "dance"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    Path("link.csv").symlink_to("nowhere")
    assert main(arguments) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-file", "link.csv"]
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.err.startswith("matrixdp: ")


def test_all_files_are_written_or_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The second target cannot be made, which shows only when it is written.
    impossible = Path("/proc/self/curve.png")
    if not impossible.parent.is_dir():
        pytest.skip("needs a folder that refuses files even to the superuser")
    table = tmp_path / "curve.csv"
    assert main(["curve", "--mu", "1", "--csv", str(table), "--figure", str(impossible)]) == 2
    assert str(impossible) in capsys.readouterr().err
    assert not table.exists()


def test_no_number_is_ever_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    arguments = ["--epsilon", "1.234567e-5", "--delta", "1.234567e-100", "--parts", "7"]
    assert main(["budget", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert "1.23456e-100" in shown


def test_shown_sensitivity_and_noise_make_a_true_claim(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["budget", *BUDGET, "--sensitivity", "1.0000001"]) == 0
    printed = capsys.readouterr().out.splitlines()
    sensitivity = float(printed[0].rpartition(" sensitivity ")[2])
    noise_scale = float(printed[4].split("│")[5])
    assert privacy_delta(sensitivity / noise_scale, 1.0) <= 1e-5


def test_an_interrupt_while_importing_ends_with_130() -> None:
    code = (
        "import signal, sys, types\n"
        "class Slow(types.ModuleType):\n"
        "    def __getattr__(self, name):\n        raise KeyboardInterrupt\n"
        "sys.modules['matrixdp.cli.main'] = Slow('matrixdp.cli.main')\n"
        "import matrixdp_command\n"
        "sys.exit(matrixdp_command.main())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 130
    assert done.stderr == "matrixdp: interrupted\n"


def test_an_interrupt_ends_with_130() -> None:
    code = (
        "import signal, sys, time, matrixdp.cli.main as program\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import matrixdp.cli.commands.curve as command\n"
        "def slow(*_):\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "command.privacy_delta = slow\n"
        "sys.exit(program.main(['curve', '--mu', '1']))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130
    assert errors.strip() == "matrixdp: interrupted"
