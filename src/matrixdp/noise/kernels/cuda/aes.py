"""AES-256 as a GPU kernel computes it: its table, and its key schedule (FIPS 197).

One table combines the S-box with the mixing of columns; the other three are its rotations. The key
schedule is expanded on the processor, so that a GPU holds it as an argument of a kernel only.
"""

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["SCHEDULE_WORDS", "key_schedule", "round_table"]

SCHEDULE_WORDS: Final = 60
"""Words of the schedule of a key of 256 bits: four before each of 14 rounds, and four after."""

_KEY_WORDS = 8
_POLYNOMIAL = 0x11B


def _doubled(byte: int) -> int:
    """Return twice an element of the field of 256."""
    return (byte << 1) ^ (_POLYNOMIAL if byte & 0x80 else 0)


@lru_cache(maxsize=1)
def _substitutions() -> bytes:
    """Return the S-box: the inverse in the field of 256, then an affine map over its bits."""
    # Powers of 3, which generates the field: the inverse of 3**k is 3**(255 - k).
    powers = [1]
    for _ in range(254):
        powers.append(powers[-1] ^ _doubled(powers[-1]))
    box = [0] * 256
    for k, element in enumerate(powers):
        box[element] = powers[-k]
    for element, inverse in enumerate(box):
        turned = [(inverse << n | inverse >> (8 - n)) & 0xFF for n in range(5)]
        box[element] = turned[0] ^ turned[1] ^ turned[2] ^ turned[3] ^ turned[4] ^ 0x63
    return bytes(box)


@lru_cache(maxsize=1)
def round_table() -> NDArray[np.uint32]:
    """Return the first table of a round: from the highest byte down 2 S, S, S and 3 S.

    Examples
    --------
    >>> hex(round_table()[0])
    '0xc66363a5'
    """
    entries = []
    for byte in _substitutions():
        double = _doubled(byte)
        entries.append(double << 24 | byte << 16 | byte << 8 | double ^ byte)
    return np.array(entries, dtype=np.uint32)


def key_schedule(key: bytes | bytearray) -> NDArray[np.uint32]:
    """Return the words of the key schedule; those of the last round with their bytes reversed.

    The last round has no table, and its bytes are written in the order of memory.

    Examples
    --------
    The first and the last word of the example of FIPS 197, appendix A.3:

    >>> key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    >>> words = key_schedule(key)
    >>> hex(words[0]), hex(words[-1].byteswap())
    ('0x603deb10', '0x706c631e')
    """
    box = _substitutions()
    words = [int.from_bytes(key[4 * k : 4 * k + 4], "big") for k in range(_KEY_WORDS)]
    constant = 1
    for k in range(_KEY_WORDS, SCHEDULE_WORDS):
        word = words[-1]
        if k % _KEY_WORDS == 0:
            word = (word << 8 | word >> 24) & 0xFFFFFFFF
        if k % 4 == 0:
            word = int.from_bytes(word.to_bytes(4, "big").translate(box), "big")
        if k % _KEY_WORDS == 0:
            word ^= constant << 24
            constant = _doubled(constant)
        words.append(words[k - _KEY_WORDS] ^ word)
    schedule = np.array(words, dtype=np.uint32)
    schedule[-4:].byteswap(inplace=True)
    return schedule
