"""Reading the first random words of consecutive elements, range after range."""

from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import CipherContext
from numpy.typing import NDArray

__all__ = ["RANGE_ELEMENTS", "WORD_BYTES", "WordReader"]

RANGE_ELEMENTS = 1 << 24
"""Elements whose first words come from one AES key."""

WORD_BYTES = 8
_ZEROS = memoryview(bytes(1 << 20))


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
        self._keystream = self._open()

    def _open(self) -> CipherContext:
        number, offset = divmod(self._position, RANGE_ELEMENTS)
        keystream = self._open_range(number, offset)
        if offset % 2:
            keystream.update(bytes(WORD_BYTES))
        return keystream

    def read_into(self, words: NDArray[np.uint64]) -> None:
        """Fill a contiguous array with the words of the next elements."""
        target = words.data.cast("B")
        while target:
            if self._position % RANGE_ELEMENTS == 0:
                self._keystream = self._open()
            left = WORD_BYTES * (RANGE_ELEMENTS - self._position % RANGE_ELEMENTS)
            size = min(len(target), left, len(_ZEROS))
            self._keystream.update_into(_ZEROS[:size], target[:size])
            self._position += size // WORD_BYTES
            target = target[size:]
