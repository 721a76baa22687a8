"""Checks of the arrays of a release; all of them before anything is drawn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.noise.flat import FlatView
from matrixdp.noise.scales import checked_dtype
from matrixdp.noise.threads import over_ranges

__all__ = ["check_finite", "checked_output", "checked_value"]

_CHECKED_TOGETHER = 1 << 16
_WORTH_A_THREAD = 1 << 22


def checked_value(value: Any) -> NDArray[Any]:
    """Return the value if it is a plain float64 or float32 array with at least one axis."""
    if not isinstance(value, np.ndarray) or isinstance(value, np.ma.MaskedArray):
        raise InvalidParameterError(
            f"value must be a numpy array, got {type(value).__name__}; use np.asarray(..., "
            "dtype=np.float64), and fill the gaps of a masked array"
        )
    checked_dtype(value.dtype)
    if value.ndim == 0:
        raise ShapeError(
            "value must have at least one axis, got a single number; reshape it to (1,)"
        )
    return value


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
    if _overlaps_itself(out):
        raise InvalidParameterError("out has elements that share memory; pass an array of its own")
    if not _same_memory(out, value) and np.shares_memory(out, value):
        raise InvalidParameterError(
            "out overlaps the value without being the value; pass out=value to work in place, or "
            "an array of its own"
        )
    if scales is not None and np.shares_memory(out, scales):
        raise InvalidParameterError("out overlaps the scales; pass an array of its own")
    return out


def _same_memory(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether two arrays of one shape and type are the same elements in the same places."""
    here, there = one.__array_interface__["data"][0], other.__array_interface__["data"][0]
    return bool(here == there and one.strides == other.strides)


def _overlaps_itself(array: NDArray[Any]) -> bool:
    """Return whether an array might hold one cell twice; false for every slice of a plain one.

    Sorted by stride, each axis must step over everything that the finer ones reach.
    """
    reach = array.itemsize
    for stride, length in sorted(zip(map(abs, array.strides), array.shape, strict=True)):
        if length > 1:
            if stride < reach:
                return True
            reach += stride * (length - 1)
    return False


def check_finite(value: NDArray[Any], limit: float, threads: int = 1) -> None:
    """Raise unless every element is a finite number below the limit in absolute value.

    Raises
    ------
    InvalidParameterError
        Which says what was found, never where or how much.
    """
    flat = FlatView(value)

    def check(first: int, last: int) -> None:
        with np.errstate(all="ignore"):  # a signalling NaN is reported like any other
            within = _all_within(flat, first, last, limit)
        if not within:
            raise InvalidParameterError(
                f"value must be finite and smaller than {limit!r} in every element (the limit "
                "follows from the smallest scale); it holds NaN, infinity or a larger number"
            )

    over_ranges(check, value.size, threads, _WORTH_A_THREAD)


def _all_within(flat: FlatView, first: int, last: int, limit: float) -> bool:
    """Return whether the elements ``first .. last - 1`` are below the limit in absolute value."""
    buffer = np.empty(min(_CHECKED_TOGETHER, last - first), dtype=np.float64)
    for start in range(first, last, _CHECKED_TOGETHER):
        size = min(_CHECKED_TOGETHER, last - start)
        values = flat.view(start, size)
        if values is None:
            values = buffer[:size]
            flat.read(start, values)
        if not (values.max() < limit and values.min() > -limit):  # NaN fails both
            return False
    return True
