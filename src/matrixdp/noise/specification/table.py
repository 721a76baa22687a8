"""The polynomial table of the fast path, and the error bound that is proved for it.

For a word whose 63 low bits are ``u``, let ``V = (u + further bits) / 2**63`` be the lazily
extended uniform and ``w(V) = sqrt(2) * erfcinv(V)`` the absolute value of the normal variable. The
fast path converts ``u`` to the nearest double ``x``. The exponent of ``x`` and the top eight bits
of its fraction name a *segment* (a column of the table), the remaining 44 bits a coordinate
``t = 1.<44 bits> - CENTRE`` in [-1/512, 1/512], computed without rounding; a cubic polynomial in
``t`` approximates ``w``.

The table has three rows of 64-bit words. The first two are the doubles ``c0`` and ``c1``. A word of
the third holds two coefficients, since the higher ones need fewer digits and every load counts:
read as a double it is ``c2``, shifted left by ``PACKED_SHIFT`` bits and read as a double it is
``c3``.

The table covers the ``BINADES`` highest binades of V. Its first column (everything below) and its
last one (``x == 2**63``) are NaN, so that such elements are never decided by the fast path.

``python -m matrixdp.noise`` makes the file and proves ``STEP_ERROR`` (see `certificate`).
"""

import hashlib
from functools import lru_cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import MatrixDPError

__all__ = [
    "BINADES",
    "CENTRE",
    "DECIDED_BELOW",
    "DEGREE",
    "FIRST_COLUMN",
    "FRACTION_MASK",
    "GRID_BITS",
    "ONE_BITS",
    "PACKED_SHIFT",
    "SEGMENT_BITS",
    "STEP_ERROR",
    "TABLE_DIGEST",
    "UNIFORM_BITS",
    "coefficients",
    "load_table",
    "proven_words",
    "table_digest",
]

# GRID_BITS and UNIFORM_BITS define the noise: other values would need another NOISE_VERSION. The
# rest only decides what the fast path can do, and is proved together with the table.

GRID_BITS = 20
"""The grid step of a scale sigma is ``2**(floor(log2(sigma)) - GRID_BITS)``, at the finest."""

UNIFORM_BITS = 63
"""Bits of the uniform in the first word of an element; the remaining, highest bit is the sign."""

BINADES = 23
"""The fast path knows the uniforms V with ``2**-BINADES <= V < 1``."""

SEGMENT_BITS = 8
"""Each binade is cut into ``2**SEGMENT_BITS`` segments of equal width."""

DEGREE = 3
"""Degree of the polynomial of every segment."""

STEP_ERROR = 0x1C9 * 2.0**-30
"""Proved bound on the error of the fast path's ``r``, in grid steps (see ``certificate``)."""

DECIDED_BELOW = 0.5 - STEP_ERROR
"""The fast path's rounding is right wherever its distance to the integer is below this."""

CENTRE = 1.0 + 2.0 ** -(SEGMENT_BITS + 1)
"""Centre of the coordinate of a segment; ``t = 1.<low bits of the fraction> - CENTRE``."""

FRACTION_MASK = (1 << (52 - SEGMENT_BITS)) - 1
"""The bits of a double's fraction below those that name the segment."""

ONE_BITS = 0x3FF << 52
"""The bit pattern of 1.0."""

FIRST_COLUMN = ((1023 + UNIFORM_BITS - BINADES) << SEGMENT_BITS) - 1
"""``column = (bits of x >> (52 - SEGMENT_BITS)) - FIRST_COLUMN``, negative ones taken as 0."""

TABLE_DIGEST = "7ce304ebf3ca5fb1904610e3ad31eb8573b5f0306baaa177c6bccda0805c58df"
"""SHA-256 of the bytes of ``table.bin``."""

PACKED_SHIFT = 40
"""The coefficient c3 occupies the low ``64 - PACKED_SHIFT`` bits of the word it shares with c2."""

_SHAPE = (3, (BINADES << SEGMENT_BITS) + 2)


def table_digest(table: NDArray[np.int64]) -> str:
    """Return the SHA-256 of a table as little-endian words, row by row."""
    return hashlib.sha256(table.astype("<i8").tobytes()).hexdigest()


@lru_cache(maxsize=1)
def load_table() -> NDArray[np.int64]:
    """Read the shipped table.

    Returns
    -------
    NDArray[np.int64]
        Three rows of words, one column per segment; read-only.

    Raises
    ------
    MatrixDPError
        If the file is not the proven one.

    Examples
    --------
    >>> load_table().shape
    (3, 5890)
    """
    return proven_words("table.bin", TABLE_DIGEST).reshape(_SHAPE)


def proven_words(file: str, digest: str) -> NDArray[np.int64]:
    """Return the words of a shipped table; raise MatrixDPError unless it is the proven one."""
    # Read as a resource, because a package may be installed as a zip file.
    content = files("matrixdp.noise.specification").joinpath(file).read_bytes()
    if hashlib.sha256(content).hexdigest() != digest:
        # The error bound is proved for exactly these bytes: with others, noise could be wrong.
        raise MatrixDPError(
            f"the noise table {file} of this installation is not the proven one (its SHA-256 "
            "differs); reinstall matrixdp"
        )
    return np.frombuffer(content, dtype="<i8")


def coefficients(table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the four coefficients of every column: row k holds those of ``t**k``.

    Examples
    --------
    In the middle of the last segment V is nearly 1, so w nearly 0:

    >>> coefficients(load_table())[0, -2].round(4)
    np.float64(0.0012)
    """
    c0, c1, c2 = table.view(np.float64)
    return np.stack([c0, c1, c2, (table[2] << PACKED_SHIFT).view(np.float64)])
