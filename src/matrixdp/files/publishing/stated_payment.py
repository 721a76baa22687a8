"""Statements of releases of every kind, as far as they say who paid."""

import hashlib
from pathlib import Path

import msgspec

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.formats.chunk_folders import folder_digest
from matrixdp.files.formats.opening import opened
from matrixdp.files.publishing.statement import statement_path
from matrixdp.files.schemas.values import EvidenceSchema, stated_evidence
from matrixdp.privacy.payment import Evidence

__all__ = ["StatedPayment", "file_digest", "is_stated", "read_payment"]


class _Cost(msgspec.Struct, frozen=True):
    mu: float


class _File(msgspec.Struct, frozen=True):
    sha256: str


# Unlike other schemas this one ignores fields that it does not know.
class StatedPayment(msgspec.Struct, frozen=True):
    """The part of a statement that a ledger can be compared with."""

    guarantee: _Cost
    file: _File
    payment: EvidenceSchema | None = None


class _Paid(msgspec.Struct):
    """The one field that says who paid, whatever else a statement holds."""

    payment: EvidenceSchema | None = None


def is_stated(target: Path, evidence: Evidence) -> bool:
    """Return whether the statement beside a target is the one of a payment."""
    try:
        with opened(statement_path(target)) as file:
            stated = msgspec.json.decode(file.read(), type=_Paid).payment
    except (FileFormatError, InvalidParameterError, msgspec.DecodeError):
        return False
    return stated == stated_evidence(evidence)


def read_payment(source: Path) -> StatedPayment:
    """Read who paid for a release from the statement beside it.

    Raises
    ------
    FileFormatError
        If the statement is missing, or is not of a release.
    """
    beside = statement_path(source)
    with opened(beside) as file:
        data = file.read()
    try:
        return msgspec.json.decode(data, type=StatedPayment)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFormatError(f"{beside} is not a statement of a release: {error}") from error


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file, or the digest of a folder of chunks."""
    if path.is_dir():
        return folder_digest(path)
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
