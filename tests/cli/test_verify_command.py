"""``matrixdp verify``: what proves itself passes, what was altered has an exit code of its own."""

import json
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, MatrixMechanism, RowBox
from matrixdp.cli.main import main
from matrixdp.queries import Mean, PublicBounds
from matrixdp.workloads import Prefix

BUDGET = Budget(1.0, 1e-5)
WORDS = "(1, 1e-05)-differential privacy under replacing one record (mu = 0.2681)."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    release = IMGM(RowBox([1.0, 2.0], "replace"), BUDGET).release(np.ones((3, 2)))
    for name in ("out.csv", "out.npy", "out.npz"):
        release.save(name)
    MatrixMechanism(Prefix(4), BUDGET, neighbouring="replace").release([1, 2, 3, 4]).save("a.npz")
    return tmp_path


@pytest.mark.parametrize("name", ["out.csv", "out.npy", "out.npz", "a.npz"])
def test_what_is_proven(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", name]) == 0
    assert capsys.readouterr().out == f"{name} proves its guarantee: {WORDS}\n"
    assert main(["verify", name, "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert (reply["proven"], reply["epsilon"], reply["neighbouring"]) == (True, 1.0, "replace")


@pytest.mark.parametrize(
    ("name", "before", "after", "reason"),
    [
        ("out.csv", b'"epsilon": 1.0', b'"epsilon": 0.5', "does not prove its guarantee"),
        ("out.csv", b'"mechanism"', b'"mechanisn"', "not a statement"),
        ("out.npy", b"one record", b"two records", "was altered"),
        ("a.npz", b'"epsilon": 1.0', b'"epsilon": 0.5', "does not prove its guarantee"),
        ("out.npz", b"{", b"", "not a statement"),
        ("out.npz", b"matrixdp-release/2", b"other/1", "schema 'other/1'"),
    ],
)
def test_an_altered_statement(
    name: str, before: bytes, after: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    statement = Path(f"{name}.json")
    content = statement.read_bytes()
    assert before in content
    statement.write_bytes(content.replace(before, after, 1))
    assert main(["verify", name, "--json"]) == 5
    output = capsys.readouterr()
    reply = json.loads(output.out)
    assert reply["proven"] is False
    assert reason in reply["reason"]
    assert output.err.startswith("matrixdp: NOT PROVEN: ")
    assert reason in output.err


def test_an_altered_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    content = bytearray(Path("out.npy").read_bytes())
    content[-1] ^= 1
    Path("out.npy").write_bytes(content)
    assert main(["verify", "out.npy"]) == 5
    assert "its digest differs" in capsys.readouterr().err


def test_all_releases_that_match_a_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["a.npz", "out.csv", "out.npy", "out.npz"]
    assert main(["verify", "*"]) == 0
    assert capsys.readouterr().out == "".join(f"{n} proves its guarantee: {WORDS}\n" for n in names)
    Path("out.csv").write_text("1,2\n")
    assert main(["verify", "out.*"]) == 5
    output = capsys.readouterr()
    assert output.out == "".join(f"{n} proves its guarantee: {WORDS}\n" for n in names[2:])
    assert output.err.startswith("matrixdp: NOT PROVEN: out.csv is not the file")
    Path("out.none").touch()
    for pattern, advice in {"out.*": "out.none.json is missing", "b.*": "no file matches"}.items():
        assert main(["verify", pattern]) == 2
        output = capsys.readouterr()
        assert (output.out, advice in output.err) == ("", True)


@pytest.mark.parametrize("name", ["out.npz", "a.npz"])
def test_too_little_memory_is_no_false_claim(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("matrixdp.files.formats.numpy_format.np.empty", full)
    assert main(["verify", name]) == 2
    assert f"in {name} needs more memory than there is" in capsys.readouterr().err


def test_what_cannot_be_verified(capsys: pytest.CaptureFixture[str]) -> None:
    means = Mean(PublicBounds(2, norm=1.0), "add-remove").release(np.ones((9, 2)), BUDGET)
    means.save("means.csv")
    assert main(["verify", "means.sum.csv"]) == 0
    Path("alone.csv").write_text("1,2\n")
    for name, advice in {
        "nowhere.csv": "nowhere.csv is not a file",
        ".": "is not a file",
        "out.csv.json": "pass out.csv",
        "means.csv": "follow from means.sum.csv",
        "alone.csv": "alone.csv.json is missing",
    }.items():
        capsys.readouterr()
        assert main(["verify", name]) == 2
        assert advice in capsys.readouterr().err
