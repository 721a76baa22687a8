"""Releases that are paid and not yet out: what the ledger keeps to finish them, and their keys."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.chain import Entry, append, canonical, first_of, last_of, user
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.schema import head
from matrixdp.ledger.stores.store import Rows

__all__ = [
    "PayingCommand",
    "Pending",
    "Standing",
    "bound_to",
    "pending_release",
    "pending_releases",
    "seal_anew",
    "standing",
    "stated_command",
    "unsealed",
]


@dataclass(frozen=True, slots=True)
class PayingCommand:
    """A call of the program ``matrixdp``.

    Attributes
    ----------
    folder : str
        The folder that it was called in: its paths are relative to it.
    arguments : tuple of str
        What follows the program's name, with ``--request`` and without the ledger's address.
    """

    folder: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Pending:
    """A release that is paid and not yet out.

    Attributes
    ----------
    release : str
        Its request.
    account : str
        Who paid.
    tag, sealed : str
        Of its value, and its key under the key file.
    draft : str
        The statement without what is only known once the file is written.
    target : str
        The file to make.
    sequence : int
        The number of the payment's entry.
    """

    release: str
    account: str
    tag: str
    sealed: str
    draft: str
    target: str
    sequence: int

    @property
    def kept_digest(self) -> str:
        """The SHA-256 of what finishes it, except for the key, which may be sealed anew.

        The payment's entry holds it. The tag tells nothing about the value, so this does not.
        """
        return hashlib.sha256(json.dumps([self.tag, self.draft]).encode()).hexdigest()

    def __repr__(self) -> str:
        """Show what is public."""
        return f"Pending(release={self.release!r}, account={self.account!r}, {self.target!r})"


@dataclass(frozen=True, slots=True)
class Standing:
    """What a ledger knows of a release at one moment.

    Attributes
    ----------
    paid, last : Entry or None
        Its first entry and its last one.
    kept : Pending or None
        What finishes it, if it is paid and not out.
    """

    paid: Entry | None
    last: Entry | None
    kept: Pending | None


def pending_release(rows: Rows, release: str) -> Pending | None:
    """Return a release that is paid and not yet out, or None."""
    found = rows.execute("SELECT * FROM pending WHERE release = :release", release=release)
    return _pending(found[0]) if found else None


def pending_releases(rows: Rows) -> list[Pending]:
    """Return all releases that are paid and not yet out, the oldest first."""
    return [_pending(row) for row in rows.execute("SELECT * FROM pending ORDER BY sequence")]


def _pending(row: tuple[Any, ...]) -> Pending:
    # A database takes any type in any column.
    if not all(isinstance(text, str) for text in row[:-1]):
        raise TypeError
    return Pending(*row)


def standing(rows: Rows, release: str) -> Standing:
    """Return what is known of a release."""
    return Standing(first_of(rows, release), last_of(rows, release), pending_release(rows, release))


def bound_to(ledger: str, kept: Pending, command: object) -> bytes:
    """Return what the sealed key of a release is bound to: all that somebody finishes it by.

    Who writes the database and has no key file can change none of it unnoticed.
    """
    bound = {
        "ledger": ledger,
        "release": kept.release,
        "account": kept.account,
        "target": kept.target,
        "kept": kept.kept_digest,
        "command": command,
    }
    return canonical(bound).encode()


def unsealed(keys: KeyFile, ledger: str, kept: Pending, paid: Entry | None) -> bytes:
    """Return the key of a release, whose first entry says what it is bound to.

    Raises
    ------
    LedgerError
        If it or that was altered.
    """
    try:
        bound = bound_to(ledger, kept, stated_command(paid))
    except TypeError:  # bytes, where there was text
        bound = b""
    return keys.unseal(kept.sealed, bound, kept.release)


def stated_command(paid: Entry | None) -> object:
    """Return the command line that an entry holds; `unsealed` says whether it is the true one."""
    return None if paid is None else paid.facts.get("command")


def seal_anew(rows: Rows, former: KeyFile | None, fresh: KeyFile, ledger: str) -> None:
    """Seal the keys of what is pending under another key file, and note that.

    Raises
    ------
    InvalidParameterError
        If something is pending, and the former key file is not there to open its key.
    """
    for one in pending_releases(rows):
        if former is None:
            raise InvalidParameterError(
                f"release={one.release!r} is pending, and only the former key file opens its key: "
                "pass that file; if it is lost, then forfeit the release"
            )
        paid = first_of(rows, one.release)
        secret = unsealed(former, ledger, one, paid)
        rows.execute(
            "UPDATE pending SET sealed = :sealed WHERE release = :release",
            sealed=fresh.seal(secret, bound_to(ledger, one, stated_command(paid))),
            release=one.release,
        )
    keys = {"former": head(rows).key, "key": fresh.fingerprint, "by": user()}
    rows.execute("UPDATE head SET key = :key", key=fresh.fingerprint)
    append(rows, "rotate", "", "", keys)
