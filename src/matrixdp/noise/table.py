"""The polynomial table of the fast path, and the error bound that is proved for it.

For a word whose 63 low bits are ``u``, let ``V = (u + further bits) / 2**63`` be the lazily
extended uniform and ``w(V) = sqrt(2) * erfcinv(V)`` the absolute value of the normal variable. The
fast path converts ``u`` to the nearest double ``x``. The exponent of ``x`` and the top six bits of
its fraction name a *segment* (a column of the table), the remaining 46 bits a coordinate
``t = 1.<46 bits> - CENTRE`` in [-1/128, 1/128], computed without rounding; a polynomial of degree
four in ``t`` approximates ``w``.

The table covers the ``BINADES`` highest binades of V. Its first column (everything below) and its
last one (``x == 2**63``) are NaN, so that such elements are never decided by the fast path.

``matrixdp.noise.certificate`` makes the file and proves ``STEP_ERROR``.
"""

import hashlib
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
    "SEGMENT_BITS",
    "STEP_ERROR",
    "TABLE_DIGEST",
    "UNIFORM_BITS",
    "load_table",
    "table_digest",
]

GRID_BITS = 20
"""The grid step of a scale sigma is ``2**(floor(log2(sigma)) - GRID_BITS)``, at the finest."""

UNIFORM_BITS = 63
"""Bits of the uniform in the first word of an element; the remaining, highest bit is the sign."""

BINADES = 23
"""The fast path knows the uniforms V with ``2**-BINADES <= V < 1``."""

SEGMENT_BITS = 6
"""Each binade is cut into ``2**SEGMENT_BITS`` segments of equal width."""

DEGREE = 4
"""Degree of the polynomial of every segment."""

STEP_ERROR = 0x148 * 2.0**-30
"""Proved bound on the error of the fast path's ``r``, in grid steps (see ``certificate``)."""

DECIDED_BELOW = 0.5 - STEP_ERROR
"""The fast path's rounding is right wherever its distance to the integer is below this."""

CENTRE = 1.0 + 2.0 ** -(SEGMENT_BITS + 1)
"""Centre of the coordinate of a segment; ``t = 1.<low bits of the fraction> - CENTRE``."""

FRACTION_MASK = (1 << (52 - SEGMENT_BITS)) - 1
"""The bits of a double's fraction that lie below those naming the segment."""

ONE_BITS = 0x3FF << 52
"""The bit pattern of 1.0."""

FIRST_COLUMN = ((1023 + UNIFORM_BITS - BINADES) << SEGMENT_BITS) - 1
"""``column = (bits of x >> (52 - SEGMENT_BITS)) - FIRST_COLUMN``, negative ones taken as 0."""

TABLE_DIGEST = "c8169d8511f950c2e5c9d6de7c0a578962d3bbc5f92434e11e3e1f59857e760d"
"""SHA-256 of the bytes of ``table.bin``."""

_SHAPE = (DEGREE + 1, (BINADES << SEGMENT_BITS) + 2)


def table_digest(table: NDArray[np.float64]) -> str:
    """Return the SHA-256 of a table as little-endian doubles, coefficient by coefficient."""
    return hashlib.sha256(table.astype("<f8").tobytes()).hexdigest()


def load_table() -> NDArray[np.float64]:
    """Read the shipped table: row k holds the coefficients of ``t**k``, column by column.

    Returns
    -------
    NDArray[np.float64]
        Shape (DEGREE + 1, columns), read-only.

    Raises
    ------
    MatrixDPError
        If the file is not the proven one.

    Examples
    --------
    >>> load_table().shape
    (5, 1474)
    """
    content = files("matrixdp.noise").joinpath("table.bin").read_bytes()
    if hashlib.sha256(content).hexdigest() != TABLE_DIGEST:
        raise MatrixDPError(
            "the noise table of this installation is not the proven one (its SHA-256 differs from "
            "TABLE_DIGEST); reinstall matrixdp"
        )
    return np.frombuffer(content, dtype="<f8").astype(np.float64, copy=False).reshape(_SHAPE)
