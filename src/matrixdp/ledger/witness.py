"""Witnesses of a ledger: what its clients have seen of it, and the statements beside releases.

Whoever can change a ledger can also change the whole chain, or put back a copy of last month. Every
client therefore keeps the last entry that it saw, its high-water mark, beside its key file. And
each statement holds the digest of the entry that paid for its release, and with it all entries up
to there: a ledger that was rewritten, or replaced by an older copy, does not have that entry.
"""

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from matrixdp.errors import FileFormatError, LedgerError
from matrixdp.files.publishing.locks import locked
from matrixdp.files.publishing.stated_payment import StatedPayment, file_digest, read_payment
from matrixdp.files.schemas.values import EvidenceSchema
from matrixdp.ledger.chain import Entry, last_of
from matrixdp.ledger.schema import Head
from matrixdp.ledger.stores.store import Rows

__all__ = ["HighWaterMark", "Mark", "against_statements"]

# Disks write so many bytes as one, so a power cut leaves a mark or the one before it.
_SECTOR = 512


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the file: the last entry that was seen of a ledger.

    Attributes
    ----------
    offset : int
        Where the line begins.
    sequence, digest : int, str
        Of the entry.
    ledger, address : str
        The identity of the ledger, and where it was.
    """

    offset: int
    sequence: int
    digest: str
    ledger: str
    address: str


class HighWaterMark:
    """The last entry of a ledger that the clients of one key file have seen, at each address.

    Parameters
    ----------
    path : Path
        A file with a line for each address, made when something is seen. Lines are overwritten in
        place: a new file for each payment would double what a payment writes to the disk.
    address : str
        Of the ledger.
    """

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        self._address = address

    def seen(self) -> list[Mark]:
        """Return what was seen up to now, at all addresses."""
        try:
            with self._path.open("rb") as file, locked(file):
                return _marks(file)
        except FileNotFoundError:
            return []
        except (ValueError, OSError) as error:
            raise FileFormatError(
                f"{self._path} is not a file of high-water marks: remove it after you have "
                "verified the ledger"
            ) from error

    def check(self, seen: Sequence[Mark], rows: Rows, head: Head) -> None:
        """Raise unless the rows hold all that was seen before they were looked at.

        Raises
        ------
        LedgerError
            If they are an older copy, another ledger, or were altered.
        """
        for mark in seen:
            if mark.ledger == head.ledger:
                self._check_held(mark, rows, head)
            elif mark.address == self._address:
                raise LedgerError(
                    f"{self._address} holds another ledger than before: {head.ledger} instead of "
                    f"{mark.ledger}. Nothing was paid. Bring the former one back; if the change is "
                    f"meant, remove {self._path}"
                )

    def _check_held(self, mark: Mark, rows: Rows, head: Head) -> None:
        if head.sequence < mark.sequence:
            raise LedgerError(
                f"{self._address} has {head.sequence} entries, and {mark.sequence} were seen: it "
                "is an older copy, which has forgotten payments. Nothing was paid. Bring the newer "
                f"one back; docs/ledger.md says what to do if it is lost"
            )
        found = rows.execute(
            "SELECT digest FROM entries WHERE sequence = :sequence", sequence=mark.sequence
        )
        if mark.sequence > 0 and found != [(mark.digest,)]:
            raise LedgerError(
                f"{self._address} was altered: entry {mark.sequence} is not the one that was "
                "seen. Nothing was paid. Run `matrixdp ledger verify`"
            )

    def advance(self, head: Head) -> None:
        """Remember an entry, unless a later one is known; warn if that is impossible."""
        try:
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(handle, "r+b", buffering=0) as file, locked(file):
                here = [mark for mark in _marks(file) if mark.address == self._address]
                if not here:
                    offset = file.seek(0, os.SEEK_END)
                elif here[0].sequence < head.sequence:
                    offset = here[0].offset
                else:
                    return
                # Not forced to the disk: a mark that a power cut takes back is only an older one.
                file.seek(offset)
                file.write(self._line(head))
        except (OSError, ValueError) as error:
            # The payment stands: a release that is not made because of this would be lost.
            reason = error.strerror if isinstance(error, OSError) else "it is damaged"
            warnings.warn(
                f"{self._path} cannot be written ({reason}): an older copy of the ledger would not "
                "be noticed",
                RuntimeWarning,
                stacklevel=2,
            )

    def _line(self, head: Head) -> bytes:
        """Return a line that is as long for every entry of a ledger, in whole sectors."""
        address = json.dumps(self._address)
        text = f"{head.sequence:020} {head.digest} {head.ledger} {address}".encode()
        return text.ljust(-(-(len(text) + 1) // _SECTOR) * _SECTOR - 1) + b"\n"


def _marks(file: BinaryIO) -> list[Mark]:
    offset, marks = 0, []
    for line in file.read().splitlines(keepends=True):
        sequence, digest, ledger, address = line.decode().strip().split(maxsplit=3)
        marks.append(Mark(offset, int(sequence), digest, ledger, json.loads(address)))
        offset += len(line)
    return marks


def _release_of(path: Path) -> Path:
    """Return the file of a release, given that file or the statement beside it."""
    return path.with_suffix("") if path.suffix == ".json" else path


def against_statements(rows: Rows, ledger: str, paths: Iterable[Path]) -> list[str]:
    """Return where releases and what the ledger says of them do not agree, in words."""
    return [
        f"{path}: {finding}"
        for path in dict.fromkeys(_release_of(path) for path in paths)
        for finding in _findings(rows, ledger, path)
    ]


def _findings(rows: Rows, ledger: str, path: Path) -> Iterator[str]:
    try:
        stated, digest = read_payment(path), file_digest(path)
    except FileFormatError as error:
        yield str(error)
        return
    evidence = stated.payment
    if evidence is None:
        yield "its statement names no payment: no ledger paid for it"
    elif evidence.ledger != ledger:
        yield f"ledger {evidence.ledger} paid for it, and this is ledger {ledger}"
    else:
        found = rows.execute(
            "SELECT * FROM entries WHERE sequence = :sequence", sequence=evidence.sequence
        )
        if found:
            yield from _compared(rows, Entry(*found[0]), evidence, stated, digest)
        else:
            yield (
                f"entry {evidence.sequence}, which paid for it, is missing: the ledger is an older "
                "copy, which has forgotten payments"
            )


def _compared(
    rows: Rows, entry: Entry, evidence: EvidenceSchema, stated: StatedPayment, digest: str
) -> Iterator[str]:
    named = (evidence.digest, evidence.account, "pay")
    if (entry.digest, entry.account, entry.kind) != named:
        yield (
            f"entry {entry.sequence} is not the one that paid for it: the ledger was altered, or "
            "is an older copy that went on by itself"
        )
        return
    if digest != stated.file.sha256:
        yield "it is not the file that its statement describes: its digest differs"
    if not stated.guarantee.mu <= entry.facts["mu"]:
        yield (
            f"its statement has mu={stated.guarantee.mu!r}, and mu={entry.facts['mu']!r} was paid"
        )
    last = last_of(rows, entry.release) or entry
    match last.kind:
        case "publish" if last.facts["sha256"] != digest:
            yield f"entry {last.sequence} published another file in its place: its digest differs"
        case "pay":
            yield (
                f"it is there, and the ledger does not know yet: `matrixdp ledger finish "
                f"{entry.release}` tells it"
            )
        case "forfeit":
            yield f"entry {last.sequence} gave it up, and yet it is there"
