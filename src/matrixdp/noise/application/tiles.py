"""Parts of a release: the values, their scales, and where the noisy values go."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.noise.application.flat import FlatView, rectangles

__all__ = ["Tile", "range_tiles", "rectangular_tile"]


@dataclass(frozen=True)
class Tile:
    """A part of a release; all of it has been checked.

    Attributes
    ----------
    value, out : FlatView
        The values and the place for the noisy values, by element number within the tile.
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
