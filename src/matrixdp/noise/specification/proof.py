"""The proof of a table's error bound, in ball arithmetic.

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

The sum is a bound on the error of r, in grid steps. A kernel that works with ``z / 4`` and ``t / 4``
rounds in the same way, because powers of two do not change a rounding.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import MatrixDPError
from matrixdp.noise.specification.balls import PRECISION, arb, ctx, fmpq
from matrixdp.noise.specification.segments import (
    Cut,
    Segment,
    inverse_upper,
    remainder,
    slope,
    taylor,
    to_chebyshev,
)
from matrixdp.noise.specification.table import GRID_BITS
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["horner_error", "proven_error"]

# As an exact rational: balls are not made from floats.
_UNIT_ROUNDOFF = fmpq(*UNIT_ROUNDOFF.as_integer_ratio())


def proven_error(polynomials: NDArray[np.float64], cut: Cut) -> float:
    """Return a bound on the error of ``r``, in grid steps, for every word, value and scale.

    Parameters
    ----------
    polynomials : NDArray[np.float64]
        Row k holds the coefficients of ``t**k``, a column for each segment; the first and the last
        column belong to none and are NaN.
    cut : Cut
        The segments.

    Raises
    ------
    MatrixDPError
        If one of those two columns is not NaN, or if a ball is too wide to prove anything.
    """
    ctx.prec = PRECISION
    if not np.isnan(polynomials[0, [0, -1]]).all():
        raise MatrixDPError("the first and the last column of the table must be NaN")
    worst = arb(0)
    for segment in cut.segments():
        error = _segment_error(segment, polynomials[:, segment.column])
        if not error.is_finite():
            raise MatrixDPError(f"no finite bound for {segment}")
        worst = arb.max(worst, error).upper()
    # One step up, because the conversion to a double rounds to nearest.
    return float(np.nextafter(float(worst), np.inf))


def _polynomial_error(segment: Segment, powers: list[Any], tail: Any) -> Any:
    """Step 2: bound on the difference between w and the polynomial of the table."""
    difference = taylor(segment)
    for power, c in enumerate(powers):
        difference[power] -= c * segment.cut.half_width**power
    chebyshev = sum((abs(c) for c in to_chebyshev(difference)), arb(0))
    return chebyshev + remainder(segment, tail)


def horner_error(powers: list[Any], largest: Any) -> tuple[Any, Any]:
    """Step 3: bounds on the rounding error of Horner's rule and on its computed result.

    With bounds e on the error and m on the magnitude so far, and ``|t|`` at most ``largest``: the
    product is off by ``e t + unit (m t)``, the sum by ``unit (m t (1 + unit) + |c|)`` more.
    """
    error, magnitude = arb(0), abs(powers[-1])
    for c in reversed(powers[:-1]):
        product = magnitude * largest * (1 + _UNIT_ROUNDOFF)
        total = product + abs(c)
        rounding = _UNIT_ROUNDOFF * (magnitude * largest + total)
        error = error * largest + rounding
        magnitude = total * (1 + _UNIT_ROUNDOFF)
    return error, magnitude


def _segment_error(segment: Segment, column: NDArray[np.float64]) -> Any:
    """Bound on the error of r in grid steps, over one segment and every scale (steps 1 to 4)."""
    powers = [arb(float(c)) for c in column]
    tail = inverse_upper(segment.tail)
    unread = segment.distance * abs(slope(tail))
    horner, magnitude = horner_error(powers, segment.cut.half_width)
    inverse = unread + _polynomial_error(segment, powers, tail) + horner
    # In grid steps, where an error of z counts most; a scale is below twice its power of two.
    largest_scale = arb(2) ** (GRID_BITS + 1)
    product = largest_scale * magnitude
    rounding = _UNIT_ROUNDOFF * (product + product * (1 + _UNIT_ROUNDOFF) + fmpq(1, 2))
    return largest_scale * inverse + rounding + fmpq(1, 2**100)
