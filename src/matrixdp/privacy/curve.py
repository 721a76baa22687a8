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

At epsilon = 0 the curve is the total variation distance of two unit Gaussians at distance mu,

    g(mu; 0) = 2 Phi(mu/2) - 1 = erf(mu / sqrt(8)).

Float64 decides nearly always whether it is at most delta. Cases within its error are decided by the
alternating series of erf in decimal arithmetic (`holds_at_zero_epsilon`), so that `privacy_epsilon`
is 0 exactly where it should be.
"""

import decimal
import math
from typing import Any, Generic, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.arithmetic import ARRAY, SCALAR, Arithmetic, FloatArray, Real

__all__ = ["Point", "complement", "holds_at_zero_epsilon", "mean_slope", "mills_ratio", "point_at"]

_SQRT_HALF = math.sqrt(0.5)
_SQRT_EIGHT = math.sqrt(8)
_SQRT_HALF_PI = math.sqrt(math.pi / 2)

# Where the Taylor series of `_narrow_slope` is used, and its length there: the first term left out
# is below 2**-57 (the derivatives are largest at t = 0, where it is h**28 / 29!! < 1e-19).
_NARROW_HALF_WIDTH = 0.75
_NARROW_EPSILON = 1.0
_NARROW_DERIVATIVES = 27

# erf of a float64 library is off by a few units of 2**-53 at most.
_DOUBT = 1e-14
# The partial sums stay below exp(mu**2 / 8) < 1e12 where a doubt can arise (delta <= 1 - 1e-12
# means mu < 15), so 80 digits leave more than 60 correct ones.
_DIGITS = 80
_PI = decimal.Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348"
)


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


@overload
def holds_at_zero_epsilon(mu: float, delta: float) -> bool: ...
@overload
def holds_at_zero_epsilon(mu: FloatArray, delta: FloatArray) -> NDArray[np.bool_]: ...
def holds_at_zero_epsilon(mu: Any, delta: Any) -> bool | NDArray[np.bool_]:
    """Return whether ``erf(mu / sqrt(8)) <= delta``, exactly, for numbers or equal-shaped arrays.

    Domain: mu from 0 to 1e4, delta from 2**-1022 to 1 - 1e-12.
    """
    if isinstance(mu, float):
        distance = SCALAR.erf(mu / _SQRT_EIGHT)
        if abs(distance - delta) > _DOUBT * delta:
            return bool(distance < delta)
        return _erf_at_most(mu, delta)
    distances = ARRAY.erf(mu / _SQRT_EIGHT)
    holds: NDArray[np.bool_] = distances < delta
    for index in np.flatnonzero(abs(distances - delta) <= _DOUBT * delta):
        holds[index] = _erf_at_most(float(mu[index]), float(delta[index]))
    return holds


def _erf_at_most(mu: float, delta: float) -> bool:
    """Decide ``erf(mu/sqrt(8)) = mu/sqrt(2 pi) sum_n (-mu^2/8)^n / (n! (2n+1)) <= delta``."""
    with decimal.localcontext(decimal.Context(prec=_DIGITS)):
        step = -(decimal.Decimal(mu) ** 2) / 8
        power, total, order = decimal.Decimal(1), decimal.Decimal(0), 0
        # From order > mu^2/8 on the terms decrease, so the first one left out bounds the error.
        while abs(power) > decimal.Decimal(10) ** -_DIGITS or order < -step:
            total += power / (2 * order + 1)
            order += 1
            power *= step / order
        return decimal.Decimal(mu) * total <= decimal.Decimal(delta) * (2 * _PI).sqrt()
