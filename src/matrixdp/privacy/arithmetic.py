"""One vocabulary for formulas that serve both plain floats and numpy arrays.

A formula written against `Arithmetic` is evaluated by `SCALAR` without numpy's per-call overhead
and by `ARRAY` over whole vectors, so that there is one formula and not two.

The special functions of scalars are here. scipy has them too, but importing its special functions
takes longer than importing numpy, and a calibration needs nothing else of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import scipy
from numpy.typing import NDArray

__all__ = [
    "ARRAY",
    "SCALAR",
    "Arithmetic",
    "FloatArray",
    "Real",
    "erfcx",
    "erfinv",
    "normal_quantile",
]

FloatArray: TypeAlias = NDArray[np.float64]
Real = TypeVar("Real", float, FloatArray)

_STANDARD_NORMAL = NormalDist()
_SQRT_PI = math.sqrt(math.pi)
_SQRT_HALF = math.sqrt(0.5)

# From here on the asymptotic series is used: erfc itself is 0 from about 27 on.
_LARGE = 26.0
# 3, 5, .., 15: the first factor left out is 17, and the term it belongs to is below 2**-66.
_SERIES = (15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0)
# Splits a float into two halves of at most 26 bits, whose products are exact (Dekker 1971).
_SPLITTER = 2.0**27 + 1.0


def erfcx(value: float) -> float:
    """Return ``exp(x^2) erfc(x)``; infinite below about -26.6.

    Below 26 it is the product, with the rounding of ``x^2`` made up for to first order: the error
    of the exponent is the only one that grows with x. Above, ``sqrt(pi) x erfcx(x) = 1 - h (1 -
    3 h (1 - 5 h (...)))`` with ``h = 1 / (2 x^2)`` (Abramowitz and Stegun, 7.1.23).

    Notes
    -----
    The error is about that of the platform's ``erfc``; a test measures it.
    """
    if value >= _LARGE:
        half = 0.5 / value / value
        nested = 1.0
        for factor in _SERIES:
            nested = 1.0 - factor * half * nested
        return (1.0 - half * nested) / (_SQRT_PI * value)
    square = value * value
    try:
        product = math.exp(square) * math.erfc(value)
    except OverflowError:
        return math.inf
    if product == math.inf:  # the correction of an infinite number would be NaN
        return math.inf
    return product + product * _lost_in_square(value, square)


def _lost_in_square(value: float, square: float) -> float:
    """Return ``x^2 - fl(x^2)``."""
    shifted = _SPLITTER * value
    high = shifted - (shifted - value)
    low = value - high
    return ((high * high - square) + 2.0 * high * low) + low * low


def normal_quantile(probability: float) -> float:
    """Return the quantile of the standard normal distribution, for p above 0 and below 1."""
    return _STANDARD_NORMAL.inv_cdf(probability)


def erfinv(value: float) -> float:
    """Return the x with ``erf(x)`` = value, for values above 0 and below 1."""
    if value > 0.5:
        return -_SQRT_HALF * normal_quantile(0.5 * (1.0 - value))
    # The first two terms of the series, and three steps of Newton from there.
    found = 0.5 * _SQRT_PI * value * (1.0 + math.pi / 12.0 * value * value)
    for _ in range(3):
        found -= 0.5 * _SQRT_PI * math.exp(found * found) * (math.erf(found) - value)
    return found


@dataclass(frozen=True, slots=True)
class Arithmetic(Generic[Real]):
    """The elementary functions a formula may use, for one kind of number.

    ``select(condition, chosen, otherwise)`` takes two functions without arguments: a float
    evaluates one of them, an array both. ``everywhere`` says whether a condition holds at every
    point.
    """

    exp: Callable[[Real], Real]
    log: Callable[[Real], Real]
    sqrt: Callable[[Real], Real]
    erf: Callable[[Real], Real]
    erfcx: Callable[[Real], Real]
    erfinv: Callable[[Real], Real]
    normal_quantile: Callable[[Real], Real]
    larger: Callable[[Real, Real], Real]
    smaller: Callable[[Real, Real], Real]
    upwards: Callable[[Real], Real]
    select: Callable[[Any, Callable[[], Real], Callable[[], Real]], Real]
    everywhere: Callable[[Any], bool]


def _scalar_log(value: float) -> float:
    # As numpy's, and unlike math.log, which raises: an iteration may pass a point where g is 0.
    return math.log(value) if value > 0 else -math.inf


def _scalar_select(
    condition: bool,  # noqa: FBT001
    chosen: Callable[[], float],
    otherwise: Callable[[], float],
) -> float:
    return chosen() if condition else otherwise()


def _array_select(
    condition: NDArray[np.bool_],
    chosen: Callable[[], FloatArray],
    otherwise: Callable[[], FloatArray],
) -> FloatArray:
    return np.where(condition, chosen(), otherwise())


def _special(name: str) -> Callable[[FloatArray], FloatArray]:
    """Return a function of scipy.special that is imported when it is first called."""
    # Importing it takes as long as importing numpy twice over.

    def function(value: FloatArray) -> FloatArray:
        found: FloatArray = getattr(scipy.special, name)(value)
        return found

    return function


# math where it has the function: numpy's are much slower on scalars.
SCALAR: Arithmetic[float] = Arithmetic(
    exp=math.exp,
    log=_scalar_log,
    sqrt=math.sqrt,
    erf=math.erf,
    erfcx=erfcx,
    erfinv=erfinv,
    normal_quantile=normal_quantile,
    larger=max,
    smaller=min,
    upwards=lambda value: math.nextafter(value, math.inf),
    select=_scalar_select,
    everywhere=bool,
)

ARRAY: Arithmetic[FloatArray] = Arithmetic(
    exp=np.exp,
    log=np.log,
    sqrt=np.sqrt,
    erf=_special("erf"),
    erfcx=_special("erfcx"),
    erfinv=_special("erfinv"),
    normal_quantile=_special("ndtri"),
    larger=np.maximum,
    smaller=np.minimum,
    upwards=lambda value: np.nextafter(value, np.inf),
    select=_array_select,
    everywhere=lambda condition: bool(np.all(condition)),
)
