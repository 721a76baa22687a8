"""Noise scales: which are supported, how they are laid over a matrix, and which grid they imply."""

import hashlib
from math import frexp, ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.noise.exact import grid_exponent
from matrixdp.noise.integers import checked_integer
from matrixdp.noise.table import GRID_BITS

__all__ = [
    "LARGEST_SCALE_EXPONENT",
    "checked_dtype",
    "checked_grid_bits",
    "checked_scale",
    "grid_exponents",
    "scale_digest",
    "value_limit",
]

LARGEST_SCALE_EXPONENT = {"<f8": 900, "<f4": 100}
"""A scale lies between ``2**-k`` and ``2**k``; narrower for float32, whose range is."""

_LARGEST_STEPS_EXPONENT = 1000
_LARGEST_FLOAT32_EXPONENT = 127
_LARGEST_CERTAIN_INTEGER = 1 << 53


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """Return float64 or float32, little-endian; refuse every other type.

    Examples
    --------
    >>> checked_dtype("float32")
    dtype('float32')
    """
    try:
        given: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise InvalidParameterError(
            f"dtype must be float64 or float32, got dtype={dtype!r}, which is no type of numpy's"
        ) from None
    if given.str not in LARGEST_SCALE_EXPONENT:
        raise InvalidParameterError(
            f"the value must be float64 or float32 in little-endian order, got dtype={given.str!r}"
            "; convert it first, for example by value.astype(np.float64)"
        )
    return given


def checked_grid_bits(grid_bits: int) -> int:
    """Return grid_bits if it is an integer from 0 to GRID_BITS."""
    bits = checked_integer(grid_bits, "grid_bits")
    if not 0 <= bits <= GRID_BITS:
        raise InvalidParameterError(
            f"grid_bits must be an integer from 0 to {GRID_BITS}, got grid_bits={bits!r}"
        )
    return bits


def checked_scale(scale: Any, shape: tuple[int, ...], dtype: Any) -> NDArray[np.float64]:
    """Return the scale as float64 with as many axes as the value, every length 1 or the value's.

    Parameters
    ----------
    scale : float or array_like
        Standard deviations: one number, or an array with as many axes as the value, for a matrix
        (m, 1) per row, (1, n) per column, (m, n) per element.
    shape : tuple[int, ...]
        Shape of the value.
    dtype : dtype_like
        Type of the value; decides the range.

    Raises
    ------
    InvalidParameterError
        If a scale is not a finite positive number within the supported range, if float64 does not
        hold it exactly (it might be rounded down), or if the array is masked.
    ShapeError
        If the scales cannot be laid over the value.

    Examples
    --------
    >>> checked_scale(2, (3, 4), "float64").shape
    (1, 1)
    """
    array = _as_real_array(scale)
    scales = _as_doubles(array)
    if isinstance(scale, list | tuple):  # numpy may have rounded integers that stand among floats
        _check_exact(np.asarray(scale, dtype=object), scales)
    if scales.ndim == 0:
        scales = scales.reshape((1,) * len(shape))
    fits = scales.ndim == len(shape) and all(
        length in (1, full) for length, full in zip(scales.shape, shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"scale of shape {array.shape} does not fit a value of shape {shape}; give one number, "
            "or an array with as many axes, each of length 1 or the value's length"
        )
    _check_range(scales, LARGEST_SCALE_EXPONENT[checked_dtype(dtype).str])
    return scales


def _as_real_array(scale: Any) -> NDArray[Any]:
    """Return the scale as an array of integers or floats; refuse other kinds and masks."""
    if isinstance(scale, np.ma.MaskedArray):
        raise InvalidParameterError(
            "scale must not be a masked array; fill its gaps, for example by scale.filled(...)"
        )
    try:
        array = np.asarray(scale)
    except ValueError as error:
        raise ShapeError(
            "scale must be one number or an array, got lists of different lengths; give every row "
            "as many entries"
        ) from error
    if array.dtype.kind not in "fiu":
        raise InvalidParameterError(
            f"scale must be a real number or an array of them, got dtype={array.dtype.str!r}; "
            "convert it with float() or np.asarray(..., dtype=np.float64)"
        )
    return array


def _as_doubles(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return an array as float64; refuse a number that float64 does not hold exactly."""
    if np.can_cast(array.dtype, np.float64, "safe") and array.dtype.kind == "f":
        return array.astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        doubles = array.astype(np.float64)
        if array.dtype.kind == "f":
            _check_exact(array, doubles.astype(array.dtype))
        elif array.size and int(array.max()) > _LARGEST_CERTAIN_INTEGER:
            _check_exact(array.astype(object), doubles)
    return doubles


def _check_exact(given: NDArray[Any], held: NDArray[Any]) -> None:
    """Refuse if what is held differs from what was given; NaN is left to the check of the range."""
    objects = held.astype(object) if given.dtype == object else held
    if not bool(np.all((given == objects) | (held != held))):  # noqa: PLR0124 - NaN alone
        raise InvalidParameterError(
            "scale must be a number that float64 holds exactly, got one that would be rounded, "
            "perhaps down; round it up to a float first"
        )


def _check_range(scales: NDArray[np.float64], exponent: int) -> None:
    """Refuse scales outside ``[2**-exponent, 2**exponent]``; NaN fails both comparisons."""
    if scales.size == 0:
        return
    smallest, largest = float(scales.min()), float(scales.max())
    if not (smallest >= ldexp(1.0, -exponent) and largest <= ldexp(1.0, exponent)):
        raise InvalidParameterError(
            f"scale must be a finite positive number from 2**-{exponent} to 2**{exponent}, got "
            f"values from {smallest!r} to {largest!r}; rescale the query"
        )


def scale_digest(scales: NDArray[np.float64]) -> str:
    """Return the SHA-256 of the scales: their shape, then little-endian doubles in C order.

    Examples
    --------
    >>> scale_digest(np.array([[2.0]]))[:16]
    '49c0be8463fe83d3'
    """
    digest = hashlib.sha256(repr(tuple(int(n) for n in scales.shape)).encode())
    digest.update(np.ascontiguousarray(scales, dtype="<f8").data)
    return digest.hexdigest()


def grid_exponents(scales: NDArray[np.float64], grid_bits: int) -> tuple[int, int]:
    """Return the exponents of the finest and of the coarsest grid step.

    Examples
    --------
    >>> grid_exponents(np.array([1.0, 3.7, 1024.0]), 20)
    (-20, -10)
    """
    if scales.size == 0:
        return (0, 0)
    return (
        grid_exponent(float(scales.min()), grid_bits),
        grid_exponent(float(scales.max()), grid_bits),
    )


def value_limit(finest_exponent: int, dtype: Any) -> float:
    """Return the bound that every absolute value must stay below.

    ``2**1000`` steps of the finest grid, so that the scaling to steps is exact; for float32 at most
    ``2**127``, so that no released value overflows. It depends on the scales alone.

    Examples
    --------
    >>> value_limit(-20, "float64") == 2.0**980
    True
    """
    exponent = _LARGEST_STEPS_EXPONENT + finest_exponent
    if checked_dtype(dtype).str == "<f4":
        exponent = min(exponent, _LARGEST_FLOAT32_EXPONENT)
    largest = float(np.finfo(np.float64).max)
    return largest if exponent >= frexp(largest)[1] else ldexp(1.0, exponent)
