"""Make the coarse table, and prove its error bound (see `proof`)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import MatrixDPError
from matrixdp.noise.proofs.balls import PRECISION, arb, ctx, fmpq
from matrixdp.noise.proofs.proof import Approximation, Rounded, proven_error
from matrixdp.noise.proofs.segments import Cut, Segment, leading, taylor
from matrixdp.noise.specification.coarse_table import (
    A_BITS,
    COARSE_SEGMENT_BITS,
    ROOT_TWO,
    unpacked,
)
from matrixdp.noise.specification.table import BINADES

__all__ = ["COARSE_CUT", "implied_quadratic", "make_coarse_table", "prove_coarse_table"]

COARSE_CUT = Cut(BINADES, COARSE_SEGMENT_BITS)
"""The segments of the coarse table."""

_SENTINEL = -1
# Of c0 / 8, the bit of a sentinel left out.
_C0_BITS = 63


def make_coarse_table() -> NDArray[np.int64]:
    """Make the table, sentinel columns included."""
    ctx.prec = PRECISION
    words = [_SENTINEL, *(_word(segment) for segment in COARSE_CUT.segments()), _SENTINEL]
    return np.array(words, dtype=np.int64)


def prove_coarse_table(
    table: NDArray[np.int64], segments: Iterable[Segment] | None = None
) -> float:
    """Return a proven bound on the error of ``r``, in grid steps, wherever the table is finite.

    Parameters
    ----------
    table : NDArray[np.int64]
        Laid out as `load_coarse_table` returns it.
    segments : iterable of Segment, optional
        Those that the bound holds for; by default all.

    Raises
    ------
    MatrixDPError
        If a sentinel column is not NaN, or if a ball is too wide to prove anything.
    """
    c0, a = unpacked(table)
    if not np.isnan(c0[[0, -1]]).all():
        raise MatrixDPError("the first and the last column of the coarse table must be NaN")
    chosen = COARSE_CUT.segments() if segments is None else segments
    return proven_error(
        (segment, implied_quadratic(float(c0[segment.column]), float(a[segment.column])))
        for segment in chosen
    )


def implied_quadratic(c0: float, a: float) -> Approximation:
    """Return ``(c0 q - ROOT_TWO) q + c0``, ``q = a t``, as the kernel computes it."""
    height, factor, root = arb(c0), arb(a), arb(ROOT_TWO)
    q = Rounded.exactly(factor).times(Rounded.exactly(COARSE_CUT.half_width))
    inner = Rounded.exactly(height).times(q).plus(Rounded.exactly(root))
    computed = inner.times(q).plus(Rounded.exactly(height))
    return Approximation([height, -root * factor, height * factor * factor], computed)


def _word(segment: Segment) -> int:
    """Return the word of a segment.

    First ``a``, from the linear part of w over the segment, then ``c0`` from what the polynomial
    without it leaves: so it makes up for the difference between w and its quadratic part, and for
    the bits that it shares with ``a``.
    """
    half_width = segment.cut.half_width
    residual = taylor(segment)
    slope = leading(residual, 1) / half_width
    low_bits = _nearest_integer(-slope / arb(ROOT_TWO) * 2**A_BITS)
    a = fmpq(low_bits, 2**A_BITS)
    # Nearly the final c0, which differs so little that the quadratic coefficient does not notice.
    residual[2] -= residual[0] * (a * half_width) ** 2
    c0 = leading(residual, 0) / 8
    high_bits = _nearest_integer((c0 * 2**_C0_BITS - low_bits) / 2**A_BITS)
    if not (0 <= low_bits < 1 << A_BITS and 0 <= high_bits < 1 << (_C0_BITS - A_BITS)):
        raise MatrixDPError(f"a number of {segment} does not fit into its bits")
    return high_bits << A_BITS | low_bits


def _nearest_integer(ball: Any) -> int:
    """Return the integer nearest to a number known only by its ball; raise if there are two."""
    nearest = (ball + arb(fmpq(1, 2))).floor().unique_fmpz()
    if nearest is None:
        raise MatrixDPError("a number is too close to a tie of integers; raise PRECISION")
    return int(nearest)
