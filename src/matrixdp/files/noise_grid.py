"""Whether a matrix can be what a mechanism released: finite, on the grid of its noise, symmetric.

Exact noise leaves every entry on a grid that depends on the scale alone. A value off the grid, such
as a private one or one with other noise, was not released by this library. A value on the grid may
still be forged: this check finds mistakes, not forgers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance, Diagonal, Isotropic, SymmetricIsotropic
from matrixdp.noise.specification.table import GRID_BITS

__all__ = ["can_be_released"]

# Eight megabytes at a time, so that a matrix larger than memory can be checked.
_ENTRIES_TOGETHER = 1 << 20


def can_be_released(value: NDArray[Any], covariance: Covariance) -> bool:
    """Return whether a matrix may hold noise of a covariance, reading a few rows at a time.

    The step of an entry is ``2**(floor(log2(scale)) - 20)``. Directional noise has no grid, because
    it is rotated.
    """
    rows, columns = value.shape
    together = max(1, _ENTRIES_TOGETHER // max(columns, 1))
    for first in range(0, rows, together):
        part = np.asarray(value[first : first + together], dtype=np.float64)
        if not np.isfinite(part).all():
            return False
        scales = _scales_of_rows(covariance, (rows, columns), first, len(part))
        if scales is not None and not _on_grid(part, scales):
            return False
        if isinstance(covariance, SymmetricIsotropic) and not np.array_equal(
            part, value[:, first : first + together].T
        ):
            return False
    return True


def _scales_of_rows(
    covariance: Covariance, shape: tuple[int, int], first: int, number: int
) -> NDArray[np.float64] | None:
    """Return the scales of some rows, or None if the noise is not independent."""
    match covariance:
        case Isotropic():
            return np.array([[covariance.scale]])
        case Diagonal():
            return np.asarray(np.broadcast_to(covariance.scales, shape)[first : first + number])
        case SymmetricIsotropic():
            scales = np.full((number, shape[1]), covariance.entry_scales((2, 2))[0, 1])
            places = np.arange(number)
            scales[places, first + places] = covariance.scale
            return scales
    return None


def _on_grid(part: NDArray[np.float64], scales: NDArray[np.float64]) -> bool:
    # In units of the step every entry is whole. Scaling by a power of two rounds nothing, except
    # that huge entries overflow, which are whole anyway, and tiny ones may underflow to 0.
    with np.errstate(over="ignore", under="ignore"):
        steps = np.ldexp(part, GRID_BITS + 1 - np.frexp(scales)[1])
    return bool(np.array_equal(steps, np.rint(steps)) and np.all((steps != 0.0) | (part == 0.0)))
