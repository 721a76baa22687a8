"""The compiled loop over the elements that the coarse table left undecided."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.kernels.compiling import Loop, compiled
from matrixdp.noise.specification.table import (
    CENTRE,
    DECIDED_BELOW,
    FIRST_COLUMN,
    FRACTION_MASK,
    ONE_BITS,
    PACKED_SHIFT,
    SEGMENT_BITS,
    UNIFORM_BITS,
)

__all__ = ["fine_loop"]

_MARKS_TOGETHER = 32


@lru_cache(maxsize=8)
def fine_loop(content: bytes, *, value_bytes: int) -> Loop:
    """Compile the loop for a table, given as its bytes."""
    rows = np.frombuffer(content, dtype=np.int64).reshape(3, -1)
    c0, c1 = rows[0].view(np.float64), rows[1].view(np.float64)
    packed = rows[2]
    # Local names become constants of the compiled code, which the compiler can fold.
    uniform_mask, sign_mask = np.int64((1 << UNIFORM_BITS) - 1), np.int64(-1 << UNIFORM_BITS)
    exponent_mask, inverse_base = np.int64(0x7FF << 52), np.int64(2046 << 52)
    fraction_mask, one_bits = np.int64(FRACTION_MASK), np.int64(ONE_BITS)
    first_column, no_column = np.int64(FIRST_COLUMN), np.int64(0)
    segment_shift, packed_shift = np.int64(52 - SEGMENT_BITS), np.int64(PACKED_SHIFT)
    centre, decided_below = CENTRE, DECIDED_BELOW
    value_kind = np.float32 if value_bytes == 4 else np.float64
    together, words_together = _MARKS_TOGETHER, _MARKS_TOGETHER // 8
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)

    # Everything is typed explicitly: numba would turn mixed integers into floats, and lose bits.
    def loop(  # noqa: PLR0917 - compiled code takes arrays, not a block
        values: NDArray[Any],
        words: NDArray[np.int64],
        scales: NDArray[np.float64],
        grid_shift: np.int64,
        out: NDArray[Any],
        undecided: NDArray[np.bool_],
    ) -> int:
        """Do what NumpyKernel does, for marked elements only; take marks off what is decided."""
        size = undecided.size
        # Few are marked, so that most marks are read many at a time: as integers.
        marks = undecided[: size - size % together].view(np.int64)
        count = 0
        for group in range((size + together - 1) // together):
            # Unsigned, so that numba does not test for negative indices; here and below.
            j = np.uint64(words_together * group)
            if (
                words_together * group < marks.size
                and marks[j] | marks[j + one] | marks[j + two] | marks[j + three] == 0
            ):
                continue
            for number in range(together * group, min(together * group + together, size)):
                i = np.uint64(number)
                if not undecided[i]:
                    continue
                scale = np.float64(scales[i if scales.size > 1 else np.uint64(0)])
                step_bits = np.int64((scale.view(np.int64) & exponent_mask) - grid_shift)
                step = step_bits.view(np.float64)
                inverse_step = np.int64(inverse_base - step_bits).view(np.float64)
                word = words[i]
                uniform_bits = np.float64(word & uniform_mask).view(np.int64)
                k = np.uint64(max((uniform_bits >> segment_shift) - first_column, no_column))
                t = np.int64((uniform_bits & fraction_mask) | one_bits).view(np.float64) - centre
                both = np.int64(packed[k])
                c2, c3 = both.view(np.float64), np.int64(both << packed_shift).view(np.float64)
                normal = np.float64(((c3 * t + c2) * t + c1[k]) * t + c0[k])
                signed = np.int64(normal.view(np.int64) ^ (word & sign_mask)).view(np.float64)
                scaled = np.float64(values[i]) * inverse_step
                whole = np.rint(scaled)
                rest = (scaled - whole) + (scale * inverse_step) * signed
                nearest = np.rint(rest)
                # Negated, so that the NaN of a sentinel column leaves the element undecided.
                if not abs(rest - nearest) < decided_below:
                    count += 1
                    continue
                undecided[i] = False
                # The sign of a zero would tell on which side of it the value lay: -0.0 + 0.0 is
                # 0.0.
                out[i] = value_kind((whole + nearest) * step + 0.0)
        return count

    return compiled(loop, value_bytes)
