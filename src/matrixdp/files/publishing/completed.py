"""The files of a release that a ledger paid for, as far as they are on disk."""

from collections.abc import Iterable
from pathlib import Path

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.atomic import remove, remove_unfinished
from matrixdp.files.publishing.chunked_release import verified_chunks
from matrixdp.files.publishing.lasting import digest_of
from matrixdp.files.publishing.stated_payment import is_stated
from matrixdp.files.publishing.statement import statement_path
from matrixdp.files.publishing.verification import verified_file
from matrixdp.privacy.payment import Evidence

__all__ = ["completed_digest", "discard"]


def completed_digest(target: Path, evidence: Evidence | None) -> str | None:
    """Return the digest of the file of a payment, if it is there, whole and proven; else None.

    The file gets its name last, so all others are there too.
    """
    if evidence is None or not target.exists() or not is_stated(target, evidence):
        return None
    try:
        if target.is_dir():
            verified_chunks(target)
        else:
            verified_file(target)
    except FileFormatError:
        return None
    return digest_of(target)


def discard(target: Path, evidence: Evidence, others: Iterable[Path] = ()) -> None:
    """Remove what a payment that was given up has left: nobody could release under its names."""
    if is_stated(target, evidence):
        if completed_digest(target, evidence) is not None:
            for path in (target, *others):
                remove(path)
        statement_path(target).unlink(missing_ok=True)
    for path in (target, statement_path(target), *others):
        remove_unfinished(path)
