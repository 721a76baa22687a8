"""Secrets on their way to workers: sealed in the graph, opened where the data is.

Scheduler, dashboards and logs see what is sealed. What opens it is a key file that client and
workers read, and that is never sent.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from distributed import Client

from matrixdp.errors import InvalidParameterError, KeyStateError, MatrixDPError
from matrixdp.ledger.key_file import KeyFile

__all__ = ["SealedSecret", "check_workers", "key_file_for", "memory_folder"]

# Files of some systems in memory, which never reach a disk.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a private folder is made there


@dataclass(frozen=True, slots=True)
class SealedSecret:
    """A secret that only who reads a key file can open; it may be shown and sent anywhere.

    Attributes
    ----------
    sealed : str
        By AES-256-GCM.
    bound : bytes
        What it is for: opened for anything else, it is refused.
    path : str
        The key file, which has the same name everywhere.
    """

    sealed: str
    bound: bytes
    path: str

    @classmethod
    def of(cls, secret: bytes, bound: bytes, keys: KeyFile) -> "SealedSecret":
        """Seal a secret."""
        return cls(keys.seal(secret, bound), bound, str(keys.path))

    def opened(self) -> bytes:
        """Return the secret.

        Raises
        ------
        KeyStateError
            If the key file cannot be read here, or is another one.
        """
        try:
            return KeyFile(Path(self.path)).unseal(self.sealed, self.bound, "of a worker")
        except MatrixDPError:
            raise _unreadable(self.path) from None


def memory_folder() -> Path | None:
    """Return where this machine has files in memory alone, or None if it has no such place."""
    return _MEMORY if _MEMORY.is_dir() else None


@contextmanager
def key_file_for(path: str | Path | None) -> Iterator[KeyFile]:
    """Yield a key file that workers can read: the one of a name, or one for this machine alone.

    A named one is made if there is none. The other one lasts as long as the block.
    """
    if path is not None:
        yield KeyFile.opened_or_made(Path(path))
        return
    folder = Path(tempfile.mkdtemp(dir=memory_folder()))
    try:
        yield KeyFile.create(folder / "keys")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check_workers(client: Client | None, keys: KeyFile) -> None:
    """Raise unless every worker that is there reads the same key file; before anything is paid.

    Raises
    ------
    InvalidParameterError
        If one of them does not.
    """
    if client is None:
        return
    found = client.run(_fingerprint, str(keys.path))
    if any(each != keys.fingerprint for each in found.values()):
        raise InvalidParameterError(str(_unreadable(str(keys.path))))


def _fingerprint(path: str) -> str | None:
    try:
        return KeyFile(Path(path)).fingerprint
    except MatrixDPError:
        return None


def _unreadable(path: str) -> KeyStateError:
    return KeyStateError(
        f"keys={path!r} cannot be read by a worker, or is another file there: mount one key file "
        "under the same name on all machines, readable by its owner alone (chmod 600), and pass "
        "keys=..."
    )
