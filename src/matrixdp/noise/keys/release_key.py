"""Release keys: 32 secret bytes that serve one release in one process."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock
from typing import Any, NoReturn, Self

from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from matrixdp.errors import InvalidParameterError, KeyStateError, MatrixDPError
from matrixdp.noise.keys.context import NoiseContext, not_a_context
from matrixdp.noise.keys.stream import HASH, KEY_BYTES, NO_KEY, NO_STREAM, STREAM_BYTES, NoiseStream
from matrixdp.processes import current_process

__all__ = ["ReleaseKey", "checked_key"]


class ReleaseKey:
    """The secret behind the noise of one release; used once.

    Anyone who holds a key, or its stream, can subtract the noise. A key is spent by its first
    ``bind``: two values released with one key differ by exactly their difference. It can only be
    bound in the process that made it, so that a fork cannot bind it twice, and it is neither shown
    nor pickled nor copied. ``close`` (also called when the key is dropped) overwrites its bytes;
    copies that Python or the operating system made of them cannot be overwritten.

    Examples
    --------
    >>> key = ReleaseKey.generate()
    >>> key
    ReleaseKey(unbound)
    >>> stream = key.bind(NoiseContext.describe(shape=(2, 2), dtype="float64", scale=1.0))
    >>> key
    ReleaseKey(bound)
    """

    __slots__ = ("_context", "_erased", "_lock", "_process", "_secret")

    def __init__(self, secret: bytearray) -> None:
        # The argument is kept, not copied: a copy could not be erased.
        if len(secret) != KEY_BYTES:
            raise InvalidParameterError(
                f"a release key is made from {KEY_BYTES} bytes, got {len(secret)} of them"
            )
        self._secret = secret
        self._erased = False
        self._process = current_process()
        self._context: NoiseContext | None = None
        self._lock = Lock()

    @classmethod
    def generate(cls) -> Self:
        """Make a key from the operating system's entropy."""
        # A bytearray, because bytes cannot be overwritten.
        return cls(bytearray(os.urandom(KEY_BYTES)))

    @classmethod
    def from_bytes(cls, secret: bytes | bytearray) -> Self:
        """Make a key from 32 given bytes, for tests: a known key protects nothing.

        Raises
        ------
        InvalidParameterError
            If these are not exactly 32 bytes, as bytes or bytearray.
        """
        if not isinstance(secret, bytes | bytearray):
            raise InvalidParameterError(
                f"secret must be bytes or bytearray, got {type(secret).__name__}; convert it with "
                "bytes()"
            )
        return cls(bytearray(secret))

    def bind(
        self, context: NoiseContext, *, pay: Callable[[], None] | None = None
    ) -> "NoiseStream":
        """Spend the key on a context.

        Parameters
        ----------
        context : NoiseContext
            What the noise is for.
        pay : callable, optional
            Pays for the release. It is called once, and only if the key can be bound. If it raises
            a MatrixDPError, it has paid nothing and the key stays unbound. After any other
            exception, such as an interrupt, nobody knows whether it has paid, and the key is spent.

        Returns
        -------
        NoiseStream
            May be read any number of times; keep it to recompute parts of the release.

        Raises
        ------
        InvalidParameterError
            If the argument is not a context.
        KeyStateError
            If the key is bound already (to this context or another), erased, or was made in another
            process.
        """
        if not isinstance(context, NoiseContext):
            raise not_a_context(context)
        self._check_process()
        # Two threads must not both find the key unbound: they would make the same noise twice.
        with self._lock:
            self._check_unspent()
            derived = bytearray(STREAM_BYTES)
            kdf = HKDF(HASH, STREAM_BYTES, salt=None, info=context.encoded)
            kdf.derive_into(self._secret, derived)
            # Before it is paid for: a payment that is interrupted leaves no key that can release.
            self._context = context
            try:
                if pay is not None:
                    pay()
            except BaseException as error:
                derived[:] = NO_STREAM
                if isinstance(error, MatrixDPError):  # refused, and nothing was paid
                    self._context = None
                else:
                    self._erase()
                raise
            # From here on the derived keys are all that is needed.
            self._erase()
        return NoiseStream(context, derived)

    def check_unbound(self) -> None:
        """Raise KeyStateError unless the key can be bound in this process."""
        self._check_process()
        self._check_unspent()

    def _check_unspent(self) -> None:
        if self._context is not None:
            raise KeyStateError(
                "this release key is already bound to a context; a key serves one release, make "
                "another with ReleaseKey.generate(), or read the stream that bind returned"
            )
        if self._erased:
            raise KeyStateError("this release key is erased; use ReleaseKey.generate()")

    def _check_process(self) -> None:
        """Raise if the key was made in another process.

        Comes before the lock is taken: in a forked child another thread's lock is held for ever.
        """
        if self._process != current_process():
            raise KeyStateError(
                "this release key was made in another process, which may bind it too; make a key "
                "in the process that releases"
            )

    def close(self) -> None:
        """Overwrite the key; it cannot be bound any more."""
        # In a forked child the lock may be held for ever, but no other thread uses the key there.
        in_a_fork = self._process != current_process()
        with nullcontext() if in_a_fork else self._lock:
            self._erase()

    def _erase(self) -> None:
        """Mark the key as erased, then overwrite it: never the other way round."""
        self._erased = True
        self._secret[:] = NO_KEY

    def __del__(self) -> None:
        """Overwrite the key."""
        if hasattr(self, "_secret"):  # else the constructor has failed
            self._secret[:] = NO_KEY

    def __repr__(self) -> str:
        """Say whether the key is bound, never what it is."""
        if self._context is not None:
            return "ReleaseKey(bound)"
        return "ReleaseKey(erased)" if self._erased else "ReleaseKey(unbound)"

    def __reduce__(self) -> NoReturn:
        """Raise: a copy could be bound a second time."""
        raise KeyStateError("a release key is never pickled or copied; bind it where it was made")


def checked_key(key: Any) -> ReleaseKey:
    """Return the key if it is one that can be bound in this process.

    Raises
    ------
    InvalidParameterError
        If it is not a key.
    KeyStateError
        If it is spent, erased or from another process.

    Examples
    --------
    >>> checked_key(ReleaseKey.generate())
    ReleaseKey(unbound)
    """
    if not isinstance(key, ReleaseKey):
        raise InvalidParameterError(
            f"key must be a ReleaseKey, got {type(key).__name__}; make one with "
            "ReleaseKey.generate()"
        )
    key.check_unbound()
    return key
