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

# A multiple of eight; their list stays in the cache.
_PLACES_TOGETHER = 1 << 12


@lru_cache(maxsize=8)
def fine_loop(content: bytes, *, value_bytes: int) -> Loop:
    """Compile the loop for a table, given as its bytes."""
    rows = np.frombuffer(content, dtype=np.int64).reshape(3, -1)
    c0, c1, packed = rows[0].view(np.float64), rows[1].view(np.float64), rows[2]
    # Local names become constants of the compiled code, which the compiler can fold.
    uniform_mask, sign_mask = np.int64((1 << UNIFORM_BITS) - 1), np.int64(-1 << UNIFORM_BITS)
    exponent_mask, inverse_base = np.int64(0x7FF << 52), np.int64(2046 << 52)
    fraction_mask, one_bits = np.int64(FRACTION_MASK), np.int64(ONE_BITS)
    first_column, no_column, segment_shift, packed_shift = (
        np.int64(n) for n in (FIRST_COLUMN, 0, 52 - SEGMENT_BITS, PACKED_SHIFT)
    )
    centre, decided_below = CENTRE, DECIDED_BELOW
    value_kind = np.float32 if value_bytes == 4 else np.float64
    together, nothing, one = _PLACES_TOGETHER, np.uint64(0), np.uint64(1)
    fraction_bits, exponent_of_one, byte_shift = np.int64(52), np.int64(1023), np.int64(3)

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
        size, count = undecided.size, 0
        # Eight marks are read at a time, as one integer: few of them are set.
        marks = undecided[: size - size % 8].view(np.uint64)
        places = np.empty(min(together, size), dtype=np.int64)
        for start in range(0, size, together):
            stop = min(start + together, size)
            # All places first: a loop over known places has nothing that a processor must guess.
            found = 0
            for j in range(start // 8, stop // 8):
                left = marks[np.uint64(j)]
                while left != nothing:
                    lowest = left & (~left + one)
                    # A mark is the lowest bit of its byte, and a power of two as a double has the
                    # number of that bit for an exponent.
                    bit = (np.float64(lowest).view(np.int64) >> fraction_bits) - exponent_of_one
                    places[np.uint64(found)] = 8 * j + (bit >> byte_shift)
                    found += 1
                    left ^= lowest
            for place in range(max(start, marks.size * 8), stop):
                places[np.uint64(found)] = place
                found += undecided[np.uint64(place)]
            for number in range(found):
                # Unsigned, so that numba does not test for negative indices.
                i = np.uint64(places[np.uint64(number)])
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
                # A zero has no sign, for the reason given in the other loop.
                out[i] = value_kind((whole + nearest) * step + 0.0)
        # The list tells which noise is close to a half step: nothing of it is left in freed memory.
        places[:] = 0
        return count

    return compiled(loop, value_bytes)
