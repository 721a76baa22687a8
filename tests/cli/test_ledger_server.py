"""``matrixdp ledger``, and payments by commands, on a PostgreSQL server."""

import json
from pathlib import Path
from typing import Any

import pytest

from ledger.backends import PostgreSQL
from matrixdp.cli.main import main

BUDGET = ["--delta", "1e-5", "--neighbouring", "add-remove"]
RELEASE = ["release", "in.csv", "out.csv", "--sensitivity", "1", "--epsilon", "0.5", *BUDGET]


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the options of a ledger with two accounts, after they were opened."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    Path("in.csv").write_text("1,2\n3,4\n")
    monkeypatch.setenv("MATRIXDP_LEDGER_KEYS", str(tmp_path / "a.keys"))
    found = ["--ledger", PostgreSQL().url(tmp_path)]
    for name, epsilon in (("clinic", "2"), ("clinic/ann", "1")):
        opening = ["ledger", "create", *found, "--account", name, "--epsilon", epsilon, *BUDGET]
        assert main(opening) == 0
    return found


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_release_is_paid_finished_and_shown(
    at: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from ledger.server import PASSWORD  # noqa: PLC0415

    paying = [*at, "--account", "clinic/ann", "--request"]
    with monkeypatch.context() as while_it_runs:
        while_it_runs.setattr("matrixdp.files.publishing.atomic._force", fail)
        assert main([*RELEASE, *paying, "June"]) == 4
    assert "finish it with `matrixdp ledger finish June`" in capsys.readouterr().err
    (one,) = said(["ledger", "pending", *at], capsys)["pending"]
    assert (one["request"], one["output"]) == ("June", str(Path.cwd() / "out.csv"))
    monkeypatch.chdir("/")
    finished = said(["ledger", "finish", "June", *at], capsys)
    assert (finished["request"], finished["paid_before"]) == ("June", True)
    monkeypatch.chdir(Path(one["output"]).parent)
    # Again, and once more under another name.
    assert said([*RELEASE, *paying, "June"], capsys)["paid_before"]
    assert said([*RELEASE, *paying, "July", "--force"], capsys)["paid_before"] is False
    entries = said(["ledger", "history", *at], capsys)["entries"]
    kinds = [entry["kind"] for entry in entries]
    assert kinds == ["open", "open", "pay", "publish", "pay", "publish"]
    clinic, ann = said(["ledger", "status", *at], capsys)["accounts"]
    assert 0.0 < clinic["spent_share"] < ann["spent_share"] < 1.0
    (text,) = said(["ledger", "explain", "June", *at], capsys)["explanations"]
    assert "Account clinic above it paid" in text
    assert said(["ledger", "verify", "out.csv", *at], capsys)["verified"]
    assert main(["ledger", "history", *at, "--figure", "budget.svg"]) == 0
    # Nothing that is kept or shown holds the password of the address.
    assert PASSWORD.replace(" ", "%20") not in json.dumps([entries, clinic, text])


def test_what_does_not_fit_spends_nothing(
    at: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*RELEASE, *at, "--account", "clinic/ann"]
    asked[asked.index("0.5")] = "1.5"
    assert main(asked) == 3
    assert "does not fit: at most mu=" in capsys.readouterr().err
    assert said(["ledger", "status", *at], capsys)["accounts"][1]["spent_share"] == 0.0
    assert not Path("out.csv").exists()


def test_keys_are_rotated_and_needed(at: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said(["ledger", "rotate", *at, "--new-keys", "fresh.keys"], capsys)
    paying = [*RELEASE, *at, "--account", "clinic/ann"]
    assert main(paying) == 2
    assert "is not the key file of" in capsys.readouterr().err
    assert main([*paying, "--keys", "fresh.keys"]) == 0
