"""Checks that a matrix can be what a mechanism released.

Exact noise leaves every entry on a grid that depends on the scale alone, and within a limit. A
value off the grid, such as a private one or one with other noise, was not released by this library.
Nor was a matrix whose entries all lie on a much coarser grid, such as counts without noise. Values
on the grid may still be forged: these checks find mistakes, not forgers.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Directional,
    Isotropic,
    SymmetricDiagonal,
    SymmetricIsotropic,
)
from matrixdp.noise.specification.scales import largest_values
from matrixdp.noise.specification.table import GRID_BITS

__all__ = ["can_be_released"]

# Eight megabytes at a time, so that a matrix larger than memory can be checked.
_ENTRIES_TOGETHER = 1 << 20
# Noise beyond 16 standard deviations, which are below 32 powers of two, has a chance below 2**-180.
_POWERS_OF_NOISE = 32.0
# See `_is_too_coarse`: the bits that an entry pays for the bound, and those that refuse a matrix.
_BITS_PAID = 0.01
_BITS_REFUSED = 41.0
# The exponent of the coarsest grid that zeros lie on: they lie on all.
_EVERY_GRID = 1 << 20


def can_be_released(
    value: NDArray[Any], covariance: Covariance, floor: float | None = None
) -> bool:
    """Return whether a matrix may hold noise of a covariance, reading a few rows at a time.

    Parameters
    ----------
    value : ndarray, shape (m, n)
        float64 or float32.
    covariance : Covariance
        Of the noise.
    floor : float, optional
        Of directional noise: the scale of the exact noise in it, which decides the limit.

    Notes
    -----
    With p the largest power of two up to the scale, the step of an entry is ``2**-20 p``, and its
    limit is that of the values before the noise (see `largest_values`) plus ``32 p``, which noise
    exceeds with a chance below ``2**-180``. Directional noise has no grid, because it is rotated;
    its limit is that of the floor plus 32 of the largest standard deviation.
    """
    if isinstance(covariance, Directional):
        exact = covariance.smallest_singular_value if floor is None else floor
        limit = _directional_limit(value, covariance, exact)
        within = all(_is_finite_within(part, limit) for _, part in _parts(value))
        return within and not _is_too_coarse(value, covariance, exact)
    for first, part in _parts(value):
        scales = _scales_of_rows(covariance, value.shape, first, len(part))
        if not _is_finite_within(part, _limits(scales, value.dtype)) or not _on_grid(part, scales):
            return False
        if covariance.mirrored and not np.array_equal(part, value[:, first : first + len(part)].T):
            return False
    return not _is_too_coarse(value, covariance)


def _parts(value: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """Yield the number of the first row and some rows, until all were there."""
    rows, columns = value.shape
    together = max(1, _ENTRIES_TOGETHER // max(columns, 1))
    for first in range(0, rows, together):
        yield first, np.asarray(value[first : first + together], dtype=np.float64)


def _scales_of_rows(
    covariance: Covariance, shape: tuple[int, ...], first: int, number: int
) -> NDArray[np.float64]:
    """Return the scales of independent noise in some rows: one for all, or one for each entry."""
    match covariance:
        case Diagonal():
            return np.asarray(np.broadcast_to(covariance.scales, shape)[first : first + number])
        case SymmetricIsotropic():
            scales = np.full((number, shape[1]), covariance.entry_scales((2, 2))[0, 1])
            indices = np.arange(number)
            scales[indices, first + indices] = covariance.scale
            return scales
        case SymmetricDiagonal():
            return covariance.scales_of_rows(first, number)
        case Isotropic():
            return np.array([[covariance.scale]])
    raise TypeError(type(covariance).__name__)


def _limits(scales: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return the largest absolute values that entries with noise have."""
    powers = np.ldexp(1.0, np.frexp(scales)[1] - 1)
    # At the limit both are multiples of the type's spacing, so that no rounding goes beyond.
    return np.asarray(largest_values(scales, dtype.newbyteorder("<")) + _POWERS_OF_NOISE * powers)


def _directional_limit(
    value: NDArray[Any], covariance: Directional, floor: float
) -> NDArray[np.float64]:
    # Twice, for what rotations in floats add to the limit.
    most = 2.0 * _POWERS_OF_NOISE * _largest_scale(value, covariance)
    return _limits(np.array([[floor]]), value.dtype) + most


def _largest_scale(value: NDArray[Any], covariance: Directional) -> float:
    return float(np.max(covariance.entry_scales((value.shape[0], value.shape[1]))))


def _is_finite_within(part: NDArray[np.float64], limits: NDArray[np.float64]) -> bool:
    # NaN and infinities fail the comparison.
    return bool(np.all(np.abs(part) <= limits))


def _on_grid(part: NDArray[np.float64], scales: NDArray[np.float64]) -> bool:
    # In units of the step every entry is whole. Scaling by a power of two rounds nothing, except
    # that huge entries overflow, which are whole anyway, and tiny ones may underflow to 0.
    with np.errstate(over="ignore", under="ignore"):
        steps = np.ldexp(part, GRID_BITS + 1 - np.frexp(scales)[1])
    return bool(np.array_equal(steps, np.rint(steps)) and np.all((steps != 0.0) | (part == 0.0)))


def _is_too_coarse(value: NDArray[Any], covariance: Covariance, floor: float | None = None) -> bool:
    """Return whether all entries lie on a coarse grid, as noise does with a chance below 2^-40.

    For an entry x with exact noise of scale sigma let ``p = 2**(e + 20)`` be the largest power of
    two up to sigma, ``2**e`` the step of its grid, and s the spacing of the type at ``|x| + 64 p``.
    Let L be ``2**e`` if s is at most that, else ``s + 2**e``; with directional noise s is taken at
    ``|x|`` and 64 of its largest scale, and L is ``3 s + 2**e``. For an exponent t let
    ``h = min(2**t, p)``. The matrix is refused if for some t every x is a multiple of its h, and
    ``B = sum(max(log2(h / L) - 0.01, 0)) >= 41 + log2(T)`` over the independent entries: those of
    the upper triangle of a symmetric matrix. T is the number of t from the finest step to the
    largest p.

    *Guarantee:* a matrix with exact noise is refused with a chance below ``2**-40``, whatever it
    was before, up to ``2**64`` entries. Proof: let no noise exceed 12 of its scales, which fails
    with a chance below ``2**-43``. Then s is at least the spacing at every value that the entry can
    have. With L' the least L of these values, which the matrix before the noise decides, the reals
    that are rounded to x, to the grid and then to the type, lie within L' / 2 of it: a point of the
    grid that is rounded to x is at most s / 2 away. What is added to make noise directional does
    not depend on the exact noise, and moves them; it rounds three times.
    So noise is where it is rounded to a multiple of h with a chance of at most
    ``(L' / h) (1 + 2**-27)``, by Poisson's summation, as h is at most sigma. Entries are
    independent, B is at most the same sum with L', and 0.01 covers the last factor: all are
    multiples of h, and ``B >= b``, with a chance below ``2**-b``. Only T of the t differ.
    """
    # What holds for t holds for smaller ones, and B grows with t: the largest t decides.
    coarsest, finest, largest = _EVERY_GRID, _EVERY_GRID, -_EVERY_GRID
    finest_of_all = _finest_of_all(covariance)
    for first, part in _parts(value):
        steps = _step_exponents(covariance, value.shape, first, part, floor)
        divisors = _divisor_exponents(part)
        hindered = np.where(divisors < steps + GRID_BITS, divisors, _EVERY_GRID)
        coarsest = min(coarsest, int(hindered.min(initial=_EVERY_GRID)))
        finest = min(finest, int(steps.min(initial=_EVERY_GRID)))
        largest = max(largest, int(steps.max(initial=-_EVERY_GRID)) + GRID_BITS)
        if coarsest <= finest_of_all:  # as with noise, nearly at once: no later row changes it
            return False
    if coarsest <= finest:
        return False
    bits, refused = 0.0, _BITS_REFUSED + math.log2(largest - finest + 1)
    for first, part in _parts(value):
        steps = _step_exponents(covariance, value.shape, first, part, floor)
        lengths = _rounded_lengths(part, value, covariance, np.ldexp(1.0, steps))
        gained = np.minimum(coarsest, steps + GRID_BITS) - np.log2(lengths) - _BITS_PAID
        if covariance.mirrored:
            gained = np.triu(gained, first)
        bits += float(np.maximum(gained, 0.0).sum())
        if bits >= refused:
            return True
    return False


def _finest_of_all(covariance: Covariance) -> int:
    """Return e of the finest step ``2**e`` of independent noise, or a lower bound of others."""
    match covariance:
        case Isotropic(scale=scale):
            return math.frexp(scale)[1] - 1 - GRID_BITS
        case Diagonal(scales=scales):
            return math.frexp(float(scales.min()))[1] - 1 - GRID_BITS
        case _:
            return -_EVERY_GRID


def _rounded_lengths(
    part: NDArray[np.float64],
    value: NDArray[Any],
    covariance: Covariance,
    grid: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return L of every entry of some rows, by the steps of their grids; see `_is_too_coarse`."""
    if isinstance(covariance, Directional):
        return 3.0 * _spacings(part, _largest_scale(value, covariance), value.dtype) + grid
    spacings = _spacings(part, np.ldexp(grid, GRID_BITS), value.dtype)
    return np.where(spacings <= grid, grid, spacings + grid)


def _spacings(
    part: NDArray[np.float64], scales: float | NDArray[np.float64], dtype: np.dtype[Any]
) -> NDArray[np.float64]:
    """Return the largest spacings of a type that entries can have had with other noise."""
    reached = np.abs(part) + 2.0 * _POWERS_OF_NOISE * scales
    return np.asarray(np.spacing(reached.astype(dtype)).astype(np.float64))


def _step_exponents(
    covariance: Covariance,
    shape: tuple[int, ...],
    first: int,
    part: NDArray[np.float64],
    floor: float | None,
) -> NDArray[np.int64]:
    """Return e of the step ``2**e`` of every entry of some rows."""
    exact = None if floor is None else np.array([[floor]])
    scales = _scales_of_rows(covariance, shape, first, len(part)) if exact is None else exact
    exponents = np.frexp(scales)[1].astype(np.int64) - 1 - GRID_BITS
    return np.asarray(np.broadcast_to(exponents, part.shape))


def _divisor_exponents(part: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the exponents of the largest powers of two that divide entries; zeros have them all.

    Examples
    --------
    >>> _divisor_exponents(np.array([12.0, -0.375]))
    array([ 2, -3])
    """
    fractions, exponents = np.frexp(part)
    # 53 digits are an integer; its lowest bit that is set is the divisor.
    digits = np.ldexp(fractions, 53).astype(np.int64)
    lowest = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return np.where(part == 0.0, _EVERY_GRID, lowest + exponents.astype(np.int64) - 53)
