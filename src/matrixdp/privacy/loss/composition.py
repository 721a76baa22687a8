r"""Many steps at once: atoms of single steps, tilted, to the power T by Fourier transform.

With ``a_k`` the masses of one step times ``e^(theta k h - K)``, K such that they add up to 1, the
sum of T steps has the distribution ``b = a * a * ... * a``, and

    delta(epsilon) = e^(T K - theta epsilon) sum_(x > 0) b(epsilon + x) e^(-theta x) (1 - e^-x).

For the theta of the saddle point b has its bulk near epsilon, so an absolute error of b, which is
all that a Fourier transform promises, is a relative error of delta, however small delta is.

What is bounded, and added to an upper bound or taken from a lower one:

- *transform*: each value of a transform of N numbers, N = 2^m or 3 2^(m-1), is off by at most
  ``_UNITS m`` units of the sum of their absolute values. Along each path of the algorithm there are
  m additions, of one unit, and as many products with roots of unity, of sqrt(5) units and one more
  for the root (Higham 2002, section 24.1, has this bound for the norm instead of for each value).
  That numpy's transform is of this kind is an assumption; tests compare it with long doubles.
- *power*: by repeated squaring, T - 1 products of relative error ``sqrt(5)`` units each (Brent,
  Percival and Zimmermann 2007), and T times the error of the transform.
- *wrap-around*: a circular convolution adds what lies beyond a window of N points to points within
  it. Chernoff's bound says how much that is.
- *rounding* of tilts, of T K and of the last sum.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import CalibrationError
from matrixdp.privacy.loss.lattice import Lattice
from matrixdp.privacy.loss.tilting import Saddle
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["FAR", "MOST_POINTS", "Composed", "TooManyPointsError", "composed"]

FloatArray = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]

MOST_POINTS = 1 << 21
"""Of a window: a composition takes about 100 bytes for each."""

_UNITS = 5.0
_SMALLEST = 1e-300
_LARGEST_EXPONENT = 709.0
_BELOW = 1e-12  # the tilted mass that may lie below the window
_ABOVE = 1e-9  # the tilted mass that may lie a whole window above epsilon
_DOUBLINGS = 2  # of a window for that
FAR = 18.0
"""Terms of the last sum below e^-18 are only bounded, unless more are asked for."""


class TooManyPointsError(CalibrationError):
    """A window that would take too much memory; a coarser lattice needs fewer points."""


@dataclass(frozen=True)
class Composed:
    """The tilted distribution of the sum of all losses, in a window, with what bounds its errors.

    Attributes
    ----------
    step, first : float, int
        The losses of the window are ``step (first + k)``, less the sum of all origins.
    origin : float
        The sum of all origins.
    masses : array
        Tilted, each off by at most ``error``.
    tilt, log_factor : float
        ``theta`` and ``T K``.
    far : float
        The exponent from which on terms of the last sum are only bounded.
    error : float
        Of every mass, absolute.
    relative : float
        Of delta, from rounding tilts, factors and sums.
    growth : tuple of (float, float)
        Orders c with ``log E[e^(c S)]`` of the tilted sum: bounds of the mass above any loss.
    displacement : float
        The whole loss is off by at most this.
    lost : float
        The mass of all steps that is in no atom.
    """

    step: float
    first: int
    origin: float
    masses: FloatArray
    tilt: float
    far: float
    log_factor: float
    error: float
    relative: float
    growth: tuple[tuple[float, float], ...]
    displacement: float
    lost: float

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta, for atoms that dominate.

        Infinite where numbers are beyond floats, so that nothing is known.
        """
        shift = self._shifted(epsilon, -1.0)
        total, weight = self._sum(shift)
        found = total * (1.0 + self.relative) + self.error * weight
        # Terms that were left out, and mass beyond the window. Mass from below that came into the
        # window does no harm, unless epsilon is below it.
        for above in (self.far / self.tilt, self._end - shift):
            found += self._most_weight(above) * _mass_above(shift + above, self.growth)
        if shift < self.step * self.first:
            found += _BELOW * self._most_weight(0.0)
        return _log_sum(self._scaled(found, shift, 1.0), self.lost)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta, for atoms that are dominated."""
        shift = self._shifted(epsilon, 1.0)
        total, weight = self._sum(shift)
        # Mass from below, or from so far above that it came round to losses above epsilon, may be
        # anywhere.
        wrapped = _BELOW + _mass_above(shift + self.step * len(self.masses), self.growth)
        found = total * (1.0 - self.relative) - self.error * weight
        found -= wrapped * self._most_weight(0.0)
        logarithm = self._scaled(found, shift, -1.0) if found > _SMALLEST else -math.inf
        return -math.inf if math.isnan(logarithm) else logarithm

    @property
    def _end(self) -> float:
        return self.step * (self.first + len(self.masses) - 1)

    def _scaled(self, found: float, shift: float, direction: float) -> float:
        # Nothing is left where even the bounds of errors underflow; a NaN stays one.
        found = math.log(max(found, _SMALLEST))
        logarithm = found + self.log_factor - self.tilt * shift
        size = abs(found) + abs(self.log_factor) + abs(self.tilt * shift) + 1.0
        return logarithm + direction * 8.0 * UNIT_ROUNDOFF * size

    def _most_weight(self, above: float) -> float:
        """Return the largest ``e^(-theta x) (1 - e^-x)`` for x at or above a number; rounded up."""
        # It rises up to log(1 + 1/theta) and falls from there.
        peak = max(above, math.log1p(1.0 / self.tilt))
        return math.exp(-self.tilt * peak) * -math.expm1(-peak) * (1.0 + 1e-9)

    def _shifted(self, epsilon: float, direction: float) -> float:
        """Return epsilon on the lattice's own scale, moved by what the losses may be off."""
        size = abs(epsilon) + abs(self.origin)
        return epsilon - self.origin + direction * (self.displacement + 4.0 * UNIT_ROUNDOFF * size)

    def _sum(self, shift: float) -> tuple[float, float]:
        """Return the sum over losses above epsilon, as far as terms matter, and of its weights."""
        start = max(math.floor(shift / self.step) - self.first, 0)
        stop = min(float(len(self.masses)), start + self.far / self.tilt / self.step + 2.0)
        above = self.step * (np.arange(start, math.ceil(stop)) + self.first) - shift
        above = np.maximum(above, 0.0)
        weights = np.exp(-self.tilt * above) * -np.expm1(-above)
        masses = self.masses[start : start + len(weights)]
        return float(masses @ weights), float(weights.sum()) * (1.0 + 1e-9)


def _log_sum(logarithm: float, rest: float) -> float:
    """Return ``log(e^logarithm + rest)``, rounded up; infinite if one is not a number."""
    if math.isnan(logarithm) or math.isnan(rest):
        return math.inf
    if rest > 0.0:
        logarithm = float(np.logaddexp(logarithm, math.log(rest)))
    return logarithm + 4.0 * UNIT_ROUNDOFF * (1.0 + abs(logarithm))


def _mass_above(loss: float, growth: Sequence[tuple[float, float]]) -> float:
    """Return Chernoff's bound ``P(S >= x) <= E[e^(c S)] e^(-c x)`` at its best order."""
    return math.exp(min(0.0, *(log - order * loss for order, log in growth)))


@dataclass(frozen=True)
class _Tilted:
    """One step's masses times ``e^(theta x - log)``, which add up to 1, and how often it occurs."""

    lattice: Lattice
    masses: FloatArray
    log: float
    units: float  # of relative error, each step, from rounding tilts and their logarithms
    count: int

    def log_moment(self, order: float) -> float:
        """Return ``log E[e^(c S)]`` of all these steps, tilted; rounded up."""
        exponents = order * self.lattice.offsets
        largest = float(np.max(exponents))
        total = float(self.masses @ np.exp(exponents - largest))
        log = largest + math.log(total) if total > 0.0 else largest
        return self.count * (log + 1e-12 * (1.0 + abs(log)))


def composed(
    lattices: Sequence[tuple[Lattice, int]],
    saddle: Saddle,
    *,
    for_lower: bool = False,
    far: float = FAR,
) -> Composed:
    """Return the distribution of the sum of all losses.

    Parameters
    ----------
    lattices : sequence of (Lattice, int)
        Of one step each and how often it occurs; all with the same step.
    saddle : Saddle
        Says how to tilt, and where the bulk of the tilted sum is.
    for_lower : bool
        Whether a lower bound is wanted: the window is then so large that hardly any mass comes
        round to losses above epsilon.
    far : float
        How small, as an exponent, terms of the last sum are that are only bounded.
    """
    parts = [_tilted(lattice, count, saddle.tilt) for lattice, count in lattices]
    step = parts[0].lattice.step
    orders = _orders(saddle, step)
    origin = math.fsum(part.count * part.lattice.origin for part in parts)
    # Chernoff's bound from below: P(S <= x) <= E[e^(-c S)] e^(c x).
    lows = [(math.log(_BELOW) - sum(part.log_moment(-c) for part in parts)) / c for c in orders]
    first = math.floor(max(lows) / step) - 1
    growth = tuple((c, sum(part.log_moment(c) for part in parts)) for c in orders)
    # Up to where terms matter, or to where there is hardly any mass.
    highest = min((log - math.log(_ABOVE)) / order for order, log in growth)
    last = min(saddle.epsilon - origin + far / saddle.tilt, highest) / step
    size = _size_of_window(max(last - first, 1.0))
    for _ in range(_DOUBLINGS if for_lower else 0):
        enough = _mass_above(saddle.epsilon - origin + step * size, growth) <= _ABOVE
        size = size if enough or 2 * size > MOST_POINTS else 2 * size
    if not size <= MOST_POINTS:
        raise TooManyPointsError(
            f"the losses of this plan need {size} points, more than {MOST_POINTS}: use fewer steps "
            "or more noise (a larger noise_multiplier), or Accountant.RDP, which has no such limit"
        )
    spectrum, spectrum_error = _power(parts, size)
    masses = np.roll(np.fft.irfft(spectrum, size), -(first % size))
    transform = _transform_error(size) * float(np.abs(spectrum).sum())
    # Masses that meet on the circle are added up, in every step.
    units = size + math.fsum(part.count * (part.units + len(part.masses) // size) for part in parts)
    return Composed(
        step=step,
        first=first,
        origin=origin,
        masses=masses,
        tilt=saddle.tilt,
        far=far,
        log_factor=math.fsum(part.count * part.log for part in parts),
        # Twice: each value of the half spectrum stands for itself and for its conjugate.
        error=2.0 / size * (spectrum_error + transform),
        relative=math.expm1(units * UNIT_ROUNDOFF),
        growth=growth,
        displacement=sum(part.count * part.lattice.displacement for part in parts) * (1 + 1e-9),
        lost=sum(part.count * part.lattice.lost for part in parts) * (1 + 1e-9),
    )


def _orders(saddle: Saddle, step: float) -> list[float]:
    """Return orders for Chernoff's bound: of nearly normal sums, and of rare large losses."""
    deviation = max(saddle.deviation, step)
    return [
        *(order / deviation for order in (1.0, 2.5, 6.5)),
        *(share * (1.0 + saddle.tilt) for share in (0.1, 0.4)),
    ]


def _size_of_window(points: float) -> int:
    """Return a power of two, or three of them, of at least so many points."""
    power = 1 << max(4, math.ceil(math.log2(points)))
    return 3 * power // 4 if points <= 3 * power // 4 else power


def _tilted(lattice: Lattice, count: int, tilt: float) -> _Tilted:
    exponents = tilt * lattice.offsets
    with np.errstate(divide="ignore"):
        largest = float(np.max(np.log(lattice.masses) + exponents))
    # No mass is below the smallest normal float, so no factor is beyond the largest.
    masses = lattice.masses * np.exp(np.minimum(exponents - largest, _LARGEST_EXPONENT))
    total = float(masses.sum())
    units = 16.0 + 4.0 * (float(np.max(np.abs(exponents[[0, -1]]))) + abs(largest))
    return _Tilted(lattice, masses / total, largest + math.log(total), units, count)


def _transform_error(size: int) -> float:
    """Return a bound of the error of each value of a transform, over the sum of what goes in."""
    return 1.000001 * _UNITS * math.log2(size) * UNIT_ROUNDOFF


def _power(parts: Sequence[_Tilted], size: int) -> tuple[ComplexArray, float]:
    """Return the product of powers of transforms, and a bound of the sum of its errors.

    If ``|z' - z| <= e`` then ``|z'^T - z^T| <= e sum_k |z'|^k (|z'| + e)^(T-1-k) = (|z'| + e)^T -
    |z'|^T``, and likewise for products of powers.
    """
    error = _transform_error(size)
    spectrum: ComplexArray = np.ones(size // 2 + 1, dtype=np.complex128)
    # Logarithms of the largest that the product can be, and of that over the least.
    log_most, log_gap = np.zeros(size // 2 + 1), np.zeros(size // 2 + 1)
    for part in parts:
        values = np.fft.rfft(_around(part.masses, part.lattice.first, size))
        sizes = np.abs(values)
        log_most += part.count * (np.log(sizes + error) + 3.0 * UNIT_ROUNDOFF)
        # Where |z'| is zero, so is the least; any large gap says so.
        gaps = np.log1p(error / np.maximum(sizes, _SMALLEST))
        # Rounding of each product is at most sqrt(5) units.
        log_gap += part.count * (gaps + 6.0 * UNIT_ROUNDOFF)
        spectrum *= _to_the_power(values, part.count)
    errors = np.exp(log_most) * -np.expm1(-log_gap)
    return spectrum, float(errors.sum()) * (1.0 + 1e-9)


def _around(masses: FloatArray, first: int, size: int) -> FloatArray:
    """Return masses around a circle of so many points."""
    indices = (first + np.arange(len(masses))) % size
    circle: FloatArray = np.bincount(indices, masses, minlength=size).astype(np.float64, copy=False)
    return circle


def _to_the_power(values: ComplexArray, count: int) -> ComplexArray:
    """Return a whole power by repeated squaring; overwrites the values, to save memory."""
    result: ComplexArray | None = None
    while count:
        if count & 1:
            result = values.copy() if result is None else np.multiply(result, values, out=result)
        count >>= 1
        if count:
            np.multiply(values, values, out=values)
    return np.ones_like(values) if result is None else result
