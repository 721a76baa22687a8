"""Checks of the arrays that noise is added to; all of them before anything is drawn."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.noise.application.threads import over_ranges
from matrixdp.noise.application.tiles import FlatView, Tile
from matrixdp.noise.specification.scales import checked_dtype, largest_values, value_limit
from matrixdp.parameters import all_within, outside_limit

__all__ = ["check_tiles", "checked_output", "checked_value"]

# Half a megabyte of float64: values and limits of a piece stay in the cache.
_CHECKED_TOGETHER = 1 << 16
# Reading is so fast that a thread pays only for many elements.
_LEAST_FOR_A_THREAD = 1 << 22


def checked_value(value: Any) -> NDArray[Any]:
    """Return the value if it is a plain float64 or float32 array with at least one axis.

    Nothing is converted here, unlike in the gate for matrices: the result may go to the same
    memory, and a stream is bound to the type.
    """
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise InvalidParameterError(
            f"value must be a numpy array, got {type(value).__name__}; use np.asarray(..., "
            "dtype=np.float64), and fill the gaps of a masked array"
        )
    checked_dtype(value.dtype)
    if value.ndim == 0:
        raise ShapeError("value must have at least one axis, got a scalar; reshape it to (1,)")
    return value


def check_tiles(
    tiles: Sequence[Tile], scales: NDArray[np.float64], dtype: np.dtype[Any], threads: int
) -> None:
    """Raise unless every element is finite and within its limit; each is read once.

    Parameters
    ----------
    tiles : sequence of Tile
        Parts of one release.
    scales : NDArray[np.float64]
        The scales of the whole.
    dtype : np.dtype
        The type of the values.
    threads : int
        The most threads that read.

    Raises
    ------
    InvalidParameterError
        The message names the limit and the scales, never the index or the size of an element.
    """
    for tile in tiles:
        # The default binds this tile; a closure would see whichever came last.
        def check(first: int, last: int, tile: Tile = tile) -> None:
            with np.errstate(all="ignore"):  # a signalling NaN is refused like any other
                within = _range_within(tile, first, last, dtype)
            if not within:
                raise outside_limit("value", value_limit(scales, dtype))

        over_ranges(check, prod(tile.shape), threads, _LEAST_FOR_A_THREAD)


def _range_within(tile: Tile, first: int, last: int, dtype: np.dtype[Any]) -> bool:
    """Return whether the elements ``first .. last - 1`` of a tile are within their limits."""
    buffers = np.empty((2, min(_CHECKED_TOGETHER, last - first)), dtype=np.float64)
    # One scale has one limit. Python between the blocks is what threads wait for, so it is found
    # once and not for every block.
    largest: float | NDArray[np.float64] = (
        0.0 if isinstance(tile.scales, FlatView) else largest_values(tile.scales, dtype).item()
    )
    for start in range(first, last, _CHECKED_TOGETHER):
        size = min(_CHECKED_TOGETHER, last - start)
        values = tile.value.elements(start, buffers[0, :size])
        if isinstance(tile.scales, FlatView):
            largest = largest_values(tile.scales.elements(start, buffers[1, :size]), dtype)
        if not all_within(values, largest):
            return False
    return True


def checked_output(
    out: Any, value: NDArray[Any], scales: NDArray[np.float64] | None = None
) -> NDArray[Any]:
    """Return the array that the result goes to: a new one for None, the value itself, or another.

    Raises
    ------
    InvalidParameterError
        If it is not a writable array of the value's type, if two of its elements share memory, or
        if it overlaps the value without being the value, or the scales.
    ShapeError
        If its shape is not the value's.
    """
    if out is None:
        return np.empty(value.shape, dtype=value.dtype)
    if not isinstance(out, np.ndarray) or out.dtype != value.dtype:
        kind = out.dtype.str if isinstance(out, np.ndarray) else type(out).__name__
        raise InvalidParameterError(
            f"out must be a numpy array of the value's type {value.dtype.str!r}, got {kind!r}"
        )
    if out.shape != value.shape:
        raise ShapeError(f"out has shape {out.shape}, but the value has shape {value.shape}")
    if not out.flags.writeable:
        raise InvalidParameterError("out is read-only; pass a writable array or none at all")
    # Two elements in one cell would end up as one result with the noise of the last.
    if _overlaps_itself(out):
        raise InvalidParameterError("out has elements that share memory; pass an array of its own")
    # In place each element is read before it is written. With a partial overlap an element could be
    # overwritten before it is read, and noise would be added to a noisy value.
    if not _same_memory(out, value) and np.shares_memory(out, value):
        raise InvalidParameterError(
            "out overlaps the value without being the value; pass out=value to work in place, or "
            "an array of its own"
        )
    if scales is not None and np.shares_memory(out, scales):
        raise InvalidParameterError("out overlaps the scales; pass an array of its own")
    return out


def _same_memory(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays of one shape and type are the same elements of memory."""
    here, there = one.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(here == there and one.strides == other.strides)


def _overlaps_itself(array: NDArray[Any]) -> bool:
    """Return whether an array might hold one cell twice; false for every slice of a plain one.

    Sorted by stride, each axis must step over everything that the finer axes cover.
    """
    covered = array.itemsize
    for stride, length in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if length > 1:
            if stride < covered:
                return True
            covered += stride * (length - 1)
    return False
