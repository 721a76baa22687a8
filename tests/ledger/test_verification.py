"""Every alteration of a ledger is found: by verification, or by witnesses if all is rewritten."""

# ruff: noqa: S608 - names of tables and columns are those of the schema

import functools
import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.errors import InvalidParameterError, LedgerError, MatrixDPError
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.ledger.chain import canonical, entry_digest, first_digest
from matrixdp.ledger.costs import Spending, is_worth
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.verification import verified
from matrixdp.privacy import SampledPlan

PLAN = SampledPlan(noise_multiplier=20.0, sampling_rate=1.0, steps=3, neighbouring="add-remove")
MECHANISM = IMGM(FrobeniusBall(1.0, neighbouring="add-remove"), Budget(0.1, 1e-6))
VALUE = np.ones((3, 2))
# What a rewritten chain has in common with the former one is its witnesses.
MANY = ["accounts", "slots", "entries", "pending", "runs"]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a ledger that has rows of every kind, two of most."""
    folder = tmp_path_factory.mktemp("ledger")
    with Ledger.create(address(folder), keys=folder / "keys") as ledger:
        budget = Budget(3.0, 1e-5)
        for name, plans in (("study", 3 * [PLAN]), ("study/ann", 2 * [PLAN])):
            ledger.open_account(
                name, budget, neighbouring="add-remove", plans=plans, claims_delta=1e-6
            )
        ann = ledger.account("study/ann")
        for name in ("one", "two"):
            MECHANISM.release_to(folder / f"{name}.csv", VALUE, privacy_filter=ann, request=name)
        MECHANISM.release(VALUE, privacy_filter=ledger.account("study"))
        ann.spend_claim(0.01, 1e-9, about="a count")
        for name in ("gone", "left", "lost"):
            leave_pending(folder, ann, name)
        ledger.forfeit("gone")
        for name in ("run", "other"):
            counter = ann.run(name).counter(PLAN, plan="digest", mode="fast")
            counter.spend()
            counter.spend()
        ledger.rotate_keys(folder / "new.keys")
        ledger.rotate_keys(folder / "newer.keys")
    return folder


def leave_pending(folder: Path, account: Any, request: str) -> None:
    """Pay for a release whose file cannot be written any more."""
    target = folder / "away" / f"{request}.csv"
    target.parent.mkdir()

    class Remover:
        def __init__(self) -> None:
            self.neighbouring = account.neighbouring
            self.spend, self.resumes = account.spend, account.resumes

        def pay(self, *arguments: Any) -> Any:
            target.parent.rmdir()
            return account.pay(*arguments)

    with pytest.raises(MatrixDPError):
        MECHANISM.release_to(target, VALUE, privacy_filter=Remover(), request=request)
    assert account.is_pending(request)


def address(folder: Path) -> str:
    return f"sqlite:///{folder}/ledger"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """Return a copy of the ledger and its keys, without what was seen of it."""
    for name in ("ledger", "newer.keys", "one.csv", "one.csv.json", "two.csv", "two.csv.json"):
        shutil.copy(original / name, tmp_path / name)
    return tmp_path


def findings(folder: Path, *, keys: bool = True) -> list[str]:
    """Return what is found wrong, also by opening the ledger."""
    try:
        with Ledger.open(address(folder), keys=folder / "newer.keys" if keys else None) as ledger:
            return list(ledger.verify().findings)
    except (LedgerError, InvalidParameterError) as error:
        return [str(error)]


def rows_of(folder: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "ledger", isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        return connection.execute(statement, values).fetchall()


class Copy:
    """A copy of a ledger in memory, whose changes are taken back."""

    def __init__(self, path: Path, keys: Path) -> None:
        self._keys = KeyFile(keys)
        self._memory = sqlite3.connect(":memory:", isolation_level=None)
        with closing(sqlite3.connect(path)) as original:
            original.backup(self._memory)
        self._memory.execute("PRAGMA ignore_check_constraints=ON")

    def execute(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        return self._memory.execute(statement, values).fetchall()

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self.execute(f"PRAGMA table_info({table})")]

    def numbers(self, table: str) -> list[int]:
        found = [number for (number,) in self.execute(f"SELECT rowid FROM {table}")]
        assert len(found) >= (1 if table == "head" else 2)
        return found

    def findings_after(
        self, *changes: tuple[Any, ...], keys: bool = False
    ) -> tuple[str, ...] | None:
        """Return what is found after changes; None if the database itself refuses them."""
        self._memory.execute("BEGIN")
        try:
            for statement, *values in changes:
                self._memory.execute(statement, values)
            return verified(self, self._keys if keys else None).findings
        except sqlite3.IntegrityError:
            return None
        finally:
            self._memory.execute("ROLLBACK")


@pytest.fixture
def copy(original: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    # What the same terms are worth is computed once.
    monkeypatch.setattr("matrixdp.ledger.replay.is_worth", functools.cache(is_worth))
    found = Copy(original / "ledger", original / "newer.keys")
    assert found.findings_after(keys=True) == ()
    return found


def cells(copy: Copy) -> Iterator[tuple[str, int, str, Any]]:
    """Yield the table, the row, the column and the value of every cell."""
    for table in ("head", *MANY):
        for number in copy.numbers(table):
            (row,) = copy.execute(f"SELECT * FROM {table} WHERE rowid = :number", number=number)
            for column, value in zip(copy.columns(table), row, strict=True):
                yield table, number, column, value


def others(value: Any) -> list[Any]:
    """Return other values than that of a cell."""
    if isinstance(value, int):
        return [value + 1, value - 1, "text"]
    if value is None:
        return ["run"]
    half = len(value) // 2
    changed = value[:half] + ("1" if value[half : half + 1] != "1" else "2") + value[half + 1 :]
    return [other for other in (changed, "", b"bytes") if other != value]


def test_a_good_ledger_is_good(folder: Path) -> None:
    assert findings(folder) == []
    assert findings(folder, keys=False) == []
    with Ledger.open(address(folder)) as ledger:
        found = ledger.verify()
        assert found.good
        assert found.entries == len(ledger.history())
        assert found.ledger == ledger.identity
        assert ledger.verify_statements([folder / "one.csv", folder / "two.csv.json"]) == []


def test_every_altered_cell_is_found(copy: Copy) -> None:
    missed, looked_at = [], 0
    for table, number, column, value in cells(copy):
        for other in others(value):
            change = (f"UPDATE {table} SET {column} = ? WHERE rowid = ?", other, number)
            # Without the key file nobody can tell whether a sealed key is one.
            found = copy.findings_after(change, keys=column == "sealed")
            looked_at += found is not None
            if found == ():
                missed.append((table, number, column, other))
    assert missed == []
    assert looked_at > 300


@pytest.mark.parametrize("table", ["head", *MANY])
def test_every_deleted_row_is_found(table: str, copy: Copy) -> None:
    for number in copy.numbers(table):
        assert copy.findings_after((f"DELETE FROM {table} WHERE rowid = ?", number)), number


@pytest.mark.parametrize("table", MANY)
def test_every_added_row_is_found(table: str, copy: Copy) -> None:
    columns = copy.columns(table)
    for other in (999_999, -1, "other"):
        copied = ", ".join(["?", *columns[1:]])
        change = (f"INSERT INTO {table} SELECT {copied} FROM {table} LIMIT 1", other)
        assert copy.findings_after(change) != (), other


@pytest.mark.parametrize("table", MANY)
def test_every_two_swapped_rows_are_found(table: str, copy: Copy) -> None:
    # The contents of two rows, each under the other's name.
    columns = copy.columns(table)[2 if table == "slots" else 1 :]
    taken = ", ".join(columns)
    assignment = f"UPDATE {table} SET ({taken}) = ({', '.join('?' * len(columns))}) WHERE rowid = ?"
    for one, other in itertools.combinations(copy.numbers(table), 2):
        contents = [
            copy.execute(f"SELECT {taken} FROM {table} WHERE rowid = :number", number=number)[0]
            for number in (one, other)
        ]
        if contents[0] == contents[1]:
            continue
        changes = ((assignment, *contents[0], other), (assignment, *contents[1], one))
        assert copy.findings_after(*changes, keys=True), (one, other)


def rewrite(folder: Path, change: Callable[[str, dict[str, Any]], None]) -> None:
    """Change the bodies of entries, and make the whole chain fit again."""
    ((ledger, key),) = rows_of(folder, "SELECT ledger, key FROM head")
    rotated = rows_of(folder, "SELECT body FROM entries WHERE kind = 'rotate' ORDER BY sequence")
    previous = first_digest(ledger, json.loads(rotated[0][0])["former"] if rotated else key)
    for row in rows_of(folder, "SELECT * FROM entries ORDER BY sequence"):
        fields = list(row[:6])
        facts = json.loads(fields[5])
        change(fields[2], facts)
        fields[5] = canonical(facts)
        whole = (*fields, previous)
        previous = entry_digest(whole)
        rows_of(
            folder,
            "UPDATE entries SET body = ?, previous = ?, digest = ? WHERE sequence = ?",
            *(fields[5], whole[-1], previous, row[0]),
        )
    rows_of(folder, "UPDATE head SET digest = ?", previous)


def test_a_rewritten_chain_is_found_by_its_witnesses(folder: Path) -> None:
    def change(_: str, facts: dict[str, Any]) -> None:
        facts.pop("by", None)

    with Ledger.open(address(folder), keys=folder / "newer.keys") as ledger:
        ledger.write(lambda _: None)  # it is seen
    rewrite(folder, change)
    assert findings(folder, keys=False) == []  # by itself it is as good as the former one
    with Ledger.open(address(folder)) as ledger:
        (found,) = ledger.verify_statements([folder / "one.csv"])
    assert "is not the one that paid for it" in found
    with pytest.raises(LedgerError, match="was altered"):
        Ledger.open(address(folder), keys=folder / "newer.keys")


def test_an_older_copy_is_found_by_statements(folder: Path) -> None:
    shutil.copy(folder / "ledger", folder / "former")
    with Ledger.open(address(folder), keys=folder / "newer.keys") as ledger:
        MECHANISM.release_to(
            folder / "new.csv", VALUE, privacy_filter=ledger.account("study"), request="new"
        )
        assert ledger.verify_statements([folder / "new.csv"]) == []
    shutil.copy(folder / "former", folder / "ledger")
    with Ledger.open(address(folder)) as ledger:
        assert ledger.verify().good
        (found,) = ledger.verify_statements([folder / "new.csv"])
        assert "is missing: the ledger is an older copy" in found
    with pytest.raises(LedgerError, match="older copy"):
        Ledger.open(address(folder), keys=folder / "newer.keys")


def test_a_high_water_mark_is_a_finding_in_an_open_ledger(folder: Path) -> None:
    shutil.copy(folder / "ledger", folder / "former")
    with Ledger.open(address(folder), keys=folder / "newer.keys") as ledger:
        ledger.forfeit("left")
        ledger.close()
        shutil.copy(folder / "former", folder / "ledger")
        (found,) = ledger.verify().findings
        assert "older copy" in found


def cheaper(kind: str, facts: dict[str, Any]) -> None:
    if kind == "pay":
        facts["costs"] = {name: ["0", "0"] for name in facts["costs"]}


def smaller_claim(_: str, facts: dict[str, Any]) -> None:
    for cost in facts.get("costs", {}).values() if "epsilon" in facts else ():
        cost[0] = str(Fraction(cost[0]) * Fraction(999_999, 10**6))


def larger_limit(kind: str, facts: dict[str, Any]) -> None:
    if kind == "open":
        facts["mu2_limit"] = str(Fraction(facts["mu2_limit"]) * Fraction(1_001, 1_000))


def smaller_limit(kind: str, facts: dict[str, Any]) -> None:
    if kind == "open":
        facts["mu2_limit"] = "1/1000000"


def less_noise_in_the_run(kind: str, facts: dict[str, Any]) -> None:
    if kind == "run":
        facts["noise_multiplier"] = 0.1


def without_slots(kind: str, facts: dict[str, Any]) -> None:
    if kind == "run":
        facts["slots"] = {}


def half_the_path(kind: str, facts: dict[str, Any]) -> None:
    if kind == "pay":
        del facts["costs"]["study"]


def more_steps(kind: str, facts: dict[str, Any]) -> None:
    if kind == "step":
        facts["step"] += 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cheaper, "(pay) debits account 'study' by another cost"),
        (smaller_claim, "(spend) debits account 'study' by another cost"),
        (larger_limit, "gives account 'study' more than its budget is worth"),
        (smaller_limit, "(pay) spends more than account 'study' holds"),
        (less_noise_in_the_run, "states the digest of another plan"),
        (without_slots, "(run) "),
        (half_the_path, "debits other accounts than 'study/ann' and those above it"),
        (more_steps, "counts step 2, and it is step 1 of 3"),
    ],
)
def test_what_an_entry_claims_is_computed_again(
    change: Callable[[str, dict[str, Any]], None],
    said: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of a plan that was not declared.
    costs = Spending(Fraction(1), Fraction(1, 10**9))
    monkeypatch.setattr("matrixdp.ledger.replay._envelope", lambda *_: costs)
    rewrite(folder, change)
    assert any(said in each for each in findings(folder)), findings(folder)


def test_releases_that_do_not_agree(folder: Path) -> None:
    np.savetxt(folder / "plain.csv", VALUE)
    (folder / "one.csv").write_text((folder / "one.csv").read_text().replace("1", "2"))
    MECHANISM.release(VALUE).save(folder / "unpaid.csv")
    statement = json.loads((folder / "two.csv.json").read_text())
    statement["guarantee"]["mu"] *= 2
    (folder / "two.csv.json").write_text(json.dumps(statement))
    with Ledger.open(address(folder)) as ledger:
        names = ["one.csv", "two.csv", "plain.csv", "unpaid.csv", "none.csv"]
        found = ledger.verify_statements([folder / name for name in names])
    expected = [
        "one.csv: it is not the file that its statement describes",
        "one.csv: entry 4 published another file in its place",
        "two.csv: its statement has mu=",
        "plain.csv: ",
        "unpaid.csv: its statement names no payment",
        "none.csv: ",
    ]
    assert len(found) == len(expected), found
    assert all(part in each for part, each in zip(expected, found, strict=True)), found


def test_a_release_of_another_ledger(folder: Path, tmp_path: Path) -> None:
    with Ledger.create(f"sqlite:///{tmp_path}/other", keys=tmp_path / "k") as other:
        (found,) = other.verify_statements([folder / "one.csv"])
    assert "paid for it, and this is ledger" in found


def test_a_statement_that_names_an_entry_of_another_kind(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    target = tmp_path / "forged.npy"
    ball = FrobeniusBall(1.0, neighbouring=account.neighbouring)
    IMGM(ball, Budget(0.5, 1e-5)).release_to(target, np.eye(3), privacy_filter=account)
    (opening,) = (entry for entry in ledger.history(account.name) if entry.kind == "open")
    beside = tmp_path / "forged.npy.json"
    stated = json.loads(beside.read_text())
    stated["payment"] |= {"sequence": opening.sequence, "digest": opening.digest}
    beside.write_text(json.dumps(stated))
    (finding,) = ledger.verify_statements([target])
    assert "is not the one that paid for it" in finding
