"""The first words of many short runs of elements, such as the rows of a narrow tile.

A cipher for each run would take longer than the words. In counter mode the keystream is the
encryption of the numbers of its blocks, so one call encrypts the numbers of all of them: the same
words as `WordReader` gives.
"""

from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from matrixdp.noise.keys.stream import NO_KEY, RANGE_ELEMENTS, NoiseStream

__all__ = ["read_short_runs"]

_BLOCK_BYTES = 16


def read_short_runs(
    stream: NoiseStream, starts: NDArray[np.uint64], words: NDArray[np.uint64]
) -> None:
    """Fill each row of an array with the first words of consecutive elements.

    Parameters
    ----------
    stream : NoiseStream
        Open.
    starts : NDArray[np.uint64]
        The number of the first element of each row, ascending.
    words : NDArray[np.uint64]
        One axis more than the starts, contiguous; a row is shorter than ``RANGE_ELEMENTS``.

    Examples
    --------
    >>> from matrixdp.noise import NoiseContext, ReleaseKey
    >>> context = NoiseContext.describe(shape=(4, 5), dtype="float64", scale=1.0)
    >>> stream = ReleaseKey.from_bytes(bytes(32)).bind(context)
    >>> words = np.empty((2, 3), np.uint64)
    >>> read_short_runs(stream, np.array([1, 6], np.uint64), words)
    >>> bool((words[1] == stream.words(6, 3)).all())
    True
    """
    numbers, offsets = np.divmod(starts, np.uint64(RANGE_ELEMENTS))
    changes = (np.flatnonzero(np.diff(numbers)) + 1).tolist()
    for first, end in pairwise([0, *changes, len(starts)]):
        last = end
        # Only the last run of a range can reach into the next one.
        if int(offsets[end - 1]) + words.shape[1] > RANGE_ELEMENTS:
            last -= 1
            stream.reader(int(starts[last])).read_into(words[last])
        if first < last:
            key = stream.range_key(int(numbers[first]))
            try:
                _read_in_range(key, offsets[first:last].astype(np.int64), words[first:last])
            finally:
                key[:] = NO_KEY


def _read_in_range(key: bytearray, offsets: NDArray[np.int64], words: NDArray[np.uint64]) -> None:
    """Fill rows with the words from offsets into one range, whose key this is."""
    runs, length = words.shape
    # A block holds two words: a run that begins with a second one needs one block more.
    blocks = length // 2 + 1
    counters = np.zeros((runs, blocks, 2), dtype=">u8")
    np.add(offsets[:, None] // 2, np.arange(blocks), out=counters[:, :, 1], casting="unsafe")
    # The cipher asks for room for one block more than it fills.
    room = np.empty(2 * (runs * blocks + 1), dtype=np.uint64)
    # Every block is encrypted once, and all of them differ: this is counter mode.
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    try:
        cipher.update_into(counters.data.cast("B"), room.data.cast("B"))
        keystream = room[:-2].reshape(runs, 2 * blocks)
        odd = offsets % 2 == 1
        for chosen, skipped in ((~odd, 0), (odd, 1)):
            if chosen.all():
                words[...] = keystream[:, skipped : skipped + length]
            elif chosen.any():
                words[chosen] = keystream[chosen, skipped : skipped + length]
    finally:
        room.fill(0)
