"""Segments of the uniform, and the inverse of the normal tail over them, in ball arithmetic.

A table cuts each binade ``[2**e, 2**(e + 1))`` of the uniform V into segments of equal width, and
has a polynomial in the coordinate ``t`` for each of them: the word's 63 bits are converted to a
double, of which ``1.<bits below the segment's> - centre`` is ``t``. What is needed to make and to
prove such polynomials of ``w(V) = sqrt(2) * erfcinv(V)`` is here. It needs python-flint.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, factorial
from statistics import NormalDist
from typing import Any

from matrixdp.errors import MatrixDPError
from matrixdp.noise.proofs.balls import arb, fmpq
from matrixdp.noise.specification.table import UNIFORM_BITS

__all__ = [
    "Cut",
    "Segment",
    "inverse_upper",
    "leading",
    "nearest_double",
    "remainder",
    "slope",
    "taylor",
    "to_chebyshev",
]

TAYLOR_DEGREE = 12
"""Degree of the Taylor polynomial that replaces w in a segment."""

# How tightly w is enclosed: at a centre far below the error to be proved, since its ball enters
# twelve derivatives; at a tail end it only bounds a derivative from above.
_CENTRE_RADIUS = fmpq(1, 2**150)
_TAIL_RADIUS = fmpq(1, 2**60)


@dataclass(frozen=True)
class Cut:
    """How a table cuts the uniform: its highest ``binades``, each into ``2**bits`` segments."""

    binades: int
    bits: int

    @property
    def half_width(self) -> Any:
        """Half of a segment, relative to its binade: the largest ``|t|``."""
        return fmpq(1, 2 << self.bits)

    def segments(self) -> Iterator["Segment"]:
        """Yield every segment, from the tail to V = 1."""
        for exponent in range(-self.binades, 0):
            for index in range(1 << self.bits):
                yield Segment(self, exponent, index)


@dataclass(frozen=True)
class Segment:
    """Segment ``index`` of the binade ``[2**exponent, 2**(exponent + 1))`` of the uniform."""

    cut: Cut
    exponent: int
    index: int

    @property
    def column(self) -> int:
        """Its column in the table."""
        return ((self.exponent + self.cut.binades) << self.cut.bits) + self.index + 1

    @property
    def binade(self) -> Any:
        """``2**exponent`` as an exact rational."""
        return fmpq(1, 2**-self.exponent)

    @property
    def radius(self) -> Any:
        """Half of its width, an exact rational."""
        return self.binade * self.cut.half_width

    @property
    def centre(self) -> Any:
        """The reference point v at t = 0, an exact rational."""
        middle = self.binade * (1 + (2 * self.index + 1) * self.cut.half_width)
        return middle + fmpq(1, 2 ** (UNIFORM_BITS + 1))

    @property
    def distance(self) -> Any:
        """Bound on ``|V - v|``: the unread bits and the conversion to a double (step 1)."""
        spacing = UNIFORM_BITS + self.exponent - 52
        conversion = fmpq(2**spacing, 2) if spacing > 0 else fmpq(0)
        return (fmpq(1, 2) + conversion) / fmpq(2**UNIFORM_BITS)

    @property
    def tail(self) -> Any:
        """The smallest V that the segment may be used for."""
        return self.centre - self.radius - self.distance


def _two_sided_tail(w: Any) -> Any:
    """``erfc(w / sqrt(2))``, the probability that a standard normal exceeds w in absolute value."""
    return (w / arb(2).sqrt()).erfc()


def slope(w: Any) -> Any:
    """``w'(v) = -sqrt(pi/2) exp(w**2 / 2)``."""
    return -(arb.pi() / 2).sqrt() * (w * w / 2).exp()


def _approximate_inverse(v: Any) -> Any:
    """Newton's iteration for ``erfc(w / sqrt(2)) = v``: accurate, but proves nothing."""
    # Each step doubles the 50 bits or so of the start: three make more than PRECISION holds.
    w = arb(-NormalDist().inv_cdf(float(arb(v)) / 2))
    for _ in range(3):
        w = (w - (_two_sided_tail(w) - v) * slope(w)).mid()
    return w


def _inverse_ball(v: Any) -> Any:
    """Return a ball that is proved to hold ``w(v)``, by its monotonicity."""
    middle = _approximate_inverse(v)
    low, high = middle - _CENTRE_RADIUS, middle + _CENTRE_RADIUS
    if not (_two_sided_tail(low) > v and _two_sided_tail(high) < v):
        # The two comparisons are the proof; what Newton's iteration did does not matter.
        raise MatrixDPError(f"no proven enclosure of w at v={float(arb(v))!r}; raise PRECISION")
    return arb(middle, arb(_CENTRE_RADIUS))


def inverse_upper(v: Any) -> Any:
    """Return an upper bound of ``w`` over all arguments that are at least v."""
    high = _approximate_inverse(v) + _TAIL_RADIUS
    if not _two_sided_tail(high) < v:
        raise MatrixDPError(f"no proven upper bound of w at v={float(arb(v))!r}; raise PRECISION")
    return high


def _derivative_factors(count: int) -> list[list[int]]:
    """Coefficients of ``P_1 .. P_count``: ``P_1 = 1``, ``P_(n+1) = P_n' + n w P_n``."""
    factors = [[1]]
    for n in range(1, count):
        last = factors[-1]
        following = [0] + [n * c for c in last]
        for power, c in enumerate(last[1:]):
            following[power] += (power + 1) * c
        factors.append(following)
    return factors


def _evaluate(coefficients: list[int], w: Any) -> Any:
    """Horner's rule in ball arithmetic."""
    total = arb(0)
    for c in reversed(coefficients):
        total = total * w + c
    return total


_FACTORS = _derivative_factors(TAYLOR_DEGREE + 1)


def _derivative(order: int, w: Any) -> Any:
    """``w^(order)(v) = P_order(w) w'**order`` at the point where the function has the value w."""
    return _evaluate(_FACTORS[order - 1], w) * slope(w) ** order


def taylor(segment: Segment) -> list[Any]:
    """Taylor coefficients of w in ``s = t / half width``, s in [-1, 1], about the centre."""
    w = _inverse_ball(segment.centre)
    radius = segment.radius
    terms = (_derivative(n, w) * radius**n / factorial(n) for n in range(1, TAYLOR_DEGREE + 1))
    return [w, *terms]


def remainder(segment: Segment, tail: Any) -> Any:
    """Lagrange's bound on what the Taylor polynomial leaves out, ``tail`` bounding w."""
    order = TAYLOR_DEGREE + 1
    radius = segment.radius
    return abs(_derivative(order, tail)) * radius**order / factorial(order)


def _power_in_chebyshev(power: int) -> list[Any]:
    """``s**k = 2**(1 - k) sum of comb(k, (k - j)/2) T_j``, j = k, k - 2, .. (half of it at 0)."""
    row = [fmpq(0)] * (power + 1)
    for j in range(power, -1, -2):
        row[j] = fmpq(2 * comb(power, (power - j) // 2), 2**power)
    if power % 2 == 0:
        row[0] /= 2
    return row


_POWERS = [_power_in_chebyshev(k) for k in range(TAYLOR_DEGREE + 1)]


def to_chebyshev(coefficients: list[Any]) -> list[Any]:
    """Turn coefficients of powers of s into Chebyshev coefficients."""
    series = [arb(0)] * len(coefficients)
    for power, c in enumerate(coefficients):
        for j, weight in enumerate(_POWERS[power]):
            series[j] += c * weight
    return series


def nearest_double(ball: Any) -> float:
    """Return the double nearest to a number known only by its ball; raise if there are two."""
    # If both ends round to one double, so does everything between them.
    low, high = float(ball.lower()), float(ball.upper())
    if low != high:
        raise MatrixDPError("a coefficient is too close to a tie of doubles; raise PRECISION")
    return low


def leading(residual: list[Any], power: int) -> Any:
    """Return the coefficient of ``s**power`` in a Chebyshev series that is cut after that degree.

    The leading coefficient of ``T_k`` is ``2**(k - 1)``, and 1 for k = 0.
    """
    return to_chebyshev(residual)[power] * 2 ** max(power - 1, 0)
