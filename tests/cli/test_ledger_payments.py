"""Every command that releases pays from a ledger: once, before it draws, and nothing is lost."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import matrixdp_command
from matrixdp import Budget
from matrixdp.cli.main import main
from matrixdp.errors import StorageError
from matrixdp.files.publishing import atomic
from matrixdp.ledger import Ledger

URL = "sqlite:///study.ledger"
PAID = ["--ledger", URL, "--account", "study", "--request", "June"]
BUDGET = ["--epsilon", "1", "--delta", "1e-5", "--neighbouring", "add-remove"]
NUMBERS = ["records.csv", "out.csv", *BUDGET, "--columns", "a", "--norm", "1"]
COMMANDS = {
    "release": ["release", "in.csv", "out.csv", *BUDGET, "--sensitivity", "1"],
    "labels": ["release", "named.csv", "out.csv", *BUDGET, "--sensitivity", "1", "--header"],
    "streamed": ["release", "in.npy", "out.npy", *BUDGET, "--sensitivity", "1"],
    "sum": ["query", "sum", *NUMBERS],
    "gram and clipped": ["query", "gram", *NUMBERS, "--clipped-share", "0.1"],
    "mean": ["query", "mean", *NUMBERS, "--count", "2"],
    "private mean": ["query", "mean", *NUMBERS],
    "covariance": ["query", "covariance", *NUMBERS, "--count", "2"],
    "clipped": ["query", "clipped", *NUMBERS],
    "histogram": ["query", "histogram", "records.csv", "out.csv", *BUDGET, "--bins", "a=0,1"],
    "answer": ["workload", "answer", "in.csv", "out.npz", *BUDGET, "--workload", "identity:6"],
    "answer to records": [
        *("workload", "answer", "cells.csv", "out.npz", *BUDGET),
        *("--workload", "identity:6", "--records"),
    ],
}
Program = Callable[[list[str]], int]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MATRIXDP_LEDGER_KEYS", raising=False)
    np.save("in.npy", np.ones((6, 1)))
    Path("in.csv").write_text("1\n1\n1\n1\n1\n1\n")
    Path("named.csv").write_text("a\n1\n1\n")
    Path("cells.csv").write_text("1\n3\n")
    Path("records.csv").write_text("a\n0.5\n0.25\n")
    opened = ["--epsilon", "3", "--delta", "1e-5", "--neighbouring", "add-remove"]
    assert main(["ledger", "create", "--ledger", URL, "--account", "study", *opened]) == 0
    return tmp_path


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Return the program as a function; interrupts of this process are its own until the end."""

    def run(arguments: list[str]) -> int:
        monkeypatch.setattr(sys, "argv", ["matrixdp", *arguments])
        return matrixdp_command.main()

    former = signal.getsignal(signal.SIGINT)
    yield run
    signal.signal(signal.SIGINT, former)


def spent(account: str = "study") -> float:
    with Ledger.open(URL) as ledger:
        return ledger.account(account).balance.spent_share


def pending() -> list[str]:
    with Ledger.open(URL) as ledger:
        assert ledger.verify().good
        return [one.release for one in ledger.pending()]


def outputs() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().glob("*out.*")}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_release_is_paid_once(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*COMMANDS[name], *PAID]
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["account"], said["request"], said["paid_before"]) == ("study", "June", False)
    assert said["remaining_mu"] > 0.0
    once, made = spent(), outputs()
    assert 0.0 < once < 1.0
    assert pending() == []
    # Again: nothing is paid, and the files stay what they are.
    assert main([*command, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again.pop("paid_before")
    assert again == {each: value for each, value in said.items() if each != "paid_before"}
    assert (spent(), outputs()) == (once, made)
    # Its statement names the entry.
    released = said["statement"].removesuffix(".json")
    assert main(["verify", released]) == 0
    assert "paid by account study, entry 2 of ledger" in capsys.readouterr().out
    assert main(["ledger", "verify", "--ledger", URL, released]) == 0
    # Another request is another payment.
    assert main([*command[:-1], "July", "--force"]) == 0
    lines = capsys.readouterr().err
    assert "paid by account study as request July; one more release may have epsilon" in lines
    assert lines.endswith("unless it names the same --request\n")
    assert spent() == pytest.approx(2 * once)


def test_without_a_ledger_nothing_is_said_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS["sum"], "--json"]) == 0
    assert "account" not in capsys.readouterr().out.splitlines()
    assert main(["verify", "out.csv", "--json"]) == 0
    assert "payment" not in capsys.readouterr().out
    assert spent() == 0.0


def test_verify_shows_the_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMANDS["sum"], *PAID]) == 0
    capsys.readouterr()
    assert main(["verify", "out.csv", "--json"]) == 0
    payment = json.loads(capsys.readouterr().out)["payment"]
    with Ledger.open(URL) as ledger:
        entry = ledger.payment("June")
        assert payment == {
            "ledger": ledger.identity,
            "account": "study",
            "sequence": entry.sequence,
            "digest": entry.digest,
        }


@pytest.mark.parametrize("name", COMMANDS)
def test_what_does_not_fit_is_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = list(COMMANDS[name])
    command[command.index("--epsilon") + 1] = "30"
    assert main([*command, *PAID]) == 3
    assert "does not fit: at most mu=" in capsys.readouterr().err
    assert (spent(), outputs(), pending()) == (0.0, {}, [])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--ledger", URL], "--ledger needs --account"),
        (["--account", "study"], "--account and --request are for --ledger"),
        (["--request", "June"], "--account and --request are for --ledger"),
        (["--ledger", URL, "--account", "other"], "account='other' does not exist"),
        (["--ledger", "sqlite:///none", "--account", "study"], "there is no ledger at"),
        (["--ledger", "study.ledger", "--account", "study"], "is not the address of a ledger"),
        ([*PAID, "--keys", "none"], "keys='none' cannot be read"),
        ([*PAID, "--keys", "in.csv"], "may be read by others"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMANDS["sum"], *options]) == 2
    assert said in capsys.readouterr().err
    assert (spent(), outputs()) == (0.0, {})


def test_standard_output_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    stream = ["--output-format", "csv", "--statement", "out.csv.json"]
    asked = ["release", "in.csv", "-", *BUDGET, "--sensitivity", "1", *stream, *PAID]
    assert main(asked) == 2
    assert "cannot be written again: name a file as OUT" in capsys.readouterr().err
    assert spent() == 0.0


def test_keys_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("study.ledger.keys").rename("elsewhere")
    assert main([*COMMANDS["sum"], *PAID]) == 2
    assert "pass --keys, the key file of the ledger" in capsys.readouterr().err
    monkeypatch.setenv("MATRIXDP_LEDGER_KEYS", "elsewhere")
    assert main([*COMMANDS["sum"], *PAID]) == 0
    assert spent() > 0.0


def test_another_relation_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    other = ["replace" if each == "add-remove" else each for each in COMMANDS["release"]]
    assert main([*other, *PAID]) == 2
    assert "use one relation for all releases" in capsys.readouterr().err
    assert spent() == 0.0


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that lets files get no name any more, or again."""
    former = atomic._give_name

    def no_space(*_: object, **__: object) -> None:
        raise StorageError("out.csv could not be written: No space left on device")

    def switch(full: bool) -> None:  # noqa: FBT001
        monkeypatch.setattr(atomic, "_give_name", no_space if full else former)

    return switch


def check_finished(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Finish a release by its command, from another folder, and see that nothing was paid."""
    once = spent()
    assert pending() == ["June"]
    Path("other").mkdir()
    os.chdir("other")
    capsys.readouterr()
    assert main(["ledger", "finish", "June", "--ledger", "sqlite:///../study.ledger"]) == 0
    assert "paid before by account study as request June" in capsys.readouterr().err
    os.chdir("..")
    assert (spent(), pending()) == (once, [])
    # What it has made is what the same command would have made.
    made = outputs()
    assert made
    assert main([*COMMANDS[name], *PAID]) == 0
    assert outputs() == made
    statement = next(path for path in Path().glob("*out.*.json"))
    assert main(["verify", str(statement).removesuffix(".json")]) == 0
    assert main(["ledger", "verify", "--ledger", URL, str(statement)]) == 0


@pytest.mark.parametrize("name", COMMANDS)
def test_a_full_disk_leaves_a_release_that_is_pending(
    name: str, full_disk: Callable[[bool], None], capsys: pytest.CaptureFixture[str]
) -> None:
    full_disk(True)
    assert main([*COMMANDS[name], *PAID]) == 4
    error = capsys.readouterr().err
    assert "No space left on device. The release is paid by account 'study' and pending" in error
    assert "finish it with `matrixdp ledger finish June`" in error
    assert error.count("\n") == 1
    full_disk(False)
    check_finished(name, capsys)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_interrupt_after_the_payment_says_that_it_is_pending(
    name: str,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    force = atomic._force

    def interrupted(*arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        force(*arguments)

    with monkeypatch.context() as while_it_runs:
        while_it_runs.setattr(atomic, "_force", interrupted)
        assert program([*COMMANDS[name], *PAID]) == 4
    error = capsys.readouterr().err
    assert "interrupted. The release is paid by account 'study' and pending" in error
    signal.signal(signal.SIGINT, signal.default_int_handler)  # another process
    check_finished(name, capsys)


@pytest.mark.parametrize("name", ["release", "private mean", "answer"])
def test_an_interrupt_before_the_payment_spends_nothing(
    name: str, program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("matrixdp.ledger.account.LedgerAccount.pay", interrupted)
    assert program([*COMMANDS[name], *PAID]) == 130
    assert capsys.readouterr().err.strip().endswith("matrixdp: interrupted")
    assert (spent(), pending(), outputs()) == (0.0, [], {})


def test_files_that_are_there_are_published_without_the_input(
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Killed between the last name and the note in the ledger.
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as while_it_runs:
        while_it_runs.setattr("matrixdp.ledger.account.publish", killed)
        assert program([*COMMANDS["sum"], *PAID]) == 4
    assert pending() == ["June"]
    made = outputs()
    Path("records.csv").unlink()
    capsys.readouterr()
    assert main(["ledger", "finish", "June", "--ledger", URL]) == 0
    assert "June is out as" in capsys.readouterr().out
    assert (pending(), outputs()) == ([], made)


def test_what_cannot_be_finished_says_why(
    full_disk: Callable[[bool], None], capsys: pytest.CaptureFixture[str]
) -> None:
    full_disk(True)
    assert main([*COMMANDS["sum"], *PAID]) == 4
    full_disk(False)
    capsys.readouterr()
    # Another value must not be released with the same noise.
    Path("records.csv").write_text("a\n0.6\n")
    assert main(["ledger", "finish", "June", "--ledger", URL]) == 4
    assert "repeat the very same release, or forfeit this one" in capsys.readouterr().err
    assert main(["ledger", "forfeit", "June", "--ledger", URL]) == 0
    assert "is given up" in capsys.readouterr().out
    assert main(["ledger", "finish", "June", "--ledger", URL]) == 2
    assert "its last entry is 'forfeit'" in capsys.readouterr().err
    assert (outputs(), pending()) == ({}, [])
    assert spent() > 0.0


def test_a_command_that_somebody_altered_is_not_run(
    full_disk: Callable[[bool], None], capsys: pytest.CaptureFixture[str]
) -> None:
    full_disk(True)
    assert main([*COMMANDS["release"], *PAID]) == 4
    full_disk(False)
    with sqlite3.connect("study.ledger") as connection:
        connection.execute("UPDATE entries SET body = replace(body, 'in.csv', 'named.csv')")
    # As one who has seen nothing of the ledger before.
    Path("study.ledger.keys.seen").unlink()
    capsys.readouterr()
    assert main(["ledger", "finish", "June", "--ledger", URL]) == 2
    assert "somebody has altered the release in the ledger" in capsys.readouterr().err
    assert outputs() == {}
    assert main(["ledger", "finish", "June", "--ledger", URL, "--keys", "other"]) == 2
    assert "keys='other' cannot be read" in capsys.readouterr().err


def test_a_command_is_not_stored_with_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--ledger={URL}", "--account=study", "--keys", "study.ledger.keys"]
    assert main([*COMMANDS["release"], *options]) == 0
    capsys.readouterr()
    assert main(["ledger", "history", "--ledger", URL, "--json"]) == 0
    paid = json.loads(capsys.readouterr().out)["entries"][1]
    command = paid["facts"]["command"]
    expected = ["release", "--request", paid["request"], *COMMANDS["release"][1:]]
    assert command == {"folder": str(Path.cwd()), "arguments": expected}


@pytest.mark.parametrize(
    ("name", "times"),
    [("release", 1)]
    + [
        pytest.param(name, 30, marks=pytest.mark.thorough)
        for name in ("release", "streamed", "sum", "answer")
    ],
)
def test_an_interrupt_at_any_time_says_what_it_has_left(name: str, times: int) -> None:
    # It holds every one of them, on a machine on which no interrupt comes in time, too.
    with Ledger.open(URL) as ledger:
        ledger.open_account("large", Budget(100.0, 1e-5), neighbouring="add-remove")
    paying = ["--ledger", URL, "--account", "large"]
    command = [sys.executable, "-m", "matrixdp", *COMMANDS[name], *paying]
    begin = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    whole = time.monotonic() - begin
    for number in range(times):
        before = spent("large")
        request = f"run-{number}"
        asked = [*command, "--request", request, "--force"]
        with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            time.sleep(whole * (0.3 + 0.7 * number / times))
            os.kill(process.pid, signal.SIGINT)
            _, error = process.communicate(timeout=60)
        code, paid = process.returncode, spent("large") > before
        assert code in {0, 4, 130, -signal.SIGINT}, error
        assert paid == (code in {0, 4}), error
        assert (request in pending()) == (code == 4), error


@pytest.mark.parametrize("kind", ["release", "streamed", "sum", "private mean", "answer"])
def test_statements_name_the_unit_of_the_account(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    terms = ["--epsilon", "3", "--delta", "1e-5", "--neighbouring", "add-remove"]
    for unit, several in (("person", []), ("clinic", ["--records-per-unit", "2"])):
        create = ["ledger", "create", "--ledger", URL, "--account", unit, *terms, "--unit", unit]
        assert main([*create, *several]) == 0
        asked = [*COMMANDS[kind], "--ledger", URL, "--account", unit]
        if unit == "person":
            assert main([*asked, "--unit", "visit"]) == 2
            assert "--unit 'visit' is not that of the account" in capsys.readouterr().err
        assert main([*asked, "--purpose", "a report", "--force"]) == 0
        (path,) = Path().glob("out*.json")
        # A guarantee about one record would be read as one about all that a clinic has.
        expected = {"purpose": "a report"} | ({} if several else {"unit": unit})
        assert json.loads(path.read_text())["about"] == expected
