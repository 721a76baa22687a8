"""Checks that a matrix can be what a mechanism released.

Exact noise leaves every entry on a grid that depends on the scale alone, and within a limit. A
value off the grid, such as a private one or one with other noise, was not released by this library.
Nor was a matrix whose entries all lie on a much coarser grid, such as counts without noise. Values
on the grid may still be forged: these checks find mistakes, not forgers.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance, Diagonal, Directional, Isotropic, SymmetricIsotropic
from matrixdp.noise.specification.scales import largest_values
from matrixdp.noise.specification.table import GRID_BITS

__all__ = ["can_be_released"]

# Eight megabytes at a time, so that a matrix larger than memory can be checked.
_ENTRIES_TOGETHER = 1 << 20
# Noise beyond 16 standard deviations, which are below 32 powers of two, has a chance below 2**-180.
_POWERS_OF_NOISE = 32.0
# See `_is_too_coarse`: the bits that an entry pays for the bound, and those that refuse a matrix.
_BITS_PAID = 3
_BITS_REFUSED = 52
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
        return all(
            _is_finite_within(part, _directional_limit(value, covariance, floor))
            for _, part in _parts(value)
        )
    for first, part in _parts(value):
        scales = _scales_of_rows(covariance, value.shape, first, len(part))
        if not _is_finite_within(part, _limits(scales, value.dtype)) or not _on_grid(part, scales):
            return False
        if isinstance(covariance, SymmetricIsotropic) and not np.array_equal(
            part, value[:, first : first + len(part)].T
        ):
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
        case Isotropic():
            return np.array([[covariance.scale]])
    raise TypeError(type(covariance).__name__)


def _limits(scales: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return the largest absolute values that entries with noise have."""
    powers = np.ldexp(1.0, np.frexp(scales)[1] - 1)
    # At the limit both are multiples of the type's spacing, so that no rounding goes beyond.
    return np.asarray(largest_values(scales, dtype.newbyteorder("<")) + _POWERS_OF_NOISE * powers)


def _directional_limit(
    value: NDArray[Any], covariance: Directional, floor: float | None
) -> NDArray[np.float64]:
    scale = covariance.smallest_singular_value if floor is None else floor
    largest = float(np.max(covariance.entry_scales((value.shape[0], value.shape[1]))))
    # Twice, for what rotations in floats add to the limit.
    return _limits(np.array([[scale]]), value.dtype) + 2.0 * _POWERS_OF_NOISE * largest


def _is_finite_within(part: NDArray[np.float64], limits: NDArray[np.float64]) -> bool:
    # NaN and infinities fail the comparison.
    return bool(np.all(np.abs(part) <= limits))


def _on_grid(part: NDArray[np.float64], scales: NDArray[np.float64]) -> bool:
    # In units of the step every entry is whole. Scaling by a power of two rounds nothing, except
    # that huge entries overflow, which are whole anyway, and tiny ones may underflow to 0.
    with np.errstate(over="ignore", under="ignore"):
        steps = np.ldexp(part, GRID_BITS + 1 - np.frexp(scales)[1])
    return bool(np.array_equal(steps, np.rint(steps)) and np.all((steps != 0.0) | (part == 0.0)))


def _is_too_coarse(value: NDArray[Any], covariance: Covariance) -> bool:
    """Return whether all entries lie on a coarse grid, as noise does with a chance below 2^-40.

    For an entry x with noise of scale sigma let ``p = 2**(e + 20)`` be the largest power of two up
    to sigma, ``2**e`` the step of its grid, ``2**s`` the spacing of the type at x, and
    ``u = max(2**e, 2**s)``. For an exponent t let ``h = min(2**t, p)``. The matrix is refused if
    for some t every x is a multiple of its h, and ``B = sum(max(log2(h / u) - 3, 0)) >= 52`` over
    the independent entries: those of the upper triangle of a symmetric matrix.

    *Guarantee:* a matrix with exact noise is refused with a chance below ``2**-40``, whatever it
    was before, up to ``2**64`` entries. Proof, for one t first. Let ``w = log2(h / u)``, A the
    event that h divides x, and ``f = 2**max(w - 3, 0)`` on A, else 0. Given the value, entries are
    independent, so by Markov's inequality ``P(every A, B >= b) <= 2**-b prod E f``.

    - The reals that are rounded to x (to the grid, then to the type) have length at most 2 u. With
      phi the density before rounding, ``sum 2**w P(x)`` over multiples x of h with ``w >= 2`` is
      at most ``2 sum h sup phi``, the supremum over ``|y - x| <= u <= h / 4``. As phi has one
      peak, that is at most ``2 (1 + 2 h max(phi)) <= 2 (1 + 2 / sqrt(2 pi)) < 3.6``, for
      ``h <= sigma``.
    - Values with ``w <= 1`` and with ``w >= 4`` are at least 48 p apart, more than 24 sigma: two
      binades of the type lie between them, of which the smaller has 2**23 spacings or more and
      spacings of ``2**(e + 1)`` or more. So one of the two is more than 12 sigma from the mean;
      its share of E f is below ``2**17`` times ``2**-100``.
    - If it is ``w <= 1``, then ``E f <= 3.6 / 4 + 2**-83 < 1``, as ``max(w - 3, 0) <= w - 2`` from
      w = 2 on. If it is ``w >= 4``, then f is at most 1 elsewhere, and ``E f <= 1 + 2**-83``.

    Hence ``P <= 2**-52 (1 + 2**-18)`` for one t. Scales span at most 1,800 binades, so fewer than
    ``2**11`` of the t differ in what they say: together less than ``2**-40``.
    """
    # What holds for t holds for smaller ones, and B grows with t: the largest t decides.
    coarsest, finest = _EVERY_GRID, _EVERY_GRID
    for first, part in _parts(value):
        steps = _step_exponents(covariance, value.shape, first, part)
        divisors = _divisor_exponents(part)
        hindered = np.where(divisors < steps + GRID_BITS, divisors, _EVERY_GRID)
        coarsest = min(coarsest, int(hindered.min(initial=_EVERY_GRID)))
        finest = min(finest, int(steps.min(initial=_EVERY_GRID)))
    if coarsest <= finest + _BITS_PAID:
        return False
    bits = 0
    for first, part in _parts(value):
        steps = _step_exponents(covariance, value.shape, first, part)
        spacings = np.frexp(np.spacing(np.abs(part).astype(value.dtype)))[1] - 1
        paid = np.minimum(coarsest, steps + GRID_BITS) - np.maximum(steps, spacings) - _BITS_PAID
        if isinstance(covariance, SymmetricIsotropic):
            paid = np.triu(np.broadcast_to(paid, part.shape), first)
        bits += int(np.maximum(paid, 0).sum())
        if bits >= _BITS_REFUSED:
            return True
    return False


def _step_exponents(
    covariance: Covariance, shape: tuple[int, ...], first: int, part: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return e of the step ``2**e`` of every entry of some rows."""
    scales = _scales_of_rows(covariance, shape, first, len(part))
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
