"""The coarse table: one word per segment, with which nearly every element is decided.

A compiled loop spends most of its time on loads from the table that follow no order. The table of
`table` takes three of them for each element. Here one word holds a quadratic polynomial, whose
error is larger: some three elements in a thousand stay undecided and are tried again with the other
table. As with that one, the result of a decided element is correctly rounded, so that the same bits
come out.

The table covers the ``COARSE_BINADES`` highest binades of V, where ``|z| < 4``, each cut into
``2**COARSE_SEGMENT_BITS`` segments. A word holds the fractions of three numbers in [0, 1):

- its bits 62 to 11 are the 52 bits of ``a0``,
- its bits 29 to 0 are the 30 bits of ``a1``, of which the highest are also the lowest of ``a0``,
- its bits 8 to 0 are the 9 bits of ``a2``, which are also the lowest of ``a1``.

A fraction below the exponent of 1.0 is a double in [1, 2), so that taking 1 away gives each number
without rounding. With ``t`` as for the other table, ``|z|`` is nearly ``4 a0 - a1 t + a2 t**2 / 4``;
kernels compute ``a0 + (t/4) (a2 (t/4) - a1)`` and scale four times as much. Bit 63 is set in the
first and in the last column only, those outside the table: shifted arithmetically it fills the
exponent of ``a0``, which becomes NaN.

``python -m matrixdp.noise`` proves ``COARSE_STEP_ERROR`` (see `coarse_certificate`).
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.specification.table import ONE_BITS, UNIFORM_BITS, proven_words

__all__ = [
    "A0_SHIFT",
    "A1_BITS",
    "A1_SHIFT",
    "A2_BITS",
    "A2_SHIFT",
    "COARSE_BINADES",
    "COARSE_CENTRE",
    "COARSE_DECIDED_BELOW",
    "COARSE_DIGEST",
    "COARSE_FIRST_COLUMN",
    "COARSE_FRACTION_MASK",
    "COARSE_SEGMENT_BITS",
    "COARSE_STEP_ERROR",
    "DOUBLE_FRACTION",
    "QUARTER_BITS",
    "coarse_coefficients",
    "load_coarse_table",
]

COARSE_BINADES = 13
"""The table knows the uniforms V with ``2**-COARSE_BINADES <= V < 1``."""

COARSE_SEGMENT_BITS = 9
"""Each binade is cut into ``2**COARSE_SEGMENT_BITS`` segments of equal width."""

A1_BITS = 30
"""The lowest bits of a word, which hold ``a1``."""

A2_BITS = 9
"""The lowest bits of a word, which hold ``a2``."""

A0_SHIFT = 11
"""Bits by which a word is shifted down, so that ``a0`` is the fraction of a double."""

A1_SHIFT = 52 - A1_BITS
"""Bits by which a word is shifted up, so that ``a1`` is the fraction of a double."""

A2_SHIFT = 52 - A2_BITS
"""Bits by which a word is shifted up, so that ``a2`` is the fraction of a double."""

DOUBLE_FRACTION = (1 << 52) - 1
"""The fraction bits of a double."""

QUARTER_BITS = (1023 - 2) << 52
"""The bit pattern of 0.25."""

COARSE_FRACTION_MASK = (1 << (52 - COARSE_SEGMENT_BITS)) - 1
"""The bits of a double's fraction below those that name the segment."""

COARSE_CENTRE = 0.25 * (1.0 + 2.0 ** -(COARSE_SEGMENT_BITS + 1))
"""``t / 4 = 0.25 * 1.<low bits of the fraction> - COARSE_CENTRE``."""

COARSE_FIRST_COLUMN = ((1023 + UNIFORM_BITS - COARSE_BINADES) << COARSE_SEGMENT_BITS) - 1
"""``column = (bits of x >> (52 - bits)) - COARSE_FIRST_COLUMN``, negative ones taken as 0."""

COARSE_STEP_ERROR = 0x137 * 2.0**-18
"""Proved bound on the error of ``r`` with this table, in grid steps."""

COARSE_DECIDED_BELOW = 0.5 - COARSE_STEP_ERROR
"""The rounding is right wherever its distance to the integer is below this."""

COARSE_DIGEST = "b3889da1d79a865ba2ea1e4bf3600135bef814086dad6a38ae35f1d45c65ed01"
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
    (6658,)
    """
    return proven_words("coarse.bin", COARSE_DIGEST)


def coarse_coefficients(table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the three coefficients of every column: row k holds those of ``t**k``.

    Examples
    --------
    In the middle of the last segment V is nearly 1, so w nearly 0:

    >>> coarse_coefficients(load_coarse_table())[0, -2].round(4)
    np.float64(0.0006)
    """
    a0 = _fraction(table >> A0_SHIFT)
    a1 = _fraction((table << A1_SHIFT) & DOUBLE_FRACTION)
    a2 = _fraction((table << A2_SHIFT) & DOUBLE_FRACTION)
    return np.stack([4.0 * a0, -a1, 0.25 * a2])


def _fraction(bits: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the number in [0, 1) with these fraction bits; NaN if the bits are negative."""
    return (bits | ONE_BITS).view(np.float64) - 1.0
