"""``matrixdp account`` and ``compare``, and what all commands share, driven as a user would."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli.changed_words import changed
from cli.json_answers import answer
from matrixdp import privacy_mu
from matrixdp.audit.comparison import Comparison, compare
from matrixdp.cli.main import main
from matrixdp.privacy import Accountant, SampledPlan, plan_epsilon

RELATION = ["--neighbouring", "add-remove"]
PLAN = ["--sampling-rate", "1", "--steps", "100", "--delta", "1e-5", *RELATION]
SAMPLED = ["--sampling-rate", "0.01", "--steps", "100", *RELATION]
SHAPE = ["--shape", "10x20", "--epsilon", "1", "--delta", "1e-5"]
CLAIM = ["--noise-scale", "2", "--sensitivity", "1", "--epsilon", "1", "--delta", "1e-5"]
AUDIT = ["audit", "run", *RELATION, "--mechanism"]
SMALL = ["--shape", "2x2", "--epsilon", "4", "--delta", "1e-5"]


def lines(capsys: pytest.CaptureFixture[str]) -> str:
    """Return what was printed, without the spaces that fill its lines."""
    return "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


@pytest.mark.parametrize("command", ["account", "compare", "audit claim", "audit run"])
def test_every_command_offers_json(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--help"]) == 0
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("group", "command"), [("audit", "claim"), ("query", "gram"), ("workload", "optimise")]
)
def test_a_group_alone_shows_its_help(
    group: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([group]) == 0
    shown = capsys.readouterr()
    assert command in shown.out
    assert shown.err == ""


def test_account_of_a_sampled_plan(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(
        capsys, "account", "--noise-multiplier", "1", "--sampling-rate", "0.01",
        "--steps", "1000", "--delta", "1e-5", *RELATION,
    )  # fmt: skip
    epsilon = reply["epsilon"]
    assert isinstance(epsilon, dict)
    lower, upper = reply["epsilon_at_least"], epsilon["pld"]
    assert isinstance(lower, float)
    assert 1.82823 < lower < upper < 1.82824
    assert upper - lower <= 1e-4 * upper
    assert epsilon["rdp"] == pytest.approx(2.1014, abs=1e-3)
    assert set(epsilon) == {"pld", "rdp", "moments", "claims"}
    assert reply["neighbouring"] == "add-remove"


def test_both_bounds_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run = ["account", *SAMPLED, "--delta", "1e-13", "--noise-multiplier", "1"]
    reply = answer(capsys, *run)
    epsilon, lower = reply["epsilon"], reply["epsilon_at_least"]
    assert isinstance(epsilon, dict)
    assert isinstance(lower, float)
    assert reply["does_not_apply"] == {}
    assert main(run) == 0
    (row,) = [line for line in lines(capsys).splitlines() if line.startswith("│ privacy loss")]
    shown, least = (float(cell) for cell in row.split("│")[2:4])
    # Rounded outwards, by less than a unit of their six digits.
    assert epsilon["pld"] <= shown < epsilon["pld"] * (1 + 1e-5)
    assert lower * (1 - 1e-5) < least <= lower
    # A multiplier has no such bound.
    target = answer(capsys, "account", *SAMPLED, "--delta", "1e-5", "--epsilon", "1")
    assert "epsilon_at_least" not in target


def test_an_accountant_that_does_not_apply_leaves_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    # A loss distribution has no such delta.
    run = ["account", *SAMPLED, "--delta", "1e-260", "--noise-multiplier", "1"]
    reply = answer(capsys, *run)
    epsilon, reasons = reply["epsilon"], reply["does_not_apply"]
    assert isinstance(epsilon, dict)
    assert isinstance(reasons, dict)
    assert epsilon["pld"] is None
    assert "epsilon_at_least" not in reply
    assert all(epsilon[name] > 0 for name in ("rdp", "moments", "claims"))
    assert set(reasons) == {"pld"}
    assert "delta=1e-260" in reasons["pld"]
    assert main(run) == 0
    message = capsys.readouterr().out
    assert "does not apply: delta=1e-260 is below" in message
    assert answer(capsys, "account", *SAMPLED, "--delta", "1e-5", "--noise-multiplier", "1")[
        "does_not_apply"
    ] == {}  # fmt: skip


def test_a_replaced_record_in_samples(capsys: pytest.CaptureFixture[str]) -> None:
    relation = ["--neighbouring", "replace", "--bounded", "contribution"]
    run = ["account", *SAMPLED[:-2], "--delta", "1e-5", *relation]
    reply = answer(capsys, *run, "--noise-multiplier", "1")
    epsilon, reasons = reply["epsilon"], reply["does_not_apply"]
    assert isinstance(epsilon, dict)
    assert isinstance(reasons, dict)
    plan = SampledPlan(
        noise_multiplier=1.0,
        sampling_rate=0.01,
        steps=100,
        neighbouring="replace",
        bounded="contribution",
    )
    assert epsilon["pld"] == plan_epsilon(plan, 1e-5)
    assert reply["bounded"] == "contribution"
    for name in ("rdp", "moments", "claims"):
        assert epsilon[name] is None
        assert "does not account for a replaced record in Poisson samples" in reasons[name]
    found = answer(capsys, *run, "--epsilon", repr(epsilon["pld"]))["noise_multiplier"]
    assert isinstance(found, dict)
    assert found["pld"] == pytest.approx(1.0, rel=1e-4)
    assert main([*run, "--noise-multiplier", "1"]) == 0
    assert "replace, contribution bounded\n" in lines(capsys)


@pytest.mark.parametrize("rate", ["1", "0.01"])
@pytest.mark.parametrize("target", ["0.01", "0.001"])
def test_small_targets(rate: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["account", *changed(PLAN, "--sampling-rate", rate)]
    multipliers = answer(capsys, *plan, "--epsilon", target)["noise_multiplier"]
    assert isinstance(multipliers, dict)
    for name, multiplier in multipliers.items():
        # About what a mu of rate sqrt(steps) / multiplier costs, and no less.
        least = float(rate) * 10 / privacy_mu(float(target), 1e-5)
        assert 0.99 * least < multiplier < 4.4 * least
        back = SampledPlan(
            noise_multiplier=multiplier,
            sampling_rate=float(rate),
            steps=100,
            neighbouring="add-remove",
        )
        epsilon = plan_epsilon(back, 1e-5, Accountant(name))
        assert 0.999 * float(target) < epsilon <= float(target) * (1 + 1e-12)


def test_headings_show_what_was_entered(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["account", *PLAN, "--noise-multiplier", "99.99999999"]) == 0
    assert "noise multiplier 99.99999999\n" in lines(capsys)
    assert main(["account", *PLAN, "--epsilon", "0.100000001"]) == 0
    assert "epsilon 0.100000001\n" in lines(capsys)
    run = [*AUDIT, "imgm", *SMALL, "--samples", "1000"]
    assert main([*run, "--confidence", "0.99999999"]) == 0
    assert "confidence 0.99999999\n" in lines(capsys)
    run = ["account", *changed(PLAN, "--sampling-rate", "0.0100000001"), "--noise-multiplier", "1"]
    assert main(run) == 0
    assert "sampling rate 0.0100000001\n" in lines(capsys)


def test_account_without_sampling_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "account", *PLAN, "--epsilon", "1")
    multipliers = reply["noise_multiplier"]
    assert isinstance(multipliers, dict)
    for name, multiplier in multipliers.items():
        back = answer(capsys, "account", *PLAN, "--noise-multiplier", repr(multiplier))
        epsilons = back["epsilon"]
        assert isinstance(epsilons, dict)
        assert epsilons[name] == pytest.approx(1.0, abs=1e-4)
    run = ["account", *changed(PLAN, "--neighbouring", "replace"), "--noise-multiplier", "40"]
    assert main(run) == 0
    assert "moments accountant" in capsys.readouterr().out


def test_a_sampled_account_needs_no_extra() -> None:
    code = (
        "import sys; sys.modules.update(dp_accounting=None, numba=None, torch=None)\n"
        "from matrixdp.cli.main import main\n"
        "sys.exit(main(['account', '--noise-multiplier', '1', '--sampling-rate', '0.5', "
        "'--steps', '2', '--delta', '1e-5', '--neighbouring', 'add-remove', '--json']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    reply = json.loads(done.stdout)
    assert reply["does_not_apply"] == {}
    assert reply["epsilon"]["pld"] < min(
        reply["epsilon"][each] for each in ("rdp", "moments", "claims")
    )


def test_tables_never_show_less_than_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    plan = [*changed(PLAN, "--steps", "7"), "--noise-multiplier", "2.3"]
    assert main(["account", *plan, "--json"]) == 0
    exact = json.loads(capsys.readouterr().out)["epsilon"]
    assert main(["account", *plan]) == 0
    table = capsys.readouterr().out
    shown = [float(line.split("│")[2]) for line in table.splitlines() if line.startswith("│")]
    assert all(s >= e for s, e in zip(shown, exact.values(), strict=True))
    claim = ["--noise-scale", "0.37", "--sensitivity", "1", "--epsilon", "10", "--delta", "1e-5"]
    assert main(["audit", "claim", *claim, "--json"]) == 5
    truth = json.loads(capsys.readouterr().out)["true_epsilon"]
    assert main(["audit", "claim", *claim]) == 5
    numbers = re.findall(r"\d+\.\d+", capsys.readouterr().out)
    close = [float(number) for number in numbers if abs(float(number) - truth) < 1e-3 * truth]
    assert close
    assert all(number >= truth for number in close)


def test_compare(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    figures = [tmp_path / "bars.png", tmp_path / "bars.svg"]
    for figure in figures:
        reply = answer(
            capsys, "compare", *SHAPE, "--steps", "30", "--norm-bound", "5", "--figure", str(figure)
        )
    setting = Comparison(rows=10, columns=20, epsilon=1.0, delta=1e-5, steps=30, norm_bound=5.0)
    contenders = reply["contenders"]
    assert isinstance(contenders, list)
    assert [one["noise_scale"] for one in contenders] == [
        one.noise_scale for one in compare(setting)
    ]
    assert reply["norm_bound"] == 5.0
    assert figures[0].read_bytes().startswith(b"\x89PNG")
    assert figures[1].read_bytes().startswith(b"<?xml")
    first = figures[1].read_bytes()
    assert main(["compare", *SHAPE, "--steps", "30", "--norm-bound", "5", "--figure",
                 str(figures[1]), "--force"]) == 0  # fmt: skip
    assert figures[1].read_bytes() == first  # the same figure, the same bytes
    shown = capsys.readouterr().out
    assert "IMGM = analytic, exact" in shown
    assert b"IMGM = analytic, exact" in first


@pytest.mark.parametrize("steps", ["1", "7"])
def test_compare_shows_no_two_rows_of_the_same_numbers(
    capsys: pytest.CaptureFixture[str], steps: str
) -> None:
    assert main(["compare", *SHAPE, "--steps", steps]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    numbers = [row.split("│")[2:] for row in rows]
    assert len(numbers) >= 5
    assert all(numbers.count(one) == 1 for one in numbers)


def test_compare_fits_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", *SHAPE, "--steps", "100000", "--sensitivity", "1e-7"]) == 0
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["compare", "--shape", "3x3", "--epsilon", "9", "--delta", "1e-5"]
                ) == 0  # fmt: skip
    message = capsys.readouterr().out
    assert "the same noise" in message
    assert message.count("refused") == 2  # in the table, and below it why
    assert "classic, one release is refused: epsilon=9.0 is above 1" in message


def test_compare_says_why_something_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(capsys, "compare", *SMALL)
    contenders = reply["contenders"]
    assert isinstance(contenders, list)
    for one in contenders:
        if one["mechanism"] == "classic":
            assert one["noise_scale"] is None
            assert one["refusal"].startswith("epsilon=4.0 is above 1")
        else:
            assert one["noise_scale"] > 0
            assert one["refusal"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["account", *PLAN], "--noise-multiplier"),
        (["account", *PLAN, "--noise-multiplier", "1", "--epsilon", "1"], "either"),
        (["account", *PLAN, "--noise-multiplier", "0"], "noise_multiplier=0.0"),
        (["account", *PLAN, "--noise-multiplier", "nan"], "noise_multiplier=nan"),
        (["account", *changed(PLAN, "--neighbouring", "x"), "--noise-multiplier", "1"],
         "neighbouring='x'"),
        (["account", *PLAN[:-2], "--noise-multiplier", "1"], "Missing option '--neighbouring'"),
        (["account", *PLAN, "--epsilon", "0"], "epsilon=0.0"),
        (["account", *PLAN, "--noise-multiplier", "0.0005"], "noise_multiplier=0.0005 in steps="),
        (["account", *changed(PLAN, "--delta", "0"), "--noise-multiplier", "1"], "delta=0.0"),
        (["account", "--noise-multiplier", "1", "--sampling-rate", "0.1", "--steps", "5",
          "--delta", "1e-5", "--neighbouring", "replace"], "bounded='contribution'"),
        (["account", *PLAN, "--noise-multiplier", "1", "--bounded", "x"], "bounded='x'"),
        (["compare", *changed(SHAPE, "--shape", "0x20")], "rows=0"),
        (["compare", *changed(SHAPE, "--epsilon", "0")], "epsilon=0.0"),
        (["compare", *SHAPE, "--norm-bound", "-1"], "norm_bound=-1.0"),
        (["account", *changed(PLAN, "--sampling-rate", "1.5"), "--noise-multiplier", "1"],
         "sampling_rate=1.5"),
        (["compare", *SHAPE, "--figure", "bars.gif"], "bars.gif"),
        (["compare", *SHAPE, "--figure", "no/bars.png"], "does not exist; make it first"),
        (["audit", "claim", *changed(CLAIM, "--noise-scale", "0")], "noise_scale=0.0"),
        (["audit", "claim", *CLAIM, "--steps", "0"], "'0' is not an integer"),
        (["audit", "claim", *changed(CLAIM, "--noise-scale", "1e-9")], "noise_scale=1e-09"),
        (["audit", "claim", *CLAIM, "--sampling-rate", "1.5"], "sampling_rate=1.5"),
        (["audit", "rank-one", *changed(SHAPE, "--shape", "1x2")], "numbers=2 is below 3"),
        (["audit", "rank-one", *changed(SHAPE, "--epsilon", "400")], "epsilon=400.0 is above 300"),
        (["compare", *SHAPE, "--sensitivity", "1e308"], "sensitivity=1e+308"),
        ([*AUDIT, "magic", *SMALL], "mechanism='magic'"),
        ([*AUDIT, "classic", *SMALL], "above 1"),
        ([*AUDIT, "imgm", *SMALL, "--samples", "1"], "samples=1"),
        ([*AUDIT, "imgm", *SMALL, "--confidence", "2"], "confidence=2.0"),
        ([*AUDIT, "imgm", *changed(SMALL, "--shape", "0x2")], "rows=0"),
        ([*AUDIT, "imgm", *SMALL, "--seed", "-1"], "seed=-1"),
        ([*AUDIT, "imgm", *SMALL, "--steps", "0"], "'0' is not an integer"),
        *[([*AUDIT, each, *changed(SMALL, "--shape",
            "100000000x100000000")], "too large") for each in ("imgm", "mvg", "matrix")],
        *[([*AUDIT, "mvg", *SMALL, "--sensitivity", size], "rescale")
          for size in ("1e300", "1e-300")],
        ([*AUDIT, "imgm", *SMALL, "--sensitivity", "5e-324"],
         "sensitivity=1e-323"),
        ([*AUDIT, "imgm", *SMALL, "--sensitivity", "1e300", "--exact"],
         "rescale"),
        *[([*AUDIT, name, *changed(SMALL, "--epsilon", "0.5"),
            "--sensitivity", "1e308"], message)
          for name, message in [
              ("imgm", "sensitivity of bound=1e+308"),
              ("analytic", "sensitivity of radius=1e+308"),
              ("classic", "sensitivity=1e+308"),
              ("mvg", "sensitivity=1e+308"),
          ]],
        ([*AUDIT, "matrix", *SMALL, "--sensitivity", "2"],
         "sensitivity=2.0"),
        (["audit", "dance"], "dance"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert list(tmp_path.iterdir()) == []
    output = capsys.readouterr()
    assert output.out == ""
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.err.startswith("matrixdp: ")
