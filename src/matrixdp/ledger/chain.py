"""Entries: what happened, append-only, each with the digest of the one before it."""

import getpass
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, NoReturn

from matrixdp.errors import LedgerError
from matrixdp.ledger.schema import head
from matrixdp.ledger.stores.store import Rows

__all__ = [
    "Entry",
    "append",
    "canonical",
    "entries",
    "entries_of",
    "entry_digest",
    "first_digest",
    "first_of",
    "last_of",
    "latest",
    "user",
]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a ledger.

    Attributes
    ----------
    sequence : int
        From 1 on.
    time : str
        In UTC; never before the time of the entry before it.
    kind : str
        ``open`` (an account), ``spend``, ``pay``, ``publish``, ``forfeit``, ``run``, ``step`` or
        ``rotate`` (the keys).
    account : str
        Whose; empty for ``rotate``.
    release : str
        The request, the run, or a name of its own; empty for ``rotate``.
    body : str
        JSON: what was spent, on what.
    previous, digest : str
        SHA-256 of the entry before, and of this one with all of the above.
    """

    sequence: int
    time: str
    kind: str
    account: str
    release: str
    body: str
    previous: str
    digest: str

    @property
    def facts(self) -> Mapping[str, Any]:
        """The body, read.

        Raises
        ------
        LedgerError
            If it is no such text. So does asking it for what it does not say.
        """
        try:
            facts = json.loads(self.body)
        except (TypeError, ValueError):
            facts = None
        if not isinstance(facts, dict):
            raise _altered(self.sequence)
        return _Facts(facts, self.sequence)


class _Facts(dict[str, Any]):
    """What an entry says."""

    def __init__(self, facts: Mapping[str, Any], sequence: int) -> None:
        super().__init__(facts)
        self._sequence = sequence

    def __missing__(self, name: str) -> NoReturn:
        """Raise, since who writes an entry states all that is asked for."""
        raise _altered(self._sequence)


def _altered(sequence: int) -> LedgerError:
    return LedgerError(
        f"entry {sequence} was altered: its body cannot be read. Run `matrixdp ledger verify`"
    )


def canonical(facts: Mapping[str, Any]) -> str:
    """Return facts as JSON whose bytes depend on the facts alone."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False)


def first_digest(ledger: str, key: str) -> str:
    """Return what the first entry of a ledger has as the digest before it.

    It ties the chain to the identity of the ledger, and to the fingerprint of its first key file.
    """
    return hashlib.sha256(f"matrixdp-ledger-1\n{ledger}\n{key}".encode()).hexdigest()


def entry_digest(fields: tuple[int | str, ...]) -> str:
    """Return the SHA-256 of an entry: of all its fields but the last, in their order."""
    return hashlib.sha256(json.dumps(fields, separators=(",", ":")).encode()).hexdigest()


def append(rows: Rows, kind: str, account: str, release: str, facts: Mapping[str, Any]) -> Entry:
    """Add an entry and return it."""
    before = head(rows)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    # A clock may be set back; the order of the entries is their sequence, and time follows it.
    time = max(now, before.time or now)
    fields = (before.sequence + 1, time, kind, account, release, canonical(facts), before.digest)
    entry = Entry(*fields, entry_digest(fields))
    rows.execute(
        "INSERT INTO entries VALUES "
        "(:sequence, :time, :kind, :account, :release, :body, :previous, :digest)",
        sequence=entry.sequence,
        time=entry.time,
        kind=entry.kind,
        account=entry.account,
        release=entry.release,
        body=entry.body,
        previous=entry.previous,
        digest=entry.digest,
    )
    rows.execute(
        "UPDATE head SET sequence = :sequence, digest = :digest WHERE one = 1",
        sequence=entry.sequence,
        digest=entry.digest,
    )
    return entry


def entries(rows: Rows) -> Iterator[Entry]:
    """Yield all entries, in their order, a thousand at a time."""
    last = 0
    while found := rows.execute(
        "SELECT * FROM entries WHERE sequence > :last ORDER BY sequence LIMIT 1000", last=last
    ):
        yield from (Entry(*row) for row in found)
        last = found[-1][0]


def latest(rows: Rows, account: str | None = None, count: int | None = None) -> list[Entry]:
    """Return the last so many entries, or all; of an account those that it pays for, too."""
    wanted, values = "", dict[str, Any]()
    if account is not None:
        # No pattern, whose signs a name may hold, and no order, which databases have of their own.
        wanted = "WHERE account = :account OR substr(account, 1, :width) = :below"
        below = f"{account}/"
        values = {"account": account, "below": below, "width": len(below)}
    if count is not None:
        values["count"] = count
    found = rows.execute(
        f"SELECT * FROM entries {wanted} ORDER BY sequence DESC "  # noqa: S608 - a constant
        + ("" if count is None else "LIMIT :count"),
        **values,
    )
    return [Entry(*row) for row in reversed(found)]


def first_of(rows: Rows, release: str) -> Entry | None:
    """Return the entry that paid for a release or run, or None if it was never paid."""
    found = rows.execute(
        "SELECT * FROM entries WHERE release = :release ORDER BY sequence LIMIT 1", release=release
    )
    return Entry(*found[0]) if found else None


def last_of(rows: Rows, release: str) -> Entry | None:
    """Return the last entry of a release or run, or None; a run has one for each of its steps."""
    found = rows.execute(
        "SELECT * FROM entries WHERE release = :release ORDER BY sequence DESC LIMIT 1",
        release=release,
    )
    return Entry(*found[0]) if found else None


def entries_of(rows: Rows, release: str) -> list[Entry]:
    """Return the entries of a release or run, in their order."""
    found = rows.execute(
        "SELECT * FROM entries WHERE release = :release ORDER BY sequence", release=release
    )
    return [Entry(*row) for row in found]


@cache
def user() -> str:
    """Return who pays, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for the number
        return "unknown"
