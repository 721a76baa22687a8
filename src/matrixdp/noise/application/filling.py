"""Filling a tile with noisy values, block by block, by one thread or several.

A block is a piece of one long run of elements, or several short runs together.

Only finished noisy values are ever written to the output, each of them once: at any moment an
element of it has its old value or the released one.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.application.threads import over_ranges
from matrixdp.noise.application.tiles import (
    FlatView,
    Tile,
    rectangles,
    run_length,
    run_starts,
    runs_of_tile,
)
from matrixdp.noise.kernels import KernelFactory
from matrixdp.noise.kernels.block import Block, Kernel
from matrixdp.noise.keys.short_runs import read_short_runs
from matrixdp.noise.keys.stream import NoiseStream
from matrixdp.noise.specification.exact import exact_element

__all__ = ["ONE_BLOCK", "WorkSpace", "fill_block", "fill_tile"]

_LEAST_FOR_A_THREAD = 1 << 15
"""Elements that take at least as long as starting a thread."""

ONE_BLOCK = _LEAST_FOR_A_THREAD
"""The most elements of `fill_block`: no kernel takes fewer in a call."""


def fill_block(
    value: NDArray[Any],
    out: NDArray[Any],
    scales: NDArray[np.float64],
    stream: NoiseStream,
    kernel: Kernel,
) -> None:
    """Fill a whole array that is one block, by the calling thread: `fill_tile` without its parts.

    Parameters
    ----------
    value, out : NDArray
        Apart from each other, of at most `ONE_BLOCK` elements and of a type that the kernel takes;
        the output contiguous.
    scales : NDArray[np.float64]
        One for all, or one for each element: one axis.
    """
    size = value.size
    words, undecided = np.empty(size, np.uint64), np.empty(size, np.bool_)
    block = Block(value.ravel(), words, scales, out.ravel(), undecided)
    try:
        stream.first_words(words)
        if kernel(block, stream.context.grid_bits):
            _decide(block, int, stream)
    finally:
        # As in `_Worker.fill`.
        words.fill(0)
        undecided.fill(0)
        kernel.wipe(size)


def fill_tile(
    tile: Tile, stream: NoiseStream, threads: int | None, make_kernel: KernelFactory
) -> None:
    """Fill ``tile.out``, each thread a contiguous range of its elements."""

    def fill(first: int, last: int) -> None:
        _Worker(tile, stream, make_kernel(), last - first).fill(first, last)

    over_ranges(fill, prod(tile.shape), threads, _LEAST_FOR_A_THREAD)


class WorkSpace:
    """Arrays for one block, each allocated when it is first needed.

    Most are not needed: contiguous values are read, and noisy values written, without a copy. No
    lock is taken, not even one of the standard library: a fork could leave it held for ever in the
    child.

    Parameters
    ----------
    length : int
        The most elements of a block.
    """

    def __init__(self, length: int) -> None:
        self.length = length
        self.rooms: dict[str, NDArray[Any]] = {}

    @property
    def words(self) -> NDArray[np.uint64]:
        """Room for the random words."""
        return self._room("words", np.uint64)

    @property
    def values(self) -> NDArray[np.float64]:
        """Room for values that are not contiguous, or would be overwritten."""
        return self._room("values", np.float64)

    @property
    def scales(self) -> NDArray[np.float64]:
        """Room for scales that are not contiguous."""
        return self._room("scales", np.float64)

    @property
    def noisy(self) -> NDArray[np.float64]:
        """Room for noisy values on their way to an output that is not contiguous."""
        return self._room("noisy", np.float64)

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Room for the marks of undecided elements."""
        return self._room("undecided", np.bool_)

    def holds(self, noisy: NDArray[Any]) -> bool:
        """Return whether these noisy values are in this space and must still be written."""
        # By identity: otherwise the kernel wrote to the output itself.
        return "noisy" in self.rooms and noisy.base is self.noisy

    def wipe(self) -> None:
        """Overwrite every array that was allocated."""
        for room in self.rooms.values():
            room.fill(0)

    def _room(self, name: str, kind: type[np.generic]) -> NDArray[Any]:
        """Return the array of this name, allocated by the first call."""
        if name not in self.rooms:
            self.rooms[name] = np.empty(self.length, dtype=kind)
        return self.rooms[name]


class _Worker:
    """What one thread needs to fill a range of so many elements of a tile."""

    def __init__(self, tile: Tile, stream: NoiseStream, kernel: Kernel, size: int) -> None:
        self._tile = tile
        self._stream = stream
        self._kernel = kernel
        # No longer than the range: a small release must not allocate for a large one.
        self._space = WorkSpace(min(kernel.block_length, size))

    def fill(self, first: int, last: int) -> None:
        """Fill the elements ``first .. last - 1`` of the tile."""
        try:
            length = run_length(self._tile.whole, self._tile.shape)
            if 2 * length > self._space.length:
                self._fill_runs(first, last)
                return
            # The tail of a run, whole runs, the head of a run: each may be missing.
            for runs, inside in rectangles((prod(self._tile.shape) // length, length), first, last):
                if runs.stop - runs.start > 1:
                    self._fill_short_runs(runs.start, runs.stop, length)
                else:
                    begin = runs.start * length
                    self._fill_runs(begin + inside.start, begin + inside.stop)
        finally:
            # Words and undecided values would give the noise away to anyone who reads freed memory.
            self._space.wipe()
            self._kernel.wipe(self._space.length)

    def _fill_runs(self, first: int, last: int) -> None:
        tile = self._tile
        for run in runs_of_tile(tile.whole, tile.origin, tile.shape, first, last):
            self._fill_run(*run)

    def _fill_short_runs(self, first: int, last: int, length: int) -> None:
        """Fill whole runs of the tile, by their numbers, many in each block."""
        tile, together = self._tile, self._space.length // length
        for start in range(first, last, together):
            end = min(start + together, last)
            starts = run_starts(tile.whole, tile.origin, tile.shape, start, end)
            block = self._load(start * length, starts.size * length)
            read_short_runs(self._stream, starts, block.words.reshape(starts.size, length))
            self._finish(block, start * length, partial(_element_of_runs, starts, length))

    def _fill_run(self, begin: int, end: int, offset: int) -> None:
        """Fill consecutive elements; element i of the tile is ``i + offset`` of the whole."""
        # Words are read by element number in the whole: that is what makes tiles agree with it.
        reader = self._stream.reader(begin + offset)
        length = self._space.length
        for start in range(begin, end, length):
            block = self._load(start, min(length, end - start))
            reader.read_into(block.words)
            self._finish(block, start, (start + offset).__add__)

    def _finish(self, block: Block, start: int, element: Callable[[int], int]) -> None:
        """Fill a block that has its words, and write it from an element of the tile on."""
        if self._kernel(block, self._stream.context.grid_bits):
            _decide(block, element, self._stream)
        if self._space.holds(block.noisy):
            self._tile.out.write(start, block.noisy)

    def _load(self, start: int, size: int) -> Block:
        """Return the block that begins at an element of the tile, without its words."""
        tile, space = self._tile, self._space
        values, noisy = self._views(start, size)
        if values is None:
            values = space.values[:size]
            tile.value.read(start, values)
        scales = tile.scales
        if isinstance(scales, FlatView):
            known = scales.view(start, size)
            if known is None:
                scales.read(start, space.scales[:size])
                known = space.scales[:size]
            scales = known
        return Block(
            values=values,
            words=space.words[:size],
            scales=scales,
            noisy=space.noisy[:size] if noisy is None else noisy,
            undecided=space.undecided[:size],
        )

    def _views(self, start: int, size: int) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """Return the values and the output where the kernel can take them without a copy."""
        tile, single = self._tile, self._kernel.takes_single
        # In place, the exact path needs the value after the kernel has written over it.
        values = None if tile.in_place else tile.value.view(start, size, single=single)
        noisy = tile.out.view(start, size, single=single)
        # Both of one type: buffers are float64.
        if values is None or noisy is None or values.dtype != noisy.dtype:
            values, noisy = (
                view if view is not None and view.dtype == np.float64 else None
                for view in (values, noisy)
            )
        return values, noisy


def _element_of_runs(starts: NDArray[np.uint64], length: int, i: int) -> int:
    """Return the number in the whole of element i of a block of runs."""
    run, inside = divmod(i, length)
    return int(starts[run]) + inside


def _decide(block: Block, element: Callable[[int], int], stream: NoiseStream) -> None:
    """Send the undecided elements of a block to the exact path, by their numbers in the whole."""
    # One element in a million, so that Python integers are fast enough.
    one_scale = block.scales.size == 1
    for i in block.undecided.nonzero()[0].tolist():
        block.noisy[i] = exact_element(
            float(block.values[i]),
            float(block.scales[0 if one_scale else i]),
            int(block.words[i]),
            stream.further_words(element(i)),
            stream.context.grid_bits,
        )
