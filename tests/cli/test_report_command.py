"""``matrixdp report``: files are written, and the exit code says whether all is as claimed."""

import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.cli.main import main
from matrixdp.ledger import Ledger
from matrixdp.queries import Mean, PublicBounds

MECHANISM = IMGM(FrobeniusBall(1.0, "replace"), Budget(0.5, 1e-6))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    MECHANISM.release(np.ones((3, 2))).save("a.csv")
    MECHANISM.release(np.ones((3, 2))).save("b.npy")
    return tmp_path


def test_proven_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "a.csv", "b.npy", "--out", "r.html", "--registry", "r.yaml"]) == 0
    assert capsys.readouterr().out.startswith(
        "wrote r.html\nwrote r.yaml\nall files together, if planned beforehand: (0.7"
    )
    assert "Verified." in Path("r.html").read_text()
    assert "Draft" in Path("r.yaml").read_text()
    assert main(["report", "a.csv", "--out", "r.html"]) == 2
    assert "r.html exists" in capsys.readouterr().err
    assert main(["report", "a.csv", "--out", "r.html", "--force", "--json"]) == 0
    reply = json.loads(capsys.readouterr().out)
    assert reply["files"][0]["proven"] is True
    assert reply["together"]["epsilon"] == 0.5


def test_a_tampered_file_is_shown_and_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    Path("a.csv").write_text(Path("a.csv").read_text().replace("1", "2"))
    assert main(["report", "a.csv", "b.npy", "--out", "r.html", "--registry", "r.yaml"]) == 5
    output = capsys.readouterr()
    assert (
        "NOT AS CLAIMED; findings: 1; r.html shows them, and r.yaml was not written" in output.err
    )
    assert "NOT PROVEN" in Path("r.html").read_text()
    assert not Path("r.yaml").exists()
    assert main(["report", "a.csv", "--out", "s.html", "--json"]) == 5
    reply = json.loads(capsys.readouterr().out)
    assert (reply["files"][0]["proven"], reply["together"]) == (False, None)
    assert "digest differs" in reply["files"][0]["reason"]


def test_what_cannot_be_reported_on(capsys: pytest.CaptureFixture[str]) -> None:
    means = Mean(PublicBounds(2, norm=1.0), "add-remove").release(
        np.ones((9, 2)), Budget(1.0, 1e-5)
    )
    means.save("means.csv")
    for words, advice in {
        "nowhere.csv --out r.html": "nowhere.csv is not a file",
        "a.csv.json --out r.html": "pass a.csv",
        "means.csv --out r.html": "follow from means.sum.csv",
        "a.csv --out r.txt": "does not end in .html",
        "a.csv --out r.html --registry r.json": "does not end in .yaml",
        "a.csv --out r.html --account clinic": "--ledger and --account together",
        "a.csv": "Missing option '--out'",
        "--out r.html": "Missing argument",
    }.items():
        assert main(["report", *words.split()]) == 2
        assert advice in capsys.readouterr().err
    assert not Path("r.html").exists()


def test_with_a_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    with Ledger.create("sqlite:///l.ledger", keys="l.ledger.keys") as ledger:
        account = ledger.open_account("clinic", Budget(2.0, 1e-5), neighbouring="replace")
        MECHANISM.release_to("paid.csv", [[1.0, 2.0]], privacy_filter=account)
    named = ["--ledger", "sqlite:///l.ledger", "--account", "clinic"]
    assert main(["report", "paid.csv", "--out", "r.html", *named]) == 0
    assert "The whole account" in Path("r.html").read_text()
    assert main(["report", "paid.csv", "a.csv", "--out", "s.html", *named, "--json"]) == 5
    assert json.loads(capsys.readouterr().out.split("\n", 2)[2])["findings"] == [
        "a.csv: its statement names no payment: no ledger paid for it"
    ]
    assert main(["report", "paid.csv", "--out", "t.html", *named[:3], "other"]) == 2
    # A ledger whose balance was altered.
    database = sqlite3.connect("l.ledger")
    with database:
        database.execute("UPDATE accounts SET mu2_spent = '0'")
    database.close()
    assert main(["report", "paid.csv", "--out", "v.html", *named]) == 5
    assert "mu2_spent is not what the entries say" in Path("v.html").read_text()
    # Another ledger, which never paid.
    Path("l.ledger.keys.seen").unlink()
    Path("l.ledger").unlink()
    Path("l.ledger.keys").rename("old.keys")
    with Ledger.create("sqlite:///l.ledger", keys="l.ledger.keys") as ledger:
        ledger.open_account("clinic", Budget(2.0, 1e-5), neighbouring="replace")
    assert main(["report", "paid.csv", "--out", "u.html", *named]) == 5
    assert "paid for it, and this is ledger" in Path("u.html").read_text()
