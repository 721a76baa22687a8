"""``matrixdp ledger``: accounts, history, words, figures, evidence and keys."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from matrixdp import Budget
from matrixdp.cli.main import main
from matrixdp.ledger import Ledger

URL = "sqlite:///study.ledger"
AT = ["--ledger", URL]
TERMS = ["--epsilon", "2", "--delta", "1e-5", "--neighbouring", "add-remove"]
RELEASE = [
    *("release", "in.csv", "out.csv", "--sensitivity", "1"),
    *("--epsilon", "0.5", "--delta", "1e-6", "--neighbouring", "add-remove"),
    *(*AT, "--account", "clinic/ann", "--request", "June"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("MATRIXDP_LEDGER_KEYS", raising=False)
    Path("in.csv").write_text("1,2\n3,4\n")
    return tmp_path


@pytest.fixture
def _accounts() -> None:
    """Make a ledger with two accounts and a release."""
    assert main(["ledger", "create", *AT, "--account", "clinic", *TERMS]) == 0
    child = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "add-remove"]
    assert main(["ledger", "create", *AT, "--account", "clinic/ann", *child]) == 0
    assert main(RELEASE) == 0


def said(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 0
    return capsys.readouterr().out


def json_of(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(said([*arguments, "--json"], capsys))


def test_create_makes_the_ledger_its_keys_and_an_account(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unit = ["--unit", "patient", "--records-per-unit", "3", "--claims-delta", "1e-7"]
    made = json_of(["ledger", "create", *AT, "--account", "clinic", *TERMS, *unit], capsys)
    assert made["ledger"] == f"sqlite:///{Path.cwd()}/study.ledger"
    assert made["keys"] == str(Path.cwd() / "study.ledger.keys")
    assert (made["unit"], made["records_per_unit"]) == ("patient", 3)
    assert (made["claims_delta"], made["remaining_claims_delta"]) == (1e-7, 1e-7)
    assert made["remaining_mu"] == pytest.approx(Budget(2.0, 0.99e-5).mu / 3)
    assert Path("study.ledger.keys").stat().st_mode & 0o077 == 0
    # Again: the account exists, and nothing is made anew.
    assert main(["ledger", "create", *AT, "--account", "clinic", *TERMS]) == 2
    assert "account='clinic' exists" in capsys.readouterr().err


def test_create_uses_a_key_file_of_another_name(capsys: pytest.CaptureFixture[str]) -> None:
    made = json_of(
        ["ledger", "create", *AT, "--account", "a", *TERMS, "--keys", "other.keys"], capsys
    )
    assert made["keys"] == str(Path.cwd() / "other.keys")
    assert not Path("study.ledger.keys").exists()


def test_plans_are_declared(capsys: pytest.CaptureFixture[str]) -> None:
    plans = ["--plan", "4,0.01,20", "--plan", "5,0.01,10"]
    made = json_of(["ledger", "create", *AT, "--account", "a", *TERMS, *plans], capsys)
    first = {"noise_multiplier": 4.0, "sampling_rate": 0.01, "steps": 20, "bounded": "difference"}
    assert made["plans"][0] == first
    assert len(made["plans"]) == 2
    assert 0.0 < made["remaining_mu"] < Budget(2.0, 1e-5).mu


@pytest.mark.parametrize(
    ("options", "said", "code"),
    [
        (["--plan", "4,0.01"], "is not MULTIPLIER,RATE,STEPS", 2),
        (["--plan", "4,0.01,20,1"], "is not MULTIPLIER,RATE,STEPS", 2),
        (["--plan", "4,0.01,2.5"], "is not MULTIPLIER,RATE,STEPS", 2),
        (["--plan", "0.1,0.5,1000"], "the declared plans alone need epsilon=", 3),
        (["--records-per-unit", "2"], "name the unit that has so many records", 2),
        (["--claims-delta", "1"], "must be from 0 to below delta", 2),
        (["--unit", "a b"], "unit='a b' is not a name", 2),
    ],
)
def test_terms_that_cannot_be_are_refused(
    options: list[str], said: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", "create", *AT, "--account", "a", *TERMS, *options]) == code
    assert said in capsys.readouterr().err


def test_replaced_records_in_samples_need_their_contribution(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terms = ["--epsilon", "2", "--delta", "1e-5", "--neighbouring", "replace"]
    asked = ["ledger", "create", *AT, "--account", "a", *terms, "--plan", "8,0.01,20"]
    assert main(asked) == 2
    assert "bounded='contribution'" in capsys.readouterr().err
    assert main([*asked, "--bounded", "contribution"]) == 0


@pytest.mark.usefixtures("_accounts")
def test_status(capsys: pytest.CaptureFixture[str]) -> None:
    shown = json_of(["ledger", "status", *AT], capsys)
    assert [one["account"] for one in shown["accounts"]] == ["clinic", "clinic/ann"]
    clinic, ann = shown["accounts"]
    cost = Budget(0.5, 1e-6).mu ** 2
    assert clinic["spent_share"] == pytest.approx(cost / Budget(2.0, 1e-5).mu ** 2, rel=1e-6)
    assert ann["remaining_mu"] ** 2 == pytest.approx(Budget(1.0, 1e-5).mu ** 2 - cost, rel=1e-6)
    table = said(["ledger", "status", *AT, "--account", "clinic/ann"], capsys)
    assert "(1, 1e-05) under adding or removing one record" in table
    assert "│     clinic │" not in table
    assert main(["ledger", "status", *AT, "--account", "clin"]) == 2
    assert "account='clin' does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("_accounts")
def test_history(capsys: pytest.CaptureFixture[str]) -> None:
    entries = json_of(["ledger", "history", *AT], capsys)["entries"]
    assert [entry["kind"] for entry in entries] == ["open", "open", "pay", "publish"]
    assert entries[2]["facts"]["mu"] == pytest.approx(Budget(0.5, 1e-6).mu, rel=1e-6)
    assert json_of(["ledger", "history", *AT, "--account", "clinic"], capsys)["entries"] == entries
    own = json_of(["ledger", "history", *AT, "--account", "clinic/ann"], capsys)["entries"]
    assert own == entries[1:]
    table = said(["ledger", "history", *AT], capsys)
    assert "out.csv, a matrix of 2 x 2" in table
    assert "out: June" in table
    latest = json_of(["ledger", "history", *AT, "--last", "3"], capsys)["entries"]
    assert latest == entries[1:]
    assert main(["ledger", "history", *AT, "--last", "0"]) == 2
    assert main(["ledger", "history", *AT, "--last", "3", "--figure", "a.png"]) == 2
    assert "a figure shows all entries" in capsys.readouterr().err


@pytest.mark.usefixtures("_accounts")
def test_history_shows_steps_that_follow_each_other_in_one_row(
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = ["--plan", "4,0.01,20"]
    assert main(["ledger", "create", *AT, "--account", "training", *TERMS, *plan]) == 0
    with Ledger.open(URL, keys="study.ledger.keys") as ledger:
        account = ledger.account("training")
        counter = account.run("model").counter(account.terms.plans[0], plan="x", mode="fast")
        for _ in range(7):
            counter.spend()
    table = said(["ledger", "history", *AT], capsys)
    assert "steps 1 to 7 of run model" in table
    assert (
        "training run model: 20 steps on samples of records at rate 0.01 with noise multiplier 4"
        in table
    )
    assert "7 of 20 steps are taken" in said(["ledger", "explain", "model", *AT], capsys)


@pytest.mark.usefixtures("_accounts")
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_a_figure_of_the_budget_over_time(suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    drawing = ["ledger", "history", *AT, "--figure", f"budget.{suffix}"]
    assert main(drawing) == 0
    assert f"wrote budget.{suffix}" in capsys.readouterr().err
    first = Path(f"budget.{suffix}").read_bytes()
    assert main(drawing) == 2
    assert main([*drawing, "--force"]) == 0
    assert Path(f"budget.{suffix}").read_bytes() == first
    if suffix == "svg":
        text = first.decode()
        assert "clinic/ann" in text
        assert "spent, % of the budget" in text


@pytest.mark.usefixtures("_accounts")
def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(["ledger", "explain", *AT, "--account", "clinic/ann"], capsys)
    assert "by a factor of at most 2.72" in " ".join(text.split())
    assert "By itself it has epsilon 0.5 at delta 1e-06 for one record." in text
    both = json_of(["ledger", "explain", *AT], capsys)["explanations"]
    assert len(both) == 2
    assert both[1] == text.rstrip("\n")
    (one,) = json_of(["ledger", "explain", "June", *AT], capsys)["explanations"]
    assert "Account clinic above it paid" in one
    assert main(["ledger", "explain", "July", *AT]) == 2
    assert "request='July' was never paid" in capsys.readouterr().err
    assert main(["ledger", "explain", "June", *AT, "--account", "clinic"]) == 2


@pytest.mark.usefixtures("_accounts")
def test_nothing_is_pending(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing is pending" in said(["ledger", "pending", *AT], capsys)
    assert json_of(["ledger", "pending", *AT], capsys) == {"pending": []}
    assert main(["ledger", "forfeit", "June", *AT]) == 2
    assert "its last entry is 'publish'" in capsys.readouterr().err
    assert main(["ledger", "finish", "none", *AT]) == 2
    assert "it was never paid" in capsys.readouterr().err


@pytest.mark.usefixtures("_accounts")
def test_what_is_pending_is_listed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as while_it_runs:
        while_it_runs.setattr("matrixdp.files.publishing.atomic._force", fail)
        assert main([*RELEASE[:-1], "July", "--force"]) == 4
    (one,) = json_of(["ledger", "pending", *AT], capsys)["pending"]
    assert (one["request"], one["account"]) == ("July", "clinic/ann")
    assert one["output"] == str(Path.cwd() / "out.csv")
    assert "July" in said(["ledger", "pending", *AT], capsys)
    assert "PENDING: it is not out yet" in said(["ledger", "explain", "July", *AT], capsys)
    assert json_of(["ledger", "status", *AT], capsys)["accounts"][1]["pending"] == 1
    assert json_of(["ledger", "forfeit", "July", *AT], capsys)["forfeited"]
    assert "Given up by" in said(["ledger", "explain", "July", *AT], capsys)


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.usefixtures("_accounts")
def test_verify_finds_what_was_altered(capsys: pytest.CaptureFixture[str]) -> None:
    good = json_of(["ledger", "verify", *AT, "out.csv"], capsys)
    assert (good["verified"], good["findings"], good["entries"]) == (True, [], 4)
    assert "4 entries and all that follows" in said(["ledger", "verify", *AT], capsys)
    with sqlite3.connect("study.ledger") as connection:
        connection.execute("UPDATE accounts SET mu2_spent = '0' WHERE name = 'clinic'")
    assert main(["ledger", "verify", *AT]) == 5
    output = capsys.readouterr()
    assert "accounts 'clinic': mu2_spent is not what the entries say" in output.out
    assert "NOT VERIFIED; findings: 1" in output.err
    assert main(["ledger", "verify", *AT, "--json"]) == 5
    assert not json.loads(capsys.readouterr().out)["verified"]


@pytest.mark.usefixtures("_accounts")
def test_an_older_copy_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    former = Path("study.ledger").read_bytes()
    assert main([*RELEASE[:2], "new.csv", *RELEASE[3:-1], "July"]) == 0
    Path("study.ledger").write_bytes(former)
    for arguments in (["status"], ["history"], ["pending"]):
        assert main(["ledger", *arguments, *AT]) == 2
        assert "it is an older copy" in capsys.readouterr().err
    assert main(RELEASE) == 2
    # It can be looked at nevertheless.
    capsys.readouterr()
    assert main(["ledger", "verify", *AT, "new.csv"]) == 5
    found = capsys.readouterr().out
    assert "it is an older copy, which has forgotten payments" in found
    assert "entry 5, which paid for it, is missing" in found


@pytest.mark.usefixtures("_accounts")
def test_keys_are_rotated(capsys: pytest.CaptureFixture[str]) -> None:
    done = json_of(["ledger", "rotate", *AT, "--new-keys", "fresh.keys"], capsys)
    assert done["keys"] == "fresh.keys"
    assert main([*RELEASE[:2], "new.csv", *RELEASE[3:-1], "July"]) == 2
    assert "is not the key file of" in capsys.readouterr().err
    fresh = ["--keys", "fresh.keys"]
    assert main([*RELEASE[:2], "new.csv", *RELEASE[3:-1], "July", *fresh]) == 0
    assert "5 entries" not in said(["ledger", "verify", *AT, *fresh], capsys)
    assert "rotate" in said(["ledger", "history", *AT, "--json", *fresh], capsys)


@pytest.mark.usefixtures("_accounts")
def test_lost_keys_are_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    Path("study.ledger.keys").unlink()
    assert main([*RELEASE[:2], "new.csv", *RELEASE[3:-1], "July"]) == 2
    assert "If it is lost, `matrixdp ledger rotate --new-keys FILE`" in capsys.readouterr().err
    assert "erase the former file" in said(
        ["ledger", "rotate", *AT, "--new-keys", "study.ledger.keys"], capsys
    )
    assert main([*RELEASE[:2], "new.csv", *RELEASE[3:-1], "July"]) == 0
    assert main(["ledger", "verify", *AT, "out.csv", "new.csv"]) == 0


def test_a_server_needs_named_keys(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sqlalchemy")
    asked = ["ledger", "create", "--ledger", "postgresql://localhost:1/none", "--account", "a"]
    assert main([*asked, *TERMS]) == 2
    assert "Traceback" not in capsys.readouterr().err
