"""The command line, driven as a user would."""

import csv
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.json_answers import answer
from matrixdp import (
    Budget,
    __version__,
    plan_for_budget,
    plan_for_error,
    privacy_delta,
    privacy_mu,
)
from matrixdp.cli.main import main
from matrixdp.privacy import ErrorMeasure

BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
SHAPE = ["--shape", "10x20", "--delta", "1e-5"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "matrixdp", *arguments], capture_output=True, text=True, check=False
    )


def test_the_program_runs_on_its_own() -> None:
    done = run("budget", *BUDGET)
    assert done.returncode == 0
    assert "0.2680511232" in done.stdout
    assert "3.730631635" in done.stdout
    assert done.stderr == ""


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"matrixdp {__version__}\n"
    assert main(["--help"]) == 0
    help_text = capsys.readouterr().out
    for command in ("budget", "curve", "plan", "demo"):
        assert command in help_text
    assert "3 refused by a budget" in help_text
    assert main([]) == 0
    assert capsys.readouterr().out == help_text


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


def test_an_error_that_costs_too_much_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", *SHAPE, "--entry-error", "2", "--epsilon"]
    assert main([*asked, "1"]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "needs epsilon=1.99309" in shown.err
    assert main([*asked, "2"]) == 0


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
