r"""Bounds of a curve from that of the same plan beside a release that reveals hardly anything.

A Gaussian release of mu has the loss W, and ``X = e^-W`` has the mean 1 under P. Beside it a plan
whose curve is f(t) at ``t = e^epsilon`` has ``F(t) = E[f(t X)]``. As f is convex and falls,

- ``F(t) >= f(t)`` (Jensen), and
- ``F(t) <= (f((1-a) t) + f((1+a) t)) / 2 + R`` with ``R = P(X < 1-a) + E[(X-1-a)_+] / (1-a)``. The
  first term is the mean of the chord between ``(1-a) t`` and ``(1+a) t``, at ``t X``. There f is
  below it; to the left f is at most 1 above it; and to the right f falls and the chord falls with
  the slope of ``(f((1-a) t) - f((1+a) t)) / 2a``, at most ``1 / (1-a)`` since ``-t f'(t) <= 1``.

So ``f((1-a) t) >= 2 F(t) - F((1+a) t) - 2 R``. Each of the two terms of R, without the divisor, is
at most ``Phi(mu/2 - log(1+a)/mu)``, so R is at most three times that.

The two bounds differ in the order of a^2. The release makes F's characteristic function fall fast,
which that of a few steps does not do by itself.
"""

import math
from dataclasses import dataclass

import scipy

from matrixdp.privacy.loss.curve import LogDelta
from matrixdp.privacy.loss.tilting import Saddle

__all__ = ["Smoothed", "smoothing"]

_SHARE = 0.6  # of the change that is allowed
_OUTSIDE = math.log(1e-7)  # over delta: the probability of a loss W that is large


@dataclass(frozen=True)
class Smoothed:
    """The curve of a plan from that with the release.

    Attributes
    ----------
    curve : LogDelta
        With the release.
    mu : float
        Of the release.
    reach : float
        The number a.
    """

    curve: LogDelta
    mu: float
    reach: float

    def log_upper(self, epsilon: float) -> float:
        """Return the logarithm of an upper bound of delta."""
        return self.curve.log_upper(epsilon)

    def log_lower(self, epsilon: float) -> float:
        """Return the logarithm of a lower bound of delta."""
        # Both are rounded up, to where F is smaller, or where it is subtracted, down.
        position = epsilon - math.log1p(-self.reach)
        middle = position * (1.0 + 1e-15)
        right = position * (1.0 - 1e-15) + math.log1p(self.reach) * (1.0 - 1e-15)
        log_middle = self.curve.log_lower(middle)
        if log_middle == -math.inf:
            return -math.inf
        right_share = math.exp(min(self.curve.log_upper(right) - log_middle, 1.0))
        outside = math.exp(min(self._log_outside() - log_middle, 1.0))
        found = 2.0 - (right_share + 2.0 * outside) * (1.0 + 1e-15)
        if not found > 0.0:
            return -math.inf
        return log_middle + math.log(found) - 1e-14 * (1.0 + abs(log_middle))

    def _log_outside(self) -> float:
        """Return a bound of ``log R``."""
        nearest = math.log1p(self.reach) - 0.5 * self.mu * self.mu
        return math.log(3.0) + float(scipy.special.log_ndtr(-nearest / self.mu)) + 1e-9


def smoothing(saddle: Saddle, slope: float, change: float) -> tuple[float, float]:
    """Return mu and a of a release that changes delta by less than a share.

    Parameters
    ----------
    saddle : Saddle
        A point of the curve.
    slope : float
        Of ``-log delta`` there.
    change : float
        The share.
    """
    # Delta changes by about a^2 t^2 f'' = a^2 slope (slope + 1) delta.
    reach = min(math.sqrt(_SHARE * change / (slope * (1.0 + slope))), 0.1)
    outside = -_OUTSIDE - saddle.log_delta
    return reach / math.sqrt(2.0 * outside), reach
