"""Noise scales: which are supported, how they fit a matrix, and which grid and limit they imply."""

import hashlib
from math import ldexp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.noise.specification.exact import grid_exponent
from matrixdp.noise.specification.table import GRID_BITS
from matrixdp.parameters import Limit, checked_integer, real_array

__all__ = [
    "LARGEST_SCALE_EXPONENT",
    "checked_dtype",
    "checked_grid_bits",
    "checked_scale",
    "fitted_scale",
    "grid_exponents",
    "largest_values",
    "scale_digest",
    "value_limit",
]

LARGEST_SCALE_EXPONENT = {"<f8": 900, "<f4": 100}
"""A scale is between ``2**-k`` and ``2**k``; the range of float32 is narrower."""

# Bits after the leading one: a number below 2**(k + 1) has digits down to 2**(k - bits).
_FRACTION_BITS = {"<f8": 52, "<f4": 23}
_EXPONENT_MASK = np.int64(0x7FF << 52)


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """Return float64 or float32, little-endian, or raise for every other type.

    Examples
    --------
    >>> checked_dtype("float32")
    dtype('float32')
    """
    try:
        given: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise InvalidParameterError(
            f"dtype must be float64 or float32, got dtype={dtype!r}, which is not a numpy type"
        ) from None
    # The name includes the byte order, because kernels read the bits of a double.
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
        If a scale is not a finite positive number within the supported range, or is of a kind that
        float64 may have to round, perhaps down: integers beyond 2**53 and long doubles.
    ShapeError
        If the scales do not fit the value's shape.

    Examples
    --------
    >>> checked_scale(2, (3, 4), "float64").shape
    (1, 1)
    """
    scales = real_array(scale, "scale")
    return fitted_scale(scales, shape, dtype)


def fitted_scale(
    scales: NDArray[np.float64], shape: tuple[int, ...], dtype: Any
) -> NDArray[np.float64]:
    """Return float64 scales with as many axes as the value: `checked_scale` without its gate."""
    given = scales.shape
    # numpy would also broadcast (n,) over rows; here the number of axes must say what is meant.
    if scales.ndim == 0:
        scales = scales.reshape((1,) * len(shape))
    fits = scales.ndim == len(shape) and all(
        length in (1, full) for length, full in zip(scales.shape, shape, strict=True)
    )
    if not fits:
        raise ShapeError(
            f"scale of shape {given} does not fit a value of shape {shape}; give one number, "
            "or an array with as many axes, each of length 1 or the value's length"
        )
    _check_scale_range(scales, dtype)
    return scales


def _check_scale_range(scales: NDArray[np.float64], dtype: Any) -> None:
    """Raise unless all scales are within the range of a type; NaN fails the comparisons.

    See `LARGEST_SCALE_EXPONENT` for the ranges.
    """
    exponent = LARGEST_SCALE_EXPONENT[checked_dtype(dtype).str]
    if scales.size == 0:
        return  # an empty matrix gets no noise
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
    # The shape first: the same numbers in another shape mean other scales.
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


def largest_values(scales: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return the largest absolute value that noise of each scale may be added to.

    With p the largest power of two that is at most the scale, it is ``2**52 p`` for float64 and
    ``2**23 p`` for float32. Up to twice that, the unit in the last place is at most p, so the
    result still has digits for the noise; far beyond it, adding the noise would change nothing.
    The limit depends on the scale alone, not on the value.

    Examples
    --------
    >>> largest_values(np.array([3.7]), np.dtype(np.float64)) == 2.0**53
    array([ True])
    """
    # Without its fraction bits a double is the power of two p. Scales that are supported end at
    # 2**900 (float32: 2**100), so that no limit is beyond the range of its type; others are
    # refused elsewhere, and must not overflow here.
    powers = (np.ascontiguousarray(scales).view(np.int64) & _EXPONENT_MASK).view(np.float64)
    return np.minimum(powers, 2.0**960) * 2.0 ** _FRACTION_BITS[dtype.str]


def value_limit(scales: NDArray[np.float64], dtype: Any) -> Limit:
    """Return the limit of a value by the scales of its noise: `largest_values`, and in words."""
    kind = checked_dtype(dtype)
    largest = largest_values(scales, kind)
    if scales.size == 1:
        text = f"{largest.item()!r}, because beyond that {kind.name} has no digits left for noise "
        return Limit(largest.item(), f"at most {text}of scale {scales.item()!r}")
    rule = (
        f"at most about 2**{_FRACTION_BITS[kind.str]} times the scale of its noise, element by "
        f"element, because beyond that {kind.name} has no digits left for the noise"
    )
    if scales.size:
        rule += f" (scales from {float(scales.min())!r} to {float(scales.max())!r})"
    return Limit(largest, rule)
