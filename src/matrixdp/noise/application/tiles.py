"""Parts of a release: their elements by number, their scales, and where the noisy values go.

Elements are numbered in C order, for every layout in memory.
"""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "FlatView",
    "Run",
    "Tile",
    "range_tiles",
    "rectangles",
    "rectangular_tile",
    "run_length",
    "run_starts",
    "runs_of_tile",
]

# Comparing with these takes a fifth of the time of comparing with np.float64 itself.
_DOUBLE, _SINGLE = np.dtype(np.float64), np.dtype(np.float32)

Run = tuple[int, int, int]
"""First and last element of a run in a tile, and what to add for their numbers in the whole."""


def rectangles(shape: tuple[int, ...], start: int, stop: int) -> Iterator[tuple[slice, ...]]:
    """Cut the elements ``start .. stop - 1`` into rectangles, in order.

    Examples
    --------
    The head of a row, whole rows, the tail of a row:

    >>> for piece in rectangles((4, 5), 3, 17):
    ...     print(piece)
    (slice(0, 1, None), slice(3, 5, None))
    (slice(1, 3, None), slice(0, 5, None))
    (slice(3, 4, None), slice(0, 2, None))
    """
    if start >= stop:
        return
    if len(shape) == 1:
        yield (slice(start, stop),)
        return
    row = prod(shape[1:])
    first, last = start // row, stop // row
    # The head of a first row, whole rows, the tail of a last row: each may be missing.
    if first * row < start:
        end = min(stop, (first + 1) * row)
        for inner in rectangles(shape[1:], start - first * row, end - first * row):
            yield (slice(first, first + 1), *inner)
        first += 1
    if first < last:
        yield (slice(first, last), *(slice(0, length) for length in shape[1:]))
    if first <= last:
        for inner in rectangles(shape[1:], 0, stop - last * row):
            yield (slice(last, last + 1), *inner)


class FlatView:
    """Reads and writes consecutive elements of an array of any layout.

    Parameters
    ----------
    array : NDArray
        At least one axis. It is not copied.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        # Flattened without a copy where that is possible: then a run is a plain slice.
        self._array = array.reshape(-1) if array.flags.c_contiguous else array

    def view(self, start: int, size: int, *, single: bool = False) -> NDArray[Any] | None:
        """Return consecutive elements without a copy, or None if that is not possible.

        They are float64, or float32 where ``single`` allows it.
        """
        # Kernels want aligned, contiguous numbers; everything else goes through a buffer.
        kind = self._array.dtype
        if self._array.ndim != 1 or not (kind == _DOUBLE or (single and kind == _SINGLE)):
            return None
        piece = self._array[start : start + size]
        return piece if piece.flags.c_contiguous and piece.flags.aligned else None

    def elements(self, start: int, buffer: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return as many elements as the buffer has: a view if there is one, else the buffer."""
        view = self.view(start, buffer.size)
        if view is not None:
            return view
        self.read(start, buffer)
        return buffer

    def read(self, start: int, buffer: NDArray[np.float64]) -> None:
        """Fill the buffer with the elements from ``start`` on."""
        for target, source in self._pieces(start, buffer):
            np.copyto(target, source)

    def write(self, start: int, buffer: NDArray[np.float64]) -> None:
        """Store the buffer from element ``start`` on, rounding to the array's type."""
        # To float32 this rounds once more, which is post-processing, and may underflow.
        with np.errstate(all="ignore"):
            for source, target in self._pieces(start, buffer):
                np.copyto(target, source, casting="same_kind")

    def _pieces(
        self, start: int, buffer: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Pair parts of the buffer with the rectangles of the array that they correspond to."""
        position = 0
        for rectangle in rectangles(self._array.shape, start, start + buffer.size):
            part = self._array[rectangle]
            yield buffer[position : position + part.size].reshape(part.shape), part
            position += part.size


class Tile(NamedTuple):
    """A part of a release; all of it has been checked.

    Attributes
    ----------
    value, out : FlatView
        The values and the buffer of the noisy values, by element number within the tile.
    scales : FlatView or NDArray[np.float64]
        The scales by element number, or an array that holds the one scale of all.
    whole, origin, shape : tuple[int, ...]
        Shape of the whole, index of the tile's first element in it, shape of the tile.
    in_place : bool
        Whether ``out`` is ``value``; then a block's values are set aside before it is written.
    """

    value: FlatView
    out: FlatView
    scales: FlatView | NDArray[np.float64]
    whole: tuple[int, ...]
    origin: tuple[int, ...]
    shape: tuple[int, ...]
    in_place: bool


def rectangular_tile(
    value: NDArray[Any],
    target: NDArray[Any],
    scales: NDArray[np.float64],
    whole: tuple[int, ...],
    origin: tuple[int, ...],
    *,
    in_place: bool | None = None,
) -> Tile:
    """Return the tile of a rectangular part, whose first element is at ``origin`` in the whole.

    Whether it is filled in place is found out unless the caller knows.
    """
    # One scale is not spread over the tile: kernels have a faster loop for it.
    if scales.size == 1:
        own: FlatView | NDArray[np.float64] = scales.reshape(1)
    else:
        part = tuple(slice(a, a + n) for a, n in zip(origin, value.shape, strict=True))
        own = FlatView(np.broadcast_to(scales, whole)[part])
    return Tile(
        value=FlatView(value),
        out=FlatView(target),
        scales=own,
        whole=whole,
        origin=origin,
        shape=value.shape,
        in_place=bool(np.shares_memory(value, target)) if in_place is None else in_place,
    )


def range_tiles(
    values: NDArray[Any],
    target: NDArray[Any],
    scales: NDArray[np.float64],
    whole: tuple[int, ...],
    start: int,
) -> list[Tile]:
    """Return the tiles of consecutive elements, from number ``start`` of the whole on."""
    # A range is a few rectangles: the head of a row, whole rows, the tail of a row. So what works
    # for rectangles works for ranges.
    tiles = []
    position = 0
    for rectangle in rectangles(whole, start, start + values.size):
        shape = tuple(part.stop - part.start for part in rectangle)
        piece = slice(position, position + prod(shape))
        origin = tuple(part.start for part in rectangle)
        tiles.append(
            rectangular_tile(
                values[piece].reshape(shape), target[piece].reshape(shape), scales, whole, origin
            )
        )
        position = piece.stop
    return tiles


def runs_of_tile(
    whole: tuple[int, ...], origin: tuple[int, ...], tile: tuple[int, ...], first: int, last: int
) -> Iterator[Run]:
    """Yield the runs of elements that are consecutive both in a tile and in the whole.

    Parameters
    ----------
    whole : tuple[int, ...]
        Shape of the whole.
    origin : tuple[int, ...]
        Index of the first element of the tile.
    tile : tuple[int, ...]
        Shape of the tile; it must fit into the whole.
    first, last : int
        Only the elements ``first .. last - 1`` of the tile.

    Examples
    --------
    >>> list(runs_of_tile((4, 5), (1, 2), (2, 3), 0, 6))
    [(0, 3, 7), (3, 6, 9)]
    >>> list(runs_of_tile((4, 5), (1, 0), (2, 5), 0, 10))
    [(0, 10, 5)]
    """
    if tile == whole:
        if first < last:
            yield first, last, 0
        return
    axis = _first_axis_of_a_run(whole, tile)
    length = prod(tile[axis:])
    while first < last:
        row = first // length
        end = min(last, (row + 1) * length)
        index = (*_index(row, tile[:axis]), *(0 for _ in tile[axis:]))
        corner = tuple(a + b for a, b in zip(index, origin, strict=True))
        yield first, end, _number(corner, whole) - row * length
        first = end


def run_length(whole: tuple[int, ...], tile: tuple[int, ...]) -> int:
    """Return the length of a tile's runs, of which the last and the first may be cut short.

    Examples
    --------
    >>> run_length((4, 5), (2, 3)), run_length((4, 5), (2, 5))
    (3, 10)
    """
    return prod(tile[_first_axis_of_a_run(whole, tile) :])


def run_starts(
    whole: tuple[int, ...], origin: tuple[int, ...], tile: tuple[int, ...], first: int, last: int
) -> NDArray[np.uint64]:
    """Return the numbers in the whole of the first elements of the runs ``first .. last - 1``.

    Examples
    --------
    >>> run_starts((4, 5), (1, 2), (2, 3), 0, 2)
    array([ 7, 12], dtype=uint64)
    """
    axis = _first_axis_of_a_run(whole, tile)
    # Numbers of elements are below 2**64, so sums that wrap around on the way come out right.
    rest = np.arange(first, last, dtype=np.uint64)
    numbers = np.full(rest.shape, _number(origin[axis:], whole[axis:]), dtype=np.uint64)
    for i in reversed(range(axis)):
        rest, position = np.divmod(rest, np.uint64(tile[i]))
        numbers += (position + np.uint64(origin[i])) * np.uint64(prod(whole[i + 1 :]))
    return numbers


def _first_axis_of_a_run(whole: tuple[int, ...], tile: tuple[int, ...]) -> int:
    # Axes that the tile covers completely do not interrupt a run.
    axis = len(whole) - 1
    while axis > 0 and tile[axis] == whole[axis]:
        axis -= 1
    return axis


def _index(number: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element by its number in C order."""
    # In Python integers, here and below: numbers go up to 2**64, beyond numpy's integers.
    index: list[int] = []
    for length in reversed(shape):
        number, position = divmod(number, length)
        index.insert(0, position)
    return tuple(index)


def _number(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the number of an element in C order."""
    number = 0
    for position, length in zip(index, shape, strict=True):
        number = number * length + position
    return number
