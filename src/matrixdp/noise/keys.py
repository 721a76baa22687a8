"""Release keys and the streams of random words that are derived from them.

A key holds 32 bytes of the operating system's entropy. Binding it to a context derives, by
HKDF-SHA256 over the whole context, two keys k1 and k2, and erases the 32 bytes. The first words of
the elements are the AES-256-CTR keystream under keys that are derived from k1, one per range of
``RANGE_ELEMENTS`` elements; the further words of element i come from k2 with the counter at
``i * 2**64``. Everything is little-endian except AES's own counter.

With 2**23 blocks under one key the keystream differs from uniform bits by at most
``2**46 / 2**129`` per range (Bellare et al. 1997, the switching lemma), in sum ``2**-67`` for a
matrix of 2**40 elements.
"""

import os
import sys
from collections.abc import Callable
from contextlib import nullcontext
from threading import Lock
from types import TracebackType
from typing import Any, NoReturn, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, KeyStateError
from matrixdp.noise.context import MOST_ELEMENTS, NoiseContext
from matrixdp.noise.integers import checked_integer
from matrixdp.noise.process import current_process
from matrixdp.noise.word_reader import WORD_BYTES, WordReader

__all__ = ["NoiseStream", "ReleaseKey", "checked_key"]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("matrixdp.noise needs a little-endian machine")

_KEY_BYTES = 32
_STREAM_BYTES = 2 * _KEY_BYTES
_SECRET_BYTES = _STREAM_BYTES + SHA256.digest_size


class ReleaseKey:
    """The secret behind the noise of one release; used once.

    Whoever holds a key, or its stream, can subtract the noise. A key is spent by its first
    ``bind``: two values released with one key differ by exactly their difference. It can only be
    bound in the process that made it, so that a fork cannot bind it twice, and it is neither shown
    nor pickled nor copied. ``close`` (also called when the key is dropped) overwrites its bytes;
    copies that Python or the operating system made on the way are beyond reach.

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
        if len(secret) != _KEY_BYTES:
            raise InvalidParameterError(
                f"a release key is made from {_KEY_BYTES} bytes, got {len(secret)} of them"
            )
        self._secret = secret
        self._erased = False
        self._process = current_process()
        self._context: NoiseContext | None = None
        self._lock = Lock()

    @classmethod
    def generate(cls) -> Self:
        """Make a key from the operating system's entropy."""
        return cls(bytearray(os.urandom(_KEY_BYTES)))

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

    def bind(self, context: NoiseContext) -> "NoiseStream":
        """Spend the key on a context.

        Returns
        -------
        NoiseStream
            May be read any number of times; keep it to recompute parts of the release.

        Raises
        ------
        InvalidParameterError
            If that is no context.
        KeyStateError
            If the key is bound already (to this context or another), erased, or was made in another
            process.
        """
        _check_context(context)
        self._check_process()
        with self._lock:
            self.check_unbound()
            derived = bytearray(_STREAM_BYTES)
            kdf = HKDF(SHA256(), _STREAM_BYTES, salt=None, info=context.encode())
            kdf.derive_into(self._secret, derived)
            self._context = context
            self._erase()
        return NoiseStream(context, derived)

    def check_unbound(self) -> None:
        """Raise KeyStateError unless the key can be bound in this process."""
        self._check_process()
        if self._context is not None:
            raise KeyStateError(
                "this release key is already bound to a context; a key serves one release, make "
                "another with ReleaseKey.generate(), or read the stream that bind returned"
            )
        if self._erased:
            raise KeyStateError("this release key is erased; use ReleaseKey.generate()")

    def _check_process(self) -> None:
        """Refuse a key that was made before a fork; comes first, as a lock may be held for ever."""
        if self._process != current_process():
            raise KeyStateError(
                "this release key was made in another process, which may bind it too; make a key "
                "in the process that releases"
            )

    def close(self) -> None:
        """Overwrite the key; it cannot be bound any more."""
        in_a_fork = self._process != current_process()  # where the lock may be held for ever
        with nullcontext() if in_a_fork else self._lock:
            self._erase()

    def _erase(self) -> None:
        """Mark the key as erased, then overwrite it."""
        self._erased = True
        _overwrite(self._secret)

    def __del__(self) -> None:
        """Overwrite the key."""
        if hasattr(self, "_secret"):
            self._erase()

    def __repr__(self) -> str:
        """Say whether the key is bound, never what it is."""
        if self._context is not None:
            return "ReleaseKey(bound)"
        return "ReleaseKey(erased)" if self._erased else "ReleaseKey(unbound)"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise KeyStateError("a release key is never pickled or copied; bind it where it was made")


class NoiseStream:
    """The random words of one release, as a function of the element index alone.

    Made by ``ReleaseKey.bind``. It may be read any number of times, by any thread, in any order,
    also in a forked child, and always gives the same words: to recompute a part of the *same*
    release. It is as secret as the key. It is not pickled; to recompute elsewhere, carry
    ``export_secret()`` there on a protected way and call ``NoiseStream.from_secret``.

    Examples
    --------
    >>> context = NoiseContext.describe(shape=(2, 2), dtype="float64", scale=1.0)
    >>> with ReleaseKey.from_bytes(bytes(32)).bind(context) as stream:
    ...     whole, part = stream.words(0, 4), stream.words(3, 1)
    >>> bool(whole[3] == part[0])
    True
    """

    __slots__ = ("_closed", "_context", "_first_key", "_further_key")

    def __init__(self, context: NoiseContext, secret: bytearray) -> None:
        self._context = context
        self._closed = False
        self._first_key, self._further_key = secret[:_KEY_BYTES], secret[_KEY_BYTES:]
        _overwrite(secret)

    @property
    def context(self) -> NoiseContext:
        """What the stream is bound to; it cannot be changed."""
        return self._context

    @classmethod
    def from_secret(cls, secret: bytes, context: NoiseContext) -> Self:
        """Restore an exported stream for the context it was bound to.

        Raises
        ------
        InvalidParameterError
            If these are not the bytes of ``export_secret``, or that is no context.
        KeyStateError
            If the stream was bound to another context.
        """
        _check_context(context)
        known = isinstance(secret, bytes | bytearray)
        if not (known and len(secret) == _SECRET_BYTES):
            raise InvalidParameterError("secret must be the bytes that export_secret returned")
        if secret[_STREAM_BYTES:] != context.digest():
            raise KeyStateError("this secret belongs to a stream that is bound to another context")
        return cls(context, bytearray(secret[:_STREAM_BYTES]))

    def export_secret(self) -> bytes:
        """Return the secret of the stream, which removes the noise, and a check of its context."""
        secret = bytes(self._first_key + self._further_key)
        self._check_open()
        return secret + self.context.digest()

    def words(self, start: int, count: int) -> NDArray[np.uint64]:
        """Return the first words of the elements ``start .. start + count - 1``."""
        first, number = _checked_element(start, "start"), checked_integer(count, "count")
        if not 0 <= number <= MOST_ELEMENTS - first:
            raise InvalidParameterError(
                f"elements are numbered from 0 to 2**64 - 1, got start={first!r}, count={number!r}"
            )
        words = np.empty(number, dtype=np.uint64)
        self.reader(first).read_into(words)
        return words

    def reader(self, start: int) -> WordReader:
        """Return a reader of the first words from element ``start`` on."""
        self._check_open()
        return WordReader(self.open_range, _checked_element(start, "start"))

    def further_words(self, element: int) -> Callable[[int], int]:
        """Return the function that gives the further words 0, 1, .. of an element."""
        self._check_open()
        first_block = _checked_element(element, "element") << 64

        def further_word(number: int) -> int:
            block, half = divmod(number, 2)
            keystream = _keystream(self._further_key, first_block + block)
            self._check_open()
            words = keystream.update(bytes(2 * WORD_BYTES))
            return int.from_bytes(words[half * WORD_BYTES :][:WORD_BYTES], "little")

        return further_word

    def open_range(self, number: int, offset: int) -> CipherContext:
        """Return the keystream of a range of elements, at an even offset into it."""
        self._check_open()
        key = bytearray(_KEY_BYTES)
        kdf = HKDFExpand(SHA256(), _KEY_BYTES, b"first words" + number.to_bytes(8, "little"))
        try:
            kdf.derive_into(self._first_key, key)
            keystream = _keystream(key, offset // 2)
        finally:
            _overwrite(key)
        self._check_open()
        return keystream

    def close(self) -> None:
        """Overwrite the stream's secret; it cannot be read any more."""
        self._closed = True
        for secret in (self._first_key, self._further_key):
            _overwrite(secret)

    def _check_open(self) -> None:
        """Refuse a closed stream.

        Also called after a key was read: ``close`` marks the stream before it overwrites anything,
        so that a key cannot have been overwritten under a thread that finds the stream open
        afterwards.
        """
        if self._closed:
            raise KeyStateError("this noise stream is closed and its secret erased")

    def __enter__(self) -> Self:
        """Return the stream itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the stream."""
        self.close()

    def __del__(self) -> None:
        """Overwrite the secret."""
        if hasattr(self, "_further_key"):
            self.close()

    def __repr__(self) -> str:
        """Show the context, which is public."""
        return f"NoiseStream({self.context!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied."""
        raise KeyStateError(
            "a noise stream is not pickled or copied by accident; see export_secret and from_secret"
        )


def _keystream(key: bytes | bytearray, counter: int) -> CipherContext:
    """AES-256-CTR from a 128-bit block counter on."""
    return Cipher(algorithms.AES(key), modes.CTR(counter.to_bytes(16, "big"))).encryptor()


def checked_key(key: Any) -> ReleaseKey:
    """Return the key if it is one that can be bound in this process.

    Raises
    ------
    InvalidParameterError
        If it is no key.
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


def _check_context(context: Any) -> None:
    """Refuse what is no context."""
    if not isinstance(context, NoiseContext):
        raise InvalidParameterError(
            f"context must be a NoiseContext, got {type(context).__name__}; make one with "
            "NoiseContext.describe(...)"
        )


def _checked_element(number: int, name: str) -> int:
    """Return the number of an element as a Python integer, if it can be one."""
    element = checked_integer(number, name)
    if not 0 <= element < MOST_ELEMENTS:
        raise InvalidParameterError(
            f"elements are numbered from 0 to 2**64 - 1, got {name}={element!r}"
        )
    return element


def _overwrite(secret: bytearray) -> None:
    """Overwrite with zeros, in place: never resized, which fails while another thread reads it."""
    secret[:] = bytes(len(secret))
