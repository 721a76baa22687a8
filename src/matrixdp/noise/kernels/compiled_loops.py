"""The loops over a block that numba compiles (extra ``fast``), one for each table.

Tables are frozen into the machine code, because only loads from a constant let a loop be
vectorised. A compiled function gets them as closure variables, like every other constant, and
numba's cache on disk is keyed on the content of those: code compiled for one table can never be
used for another table or error bound. Of the relaxations of IEEE arithmetic only contraction
(fused multiply-add) is allowed, which the proof of the tables covers.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.kernels.compiling import compiled as numba_compiled
from matrixdp.noise.specification.coarse_table import (
    A_SHIFT,
    C0_SHIFT,
    COARSE_CENTRE,
    COARSE_DECIDED_BELOW,
    COARSE_FIRST_COLUMN,
    COARSE_FRACTION_MASK,
    COARSE_SEGMENT_BITS,
    DOUBLE_FRACTION,
    EIGHT_BITS,
    ROOT_TWO,
)
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

__all__ = ["Loop", "coarse_loop", "compiled", "fine_loop"]

Loop = Callable[..., int]
"""Takes values, words, scales, shift of the grid, output and marks; returns how many are left."""

# A multiple of eight; their list stays in the cache.
_INDICES_TOGETHER = 1 << 12


@lru_cache(maxsize=8)
def coarse_loop(content: bytes, *, one_scale: bool, value_bytes: int) -> Loop:
    """Compile the loop for a coarse table, given as its bytes, and one scale or a scale each."""
    table = np.frombuffer(content, dtype=np.int64)
    # Local names become constants of the compiled code, which the compiler can fold.
    uniform_mask, sign_mask = np.int64((1 << UNIFORM_BITS) - 1), np.int64(-1 << UNIFORM_BITS)
    exponent_mask, inverse_base = np.int64(0x7FF << 52), np.int64(2046 << 52)
    fraction_mask, double_fraction = np.int64(COARSE_FRACTION_MASK), np.int64(DOUBLE_FRACTION)
    one_bits, eight_bits = np.int64(ONE_BITS), np.int64(EIGHT_BITS)
    first_column, no_column = np.int64(COARSE_FIRST_COLUMN), np.int64(0)
    segment_shift = np.int64(52 - COARSE_SEGMENT_BITS)
    c0_shift, a_shift = np.int64(C0_SHIFT), np.int64(A_SHIFT)
    centre, root_two, decided_below = COARSE_CENTRE, ROOT_TWO, COARSE_DECIDED_BELOW
    value_kind = np.float32 if value_bytes == 4 else np.float64

    # Everything is typed explicitly: numba would turn mixed integers into floats, and lose bits.
    def loop(  # noqa: PLR0917 - compiled code takes arrays, not a block
        values: NDArray[Any],
        words: NDArray[np.int64],
        scales: NDArray[np.float64],
        grid_shift: np.int64,
        out: NDArray[Any],
        undecided: NDArray[np.bool_],
    ) -> int:
        """Write what the coarse table decides, and mark the rest."""
        count = 0
        for i in range(values.size):
            scale = np.float64(scales[0] if one_scale else scales[i])
            step_bits = np.int64((scale.view(np.int64) & exponent_mask) - grid_shift)
            step = step_bits.view(np.float64)
            inverse_step = np.int64(inverse_base - step_bits).view(np.float64)
            word = words[i]
            uniform_bits = np.float64(word & uniform_mask).view(np.int64)
            # Unsigned, so that numba does not test for negative indices.
            k = np.uint64(max((uniform_bits >> segment_shift) - first_column, no_column))
            t = np.int64((uniform_bits & fraction_mask) | one_bits).view(np.float64) - centre
            packed = np.int64(table[k])
            # Shifted arithmetically: the sign bit of a sentinel makes a NaN.
            c0 = np.int64((packed >> c0_shift) | eight_bits).view(np.float64) - 8.0
            a = np.int64(((packed << a_shift) & double_fraction) | one_bits).view(np.float64) - 1.0
            q = a * t
            normal = np.float64((c0 * q - root_two) * q + c0)
            signed = np.int64(normal.view(np.int64) ^ (word & sign_mask)).view(np.float64)
            scaled = np.float64(values[i]) * inverse_step
            whole = np.rint(scaled)
            rest = (scaled - whole) + (scale * inverse_step) * signed
            nearest = np.rint(rest)
            # Negated, so that the NaN of a sentinel column leaves the element undecided.
            open_case = not abs(rest - nearest) < decided_below
            undecided[i] = open_case
            count += open_case
            # The sign of a zero would tell on which side of it the value lay: -0.0 + 0.0 is 0.0.
            # What is not finished is not written: others may see the output.
            finished = value_kind((whole + nearest) * step + 0.0)
            if not open_case:
                out[i] = finished
        return count

    return compiled(loop, value_bytes)


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
    together, nothing, one = _INDICES_TOGETHER, np.uint64(0), np.uint64(1)
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
        indices = np.empty(min(together, size), dtype=np.int64)
        for start in range(0, size, together):
            stop = min(start + together, size)
            # All indices first: a loop over known ones has nothing that a processor must guess.
            found = 0
            for j in range(start // 8, stop // 8):
                left = marks[np.uint64(j)]
                while left != nothing:
                    lowest = left & (~left + one)
                    # A mark is the lowest bit of its byte, and a power of two as a double has the
                    # number of that bit for an exponent.
                    bit = (np.float64(lowest).view(np.int64) >> fraction_bits) - exponent_of_one
                    indices[np.uint64(found)] = 8 * j + (bit >> byte_shift)
                    found += 1
                    left ^= lowest
            for index in range(max(start, marks.size * 8), stop):
                indices[np.uint64(found)] = index
                found += undecided[np.uint64(index)]
            for number in range(found):
                # Unsigned, so that numba does not test for negative indices.
                i = np.uint64(indices[np.uint64(number)])
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
        indices[:] = 0
        return count

    return compiled(loop, value_bytes)


def compiled(loop: Loop, value_bytes: int) -> Loop:
    """Compile a loop for values and noisy values of 8 bytes or 4."""

    def signature(types: Any) -> Any:
        # Read-only arrays, because the value and the words may be. A fixed signature compiles at
        # once, before a key is spent, and not in the middle of a release.
        kind = types.float32 if value_bytes == 4 else types.float64
        integers, floats, given = (
            types.Array(number, 1, "C", readonly=True)
            for number in (types.int64, types.float64, kind)
        )
        return types.int64(given, integers, floats, types.int64, kind[::1], types.boolean[::1])

    # "contract" is the one relaxation that is proven.
    return numba_compiled(loop, signature, relaxations=frozenset({"contract"}))
