"""The fast path compiled by numba (extra ``fast``): the same bits as every other path."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.kernels.block import Block
from matrixdp.noise.kernels.compiled_loops import Loop, coarse_loop, fine_loop

__all__ = ["NumbaKernel"]


class NumbaKernel:
    """Noisy values of one block, and which of them are undecided; releases the interpreter lock.

    Parameters
    ----------
    table : NDArray[np.int64]
        The polynomial table.
    coarse_table : NDArray[np.int64]
        The table that is tried first.
    """

    takes_single: Final = True

    block_length: Final = 1 << 17
    """The most elements of one call: threads meet at the interpreter lock between calls."""

    def __init__(self, table: NDArray[np.int64], coarse_table: NDArray[np.int64]) -> None:
        self._table = np.ascontiguousarray(table).tobytes()
        self._coarse_table = np.ascontiguousarray(coarse_table).tobytes()
        # By the bytes of a value, and whether all values have one scale.
        self._coarse_loops: dict[tuple[int, bool], Loop] = {}
        self._fine_loops: dict[int, Loop] = {}
        self.prepare(8)

    def prepare(self, value_bytes: int) -> None:
        """Compile for values of 8 bytes or 4, unless that was done before."""
        for one_scale in (True, False):
            if (value_bytes, one_scale) not in self._coarse_loops:
                self._coarse_loops[value_bytes, one_scale] = coarse_loop(
                    self._coarse_table, one_scale=one_scale, value_bytes=value_bytes
                )
        if value_bytes not in self._fine_loops:
            self._fine_loops[value_bytes] = fine_loop(self._table, value_bytes=value_bytes)

    def wipe(self, length: int) -> None:
        """Do nothing: there is no work space."""

    def __call__(self, block: Block, grid_bits: int) -> int:
        """Fill ``block.noisy`` and ``block.undecided``; return how many are undecided."""
        arguments = (
            block.values,
            block.words.view(np.int64),
            block.scales,
            grid_bits << 52,
            block.noisy,
            block.undecided,
        )
        value_bytes = block.values.itemsize
        left = self._coarse_loops[value_bytes, block.scales.size == 1](*arguments)
        return self._fine_loops[value_bytes](*arguments) if left else 0
