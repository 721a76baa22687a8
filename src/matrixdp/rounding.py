"""Exact rationals on the way in, correctly rounded floats on the way out.

Budgets are compared and added as rationals, where nothing is lost; what a person reads is a float,
rounded in the direction that the name says.
"""

import decimal
import math
from collections.abc import Iterable
from fractions import Fraction

from matrixdp.errors import InvalidParameterError

__all__ = [
    "UNIT_ROUNDOFF",
    "float_down",
    "float_up",
    "inflated",
    "product_down",
    "product_up",
    "quotient_down",
    "quotient_up",
    "ratio_up",
    "shown_down",
    "shown_exactly",
    "shown_up",
    "sqrt_down",
    "sqrt_up",
]

UNIT_ROUNDOFF = 2.0**-53
"""Half the distance from 1 to the next float64: a float operation is off by at most this share."""

# Bits of an integer square root: so many more than the 53 of a float that every float of its size
# is a multiple of the unit of the root.
_ROOT_BITS = 128
# Above every value that an underflow on the way can have hidden, and below any that matters.
_UNDERFLOW_BOUND = 2.0**-1000


def float_down(value: Fraction) -> float:
    """Return the largest float that is at most the value; raise beyond the range of a float."""
    # float() rounds a Fraction correctly, so the answer is its result or the float next to it.
    nearest = _nearest(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def float_up(value: Fraction) -> float:
    """Return the smallest float that is at least the value; raise beyond the range of a float."""
    nearest = _nearest(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def _nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        bits = value.numerator.bit_length() - value.denominator.bit_length()
        raise InvalidParameterError(
            f"a result of about 2**{bits} is beyond the range of a float: rescale the inputs"
        ) from None


def quotient_down(dividend: float, divisor: float) -> float:
    """Return ``dividend / divisor`` rounded down."""
    return float_down(Fraction(dividend) / Fraction(divisor))


def quotient_up(dividend: float, divisor: float) -> float:
    """Return ``dividend / divisor`` rounded up."""
    return float_up(Fraction(dividend) / Fraction(divisor))


def product_down(first: float, second: float) -> float:
    """Return ``first * second`` rounded down."""
    return float_down(Fraction(first) * Fraction(second))


def product_up(first: float, second: float) -> float:
    """Return ``first * second`` rounded up."""
    return float_up(Fraction(first) * Fraction(second))


def ratio_up(factors: Iterable[float], divisor: float) -> float:
    """Return the product of positive factors over a divisor, rounded up: nothing underflows in it.

    Examples
    --------
    >>> ratio_up([1e-200, 1e-150], 1e-150)
    1e-200
    """
    # Rationals have no range, so the order of the factors does not matter.
    product = Fraction(1)
    for factor in factors:
        product *= Fraction(factor)
    return float_up(product / Fraction(divisor))


def inflated(value: float, units: int) -> float:
    """Return an upper bound of a non-negative number known to ``units`` units of 2**-53.

    Near and below the normal range, where a product may have underflowed on the way, it is at least
    2**-1000, so that no true value can be above it.

    Examples
    --------
    >>> inflated(1.0, 4) > 1.0, inflated(0.0, 4) == 2.0**-1000
    (True, True)
    """
    return max(math.nextafter(value * (1.0 + units * UNIT_ROUNDOFF), math.inf), _UNDERFLOW_BOUND)


def sqrt_down(value: Fraction) -> float:
    """Return the largest float whose square is at most a non-negative value."""
    root, unit, _ = _integer_root(value)
    return float_down(root * unit)


def sqrt_up(value: Fraction) -> float:
    """Return the smallest float whose square is at least a non-negative value."""
    root, unit, exact = _integer_root(value)
    return float_up((root if exact else root + 1) * unit)


def shown_up(value: float, digits: int = 6) -> str:
    """Return a number to a few significant digits, rounded up.

    Examples
    --------
    >>> shown_up(0.68414949), shown_up(1e-5)
    ('0.68415', '1e-05')
    """
    return _shown(value, digits, decimal.ROUND_CEILING)


def shown_down(value: float, digits: int = 6) -> str:
    """Return a number to a few significant digits, rounded down.

    Examples
    --------
    >>> shown_down(0.26805199)
    '0.268051'
    """
    return _shown(value, digits, decimal.ROUND_FLOOR)


def shown_exactly(value: float) -> str:
    """Return the shortest text that reads back as the same number.

    For numbers that a user entered and may enter again: no rounding is on the safe side both as
    what is claimed and as what is spent.

    Examples
    --------
    >>> shown_exactly(1.0), shown_exactly(0.123456789), shown_exactly(1e-5)
    ('1', '0.123456789', '1e-05')
    """
    return repr(float(value)).removesuffix(".0")


def _shown(value: float, digits: int, rounding: str) -> str:
    # From the shortest decimal that reads back as the float, which is what its user wrote: rounding
    # the exact binary value would turn 1e-05 into 1.00001e-05. It stays on the right side when it
    # is read again, because reading is monotone and the shortest decimal reads as the float itself.
    context = decimal.Context(prec=digits, rounding=rounding)
    return f"{float(context.create_decimal(repr(float(value)))):.{digits}g}"


def _integer_root(value: Fraction) -> tuple[int, Fraction, bool]:
    """Return r, u and whether ``r u = sqrt(value)``, with ``r u <= sqrt(value) < (r + 1) u``."""
    # Scaled by 4**shift, the integer root has some 128 bits or more, however small the value.
    magnitude = value.numerator.bit_length() - value.denominator.bit_length()
    shift = max(0, _ROOT_BITS - magnitude // 2)
    scaled = value * 4**shift
    whole = scaled.numerator // scaled.denominator
    root = math.isqrt(whole)
    return root, Fraction(1, 2**shift), scaled == root * root


def __dir__() -> list[str]:
    return __all__
