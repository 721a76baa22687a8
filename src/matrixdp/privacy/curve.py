r"""The privacy curve of the Gaussian mechanism, in forms that neither cancel nor overflow.

A mechanism whose whitened difference has norm at most mu is (epsilon, delta)-DP iff

    g(mu; epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)  <=  delta

(Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13). Evaluated as it stands,
g cancels for small epsilon or delta and overflows for large epsilon. With ``h = mu/2``,
``t = epsilon/mu``, ``a = t - h``, ``b = t + h``, the normal density phi and the Mills ratio
``R(s) = Phi(-s)/phi(s)``,

    g     = phi(a) mu K,      K = [R(a) - R(b)] / mu         (`mean_slope`)
    1 - g = phi(a) M,         M = R(-a) + R(b)               (`complement`)

K is the mean of ``-R'(s) = 1 - s R(s)`` over ``[a, b]``. The logarithmic derivative of g in log mu
is exactly ``1/K``: a relative error of g moves the bound by K times as much, so what matters for
the bound is the *absolute* error of K, and both forms of `mean_slope` keep that at a few units of
2**-53. docs/numerics.md has the error analysis.
"""

import math
from typing import Generic, NamedTuple

from matrixdp.privacy.arithmetic import Arithmetic, Real

__all__ = ["Point", "complement", "mean_slope", "mills_ratio", "point_at"]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)

# Where the Taylor series of `_narrow_slope` is used, and its length there: the first term left out
# is below 2**-57 (the derivatives are largest at t = 0, where it is h**28 / 29!! < 1e-19).
_NARROW_HALF_WIDTH = 0.75
_NARROW_EPSILON = 1.0
_NARROW_DERIVATIVES = 27


# Five numbers instead of two: each is used several times, and is then rounded in one way only.
class Point(NamedTuple, Generic[Real]):
    """The point (mu, epsilon) of the curve in the coordinates of its formulas."""

    mu: Real
    centre: Real  # t = epsilon / mu
    half_width: Real  # h = mu / 2
    lower: Real  # a = t - h
    upper: Real  # b = t + h


def point_at(mu: Real, centre: Real) -> Point[Real]:
    """Return the coordinates of the point with this mu and ``centre = epsilon/mu``."""
    half_width = 0.5 * mu
    return Point(mu, centre, half_width, centre - half_width, centre + half_width)


def mills_ratio(argument: Real, functions: Arithmetic[Real]) -> Real:
    """Return ``R(s) = Phi(-s)/phi(s) = sqrt(pi/2) erfcx(s/sqrt(2))``, for s above about -37."""
    return _SQRT_HALF_PI * functions.erfcx(argument * _SQRT_HALF)


def mean_slope(point: Point[Real], functions: Arithmetic[Real]) -> Real:
    """Return ``K = [R(a) - R(b)] / mu``, the mean of ``1 - s R(s)`` over ``[a, b]``.

    Domain: mu > 0 and a above about -37 (below, g is 1 to the last digit; use `complement`).
    """
    narrow = (point.half_width <= _NARROW_HALF_WIDTH) & (point.centre * point.mu <= _NARROW_EPSILON)
    return functions.select(
        narrow,
        lambda: _narrow_slope(point, functions),
        lambda: _wide_slope(point, functions),
    )


def complement(point: Point[Real], functions: Arithmetic[Real]) -> Real:
    """Return ``M = R(-a) + R(b)``, with which ``1 - g = phi(a) M``. Domain: a <= 37."""
    return mills_ratio(-point.lower, functions) + mills_ratio(point.upper, functions)


def _wide_slope(point: Point[Real], functions: Arithmetic[Real]) -> Real:
    """Return K as a difference of Mills ratios: exact enough while ``R(a)/mu`` is of order one."""
    difference = mills_ratio(point.lower, functions) - mills_ratio(point.upper, functions)
    return difference / point.mu


def _narrow_slope(point: Point[Real], functions: Arithmetic[Real]) -> Real:
    """Return K by the Taylor series of R around t, ``K = -sum_k R^(2k+1)(t) h^(2k) / (2k+1)!``.

    ``R' = s R - 1`` gives ``R^(n+1) = s R^(n) + n R^(n-1)``, so the scaled derivatives
    ``c_n = R^(n)(t) h^n / n!`` follow ``c_(n+1) = (t h c_n + h^2 c_(n-1)) / (n+1)``. An error in
    R(t) is carried along as a multiple of ``exp(t h + h^2/2)``, harmless where
    ``t h = epsilon/2 <= 1/2``.
    """
    square = point.half_width * point.half_width
    even = mills_ratio(point.centre, functions)  # c_n for even n
    odd = point.centre * even - 1.0  # c_n / h for odd n
    total = odd
    for order in range(1, _NARROW_DERIVATIVES, 2):
        even = square * (point.centre * odd + even) / (order + 1)
        odd = (point.centre * even + square * odd) / (order + 2)
        total = total + odd
    return -total
