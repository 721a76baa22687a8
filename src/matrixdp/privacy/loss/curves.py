r"""Bounds of the privacy curve from the characteristic function of the whole loss.

*Smoothing.* A Gaussian release of mu has the loss W, and ``X = e^-W`` has the mean 1 under P.
Beside it a plan whose curve is f(t) at ``t = e^epsilon`` has ``F(t) = E[f(t X)]``. As f is convex
and falls,

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
from collections.abc import Iterator
from dataclasses import dataclass, replace

import scipy

from matrixdp.privacy.loss.curve import CurveBounds, LogDelta, Steps
from matrixdp.privacy.loss.huge import Apart, Huge, apart
from matrixdp.privacy.loss.inversion import Part, chernoff, inverted
from matrixdp.privacy.loss.one_step import OneStep
from matrixdp.privacy.loss.pairs import AddRemovePair
from matrixdp.privacy.loss.tilting import Cumulants, Saddle

__all__ = [
    "ChernoffCurve",
    "CoarselySmoothedCurve",
    "InvertedCurve",
    "OneStepCurve",
    "Smoothed",
    "SmoothedCurve",
]

_SHARE = 0.6  # of the change that is allowed
_OUTSIDE = math.log(1e-7)  # over delta: the probability of a loss W that is large
_FLATTEST = 1e-3  # a slope
_STEEP = 1e3  # over epsilon: a tilt that is enough for any delta
_TINY = 1e-300


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


def _smoothing(saddle: Saddle, slope: float, change: float) -> tuple[float, float]:
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


class OneStepCurve(CurveBounds):
    """Bounds for a plan of a single step."""

    def _own(self, saddle: Saddle) -> LogDelta:
        del saddle  # it is exact
        return OneStep(self._steps[0][0])

    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[LogDelta]:
        del epsilon, log_delta
        return iter(())  # nowhere larger


class ChernoffCurve(CurveBounds):
    """Upper bounds by Chernoff's bound, with huge losses apart.

    Parameters
    ----------
    steps : sequence of (Pair, int)
        The plan.
    tail : float
        Of each step at most this mass is left out.
    change : float
        The share by which bounds of delta may be apart.
    """

    def __init__(self, steps: Steps, tail: float, change: float) -> None:
        super().__init__(steps, tail, change)
        self._parts = [Part(pair, pair.reach(tail), count) for pair, count in steps]
        self._lost = tail * sum(count for pair, count in steps if pair.rate < 1.0) * (1.0 + 1e-9)

    def _own(self, saddle: Saddle) -> LogDelta:
        parts, huge = apart(self._steps, self._tail, saddle, self._change)
        near = saddle if huge is None else self._near(self._steps, saddle, huge)
        bound = chernoff(parts, min(near.tilt, _STEEP / max(saddle.epsilon, _TINY)), self._lost)
        return bound if huge is None else Apart(bound, huge)

    def _near(self, steps: Steps, saddle: Saddle, huge: Huge) -> Saddle:
        """Return the saddle point of the losses that are not huge."""
        cumulants = Cumulants(steps, self._tail, below=huge.least)
        return cumulants.at_point(saddle.epsilon, saddle.log_delta)

    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[LogDelta]:
        yield chernoff(
            self._parts, self._tilt_exchanged(epsilon, log_delta), self._lost, exchanged=True
        )

    def _tilt_exchanged(self, epsilon: float, log_delta: float) -> float:
        cumulants = Cumulants(self._steps, self._tail, exchanged=True)
        enough = min(cumulants.enough(log_delta).tilt, _STEEP / max(epsilon, _TINY))
        return min(cumulants.flattest(epsilon), enough)


class InvertedCurve(ChernoffCurve):
    """Bounds by inversion, with huge losses apart."""

    def _own(self, saddle: Saddle) -> LogDelta:
        return self._inverted(self._steps, saddle)

    def _inverted(self, steps: Steps, saddle: Saddle) -> LogDelta:
        parts, huge = apart(steps, self._tail, saddle, self._change)
        if huge is None:
            return inverted(parts, saddle, self._lost)
        return Apart(inverted(parts, self._near(steps, saddle, huge), self._lost), huge)

    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[LogDelta]:
        yield from super()._exchanged(epsilon, log_delta)
        cumulants = Cumulants(self._steps, self._tail, exchanged=True)
        saddle = cumulants.saddle(self._tilt_exchanged(epsilon, log_delta))
        saddle = replace(saddle, epsilon=epsilon, log_delta=log_delta)
        yield inverted(self._parts, saddle, self._lost, exchanged=True)


class SmoothedCurve(InvertedCurve):
    """The same beside a release that reveals hardly anything, for plans of a few steps."""

    _coarser = 1.0

    def _own(self, saddle: Saddle) -> LogDelta:
        found = Cumulants(self._steps, self._tail).one_step_slope(saddle.epsilon)
        # Where no single loss reaches epsilon, delta falls as its tilt says.
        slope = max(found or saddle.tilt, _FLATTEST)
        mu, reach = _smoothing(saddle, slope, self._coarser * self._change)
        release = (AddRemovePair(1.0, mu), 1)
        return Smoothed(self._inverted([*self._steps, release], saddle), mu, reach)


class CoarselySmoothedCurve(SmoothedCurve):
    """Wider bounds, where closer ones would need too many points."""

    _coarser = 100.0
