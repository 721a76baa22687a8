"""Files of releases that a ledger keeps: whichever attempt comes first, the same ones.

The bits of a release are a function of its key. So an attempt leaves what is there already as it
is, undoes nothing when it fails, and any number of attempts may run at once.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from matrixdp.errors import InvalidParameterError, StorageError
from matrixdp.files.formats.chunk_folders import folder_digest
from matrixdp.files.publishing.atomic import write_all
from matrixdp.files.publishing.locks import folder_locked
from matrixdp.files.publishing.stated_payment import is_stated
from matrixdp.files.publishing.statement import statement_path
from matrixdp.privacy.payment import Payment

__all__ = ["digest_of", "write_paid"]

Contents = Sequence[tuple[Path, bytes | Path]]


def write_paid(contents: Contents, payment: Payment | None, *, force: bool) -> None:
    """Make the files of a release appear, as `write_all` does, or as an earlier attempt has done.

    Parameters
    ----------
    contents : sequence of (path, content)
        The statement first; last the file that it describes.
    payment : Payment or None
        What paid. Unless that lasts, there was no earlier attempt.
    force : bool
        Whether existing files are replaced.
    """
    if payment is None or payment.evidence is None:
        write_all(contents, force=force, release=True)
        return
    # Alone: another release that is forced to the same names must not come between.
    with folder_locked(contents[-1][0].parent):
        # First of all: who has given the release up has removed what has no name yet.
        digests = [digest_of(content) for _, content in contents]
        target = contents[-1][0]
        # An earlier attempt's statement may be of another day.
        replaced = {statement_path(target)} if is_stated(target, payment.evidence) else set()
        for (path, content), wanted in zip(contents, digests, strict=True):
            forced = force or path in replaced
            _write_one(path, content, wanted, force=forced, release=path == target)


def _write_one(
    path: Path, content: bytes | Path, wanted: str, *, force: bool, release: bool
) -> None:
    if _holds(path, wanted):
        return
    try:
        write_all([(path, content)], force=force, release=release)
    except InvalidParameterError:
        # Made between the two lines above by another attempt.
        if not _holds(path, wanted):
            raise


def digest_of(content: bytes | Path) -> str:
    """Return the SHA-256 of a content or of a file, or the digest of a folder of chunks."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    if content.is_dir():
        return folder_digest(content)
    try:
        with content.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"{content} cannot be read: {error.strerror}") from error


def _holds(path: Path, digest: str) -> bool:
    return path.is_file() and digest_of(path) == digest
