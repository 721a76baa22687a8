"""Rigorous bounds of the two-sided normal tail, in Python integers.

``tail(b) = erfc(b / sqrt(2)) = P(|z| > b)`` for a standard normal z and rational b > 0. All
numbers are fixed-point integers, and every rounding goes to the safe side: at any precision a lower
bound is never too high, and an upper bound never too low.
"""

from functools import lru_cache
from math import isqrt

__all__ = ["root_two_over_pi", "tail_bounds"]

# Room for the roundings of some hundred terms; too few would cost precision, never correctness.
_GUARD_BITS = 32


def tail_bounds(numerator: int, denominator: int, precision: int) -> tuple[int, int]:
    """Bound ``erfc(b / sqrt(2))`` for ``b = numerator / denominator``.

    ``erfc(b / sqrt(2)) = 1 - sqrt(2/pi) * sum of (-1)**n b**(2n+1) / (2**n n! (2n+1))``
    (Abramowitz and Stegun 7.1.5). The terms grow up to about ``exp(b**2 / 2)`` before they fall,
    which the working precision allows for. b itself is rounded down; since the function falls by
    less than b grows, one unit is taken off the lower bound.

    Parameters
    ----------
    numerator, denominator : int
        Both positive.
    precision : int
        Bits after the binary point of the result.

    Returns
    -------
    tuple[int, int]
        Integers with ``low <= 2**precision * erfc(b / sqrt(2)) <= high``.

    Examples
    --------
    >>> low, high = tail_bounds(2, 1, 40)
    >>> low / 2**40 <= 0.04550026389635842 <= high / 2**40, high - low
    (True, 1)
    """
    # The largest terms have about b**2 / (2 log 2) bits before the point: b**2 more than suffices.
    ceiling = -(-numerator // denominator)
    guard = _GUARD_BITS + ceiling * ceiling
    bits = precision + guard
    sum_low, sum_high = _series_bounds((numerator << bits) // denominator, bits)
    factor_low, factor_high = root_two_over_pi(bits)
    low = (1 << bits) - ((factor_high * sum_high) >> bits) - 2
    high = (1 << bits) - ((factor_low * sum_low) >> bits)
    # Shifts round down, so the upper bound is negated around its shift.
    return low >> guard, -(-high >> guard)


def _series_bounds(b: int, bits: int) -> tuple[int, int]:
    """Bound ``sum of (-1)**n b**(2n+1) / (2**n n! (2n+1))``, b in units of ``2**-bits``.

    ``power`` brackets ``b**(2n+1) / (2**n n!)``. Once n exceeds ``b**2 / 2`` the terms fall in
    absolute value, so the alternating remainder is at most the last term.
    """
    square_low = (b * b) >> (bits + 1)
    square_high = square_low + 1
    falling_after = square_high >> bits
    # Lower bounds are rounded down, upper bounds up: shifts and divisions lose less than a unit.
    power_low = power_high = sum_low = sum_high = b
    n = 0
    while True:
        n += 1
        power_low = ((power_low * square_low) >> bits) // n
        power_high = (((power_high * square_high) >> bits) + 1) // n + 1
        term_low = power_low // (2 * n + 1)
        term_high = power_high // (2 * n + 1) + 1
        if n % 2:
            sum_low -= term_high
            sum_high -= term_low
        else:
            sum_low += term_low
            sum_high += term_high
        # Only among falling terms does the first one left out bound all that follow.
        if n > falling_after and term_low == 0:
            return sum_low - term_high, sum_high + term_high


@lru_cache(maxsize=256)
def root_two_over_pi(bits: int) -> tuple[int, int]:
    """Bound ``sqrt(2/pi)`` in units of ``2**-bits``."""
    pi_low, pi_high = _pi_bounds(bits)
    numerator = 2 << (3 * bits)
    return isqrt(numerator // pi_high), isqrt(numerator // pi_low) + 1


def _pi_bounds(bits: int) -> tuple[int, int]:
    """Machin: ``pi = 16 arctan(1/5) - 4 arctan(1/239)``, in units of ``2**-bits``."""
    five_low, five_high = _arctangent_bounds(5, bits)
    other_low, other_high = _arctangent_bounds(239, bits)
    return 16 * five_low - 4 * other_high, 16 * five_high - 4 * other_low


def _arctangent_bounds(inverse: int, bits: int) -> tuple[int, int]:
    """``arctan(1/k) = 1/k - 1/(3 k**3) + ..`` between two partial sums, rounded outwards."""
    power = 1 << bits
    low = high = 0
    n = 0
    while power:
        term, rest = divmod(1 << bits, inverse ** (2 * n + 1) * (2 * n + 1))
        above = term + (rest > 0)
        power = term
        if n % 2:
            low, high = low - above, high - term
        else:
            low, high = low + term, high + above
        n += 1
    return low - 1, high + 1
