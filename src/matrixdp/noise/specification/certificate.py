"""Make the polynomial table of the fast path, and prove its error bound (see `proof`)."""

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.specification.balls import PRECISION, arb, ctx
from matrixdp.noise.specification.proof import proven_error
from matrixdp.noise.specification.segments import Cut, Segment, leading, nearest_double, taylor
from matrixdp.noise.specification.table import (
    BINADES,
    DEGREE,
    PACKED_SHIFT,
    SEGMENT_BITS,
    coefficients,
)

__all__ = ["FINE_CUT", "make_table", "prove_table"]

FINE_CUT = Cut(BINADES, SEGMENT_BITS)
"""The segments of the table."""

_C3_BITS = 64 - PACKED_SHIFT


def make_table() -> NDArray[np.int64]:
    """Make the table, sentinel columns included."""
    ctx.prec = PRECISION
    # NaN fails the comparison that decides an element, so what is outside goes to the exact path.
    sentinel = [[_bits(float("nan"))] * 3]
    columns = sentinel + [_column(segment) for segment in FINE_CUT.segments()] + sentinel
    return np.ascontiguousarray(np.array(columns, dtype=np.uint64).T.view(np.int64))


def prove_table(table: NDArray[np.int64]) -> float:
    """Return a proven bound on the error of ``r``, in grid steps, wherever the table is finite.

    The table is laid out as `load_table` returns it.
    """
    return proven_error(coefficients(table), FINE_CUT)


def _packed(c2: Any, low_bits: int) -> int:
    """Return the bits of the double nearest to c2 among those that end in the given bits of c3."""
    nearest = _bits(nearest_double(c2)) >> _C3_BITS
    # The neighbours too: low bits that are given may make one of them the nearest.
    candidates = [(nearest + step << _C3_BITS) | low_bits for step in (-1, 0, 1)]
    return min(candidates, key=lambda bits: float(abs(arb(_from_bits(bits)) - c2)))


def _bits(number: float) -> int:
    return int.from_bytes(struct.pack("<d", number), "little")


def _from_bits(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def _column(segment: Segment) -> list[int]:
    """Return the three words of a segment.

    The coefficients are found from the highest down, each as the leading one of what the higher
    ones, as rounded, leave of w: so the lower ones make up for most of the rounding of the higher.
    """
    residual = taylor(segment)
    words: list[int] = []
    low_bits = 0
    for power in (3, 2, 1, 0):
        exact = leading(residual, power) / FINE_CUT.half_width**power
        if power == DEGREE:
            # c3 keeps the high 24 bits of a double only: the rest of the word belongs to c2.
            half = 1 << (PACKED_SHIFT - 1)
            low_bits = (_bits(nearest_double(exact)) + half) >> PACKED_SHIFT
            rounded = _from_bits(low_bits << PACKED_SHIFT)
        else:
            bits = _packed(exact, low_bits) if power == 2 else _bits(nearest_double(exact))
            words.insert(0, bits)
            rounded = _from_bits(bits)
        residual[power] -= arb(rounded) * FINE_CUT.half_width**power
    return words
