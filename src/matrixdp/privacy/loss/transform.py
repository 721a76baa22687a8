r"""A step's characteristic function at many orders at once, by a Fourier transform.

- *lattice*: each atom is replaced by 16 atoms on a lattice of distance h about it, so that
  polynomials up to degree 15 in the loss keep their sums. By the remainder of interpolation this
  changes ``e^(i s L)`` by at most ``c (s h)^16``, c the product of the distances over 16!.
- *the transform*: each value of a transform of N numbers, N = 2^m or 3 2^(m-1), is off by at most
  ``5 m`` units of the sum of their absolute values. Along each path of the algorithm there are m
  additions, of one unit, and as many products with roots of unity, of sqrt(5) units and one more
  for the root (Higham 2002, section 24.1, has this bound for the norm instead of for each value).
  That numpy's transform is of this kind is an assumption; tests compare it with long doubles.
"""

import math

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.loss.points import Points
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["characteristic_change", "size_of_window", "transform_error"]

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

_ORDER = 16
_REMAINDER = (math.gamma(8.5) / math.gamma(0.5)) ** 2 / math.factorial(_ORDER)  # c
_TOGETHER = 1 << 15  # atoms that are replaced at a time
_UNITS = 5.0


def characteristic_change(
    points: Points, step: float, size: int, s: FloatArray
) -> tuple[ComplexArray, FloatArray]:
    """Return a step's characteristic function less 1 at all s, and bounds of its errors.

    The mass at the lattice's loss of 0 is left out, and with it most rounding, since few losses of
    rarely sampled steps are far from there: all masses add up to 1.
    """
    circle, total, most = np.zeros(size), 0.0, 0
    for first in range(0, len(points.losses), _TOGETHER):
        chosen = slice(first, first + _TOGETHER)
        added, crowd = _deposit(points.losses[chosen] / step, points.weights[chosen], circle)
        total, most = total + added, max(most, crowd)
    circle[0] = 0.0
    values = np.conj(np.fft.rfft(circle)[: len(s)]) - np.complex128(math.fsum(circle))
    # Of each mass; of those that neighbours have at one lattice point; and of what is added there.
    rounds = len(points.losses) / _TOGETHER + float(np.ptp(points.losses)) / (step * size) + 2.0
    units = 4.0 * _ORDER + most + 2.0 * _ORDER + 2.0 * rounds
    rounding = transform_error(size) + UNIT_ROUNDOFF * (units + 4.0)
    errors = points.error(s) + 2.02 * rounding * total + 1.01 * _REMAINDER * (s * step) ** _ORDER
    return values, errors


def _deposit(positions: FloatArray, weights: FloatArray, circle: FloatArray) -> tuple[float, int]:
    """Add the masses that replace atoms at these positions.

    Return their total size, and how many atoms were added up between two lattice points at most.
    """
    before = _ORDER // 2 - 1
    first = np.floor(positions).astype(np.int64)
    distances = [positions - (first + (k - before)) for k in range(_ORDER)]
    lower = [weights]
    for distance in distances[:-1]:
        lower.append(lower[-1] * distance)
    total, upper = 0.0, np.ones_like(positions)
    low = int(first.min()) - before
    here = np.zeros(int(first.max()) + _ORDER - before - low)
    for k in reversed(range(_ORDER)):
        number = first + (k - before)
        scale = (-1.0) ** (_ORDER - 1 - k) * math.factorial(k) * math.factorial(_ORDER - 1 - k)
        masses = np.where(number == 0, 0.0, lower[k] * upper / scale)
        total += float(np.abs(masses).sum())
        here += np.bincount(number - low, masses, minlength=len(here))
        upper = upper * distances[k]
    np.add.at(circle, (low + np.arange(len(here))) % len(circle), here)
    return total, int(np.bincount(first - int(first.min())).max())


def size_of_window(points: float) -> int:
    """Return a power of two, or three of them, of at least so many points."""
    power = 1 << max(4, math.ceil(math.log2(points)))
    return 3 * power // 4 if points <= 3 * power // 4 else power


def transform_error(size: int) -> float:
    """Return a bound of the error of each value of a transform, over the sum of what goes in."""
    return 1.000001 * _UNITS * math.log2(size) * UNIT_ROUNDOFF
