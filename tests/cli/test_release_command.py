"""``matrixdp release``, driven as a user would."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from cli.changed_words import changed
from matrixdp import Budget, Diagonal, Release, SymmetricIsotropic
from matrixdp.cli.main import main

PROMISE = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "replace"]
BALL = [*PROMISE, "--sensitivity", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a matrix in every format."""
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", np.zeros((3, 2)))
    np.savez("in.npz", matrix=np.zeros((3, 2)))
    Path("in.csv").write_text("0,0\n0,0\n0,0\n")
    Path("labelled.csv").write_text("id,a,b\nx,0,0\ny,0,0\nz,0,0\n")
    return tmp_path


@pytest.mark.parametrize("source", ["in.npy", "in.npz", "in.csv"])
@pytest.mark.parametrize("target", ["out.npy", "out.npz", "out.csv"])
def test_every_format_to_every_format(source: str, target: str) -> None:
    assert main(["release", source, target, *BALL]) == 0
    release = Release.load(target)
    assert release.shape == (3, 2)
    assert release.noise_scale == pytest.approx(3.7306316)
    assert str(release.guarantee) == json.loads(Path(f"{target}.json").read_text())["in_words"]
    assert not np.any(release.value == 0)


def test_other_sets(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("square.npy", np.eye(3))
    symmetric = ["release", "square.npy", "s.npy", *BALL, "--symmetric"]
    assert main(symmetric) == 0
    release = Release.load("s.npy")
    assert isinstance(release.covariance, SymmetricIsotropic)
    np.testing.assert_array_equal(release.value, release.value.T)
    assert main(["release", "in.npy", "r.npy", *PROMISE, "--row-bounds", "1,2,3"]) == 0
    covariance = Release.load("r.npy").covariance
    assert isinstance(covariance, Diagonal)
    np.testing.assert_allclose(covariance.scales[:, 0] / covariance.scales[0], [1, 2, 3])
    np.save("bounds.npy", np.array([1.0, 4.0]))
    capsys.readouterr()
    assert main(["release", "in.npy", "b.npy", *PROMISE, "--box", "bounds.npy", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    ratio = reply["largest_noise_scale"] / reply["smallest_noise_scale"]
    assert ratio == pytest.approx(2.0)
    assert reply["neighbouring"] == "replace"


def test_symmetric_noise_is_reported_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("square.npy", np.eye(3))
    assert main(["release", "square.npy", "s.npy", *BALL, "--symmetric", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["largest_noise_scale"] == pytest.approx(3.7306316)
    assert reply["smallest_noise_scale"] == pytest.approx(3.7306316 / 2**0.5)


def test_a_part_of_a_budget_is_spent_exactly(capsys: pytest.CaptureFixture[str]) -> None:
    part = Budget(1.0, 1e-5).split(3)[0]
    options = ["--mu", repr(part.mu), *BALL[2:]]
    assert main(["release", "in.npy", "out.npy", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["mu"] <= part.mu
    assert Release.load("out.npy").noise_scale == pytest.approx(1 / part.mu)
    assert main(["release", "in.npy", "o.npy", *options, "--epsilon", "1"]) == 2
    assert "exactly one of --epsilon and --mu" in capsys.readouterr().err


def test_bounds_from_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bounds.csv").write_text("1\n2\n3\n")
    assert main(["release", "in.npy", "r.npy", *PROMISE, "--row-bounds", "bounds.csv"]) == 0
    assert "noise scale 3.73064 to 11.1919" in capsys.readouterr().err


def test_a_file_of_floats_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_memory(*_: object, **__: object) -> None:
        raise AssertionError("read as a whole")

    monkeypatch.setattr("matrixdp.cli.shared.streams.read_matrix", in_memory)
    assert main(["release", "in.npy", "out.npy", *BALL]) == 0
    assert main(["release", "in.npy", "box.npy", *PROMISE, "--box", "1,2"]) == 0
    assert Release.load("out.npy").shape == Release.load("box.npy").shape == (3, 2)


def test_existing_files_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("out.npy", "out.npy.json"):
        Path(name).write_text("precious")
        assert main(["release", "in.npy", "out.npy", *BALL]) == 2
        assert "exists" in capsys.readouterr().err
        assert Path(name).read_text() == "precious"
        Path(name).unlink()
    assert main(["release", "in.npy", "out.npy", *BALL]) == 0
    first = np.load("out.npy")
    assert main(["release", "in.npy", "out.npy", *BALL, "--force"]) == 0
    assert np.all(first != np.load("out.npy"))
    assert Release.verify("out.npy").epsilon == 1.0


def test_integers_become_floats() -> None:
    np.save("whole.npy", np.arange(6).reshape(2, 3))
    assert main(["release", "whole.npy", "out.npy", *BALL]) == 0
    assert Release.load("out.npy").value.dtype == np.float64


def damaged(name: str, content: bytes) -> str:
    Path(name).write_bytes(content)
    return name


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy", "out.npy", *BALL], "missing.npy"),
        (["in.npy", "out.txt", *BALL], "'.txt'"),
        (["in.npy", "no/out.npy", *BALL], "no/out.npy"),
        (["in.npy", "out.npy", *PROMISE], "--sensitivity"),
        (["in.npy", "out.npy", *BALL, "--box", "1,2"], "--sensitivity"),
        (["in.npy", "out.npy", *PROMISE, "--symmetric", "--box", "1,2"], "--symmetric"),
        (["in.npy", "out.npy", *BALL, "--symmetric"], "SymmetricBall"),
        (["in.npy", "out.npy", *PROMISE, "--box", "1,2,3"], "3 columns"),
        (["in.npy", "out.npy", *PROMISE, "--box", "1,x"], "'1,x'"),
        (["in.npy", "out.npy", "--epsilon", "1", "--delta", "1e-5"], "--neighbouring"),
        (
            ["in.npy", "out.npy", *BALL[:4], "--neighbouring", "swap", "--sensitivity", "1"],
            "neighbouring='swap'",
        ),
        (["in.npy", "out.npy", *changed(BALL, "--sensitivity", "-1")], "bound=-1.0"),
        (["in.npy", "out.npy", *changed(BALL, "--epsilon", "-1")], "epsilon=-1.0"),
        (["-", "out.npy", *BALL], "--input-format"),
        (["in.npy", "-", *BALL], "--output-format"),
        (["in.npy", "-", *BALL, "--output-format", "npy"], "--statement"),
        (["in.npy", "out.npy", *BALL, "--statement", "x.json"], "--statement"),
        (
            ["in.npy", "-", *BALL, "--output-format", "npy", "--statement", "x.json", "--json"],
            "--json",
        ),
        (["labelled.csv", "out.csv", *BALL], "--header"),
        (["nan.npy", "out.npy", *BALL], "NaN"),
        (["cut.npy", "out.npy", *BALL], "cut.npy"),
        (["cut.npz", "out.npy", *BALL], "cut.npz"),
        (["foreign.npy", "out.npy", *BALL], "foreign.npy"),
        (["object.npy", "out.npy", *BALL], "object.npy"),
        (["endless.npy", "out.npy", *BALL], "is cut short"),
        (["folder.npy", "out.csv", *BALL], "a folder of chunks is released into another one"),
        (["in.npy", "out.npy", *PROMISE, "--box", "folder.npy"], "folder.npy is a folder"),
        (["flat.npy", "out.npy", *BALL], "two axes"),
        (["longer.npy", "out.npy", *BALL], "goes on after"),
        (["in.npy", "out.npy", *PROMISE, "--box", "in.npy"], "bounds has shape (3, 2)"),
        (["ragged.csv", "out.npy", *BALL], "one length"),
        (["empty.csv", "out.npy", *BALL], "empty.csv"),
        (["binary.csv", "out.npy", *BALL], "binary.csv"),
        (["large.csv", "out.npy", *BALL], "row 1, column 1: the number is outside the range of"),
        (["blank.csv", "out.npy", *BALL], "one length"),
        (["underscore.csv", "out.npy", *BALL], "not a finite number"),
        (["negative.csv", "out.npy", *BALL], "pass a larger --range"),
        (["padded.csv", "out.npy", *BALL], "pass a larger --range"),
        (["endless.csv", "out.npy", *BALL], "not a finite number"),
        (["in.npy", "out.npy", *BALL, "--range", "10"], "--range is for .csv"),
        (["in.csv", "out.npy", *BALL, "--range", "-1"], "range=-1.0"),
        (["in.csv", "out.npy", *BALL, "--range", "far"], "'far' is not a finite number"),
        (["in.csv", "out.npy", *BALL, "--header=private"], "'names', 'public'"),
        (["unclosed.csv", "out.npy", *BALL], "unclosed.csv"),
        (["in.npy", "out.npy", *BALL, "--header"], "--header"),
        (["in.npy", "out.npy", *PROMISE, "--box", "1_0,2"], "'1_0,2'"),
        (["in.npy", "-", *BALL, "--output-format", "npy", "--statement", "-"], "--statement"),
        (["in.npy", "out.csv", *BALL, "--output-format", "npy"], "--output-format"),
        (["in.npy", "out.npy", *BALL, "--input-format", "csv"], "--input-format"),
    ],
)
def test_bad_input_writes_nothing(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("nan.npy", np.array([[np.nan, 1.0]]))
    np.save("flat.npy", np.zeros(3))
    np.save("object.npy", np.array([[None]]), allow_pickle=True)
    Path("folder.npy").mkdir()
    header = (b"(3, 2), }" + b" " * 17, b"(3, 2" + b"0" * 17 + b"), }")
    damaged("endless.npy", Path("in.npy").read_bytes().replace(*header))
    damaged("cut.npy", Path("in.npy").read_bytes()[:-8])
    damaged("longer.npy", Path("in.npy").read_bytes() + b"junk")
    damaged("cut.npz", Path("in.npz").read_bytes()[:-30])
    damaged("foreign.npy", b"PK\x03\x04 not numpy at all")
    damaged("ragged.csv", b"1,2\n3\n")
    damaged("empty.csv", b"")
    damaged("large.csv", b"1152921504606846977,2\n")
    damaged("negative.csv", b"-9007199254740993,2\n")
    damaged("padded.csv", b" 09007199254740993 ,2\n")
    damaged("endless.csv", b"9" * 5000 + b",2\n")
    damaged("unclosed.csv", b'"1","2\n')
    damaged("blank.csv", b"1\n\n3\n")
    damaged("underscore.csv", b"1_000,2\n")
    damaged("binary.csv", b"\xff\xfe\x00\x01")
    before = sorted(path.name for path in folder.iterdir())
    assert main(["release", *arguments]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert "pickle" not in output.err
    assert output.out == ""
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.skipif(os.name != "posix", reason="other systems have no such names")
@pytest.mark.parametrize("ending", [".csv", ".npy"])
def test_a_name_that_no_statement_can_hold_is_refused(
    ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name for path in Path().iterdir()}
    assert main(["release", "in.npy", os.fsdecode(b"out\xff") + ending, *BALL]) == 2
    assert "not a valid file name" in capsys.readouterr().err
    assert {path.name for path in Path().iterdir()} == before
