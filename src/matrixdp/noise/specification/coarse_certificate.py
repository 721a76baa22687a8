"""Make the coarse table, and prove its error bound (see `proof`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import MatrixDPError
from matrixdp.noise.specification.balls import PRECISION, arb, ctx, fmpq
from matrixdp.noise.specification.coarse_table import (
    A0_SHIFT,
    A1_BITS,
    A2_BITS,
    COARSE_BINADES,
    COARSE_SEGMENT_BITS,
    coarse_coefficients,
)
from matrixdp.noise.specification.proof import proven_error
from matrixdp.noise.specification.segments import Cut, Segment, leading, taylor

__all__ = ["COARSE_CUT", "make_coarse_table", "prove_coarse_table"]

COARSE_CUT = Cut(COARSE_BINADES, COARSE_SEGMENT_BITS)
"""The segments of the coarse table."""

_SENTINEL = -1
# a0 is read from the word without its lowest bits, and without the bit of a sentinel.
_WORD_BITS = 63


def make_coarse_table() -> NDArray[np.int64]:
    """Make the table, sentinel columns included."""
    ctx.prec = PRECISION
    words = [_SENTINEL, *(_word(segment) for segment in COARSE_CUT.segments()), _SENTINEL]
    return np.array(words, dtype=np.int64)


def prove_coarse_table(table: NDArray[np.int64]) -> float:
    """Return a proven bound on the error of ``r``, in grid steps, wherever the table is finite.

    The table is laid out as `load_coarse_table` returns it.
    """
    return proven_error(coarse_coefficients(table), COARSE_CUT)


def _word(segment: Segment) -> int:
    """Return the word of a segment.

    From the highest coefficient down, as in the other table. The bits of the higher ones are given
    as the lowest bits of the next; its own bits are chosen to be the nearest with those below them.
    """
    residual, half_width = taylor(segment), segment.cut.half_width
    word = 0
    # Of each number: the power of t, what it is multiplied with, and the bits of a word below it.
    for power, factor, bits, below in (
        (2, fmpq(1, 4), A2_BITS, 0),
        (1, fmpq(-1), A1_BITS, A2_BITS),
        (0, fmpq(4), _WORD_BITS, A1_BITS),
    ):
        exact = leading(residual, power) / half_width**power / factor
        own = _nearest_integer((exact * 2**bits - word) / 2**below)
        word |= own << below
        if not 0 <= word < 1 << bits:
            raise MatrixDPError(f"a coefficient of {segment} does not fit into its bits")
        read = word >> A0_SHIFT << A0_SHIFT if power == 0 else word
        residual[power] -= factor * fmpq(read, 2**bits) * half_width**power
    return word


def _nearest_integer(ball: Any) -> int:
    """Return the integer nearest to a number known only by its ball; raise if there are two."""
    nearest = (ball + arb(fmpq(1, 2))).floor().unique_fmpz()
    if nearest is None:
        raise MatrixDPError("a coefficient is too close to a tie of integers; raise PRECISION")
    return int(nearest)
