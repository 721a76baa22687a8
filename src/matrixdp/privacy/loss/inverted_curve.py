"""Bounds of the privacy curve from the characteristic function of the whole loss."""

from collections.abc import Iterator
from dataclasses import replace

from matrixdp.privacy.loss.curve import CurveBounds, LogDelta, Steps
from matrixdp.privacy.loss.inversion import Part, chernoff, inverted
from matrixdp.privacy.loss.pairs import AddRemovePair
from matrixdp.privacy.loss.smoothing import Smoothed, smoothing
from matrixdp.privacy.loss.splitting import mixture
from matrixdp.privacy.loss.tilting import Cumulants, Saddle

__all__ = ["InvertedCurve", "SmoothedCurve", "SplitCurve"]


class InvertedCurve(CurveBounds):
    """Bounds by one inversion.

    Parameters
    ----------
    steps : sequence of (Pair, int)
        The plan.
    tail : float
        Of each step at most this mass is left out.
    """

    def __init__(self, steps: Steps, tail: float) -> None:
        super().__init__(steps, tail)
        self._parts = [Part(pair, pair.reach(tail), count) for pair, count in steps]
        self._lost = tail * sum(count for pair, count in steps if pair.rate < 1.0) * (1.0 + 1e-9)

    def _own(self, saddle: Saddle) -> tuple[LogDelta, LogDelta]:
        whole = inverted(self._parts, saddle, self._lost)
        return whole, whole

    def _exchanged(self, epsilon: float, log_delta: float) -> Iterator[LogDelta]:
        cumulants = Cumulants(self._steps, self._tail, exchanged=True)
        tilt = min(cumulants.flattest(epsilon), cumulants.below(log_delta).tilt)
        yield chernoff(self._parts, tilt, self._lost, exchanged=True)
        saddle = replace(cumulants.saddle(tilt), epsilon=epsilon, log_delta=log_delta)
        yield inverted(self._parts, saddle, self._lost, exchanged=True)


class SplitCurve(InvertedCurve):
    """Bounds with large losses apart, if they are rare."""

    def _own(self, saddle: Saddle) -> tuple[LogDelta, LogDelta]:
        whole = mixture(self._steps, self._tail, saddle)
        return whole, whole


class SmoothedCurve(SplitCurve):
    """The same beside a release that reveals hardly anything, for plans of a few steps.

    Parameters
    ----------
    width : float
        How far apart bounds of epsilon may be.
    """

    def __init__(self, steps: Steps, tail: float, width: float) -> None:
        super().__init__(steps, tail)
        self._plain, self._width = steps, width

    def _own(self, saddle: Saddle) -> tuple[LogDelta, LogDelta]:
        slope = Cumulants(self._plain, self._tail).one_step_slope(saddle.epsilon)
        mu, reach = smoothing(saddle, slope, self._width)
        release = (AddRemovePair(1.0, mu), 1)
        found = Smoothed(mixture([*self._plain, release], self._tail, saddle), mu, reach)
        return found, found
