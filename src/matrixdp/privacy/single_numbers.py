"""Special functions of single numbers.

scipy has them too, but importing its special functions takes longer than importing numpy, and a
calibration needs nothing else of it.
"""

import math
from statistics import NormalDist

__all__ = ["erfcx", "erfinv", "normal_quantile"]

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
