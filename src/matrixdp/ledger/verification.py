"""Verification of a ledger: its chain, and every table against what the entries add up to."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Any

from matrixdp.errors import LedgerError
from matrixdp.ledger.chain import Entry, entries, entry_digest, first_digest, first_of
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.pending import Pending, unsealed
from matrixdp.ledger.replay import Replay, Table
from matrixdp.ledger.schema import VERSION
from matrixdp.ledger.stores.store import Rows

__all__ = ["Verification", "verified"]

_HEAD = ("version", "key", "sequence", "digest")
# The columns of a table that name a row, and the others.
_COLUMNS = {
    "accounts": (
        ("name",),
        ("parent", "terms", "mu2_limit", "delta_limit", "mu2_spent", "delta_spent"),
    ),
    "slots": (("account", "number"), ("plan", "used_by")),
    "runs": (("run",), ("account", "plan", "mode", "steps", "spent")),
}


@dataclass(frozen=True, slots=True)
class Verification:
    """What does not agree in a ledger.

    Attributes
    ----------
    ledger : str
        The identity of the ledger.
    entries : int
        How many entries were read.
    findings : tuple of str
        What does not agree, in words; nothing if all is well.
    """

    ledger: str
    entries: int
    findings: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether everything agrees."""
        return not self.findings


def verified(rows: Rows, keys: KeyFile | None) -> Verification:
    """Compute everything in a ledger again, and compare.

    Whoever rewrites the whole chain and all tables is not noticed by this: statements beside
    releases and high-water marks are there for that.

    Parameters
    ----------
    rows : Rows
        The ledger at one moment.
    keys : KeyFile or None
        With it, the sealed keys of pending releases are opened as well.
    """
    heads = rows.execute("SELECT one, version, ledger, key, sequence, digest FROM head")
    if len(heads) != 1:
        return Verification("", 0, (f"head has {len(heads)} rows instead of one",))
    ((one, version, ledger, key, sequence, digest),) = heads
    replay, chain = Replay(), _Chain()
    for entry in entries(rows):
        chain.add(entry)
        replay.add(entry)
    findings = [*chain.findings, *replay.findings]
    first = first_digest(ledger, replay.keys[0] if replay.keys else key)
    if chain.first not in (None, first):
        findings.append("the first entry is of another ledger, or of another key file")
    last_key = replay.keys[-1] if replay.keys else key
    stated_head = (VERSION, last_key, chain.last, chain.digest or first)
    findings += _different(
        "head",
        {(one,): dict(zip(_HEAD, (version, key, sequence, digest), strict=True))},
        {(1,): dict(zip(_HEAD, stated_head, strict=True))},
    )
    for table, stated in replay.tables().items():
        findings += _different(table, _table(rows, table), stated)
    ((counted,),) = rows.execute("SELECT count(*) FROM entries")
    if counted != chain.count:
        findings.append(f"{counted - chain.count} entries have no sequence number of the chain")
    if keys is not None:
        findings += _sealed(rows, keys, ledger)
    return Verification(str(ledger), chain.count, tuple(findings))


class _Chain:
    """The entries that were read so far, as links of a chain."""

    def __init__(self) -> None:
        self.first: str | None = None
        self.last = 0
        self.digest = ""
        self.count = 0
        self.findings: list[str] = []
        self._time = ""

    def add(self, entry: Entry) -> None:
        """Take the next entry."""
        self.count += 1
        number, *texts = astuple(entry)
        # A database takes any type in any column.
        if not isinstance(number, int) or not all(isinstance(each, str) for each in texts):
            self.findings.append(f"entry {entry.sequence!r} has a field of another type")
            return
        self.findings += self._wrong(entry)
        if self.first is None:
            self.first = entry.previous
        self.last, self.digest, self._time = entry.sequence, entry.digest, entry.time

    def _wrong(self, entry: Entry) -> Iterator[str]:
        fields = (entry.sequence, entry.time, entry.kind, entry.account, entry.release)
        if entry.sequence != self.last + 1:
            yield f"entry {self.last + 1} is missing: entry {entry.sequence} is the next"
        elif self.first is not None and entry.previous != self.digest:
            yield f"entry {entry.sequence} does not follow the entry before it"
        if entry_digest((*fields, entry.body, entry.previous)) != entry.digest:
            yield f"entry {entry.sequence} was altered: its digest is another"
        if entry.time < self._time:
            yield f"entry {entry.sequence} is older than the entry before it"


def _table(rows: Rows, table: str) -> Table:
    """Return a table as it is: the rows by their names."""
    if table == "pending":
        return {
            (one.release,): {
                "account": one.account,
                "target": one.target,
                "tag or draft": _kept(one),
                "sequence": one.sequence,
            }
            for one in _pending(rows)
        }
    names, others = _COLUMNS[table]
    found = rows.execute(f"SELECT {', '.join((*names, *others))} FROM {table}")  # noqa: S608
    count = len(names)
    return {row[:count]: dict(zip(others, row[count:], strict=True)) for row in found}


def _pending(rows: Rows) -> list[Pending]:
    """Return what is pending, whatever the types of its fields are."""
    return [Pending(*row) for row in rows.execute("SELECT * FROM pending")]


def _kept(pending: Pending) -> str:
    try:
        return pending.kept_digest
    except TypeError:  # bytes, where there was text
        return ""


def _different(table: str, found: Table, stated: Table) -> Iterator[str]:
    """Say how the rows of a table differ from those that the entries state."""
    for name in stated.keys() - found.keys():
        yield f"{_named(table, name)} is missing"
    for name in found.keys() - stated.keys():
        yield f"{_named(table, name)} is there, and no entry made it"
    for name in stated.keys() & found.keys():
        for column, value in stated[name].items():
            other = found[name][column]
            if (type(other), other) != (type(value), value):
                yield f"{_named(table, name)}: {column} is not what the entries say ({value!r})"


def _named(table: str, name: tuple[Any, ...]) -> str:
    return " ".join([table, *map(repr, name)])


def _sealed(rows: Rows, keys: KeyFile, ledger: str) -> Iterator[str]:
    for one in _pending(rows):
        try:
            unsealed(keys, ledger, one, first_of(rows, one.release))
        except LedgerError as error:
            yield str(error)
