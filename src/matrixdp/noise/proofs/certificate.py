"""Make the polynomial table of the fast path, and prove its error bound (see `proof`)."""

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import MatrixDPError
from matrixdp.noise.proofs.balls import PRECISION, arb, ctx
from matrixdp.noise.proofs.proof import Approximation, Rounded, proven_error
from matrixdp.noise.proofs.segments import Cut, Segment, leading, nearest_double, taylor
from matrixdp.noise.specification.table import (
    BINADES,
    DEGREE,
    PACKED_SHIFT,
    SEGMENT_BITS,
    coefficients,
)

__all__ = ["FINE_CUT", "horner", "make_table", "prove_table"]

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


def prove_table(table: NDArray[np.int64], segments: Iterable[Segment] | None = None) -> float:
    """Return a proven bound on the error of ``r``, in grid steps, wherever the table is finite.

    Parameters
    ----------
    table : NDArray[np.int64]
        Laid out as `load_table` returns it.
    segments : iterable of Segment, optional
        Those that the bound holds for; by default all.

    Raises
    ------
    MatrixDPError
        If a sentinel column is not NaN, or if a ball is too wide to prove anything.
    """
    polynomials = coefficients(table)
    if not np.isnan(polynomials[0, [0, -1]]).all():
        raise MatrixDPError("the first and the last column of the table must be NaN")
    chosen = FINE_CUT.segments() if segments is None else segments
    return proven_error(
        (segment, horner([arb(float(c)) for c in polynomials[:, segment.column]]))
        for segment in chosen
    )


def horner(powers: list[Any]) -> Approximation:
    """Return the polynomial with these coefficients as kernels compute it, by Horner's rule."""
    coordinate = Rounded.exactly(FINE_CUT.half_width)
    computed = Rounded.exactly(powers[-1])
    for c in reversed(powers[:-1]):
        computed = computed.times(coordinate).plus(Rounded.exactly(c))
    return Approximation(powers, computed)


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
