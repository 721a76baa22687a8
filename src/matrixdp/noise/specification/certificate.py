"""Make the polynomial table of the fast path, and prove its error bound in ball arithmetic.

``python -m matrixdp.noise`` proves the shipped table and prints the bound; with ``make FILE`` it
makes a new table, writes it to the file and proves that. It needs python-flint, which nothing else
in the package imports.

The proof, for one segment. Let ``x`` be the double nearest to the 63-bit integer ``u``, and
``v = (x + 1/2) / 2**63`` the reference point of the table; in the coordinate ``t`` it is
``v(t) = v(0) + 2**e * t`` for the binade ``[2**e, 2**(e + 1))``.

1. *Unread bits and conversion.* The uniform V lies in ``[u, u + 1) / 2**63``, and x is within
   ``2**(10 + e)`` of u (equal to it where ``e <= -11``), so ``|V - v|`` is at most
   ``(1/2 + 2**(10 + e)) / 2**63`` and moves w by at most that times ``max |w'|``.
2. *Polynomial.* With ``w' = -sqrt(pi/2) exp(w**2 / 2)``, the derivatives of w are ``P_n(w) w'**n``,
   ``P_1 = 1``, ``P_(n+1) = P_n' + n w P_n``: the coefficients are not negative, so every derivative
   is largest in absolute value at the tail end of the segment. Hence a Taylor polynomial of degree
   ``TAYLOR_DEGREE`` about the centre with Lagrange's remainder. The difference between it and the
   polynomial of the table is bounded by the sum of its absolute Chebyshev coefficients.
3. *Horner's rule.* Each step multiplies and adds, with two roundings or, where the compiler fuses
   them, one; the bound for two covers both.
4. *Scaling and rounding.* ``r = f + s * z`` with ``|f| <= 1/2`` exact and
   ``s < 2**(GRID_BITS + 1)``: two more roundings (or one), and ``2**-100`` for a value that
   underflowed when it was scaled.

The sum is a bound on the error of r, in grid steps; the largest one must not exceed ``STEP_ERROR``.
"""

import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, factorial
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import MatrixDPError, MissingExtraError
from matrixdp.noise.specification.table import (
    BINADES,
    DEGREE,
    GRID_BITS,
    PACKED_SHIFT,
    SEGMENT_BITS,
    STEP_ERROR,
    UNIFORM_BITS,
    coefficients,
    load_table,
    table_digest,
)
from matrixdp.rounding import UNIT_ROUNDOFF

try:
    from flint import arb, ctx, fmpq
except ImportError as error:
    raise MissingExtraError(
        "the certificate of the noise table needs python-flint; install it with "
        "pip install 'matrixdp[dev]'"
    ) from error

__all__ = ["Segment", "make_table", "prove_table", "segments"]

PRECISION = 200
"""Bits of the ball arithmetic."""

TAYLOR_DEGREE = 12
"""Degree of the Taylor polynomial that replaces w in a segment."""

_SEGMENTS = 1 << SEGMENT_BITS
# Half of a segment, relative to its binade: the largest |t|.
_HALF_WIDTH = fmpq(1, 2 * _SEGMENTS)
# As an exact rational: balls are not made from floats.
_UNIT_ROUNDOFF = fmpq(*UNIT_ROUNDOFF.as_integer_ratio())
# How tightly w is enclosed: at a centre far below the error to be proved, since its ball enters
# twelve derivatives; at a tail end it only bounds a derivative from above.
_CENTRE_RADIUS = fmpq(1, 2**150)
_TAIL_RADIUS = fmpq(1, 2**60)
_C3_BITS = 64 - PACKED_SHIFT


@dataclass(frozen=True)
class Segment:
    """Segment ``index`` of the binade ``[2**exponent, 2**(exponent + 1))`` of the uniform."""

    exponent: int
    index: int

    @property
    def column(self) -> int:
        """Its column in the table."""
        return ((self.exponent + BINADES) << SEGMENT_BITS) + self.index + 1

    @property
    def binade(self) -> Any:
        """``2**exponent`` as an exact rational."""
        return fmpq(1, 2**-self.exponent)

    @property
    def centre(self) -> Any:
        """The reference point v at t = 0, an exact rational."""
        middle = self.binade * fmpq(2 * _SEGMENTS + 2 * self.index + 1, 2 * _SEGMENTS)
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
        return self.centre - self.binade * _HALF_WIDTH - self.distance


def segments() -> Iterator[Segment]:
    """Yield every segment, from the tail to V = 1."""
    for exponent in range(-BINADES, 0):
        for index in range(_SEGMENTS):
            yield Segment(exponent, index)


def _two_sided_tail(w: Any) -> Any:
    """``erfc(w / sqrt(2))``, the probability that a standard normal exceeds w in absolute value."""
    return (w / arb(2).sqrt()).erfc()


def _slope(w: Any) -> Any:
    """``w'(v) = -sqrt(pi/2) exp(w**2 / 2)``."""
    return -(arb.pi() / 2).sqrt() * (w * w / 2).exp()


def _approximate_inverse(v: Any) -> Any:
    """Newton's iteration for ``erfc(w / sqrt(2)) = v``: accurate, but proves nothing."""
    # Each step doubles the 50 bits or so of the start: three make more than PRECISION holds.
    w = arb(-NormalDist().inv_cdf(float(arb(v)) / 2))
    for _ in range(3):
        w = (w - (_two_sided_tail(w) - v) * _slope(w)).mid()
    return w


def _inverse_ball(v: Any) -> Any:
    """Return a ball that is proved to hold ``w(v)``, by its monotonicity."""
    middle = _approximate_inverse(v)
    low, high = middle - _CENTRE_RADIUS, middle + _CENTRE_RADIUS
    if not (_two_sided_tail(low) > v and _two_sided_tail(high) < v):
        # The two comparisons are the proof; what Newton's iteration did does not matter.
        raise MatrixDPError(f"no proven enclosure of w at v={float(arb(v))!r}; raise PRECISION")
    return arb(middle, arb(_CENTRE_RADIUS))


def _inverse_upper(v: Any) -> Any:
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
    return _evaluate(_FACTORS[order - 1], w) * _slope(w) ** order


def _taylor(segment: Segment) -> list[Any]:
    """Taylor coefficients of w in ``s = t / half width``, s in [-1, 1], about the centre."""
    w = _inverse_ball(segment.centre)
    radius = segment.binade * _HALF_WIDTH
    terms = (_derivative(n, w) * radius**n / factorial(n) for n in range(1, TAYLOR_DEGREE + 1))
    return [w, *terms]


def _remainder(segment: Segment, tail: Any) -> Any:
    """Lagrange's bound on what the Taylor polynomial leaves out, ``tail`` bounding w."""
    order = TAYLOR_DEGREE + 1
    radius = segment.binade * _HALF_WIDTH
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


def _to_chebyshev(coefficients: list[Any]) -> list[Any]:
    """Turn coefficients of powers of s into Chebyshev coefficients."""
    series = [arb(0)] * len(coefficients)
    for power, c in enumerate(coefficients):
        for j, weight in enumerate(_POWERS[power]):
            series[j] += c * weight
    return series


def _nearest_double(ball: Any) -> float:
    """Return the double nearest to a number known only by its ball; raise if there are two."""
    # If both ends round to one double, so does everything between them.
    low, high = float(ball.lower()), float(ball.upper())
    if low != high:
        raise MatrixDPError("a coefficient is too close to a tie of doubles; raise PRECISION")
    return low


def _leading(residual: list[Any], power: int) -> Any:
    """Return the coefficient of ``s**power`` in a Chebyshev series that is cut after that degree.

    The leading coefficient of ``T_k`` is ``2**(k - 1)``, and 1 for k = 0.
    """
    return _to_chebyshev(residual)[power] * 2 ** max(power - 1, 0)


def _packed(c2: Any, low_bits: int) -> int:
    """Return the bits of the double nearest to c2 among those that end in the given bits of c3."""
    nearest = _bits(_nearest_double(c2)) >> _C3_BITS
    # The neighbours too: low bits that are given may make one of them the nearest.
    candidates = [(nearest + step << _C3_BITS) | low_bits for step in (-1, 0, 1)]
    return min(candidates, key=lambda bits: float(abs(arb(_from_bits(bits)) - c2)))


def _bits(number: float) -> int:
    return int.from_bytes(struct.pack("<d", number), "little")


def _from_bits(bits: int) -> float:
    return float(struct.unpack("<d", bits.to_bytes(8, "little"))[0])


def _column(segment: Segment) -> list[int]:
    """Return the three words of a segment.

    The coefficients are found from the highest down, each as the leading one of what the higher
    ones, as rounded, leave of w: so the lower ones make up for most of the rounding of the higher.
    """
    residual = _taylor(segment)
    words: list[int] = []
    low_bits = 0
    for power in (3, 2, 1, 0):
        exact = _leading(residual, power) / _HALF_WIDTH**power
        if power == DEGREE:
            # c3 keeps the high 24 bits of a double only: the rest of the word belongs to c2.
            half = 1 << (PACKED_SHIFT - 1)
            low_bits = (_bits(_nearest_double(exact)) + half) >> PACKED_SHIFT
            rounded = _from_bits(low_bits << PACKED_SHIFT)
        else:
            bits = _packed(exact, low_bits) if power == 2 else _bits(_nearest_double(exact))
            words.insert(0, bits)
            rounded = _from_bits(bits)
        residual[power] -= arb(rounded) * _HALF_WIDTH**power
    return words


def make_table() -> NDArray[np.int64]:
    """Make the table, sentinel columns included."""
    ctx.prec = PRECISION
    # NaN fails the comparison that decides an element, so what is outside goes to the exact path.
    sentinel = [[_bits(float("nan"))] * 3]
    columns = sentinel + [_column(segment) for segment in segments()] + sentinel
    return np.ascontiguousarray(np.array(columns, dtype=np.uint64).T.view(np.int64))


def _polynomial_error(segment: Segment, powers: list[Any], tail: Any) -> Any:
    """Step 2: bound on the difference between w and the polynomial of the table."""
    difference = _taylor(segment)
    for power, c in enumerate(powers):
        difference[power] -= c * _HALF_WIDTH**power
    chebyshev = sum((abs(c) for c in _to_chebyshev(difference)), arb(0))
    return chebyshev + _remainder(segment, tail)


def _horner_error(powers: list[Any]) -> tuple[Any, Any]:
    """Step 3: bounds on the rounding error of Horner's rule and on its computed result.

    With bounds e on the error and m on the magnitude so far, and t at most the half width: the
    product is off by ``e t + unit (m t)``, the sum by ``unit (m t (1 + unit) + |c|)`` more.
    """
    error, magnitude = arb(0), abs(powers[-1])
    for c in reversed(powers[:-1]):
        product = magnitude * _HALF_WIDTH * (1 + _UNIT_ROUNDOFF)
        total = product + abs(c)
        rounding = _UNIT_ROUNDOFF * (magnitude * _HALF_WIDTH + total)
        error = error * _HALF_WIDTH + rounding
        magnitude = total * (1 + _UNIT_ROUNDOFF)
    return error, magnitude


def _segment_error(segment: Segment, column: NDArray[np.float64]) -> Any:
    """Bound on the error of r in grid steps, over one segment and every scale (steps 1 to 4)."""
    powers = [arb(float(c)) for c in column]
    tail = _inverse_upper(segment.tail)
    unread = segment.distance * abs(_slope(tail))
    horner, magnitude = _horner_error(powers)
    inverse = unread + _polynomial_error(segment, powers, tail) + horner
    # In grid steps, where an error of z counts most; a scale is below twice its power of two.
    largest_scale = arb(2) ** (GRID_BITS + 1)
    product = largest_scale * magnitude
    rounding = _UNIT_ROUNDOFF * (product + product * (1 + _UNIT_ROUNDOFF) + fmpq(1, 2))
    return largest_scale * inverse + rounding + fmpq(1, 2**100)


def prove_table(table: NDArray[np.int64]) -> float:
    """Prove a bound on the error of the fast path with this table.

    Parameters
    ----------
    table : NDArray[np.int64]
        Laid out as `load_table` returns it.

    Returns
    -------
    float
        A number that the error of ``r``, in grid steps, cannot exceed, for every word, value and
        scale, wherever the table is finite.

    Raises
    ------
    MatrixDPError
        If a sentinel column is not NaN, or if a ball is too wide to prove anything.
    """
    ctx.prec = PRECISION
    polynomials = coefficients(table)
    if not np.isnan(polynomials[0, [0, -1]]).all():
        raise MatrixDPError("the first and the last column of the table must be NaN")
    worst = arb(0)
    for segment in segments():
        error = _segment_error(segment, polynomials[:, segment.column])
        if not error.is_finite():
            raise MatrixDPError(f"no finite bound for {segment}")
        worst = arb.max(worst, error).upper()
    # One step up, because the conversion to a double rounds to nearest.
    return float(np.nextafter(float(worst), np.inf))


def main(arguments: list[str]) -> None:
    """Prove the shipped table, or make a new one."""
    if arguments[:1] == ["make"]:
        table = make_table()
        Path(arguments[1]).write_bytes(table.astype("<i8").tobytes())
    else:
        table = load_table()
    bound = prove_table(table)
    sys.stdout.write(f"SHA-256 {table_digest(table)}\n")
    sys.stdout.write(f"error of r <= {bound.hex()} steps; STEP_ERROR is {STEP_ERROR.hex()}\n")
    if not bound <= STEP_ERROR:
        raise SystemExit("NOT PROVEN: the bound exceeds STEP_ERROR")
