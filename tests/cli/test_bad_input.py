"""Bad input is one line and code 2, and leaves no file; a defect is one line, too."""

from pathlib import Path

import pytest

from cli.changed_words import changed
from matrixdp.cli.main import main

BUDGET = ["--epsilon", "1", "--delta", "1e-5"]
SHAPE = ["--shape", "10x20", "--delta", "1e-5"]


def test_a_defect_is_one_line_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("this\nmust not happen")

    monkeypatch.setattr("matrixdp.cli.commands.curve.privacy_delta", broken)
    assert main(["curve", "--mu", "1"]) == 1
    message = capsys.readouterr().err
    # Not the error's own words, which may quote private data.
    assert message.startswith("matrixdp: unexpected RuntimeError in test_bad_input.py, line ")
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
