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
3. *Evaluation.* Each step multiplies and adds, with two roundings or, where the compiler fuses
   them, one; the bound for two covers both.
4. *Scaling and rounding.* ``r = f + s * z`` with ``|f| <= 1/2`` exact and
   ``s < 2**(GRID_BITS + 1)``: two more roundings (or one), and ``2**-100`` for a value that
   underflowed when it was scaled.

The sum is a bound on the error of r, in grid steps.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixdp.errors import MatrixDPError
from matrixdp.noise.proofs.balls import PRECISION, arb, ctx, fmpq
from matrixdp.noise.proofs.segments import (
    Segment,
    inverse_upper,
    remainder,
    slope,
    taylor,
    to_chebyshev,
)
from matrixdp.noise.specification.table import GRID_BITS
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = ["Approximation", "Rounded", "proven_error"]

# As an exact rational: balls are not made from floats.
_UNIT_ROUNDOFF = fmpq(*UNIT_ROUNDOFF.as_integer_ratio())


@dataclass(frozen=True)
class Rounded:
    """Bounds on the absolute value of a computed number, and on its distance from the exact one."""

    magnitude: Any
    error: Any

    @classmethod
    def exactly(cls, magnitude: Any) -> "Rounded":
        """Return the bounds of a number that is computed without rounding."""
        return cls(abs(arb(magnitude)), arb(0))

    def times(self, other: "Rounded") -> "Rounded":
        """Return the bounds of the product: those of its factors' errors, and one rounding."""
        product = self.magnitude * other.magnitude
        inherited = (
            self.error * other.magnitude + self.magnitude * other.error + self.error * other.error
        )
        return Rounded(product * (1 + _UNIT_ROUNDOFF), inherited + _UNIT_ROUNDOFF * product)

    def plus(self, other: "Rounded") -> "Rounded":
        """Return the bounds of the sum, or of the difference."""
        total = self.magnitude + other.magnitude
        inherited = self.error + other.error
        return Rounded(total * (1 + _UNIT_ROUNDOFF), inherited + _UNIT_ROUNDOFF * total)


@dataclass(frozen=True)
class Approximation:
    """The polynomial of a segment.

    Attributes
    ----------
    powers : list of arb
        Its coefficients of 1, t, t**2, .., exactly as the table holds them.
    computed : Rounded
        Bounds of what the kernel computes with them, for every t of the segment.
    """

    powers: list[Any]
    computed: Rounded


def proven_error(approximations: Iterable[tuple[Segment, Approximation]]) -> float:
    """Return a bound on the error of ``r``, in grid steps, for every word, value and scale.

    Raises
    ------
    MatrixDPError
        If a ball is too wide to prove anything.
    """
    ctx.prec = PRECISION
    worst = arb(0)
    for segment, approximation in approximations:
        error = _segment_error(segment, approximation)
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


def _segment_error(segment: Segment, approximation: Approximation) -> Any:
    """Bound on the error of r in grid steps, over one segment and every scale (steps 1 to 4)."""
    tail = inverse_upper(segment.tail)
    unread = segment.distance * abs(slope(tail))
    polynomial = _polynomial_error(segment, approximation.powers, tail)
    inverse = unread + polynomial + approximation.computed.error
    # In grid steps, where an error of z counts most; a scale is below twice its power of two.
    largest_scale = arb(2) ** (GRID_BITS + 1)
    product = largest_scale * approximation.computed.magnitude
    rounding = _UNIT_ROUNDOFF * (product + product * (1 + _UNIT_ROUNDOFF) + fmpq(1, 2))
    return largest_scale * inverse + rounding + fmpq(1, 2**100)
