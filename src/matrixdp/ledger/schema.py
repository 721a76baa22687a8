"""The tables of a ledger, the same for every database; rationals are text, ``n/d``."""

from dataclasses import dataclass

from matrixdp.errors import LedgerError
from matrixdp.ledger.stores.store import Rows

__all__ = ["VERSION", "Head", "check_version", "head", "make_tables"]

VERSION = 1

_TABLES = (
    # One row, which every writer locks first.
    """CREATE TABLE head (
        one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, ledger TEXT NOT NULL,
        key TEXT NOT NULL, sequence BIGINT NOT NULL, digest TEXT NOT NULL)""",
    """CREATE TABLE accounts (
        name TEXT PRIMARY KEY, parent TEXT REFERENCES accounts, terms TEXT NOT NULL,
        mu2_limit TEXT NOT NULL, delta_limit TEXT NOT NULL,
        mu2_spent TEXT NOT NULL, delta_spent TEXT NOT NULL)""",
    # Plans that were declared when the account was opened.
    """CREATE TABLE slots (
        account TEXT NOT NULL REFERENCES accounts, number INTEGER NOT NULL, plan TEXT NOT NULL,
        used_by TEXT, PRIMARY KEY (account, number))""",
    # Append only.
    """CREATE TABLE entries (
        sequence BIGINT PRIMARY KEY, time TEXT NOT NULL, kind TEXT NOT NULL, account TEXT NOT NULL,
        release TEXT NOT NULL, body TEXT NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)""",
    "CREATE INDEX entries_of_release ON entries (release, sequence)",
    # Paid and not yet out; deleted by publishing and by forfeiting.
    """CREATE TABLE pending (
        release TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES accounts, tag TEXT NOT NULL,
        sealed TEXT NOT NULL, draft TEXT NOT NULL, target TEXT NOT NULL,
        sequence BIGINT NOT NULL)""",
    """CREATE TABLE runs (
        run TEXT PRIMARY KEY, account TEXT NOT NULL REFERENCES accounts, plan TEXT NOT NULL,
        mode TEXT NOT NULL, steps BIGINT NOT NULL, spent BIGINT NOT NULL)""",
)


@dataclass(frozen=True, slots=True)
class Head:
    """What a ledger says of itself.

    Attributes
    ----------
    version : int
        Of the tables.
    ledger, key : str
        The identity of the ledger, and the fingerprint of its key file.
    sequence, digest : int, str
        Of the last entry.
    time : str or None
        Of the last entry; None if there is none.
    """

    version: int
    ledger: str
    key: str
    sequence: int
    digest: str
    time: str | None


def head(rows: Rows) -> Head:
    """Return what a ledger says of itself.

    Raises
    ------
    LedgerError
        If it says nothing.
    """
    found = rows.execute(
        "SELECT version, ledger, key, head.sequence, head.digest, entries.time FROM head "
        "LEFT JOIN entries ON entries.sequence = head.sequence"
    )
    if len(found) != 1:
        raise LedgerError(
            "the ledger was altered: its table `head` must have one row. Nothing was paid. Bring a "
            "backup back; docs/ledger.md says how"
        )
    return Head(*found[0])


def make_tables(rows: Rows, ledger: str, key: str, digest: str) -> None:
    """Make the tables of a new ledger, with the fingerprint of its key file."""
    for statement in _TABLES:
        rows.execute(statement)
    rows.execute(
        "INSERT INTO head VALUES (1, :version, :ledger, :key, 0, :digest)",
        version=VERSION,
        ledger=ledger,
        key=key,
        digest=digest,
    )


def check_version(version: int, address: str) -> None:
    """Raise if the tables are those of another version."""
    if version != VERSION:
        raise LedgerError(
            f"the ledger {address} has tables of version {version}, and this matrixdp knows "
            f"version {VERSION}: use the matrixdp that it was made with"
        )
