"""The files of a release that a ledger paid for, as far as they are on disk."""

from collections.abc import Iterable
from pathlib import Path

from matrixdp.errors import FileFormatError
from matrixdp.files.publishing.atomic import remove_unfinished
from matrixdp.files.publishing.lasting import digest_of
from matrixdp.files.publishing.releases import verify_release
from matrixdp.files.publishing.stated_payment import is_stated
from matrixdp.files.publishing.statement import read_schema, statement_path
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Evidence

__all__ = ["completed_digest", "discard", "verify_any"]


def completed_digest(target: Path, evidence: Evidence | None) -> str | None:
    """Return the digest of the file of a payment, if it is there, whole and proven; else None.

    The file gets its name last, so all others are there too.
    """
    if evidence is None or not target.is_file() or not is_stated(target, evidence):
        return None
    try:
        verify_any(target)
    except FileFormatError:
        return None
    return digest_of(target)


def discard(target: Path, evidence: Evidence, others: Iterable[Path] = ()) -> None:
    """Remove what a payment that was given up has left: nobody could release under its names."""
    if is_stated(target, evidence):
        if completed_digest(target, evidence) is not None:
            for path in (target, *others):
                path.unlink(missing_ok=True)
        statement_path(target).unlink(missing_ok=True)
    for path in (target, statement_path(target), *others):
        remove_unfinished(path)


def verify_any(source: Path) -> Guarantee:
    """Check a saved release of any kind, and return the guarantee that it proves.

    Raises
    ------
    FileFormatError
        If it does not prove its guarantee.
    """
    if read_schema(source).startswith("matrixdp-workload-release/"):
        # Late: workloads are slow to import.
        from matrixdp.files.publishing.workload_releases import load_workload_release  # noqa: PLC0415

        return load_workload_release(source).guarantee
    return verify_release(source)
