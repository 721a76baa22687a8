"""The coarse table: one word per segment, with which nearly every element is decided.

A compiled loop spends most of its time on loads from a table, at indices that follow no order. The
table of `table` takes three of them for an element, this one takes one. Its error is larger: some
thousandth of all elements stay undecided and are tried again with the other table. The result of a
decided element is correctly rounded with either, so that the same bits come out.

One word is enough for a quadratic polynomial, because ``w(V) = sqrt(2) * erfcinv(V)`` satisfies
``w'' = w * w'**2``: the third coefficient follows from the other two. With ``t`` as for the other
table, ``|z|`` is nearly

    c0 - ROOT_TWO q + c0 q**2,    q = a t,

for numbers ``0 <= c0 < 8`` and ``0 <= a < 1`` of the segment. Bits 62 to 11 of a word are the
fraction of the double ``8 + c0``, its ``A_BITS`` lowest bits the highest ones of the fraction of
``1 + a``, so that both numbers are found by masks and one exact subtraction each. (The two share
bits; that is taken into account when a word is made.) Bit 63 is set in the first and in the last
column only, those outside of the table: shifted arithmetically it fills the exponent, and ``c0``
is NaN.

``python -m matrixdp.noise`` proves ``COARSE_STEP_ERROR`` (see `coarse_certificate`).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.specification.table import BINADES, ONE_BITS, UNIFORM_BITS, proven_words

__all__ = [
    "A_BITS",
    "A_SHIFT",
    "C0_SHIFT",
    "COARSE_CENTRE",
    "COARSE_DECIDED_BELOW",
    "COARSE_DIGEST",
    "COARSE_FIRST_COLUMN",
    "COARSE_FRACTION_MASK",
    "COARSE_SEGMENT_BITS",
    "COARSE_STEP_ERROR",
    "DOUBLE_FRACTION",
    "EIGHT_BITS",
    "ROOT_TWO",
    "load_coarse_table",
    "unpacked",
]

COARSE_SEGMENT_BITS = 8
"""Each binade is cut into ``2**COARSE_SEGMENT_BITS`` segments of equal width."""

ROOT_TWO = float.fromhex("0x1.6a09e667f3bcdp+0")
"""The double nearest to the square root of 2."""

A_BITS = 26
"""The lowest bits of a word, which hold ``a``."""

A_SHIFT = 52 - A_BITS
"""Bits by which a word is shifted up, so that ``a`` is the fraction of a double."""

C0_SHIFT = 11
"""Bits by which a word is shifted down, so that ``c0`` is the fraction of a double."""

DOUBLE_FRACTION = (1 << 52) - 1
"""The fraction bits of a double."""

EIGHT_BITS = (1023 + 3) << 52
"""The bit pattern of 8.0."""

COARSE_FRACTION_MASK = (1 << (52 - COARSE_SEGMENT_BITS)) - 1
"""The bits of a double's fraction below those that name the segment."""

COARSE_CENTRE = 1.0 + 2.0 ** -(COARSE_SEGMENT_BITS + 1)
"""Centre of the coordinate of a segment; ``t = 1.<low bits of the fraction> - COARSE_CENTRE``."""

COARSE_FIRST_COLUMN = ((1023 + UNIFORM_BITS - BINADES) << COARSE_SEGMENT_BITS) - 1
"""``column = (bits of x >> (52 - bits)) - COARSE_FIRST_COLUMN``, negative ones taken as 0."""

COARSE_STEP_ERROR = 0x161 * 2.0**-19
"""Proved bound on the error of ``r`` with this table, in grid steps."""

COARSE_DECIDED_BELOW = 0.5 - COARSE_STEP_ERROR
"""The rounding is right wherever its distance to the integer is below this."""

COARSE_DIGEST = "7c9327152fd87f2bac8f7ab1f69664f53c8e2b03373ecc89d2b2a56989a1c171"
"""SHA-256 of the bytes of ``coarse.bin``."""


@lru_cache(maxsize=1)
def load_coarse_table() -> NDArray[np.int64]:
    """Read the shipped coarse table: one word per segment; read-only.

    Raises
    ------
    MatrixDPError
        If the file is not the proven one.

    Examples
    --------
    >>> load_coarse_table().shape
    (5890,)
    """
    return proven_words("coarse.bin", COARSE_DIGEST)


def unpacked(table: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the numbers ``c0`` and ``a`` of every column.

    Examples
    --------
    In the middle of the last segment V is nearly 1, so w nearly 0:

    >>> unpacked(load_coarse_table())[0][-2].round(4)
    np.float64(0.0012)
    """
    c0 = ((table >> C0_SHIFT) | EIGHT_BITS).view(np.float64) - 8.0
    a = (((table << A_SHIFT) & DOUBLE_FRACTION) | ONE_BITS).view(np.float64) - 1.0
    return c0, a
