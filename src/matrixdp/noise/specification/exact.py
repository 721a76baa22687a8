"""The specification of the noise, in Python integers.

An element of a release is made from its value, its scale, and an endless string of uniform bits:

- the *first word* of the element (64 bits): the highest bit is the sign (1 is negative), the other
  63 are the first bits of a uniform ``V = 0.b1 b2 ..``;
- further words of 64 bits, drawn only as long as the decision needs them.

``|z| = sqrt(2) * erfcinv(V)`` is then the absolute value of a standard normal. With the grid step
``g = 2**(floor(log2(scale)) - grid_bits)`` the element becomes the grid point ``N * g`` for which

    (N - 1/2) * g < value + scale * z < (N + 1/2) * g.

The bounds themselves are met with probability zero (``0 < V < 1`` has infinitely many bits), so
there are no ties. What is released is the float64 nearest to ``N * g``, half to even.

No inverse is needed: ``|z| < b`` is the same as ``V > erfc(b / sqrt(2))``, decided by rigorous
bounds of the right-hand side. numpy and numba only ever do the same thing faster.
"""

from collections.abc import Callable
from math import exp, floor, frexp, ldexp
from statistics import NormalDist

from matrixdp.noise.specification.normal_tail import tail_bounds
from matrixdp.noise.specification.table import UNIFORM_BITS

__all__ = ["LazyUniform", "exact_element", "grid_exponent", "grid_index"]

_WORD_BITS = 64
# Bits by which the tail is known better than the uniform: a comparison is then undecided with a
# probability of about 2**-bits, and hardly ever because of the tail's own error.
_EXTRA_PRECISION = 16
_GUESS_BITS = 40
# Smaller ones have a probability below 2**-1000, but a double must still hold the guess.
_SMALLEST_UNIFORM = ldexp(1.0, -1000)
_NORMAL = NormalDist()
# Below sqrt(2/pi), by far more than floats round.
_LEAST_SLOPE = 0.797


class LazyUniform:
    """A uniform number in (0, 1) of which only the first bits have been drawn.

    It is between ``numerator / 2**bits`` and ``(numerator + 1) / 2**bits``.

    Parameters
    ----------
    word : int
        The first word of the element; its highest bit is not part of the uniform.
    further_word : Callable[[int], int]
        Returns the j-th further word, j = 0, 1, ..
    """

    def __init__(self, word: int, further_word: Callable[[int], int]) -> None:
        self.numerator = word & ((1 << UNIFORM_BITS) - 1)
        self.bits = UNIFORM_BITS
        self._further_word = further_word
        self._drawn = 0
        self._tail: tuple[int, int] | None = None

    def extend(self) -> None:
        """Draw 64 more bits."""
        self.numerator = (self.numerator << _WORD_BITS) | self._further_word(self._drawn)
        self.bits += _WORD_BITS
        self._drawn += 1

    def exceeds_tail(self, numerator: int, denominator: int) -> bool:
        """Decide ``V > erfc(b / sqrt(2))``, that is ``|z| < b``, b = numerator / denominator."""
        self._tail = None
        if not numerator > 0:
            return False  # an absolute value is never below 0
        while True:
            precision = self.bits + _EXTRA_PRECISION
            low, high = self._tail = tail_bounds(numerator, denominator, precision)
            # V is somewhere in [numerator, numerator + 1] 2**-bits: decided only if all of that
            # interval is on one side of both bounds.
            if self.numerator << _EXTRA_PRECISION >= high:
                return True
            if (self.numerator + 1) << _EXTRA_PRECISION <= low:
                return False
            self.extend()

    def is_within(self, gap: float) -> bool:
        """Return whether V is surely closer than a gap to the tail that it was compared with."""
        if self._tail is None:
            return False
        low, high = self._tail
        reach = int(ldexp(gap, self.bits + _EXTRA_PRECISION))
        least, most = (n << _EXTRA_PRECISION for n in (self.numerator, self.numerator + 1))
        return high - reach <= least and most <= low + reach

    def guess(self) -> float:
        """Return roughly ``|z|``; a starting point, which no result depends on.

        Far in the tail the first bits are all zero; more are drawn until 40 significant ones are
        known, which puts the guess within a grid step or so.
        """
        while self.numerator.bit_length() < _GUESS_BITS:
            self.extend()
        middle = (2 * self.numerator + 1) / (2 << self.bits)
        return -_NORMAL.inv_cdf(max(middle, _SMALLEST_UNIFORM) / 2)


def grid_exponent(scale: float, grid_bits: int) -> int:
    """Return k for the grid step ``2**k = 2**(floor(log2(scale)) - grid_bits)``.

    Examples
    --------
    >>> grid_exponent(3.7, 20)
    -19
    """
    return frexp(scale)[1] - 1 - grid_bits


def _in_steps(number: float, exponent: int) -> tuple[int, int]:
    """Return ``number / 2**exponent`` as an exact integer ratio with a power of two below."""
    numerator, denominator = number.as_integer_ratio()
    # The denominator of a double is a power of two, so both shifts are exact.
    return (
        (numerator << -exponent, denominator)
        if exponent < 0
        else (numerator, denominator << exponent)
    )


def grid_index(
    value: float, scale: float, word: int, further_word: Callable[[int], int], grid_bits: int
) -> int:
    """Return the integer N with ``(N - 1/2) g < value + scale * z < (N + 1/2) g``.

    With ``value = (n + f) g``, n an integer, ``|f| <= 1/2``, and ``s = scale / g``, the sign moved
    to f: the smallest ``k >= 0`` with ``|z| < b_k = (k + 1/2 - f) / s`` gives ``N = n + k`` (or
    ``n - k``).

    Parameters
    ----------
    value, scale : float
        Finite; the scale positive.
    word : int
        The first word of the element.
    further_word : Callable[[int], int]
        Returns the j-th further word of the element.
    grid_bits : int
        See ``grid_exponent``.

    Examples
    --------
    The word 2**62 means V = 1/2 and a positive sign: z is the upper quartile, 0.674489..

    >>> grid_index(0.0, 1.0, 2**62, lambda j: 0, 20) / 2**20
    0.6744899749755859
    """
    exponent = grid_exponent(scale, grid_bits)
    numerator, denominator = _in_steps(value, exponent)
    scale_numerator, scale_denominator = _in_steps(scale, exponent)
    nearest = (2 * numerator + denominator) // (2 * denominator)
    sign = -1 if word >> UNIFORM_BITS else 1
    # Negative noise is positive noise on the mirrored value, so one search serves both signs.
    rest = sign * (numerator - nearest * denominator)

    def bound(k: int) -> tuple[int, int]:
        above = (2 * k + 1) * denominator - 2 * rest
        return above * scale_denominator, 2 * denominator * scale_numerator

    uniform = LazyUniform(word, further_word)
    guess = rest / denominator + (scale_numerator / scale_denominator) * uniform.guess()
    # The bound that is nearest to the guess decides between two integers.
    below = max(0, floor(guess))
    k = below if uniform.exceeds_tail(*bound(below)) else below + 1
    # Between two bounds, 1/s apart, the tail falls by this at least: its slope is
    # -sqrt(2/pi) exp(-b**2 / 2). If V is closer to the one than that, the other need not be met.
    above, under = bound(below + 1)
    step = scale_denominator / scale_numerator
    if uniform.is_within(_LEAST_SLOPE * step * exp(-0.5 * (above / under) ** 2)):
        return nearest + sign * k
    while not uniform.exceeds_tail(*bound(k)):
        k += 1
    while k > 0 and uniform.exceeds_tail(*bound(k - 1)):
        k -= 1
    return nearest + sign * k


def exact_element(
    value: float, scale: float, word: int, further_word: Callable[[int], int], grid_bits: int
) -> float:
    """Return the float64 nearest to the grid point of ``grid_index``, half to even.

    Examples
    --------
    >>> exact_element(10.0, 3.7, 2**62, lambda j: 0, 20)
    12.495611190795898
    """
    index = grid_index(value, scale, word, further_word, grid_bits)
    return ldexp(float(index), grid_exponent(scale, grid_bits))
