"""The fast path compiled by numba (extra ``fast``): the same bits as every other path.

The table is frozen into the machine code, because only loads from a constant let the loop be
vectorised. The compiled function gets it as a closure variable, like every other constant, and
numba's cache on disk is keyed on the content of those: code compiled for this table can never be
used for another table or error bound. Of the relaxations of IEEE arithmetic only contraction
(fused multiply-add) is allowed, which the proof of the table covers.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.kernels.block import Block
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

__all__ = ["NumbaKernel"]

_Loop = Callable[..., int]


@lru_cache(maxsize=8)
def _compile(content: bytes, columns: int, *, one_scale: bool, value_bytes: int) -> _Loop:
    """Compile the loop for one table, given as its bytes, and one scale or a scale each.

    Values and noisy values are float64 (8 bytes) or float32 (4 bytes).
    """
    from numba import njit, types  # noqa: PLC0415 - an extra, imported late

    rows = np.frombuffer(content, dtype=np.int64).reshape(3, columns)
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

    # Everything is typed explicitly: numba would turn mixed integers into floats, and lose bits.
    def loop(  # noqa: PLR0917 - compiled code takes arrays, not a block
        values: NDArray[Any],
        words: NDArray[np.int64],
        scales: NDArray[np.float64],
        grid_shift: np.int64,
        out: NDArray[Any],
        undecided: NDArray[np.bool_],
    ) -> int:
        """Do what NumpyKernel does, element by element."""
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
            both = np.int64(packed[k])
            c2, c3 = both.view(np.float64), np.int64(both << packed_shift).view(np.float64)
            normal = np.float64(((c3 * t + c2) * t + c1[k]) * t + c0[k])
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

    # Read-only arrays, because the value and the words may be. A fixed signature compiles at once,
    # before a key is spent, and not in the middle of a release.
    compiled_kind: Any = types.float32 if value_bytes == 4 else types.float64
    integers, floats, given = (
        types.Array(kind, 1, "C", readonly=True)
        for kind in (types.int64, types.float64, compiled_kind)
    )
    signature = types.int64(
        given, integers, floats, types.int64, compiled_kind[::1], types.boolean[::1]
    )
    # nogil lets threads work side by side; "contract" is the one relaxation that is proven.
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "fastmath": {"contract"}}
    try:
        compiled = njit(signature, cache=True, **options)(loop)
    except RuntimeError:  # no folder to keep compiled code in
        compiled = njit(signature, **options)(loop)
    return cast("_Loop", compiled)


class NumbaKernel:
    """Noisy values of one block, and which of them are undecided; releases the interpreter lock.

    Parameters
    ----------
    table : NDArray[np.int64]
        The polynomial table.
    """

    takes_single: Final = True

    block_length: Final = 1 << 17
    """The most elements of one call: threads meet at the interpreter lock between calls."""

    def __init__(self, table: NDArray[np.int64]) -> None:
        self._content = np.ascontiguousarray(table).tobytes()
        self._columns = table.shape[1]
        # By the bytes of a value, and whether all values have one scale.
        self._loops: dict[tuple[int, bool], _Loop] = {}
        self.prepare(8)

    def prepare(self, value_bytes: int) -> None:
        """Compile for values of 8 bytes or 4, unless that was done before."""
        for one_scale in (True, False):
            if (value_bytes, one_scale) not in self._loops:
                self._loops[value_bytes, one_scale] = _compile(
                    self._content, self._columns, one_scale=one_scale, value_bytes=value_bytes
                )

    def wipe(self, length: int) -> None:
        """Do nothing: there is no work space."""

    def __call__(self, block: Block, grid_bits: int) -> int:
        """Fill ``block.noisy`` and ``block.undecided``; return how many are undecided."""
        loop = self._loops[block.values.itemsize, block.scales.size == 1]
        return loop(
            block.values,
            block.words.view(np.int64),
            block.scales,
            np.int64(grid_bits << 52),
            block.noisy,
            block.undecided,
        )
