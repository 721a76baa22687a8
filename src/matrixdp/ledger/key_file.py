"""The key file of a ledger: what seals the keys of releases that are paid and not yet out."""

import hashlib
import os
import secrets
import stat
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from matrixdp.errors import InvalidParameterError, LedgerError, StorageError
from matrixdp.files.publishing.atomic import force_folder

__all__ = ["KeyFile"]

_FORMAT = "matrixdp-ledger-key-1"
_BYTES = 32
_NONCE_BYTES = 12


class KeyFile:
    """A file of 32 secret bytes that only its owner may read.

    Whoever has it and the ledger can read the keys of *pending* releases, and subtract their noise.
    The keys of releases are random and never derived from it, so that published ones can be
    destroyed.

    Parameters
    ----------
    path : Path
        Of an existing file; see `create`.

    Attributes
    ----------
    fingerprint : str
        By which a ledger knows its key file.

    Raises
    ------
    InvalidParameterError
        If there is none, it is no key file, or others may read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        try:
            with self._path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                words = file.read(200).decode("ascii", "replace").split()
        except OSError as error:
            raise InvalidParameterError(
                f"keys={str(path)!r} cannot be read ({error.strerror}): name the key file that the "
                "ledger was made with, or that its keys were rotated to. If it is lost, open the "
                "ledger without it, and rotate the keys to another one"
            ) from error
        if os.name == "posix" and mode & 0o077:
            raise InvalidParameterError(
                f"keys={str(path)!r} may be read by others (mode {mode:o}): run chmod 600 on it, "
                "and rotate the key if somebody may have"
            )
        if len(words) != 2 or words[0] != _FORMAT or len(words[1]) != 2 * _BYTES:
            raise InvalidParameterError(f"keys={str(path)!r} is not a key file of a ledger")
        try:
            secret = bytes.fromhex(words[1])
        except ValueError:
            raise InvalidParameterError(
                f"keys={str(path)!r} is not a key file of a ledger"
            ) from None
        self._cipher = AESGCM(secret)
        # Of 32 random bytes: it tells two key files apart, and nothing about either.
        self.fingerprint = hashlib.sha256(b"matrixdp ledger key" + secret).hexdigest()

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._path

    @classmethod
    def create(cls, path: Path) -> "KeyFile":
        """Make a key file, which only its owner may read.

        Raises
        ------
        InvalidParameterError
            If a file of that name exists.
        StorageError
            If it cannot be written.
        """
        try:
            handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        except FileExistsError as error:
            raise InvalidParameterError(
                f"keys={str(path)!r} exists: pass it to open a ledger, or choose another name"
            ) from error
        except OSError as error:
            raise StorageError(f"keys={str(path)!r} cannot be made: {error.strerror}") from error
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(f"{_FORMAT} {secrets.token_hex(_BYTES)}\n")
            file.flush()
            os.fsync(file.fileno())
        force_folder(path.absolute().parent)
        return cls(path)

    @classmethod
    def opened_or_made(cls, path: Path) -> "KeyFile":
        """Return the key file of a name, which is made if there is none."""
        return cls(path) if path.exists() else cls.create(path)

    def seal(self, secret: bytes, bound: bytes) -> str:
        """Return a secret that is opened together with the text that it is bound to, or not."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return (nonce + self._cipher.encrypt(nonce, secret, bound)).hex()

    def unseal(self, sealed: str, bound: bytes, release: str) -> bytes:
        """Return what was sealed.

        Raises
        ------
        LedgerError
            If it was sealed by another key, or it or what it is bound to was altered.
        """
        try:
            data = bytes.fromhex(sealed)
            return self._cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], bound)
        except (InvalidTag, ValueError, TypeError) as error:
            raise LedgerError(
                f"the key of release {release!r} cannot be opened by {self._path}: pass the key "
                "file that it was paid with. If that is the right one, then somebody has altered "
                "the release in the ledger: forfeit it"
            ) from error
