"""The compiled loop over all elements of a block, with the coarse table."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.kernels.compiling import Loop, compiled
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
from matrixdp.noise.specification.table import ONE_BITS, UNIFORM_BITS

__all__ = ["coarse_loop"]


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
