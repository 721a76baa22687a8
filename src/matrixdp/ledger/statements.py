"""Statements beside releases, as witnesses of a ledger.

Each holds the digest of the entry that paid for it, and with it all entries up to there. A ledger
that was rewritten, or replaced by an older copy, does not have that entry any more.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.stated_payment import StatedPayment, file_digest, read_payment
from matrixdp.files.schemas.values import EvidenceSchema
from matrixdp.ledger.chain import Entry, last_of
from matrixdp.ledger.stores.store import Rows

__all__ = ["against_statements", "release_of"]


def release_of(path: Path) -> Path:
    """Return the file of a release, given that file or the statement beside it."""
    return path.with_suffix("") if path.suffix == ".json" else path


def against_statements(rows: Rows, ledger: str, paths: Iterable[Path]) -> list[str]:
    """Return where releases and what the ledger says of them do not agree, in words."""
    return [
        f"{path}: {finding}"
        for path in dict.fromkeys(release_of(path) for path in paths)
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
