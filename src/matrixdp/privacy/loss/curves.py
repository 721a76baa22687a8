"""Bounds of the privacy curve from the characteristic function of the whole loss."""

from collections.abc import Iterator
from dataclasses import replace

from matrixdp.privacy.loss.curve import CurveBounds, LogDelta, Steps
from matrixdp.privacy.loss.huge import Apart, Huge, apart
from matrixdp.privacy.loss.inversion import Part, chernoff, inverted
from matrixdp.privacy.loss.one_step import OneStep
from matrixdp.privacy.loss.pairs import AddRemovePair
from matrixdp.privacy.loss.smoothing import Smoothed, smoothing
from matrixdp.privacy.loss.tilting import Cumulants, Saddle

__all__ = [
    "ChernoffCurve",
    "CoarselySmoothedCurve",
    "InvertedCurve",
    "OneStepCurve",
    "SmoothedCurve",
]

_FLATTEST = 1e-3  # a slope
_STEEP = 1e3  # over epsilon: a tilt that is enough for any delta
_TINY = 1e-300


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
        mu, reach = smoothing(saddle, slope, self._coarser * self._change)
        release = (AddRemovePair(1.0, mu), 1)
        return Smoothed(self._inverted([*self._steps, release], saddle), mu, reach)


class CoarselySmoothedCurve(SmoothedCurve):
    """Wider bounds, where closer ones would need too many points."""

    _coarser = 100.0
