"""Noise streams: the random words of a release, derived from its key.

A key holds 32 bytes of the operating system's entropy. Binding it to a context derives two keys k1
and k2, by HKDF-SHA256 over the whole context, and erases the 32 bytes. The first words of the
elements are the AES-256-CTR keystream under keys derived from k1, one for each range of
``RANGE_ELEMENTS`` elements. The further words of element i come from k2 with the counter at
``i * 2**64``. Everything is little-endian except AES's own counter.

With 2**23 blocks under one key, the keystream differs from uniform bits by at most
``2**46 / 2**129`` per range (Bellare et al. 1997, the switching lemma). That is ``2**-67`` in total
for a matrix of 2**40 elements.
"""

import sys
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, KeyStateError
from matrixdp.noise.keys.context import MOST_ELEMENTS, NoiseContext, not_a_context
from matrixdp.parameters import checked_integer

__all__ = [
    "HASH",
    "KEY_BYTES",
    "NO_KEY",
    "NO_STREAM",
    "RANGE_ELEMENTS",
    "STREAM_BYTES",
    "NoiseStream",
    "WordReader",
]

# Words are read into numpy arrays as they come from the cipher, which fixes their byte order.
if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("matrixdp.noise needs a little-endian machine")

HASH = SHA256()
"""What keys are derived by."""

KEY_BYTES = 32
"""The length of a release key, and of each key derived from it."""

NO_KEY = bytes(KEY_BYTES)
"""What a key is overwritten with, in place: never resized, which fails while a thread reads it."""

STREAM_BYTES = 2 * KEY_BYTES
"""The length of a stream's secret: k1, then k2."""

NO_STREAM = bytes(STREAM_BYTES)
"""What a stream's secret is overwritten with."""

RANGE_ELEMENTS = 1 << 24
"""Elements whose first words come from one AES key."""

_SECRET_BYTES = STREAM_BYTES + SHA256.digest_size
_WORD_BYTES = 8
# The keystream is the encryption of zeros. 1 MiB at a time keeps the buffer in the cache.
_ZEROS = memoryview(bytes(1 << 20))
# Where nearly every keystream begins.
_FROM_THE_START = modes.CTR(bytes(16))


class WordReader:
    """Reads the first words of consecutive elements.

    Parameters
    ----------
    open_range : callable
        Returns the keystream of a range of elements, by its number, at an even offset into it.
    start : int
        The first element.
    """

    def __init__(self, open_range: Callable[[int, int], CipherContext], start: int) -> None:
        self._open_range = open_range
        self._position = start
        self._keystream, self._left = self._open()

    def _open(self) -> tuple[CipherContext, int]:
        """Return the keystream from the next element on, and for how many bytes its key serves."""
        number, offset = divmod(self._position, RANGE_ELEMENTS)
        keystream = self._open_range(number, offset)
        if offset % 2:  # an AES block holds two words: skip the first of them
            keystream.update(bytes(_WORD_BYTES))
        return keystream, _WORD_BYTES * (RANGE_ELEMENTS - offset)

    def read_into(self, words: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with the words of the next elements."""
        target = words.data.cast("B")
        while target:
            if self._left == 0:
                self._keystream, self._left = self._open()
            size = min(len(target), self._left, len(_ZEROS))
            self._keystream.update_into(_ZEROS[:size], target[:size])
            self._position += size // _WORD_BYTES
            self._left -= size
            target = target[size:]


class NoiseStream:
    """The random words of one release, as a function of the element index alone.

    Made by ``ReleaseKey.bind``. It may be read any number of times, by any thread, in any order,
    also in a forked child, and always gives the same words: to recompute a part of the *same*
    release. It is as secret as the key. It is not pickled; to recompute elsewhere, carry
    ``export_secret()`` there by a protected channel and call ``NoiseStream.from_secret``.

    Examples
    --------
    >>> from matrixdp.noise import ReleaseKey
    >>> context = NoiseContext.describe(shape=(2, 2), dtype="float64", scale=1.0)
    >>> with ReleaseKey.from_bytes(bytes(32)).bind(context) as stream:
    ...     whole, part = stream.words(0, 4), stream.words(3, 1)
    >>> bool(whole[3] == part[0])
    True
    """

    __slots__ = ("_closed", "_context", "_erased", "_first_key", "_further_key")

    def __init__(self, context: NoiseContext, secret: bytearray) -> None:
        self._context = context
        self._closed = False
        # Slices of a bytearray are copies, so the argument can be overwritten.
        self._first_key, self._further_key = secret[:KEY_BYTES], secret[KEY_BYTES:]
        self._erased = False
        secret[:] = NO_STREAM

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
            If these are not the bytes of ``export_secret``, or the context is not one.
        KeyStateError
            If the stream was bound to another context.
        """
        if not isinstance(context, NoiseContext):
            raise not_a_context(context)
        known = isinstance(secret, bytes | bytearray)
        if not (known and len(secret) == _SECRET_BYTES):
            raise InvalidParameterError("secret must be the bytes that export_secret returned")
        # The digest is public, so it need not be compared in constant time.
        if secret[STREAM_BYTES:] != context.digest():
            raise KeyStateError("this secret belongs to a stream that is bound to another context")
        return cls(context, bytearray(secret[:STREAM_BYTES]))

    def export_secret(self) -> bytes:
        """Return the secret of the stream, which removes the noise, and a check of its context."""
        # Copied before the check, not after it: see `_check_open`.
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

    def first_words(self, words: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with the words of the elements 0 and on: at most 2**17 of them.

        What `reader` gives, for arrays so small that its calls would take as long as the cipher.
        """
        self.open_range(0, 0).update_into(_ZEROS[: words.nbytes], words.data.cast("B"))

    def reader(self, start: int) -> WordReader:
        """Return a reader of the first words from element ``start`` on."""
        self._check_open()
        return WordReader(self.open_range, _checked_element(start, "start"))

    def further_words(self, element: int) -> Callable[[int], int]:
        """Return the function that gives the further words 0, 1, .. of an element."""
        self._check_open()
        # Each element has 2**64 blocks of its own under k2, so that no two share a word.
        first_block = _checked_element(element, "element") << 64

        def further_word(number: int) -> int:
            block, half = divmod(number, 2)
            # A cipher for each word: this is needed for one element in a million.
            keystream = _keystream(self._further_key, first_block + block)
            self._check_open()
            words = keystream.update(bytes(2 * _WORD_BYTES))
            return int.from_bytes(words[half * _WORD_BYTES :][:_WORD_BYTES], "little")

        return further_word

    def open_range(self, number: int, offset: int) -> CipherContext:
        """Return the keystream of a range of elements, at an even offset into it."""
        key = self.range_key(number)
        try:
            keystream = _keystream(key, offset // 2)
        finally:
            key[:] = NO_KEY
        self._check_open()
        return keystream

    def range_key(self, number: int) -> bytearray:
        """Return the AES key of a range of elements, to be overwritten."""
        self._check_open()
        key = bytearray(KEY_BYTES)
        kdf = HKDFExpand(HASH, KEY_BYTES, b"first words" + number.to_bytes(8, "little"))
        kdf.derive_into(self._first_key, key)
        self._check_open()
        return key

    def further_key(self) -> bytearray:
        """Return the AES key of all further words, to be overwritten."""
        key = bytearray(self._further_key)
        self._check_open()
        return key

    def close(self) -> None:
        """Overwrite the stream's secret; it cannot be read any more."""
        # Marked first: see `_check_open`.
        self._closed = True
        self._first_key[:] = self._further_key[:] = NO_KEY
        # Last, so that an interrupted close is made up for when the stream is dropped.
        self._erased = True

    def _check_open(self) -> None:
        """Raise if the stream is closed.

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
        # Without the attribute, the constructor has failed.
        if not getattr(self, "_erased", True):
            self.close()

    def __repr__(self) -> str:
        """Show the context, which is public."""
        return f"NoiseStream({self.context!r})"

    def __reduce__(self) -> NoReturn:
        """Raise: a stream is a secret, to be exported on purpose only."""
        raise KeyStateError(
            "a noise stream is not pickled or copied by accident; see export_secret and from_secret"
        )


def _keystream(key: bytes | bytearray, counter: int) -> CipherContext:
    """AES-256-CTR from a 128-bit block counter on."""
    # Counter mode can start at any block, so that elements do not depend on an order.
    mode = modes.CTR(counter.to_bytes(16, "big")) if counter else _FROM_THE_START
    return Cipher(algorithms.AES(key), mode).encryptor()


def _checked_element(number: int, name: str) -> int:
    """Return the number of an element as a Python integer, if it can be one."""
    element = checked_integer(number, name)
    if not 0 <= element < MOST_ELEMENTS:
        raise InvalidParameterError(
            f"elements are numbered from 0 to 2**64 - 1, got {name}={element!r}"
        )
    return element
