"""Whether a guarantee already holds at epsilon = 0, decided exactly.

At epsilon = 0 the curve is the total variation distance of two unit Gaussians at distance mu,

    g(mu; 0) = 2 Phi(mu/2) - 1 = erf(mu / sqrt(8)).

Float64 decides nearly all cases. Those within its error are decided by the alternating series of
erf in decimal arithmetic, so that `privacy_epsilon` is 0 exactly where it should be.
"""

import decimal
import math
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.arithmetic import ARRAY, SCALAR, FloatArray

__all__ = ["holds_at_zero_epsilon"]

_SQRT_EIGHT = math.sqrt(8)
# erf of a float64 library is off by a few units of 2**-53 at most.
_DOUBT = 1e-14
# The partial sums stay below exp(mu**2 / 8) < 1e12 where a doubt can arise (delta <= 1 - 1e-12
# means mu < 15), so 80 digits leave more than 60 correct ones.
_DIGITS = 80
_PI = decimal.Decimal(
    "3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348"
)


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
    for place in np.flatnonzero(abs(distances - delta) <= _DOUBT * delta):
        holds[place] = _erf_at_most(float(mu[place]), float(delta[place]))
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
