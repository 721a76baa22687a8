"""The fast path in numpy alone: always available, the same bits as every other path."""

from typing import Final

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

__all__ = ["NumpyKernel"]

_UNIFORM_MASK = np.int64((1 << UNIFORM_BITS) - 1)
_SIGN_MASK = np.int64(-1 << UNIFORM_BITS)
_EXPONENT_MASK = np.int64(0x7FF << 52)
# The exponent fields of a power of two and of its inverse add up to this.
_INVERSE_BASE = np.int64(2046 << 52)


class NumpyKernel:
    """Noisy values of one block, and which of them are undecided.

    Parameters
    ----------
    table : NDArray[np.int64]
        The polynomial table.
    """

    takes_single: Final = False

    block_length: Final = 1 << 15
    """The most elements of one call: the work space, allocated once, fits a processor's cache."""

    def __init__(self, table: NDArray[np.int64]) -> None:
        self._c0, self._c1 = table.view(np.float64)[:2]
        self._packed = table[2]
        self._integers = np.zeros((2, self.block_length), dtype=np.int64)
        self._floats = np.zeros((3, self.block_length), dtype=np.float64)

    def prepare(self, value_bytes: int) -> None:
        """Do nothing: nothing is compiled."""

    def wipe(self, length: int) -> None:
        """Overwrite what calls with at most ``length`` elements left of the noise."""
        self._integers[:, :length] = 0
        self._floats[:, :length] = 0.0

    def __call__(self, block: Block, grid_bits: int) -> int:
        """Fill ``block.noisy`` and ``block.undecided``; return how many are undecided."""
        # NaN marks undecided elements, and tiny values underflow: both are meant.
        with np.errstate(all="ignore"):
            return self._fill(block, grid_bits)

    def _fill(self, block: Block, grid_bits: int) -> int:
        """Fill a block, whatever warnings that gives.

        With ``y = value / g``, ``n = rint(y)`` and ``s = scale / g``: ``r = (y - n) + s z``,
        ``q = rint(r)``, ``noisy = (n + q) g``, decided where ``|r - q| < DECIDED_BELOW``.
        """
        size = block.values.size
        scales, noisy, undecided = block.scales, block.noisy, block.undecided
        # A double's exponent field is a power of two: masks and integer sums make step and 1/step
        # without rounding.
        step_bits = (scales.view(np.int64) & _EXPONENT_MASK) - np.int64(grid_bits << 52)
        step = step_bits.view(np.float64)
        inverse_step = (_INVERSE_BASE - step_bits).view(np.float64)
        noise = self._signed_normal(block.words)
        noise *= scales * inverse_step
        # Buffers are used again as soon as their content is not needed; the names follow it.
        rest, whole = (buffer[:size] for buffer in self._floats[1:])
        np.multiply(block.values, inverse_step, out=rest)
        np.rint(rest, out=whole)
        rest -= whole
        noise += rest
        nearest = np.rint(noise, out=rest)
        noise -= nearest
        np.abs(noise, out=noise)
        decided = np.less(noise, DECIDED_BELOW, out=undecided)
        left = size - int(np.count_nonzero(decided))
        nearest += whole
        nearest *= step
        # Only finished numbers go to the output, which others may see. The sign of a zero would
        # tell on which side of it the value lay: -0.0 + 0.0 is 0.0.
        np.add(nearest, 0.0, out=noisy, where=decided if left else True)
        np.logical_not(decided, out=undecided)
        return left

    def _signed_normal(self, words: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Approximate z by the polynomial of each word's segment; NaN outside the table."""
        size = words.size
        signed = words.view(np.int64)
        column, packed = (buffer[:size] for buffer in self._integers)
        normal, coordinate, coefficient = (buffer[:size] for buffer in self._floats)
        np.bitwise_and(signed, _UNIFORM_MASK, out=column)
        np.copyto(coordinate, column)
        bits = coordinate.view(np.int64)
        # The top bits of the double name its segment; the others, after 1., are the coordinate.
        np.right_shift(bits, 52 - SEGMENT_BITS, out=column)
        column -= FIRST_COLUMN
        bits &= FRACTION_MASK
        bits |= ONE_BITS
        coordinate -= CENTRE
        # What is outside the table is clipped to a sentinel column, whose NaN is never decided.
        np.take(self._packed, column, out=packed, mode="clip")
        np.left_shift(packed, PACKED_SHIFT, out=normal.view(np.int64))
        normal *= coordinate
        normal += packed.view(np.float64)
        # Horner's rule, in the order of operations that the certificate assumes.
        for row in (self._c1, self._c0):
            normal *= coordinate
            np.take(row, column, out=coefficient, mode="clip")
            normal += coefficient
        # The sign bit of the word becomes that of the number.
        np.bitwise_and(signed, _SIGN_MASK, out=column)
        normal_bits = normal.view(np.int64)
        normal_bits ^= column
        return normal
