"""The choice of tilt for an account: estimates, on which no bound depends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.privacy.loss.pairs import Pair

__all__ = ["Cumulants", "Saddle"]

FloatArray = NDArray[np.float64]

_MESH = 1500  # points of an integral over one step
_LEAST_TILT = 1e-3  # over the deviation of the whole loss
_LEAST_LOG_DELTA = -600.0
_BELOW_DELTA = 5.0  # on the logarithmic scale


@dataclass(frozen=True)
class Saddle:
    """Where the integral for delta has its saddle point.

    Attributes
    ----------
    tilt : float
        The order theta, positive.
    epsilon, log_delta : float
        The point of the privacy curve that belongs to it, roughly.
    deviation : float
        The standard deviation of the whole loss, tilted.
    log_height : float
        ``log(e^K - 1) - tilt epsilon``: about what Chernoff's bound is.
    """

    tilt: float
    epsilon: float
    log_delta: float
    deviation: float
    log_height: float


class Cumulants:
    r"""The logarithm of ``E_P[e^(s L)]`` of a whole plan and its derivatives, roughly.

    With ``K(s)`` the sum over all steps, ``delta(epsilon) = (1 / 2 pi i) int e^(K(s) - s epsilon) /
    (s (s+1)) ds`` on any vertical line with Re s > 0. On the line through the saddle point theta of
    the integrand it is about ``e^(f(theta)) / sqrt(2 pi f''(theta))``, f the logarithm of the
    integrand.

    Parameters
    ----------
    steps : sequence of (Pair, int)
        The pairs and how often each occurs.
    tail : float
        The mass of each step that is left out.
    exchanged : bool
        Whether P and Q are exchanged in all of them.
    below : float, optional
        Where single steps' losses end.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Pair, int]],
        tail: float,
        *,
        exchanged: bool = False,
        below: float = math.inf,
    ) -> None:
        # A tilt by theta moves u to about theta l'(u), and l' is at least q mu where most of the
        # mass is: further than this it would be where no mass was kept.
        self._largest = min(
            max(map(abs, pair.reach(tail))) / (pair.mu * pair.rate) for pair, _ in steps
        )
        self._terms: list[tuple[FloatArray, FloatArray, int]] = []
        for pair, count in steps:
            u = np.linspace(*pair.reach(tail), _MESH)
            logs, losses = pair.log_density(u) + math.log(u[1] - u[0]), pair.losses(u)
            if exchanged:
                logs, losses = logs - losses, -losses
            kept = losses <= (math.inf if pair.rate == 1.0 else below)
            self._terms.append((logs[kept], losses[kept], count))
        self._least = min(_LEAST_TILT / max(self._deviation(0.0), 1e-200), 1e-3 * self._largest)

    @property
    def deviation(self) -> float:
        """The standard deviation of the whole loss."""
        return self._deviation(0.0)

    def at(self, order: float) -> tuple[float, float, float]:
        """Return ``log(e^K - 1)`` and its first two derivatives.

        The 1, a loss of 0 for certain, adds nothing to delta at a positive epsilon. Where K is
        small, because hardly anything is ever sampled, it would hide what does.
        """
        value, mean, variance = self._cumulants(order)
        share = -math.expm1(-value) if value > 0.0 else 1.0
        mean /= share
        return value + math.log(share), mean, variance / share + mean * mean * (share - 1.0)

    def _cumulants(self, order: float) -> tuple[float, float, float]:
        """Return K and its first two derivatives."""
        value = mean = variance = 0.0
        for logs, losses, count in self._terms:
            tilted = logs + order * losses
            largest = float(np.max(tilted))
            weights = np.exp(tilted - largest)
            total = float(weights.sum())
            centre = float(weights @ losses) / total
            value += count * (largest + math.log(total))
            mean += count * centre
            variance += count * float(weights @ (losses - centre) ** 2) / total
        return value, mean, variance

    def saddle(self, tilt: float) -> Saddle:
        """Return the point of the curve whose saddle point this is."""
        value, mean, variance = self.at(tilt)
        epsilon = mean - 1.0 / tilt - 1.0 / (1.0 + tilt)
        curvature = max(variance, 0.0) + tilt**-2.0 + (1.0 + tilt) ** -2.0
        height = value - tilt * epsilon
        log_delta = height - math.log(tilt) - math.log1p(tilt)
        log_delta -= 0.5 * math.log(2.0 * math.pi * curvature)
        return Saddle(tilt, epsilon, log_delta, self._deviation(tilt), height)

    def _deviation(self, tilt: float) -> float:
        return math.sqrt(self._cumulants(tilt)[2])

    def enough(self, log_delta: float) -> Saddle:
        """Return a saddle with enough tilt to show that delta is below one.

        Of the exchanged pairs it is nearly always far smaller.
        """
        return self.for_delta(math.exp(min(max(log_delta - _BELOW_DELTA, -690.0), -_BELOW_DELTA)))

    def flattest(self, epsilon: float) -> float:
        """Return the tilt at which ``K(s) - s epsilon - log s (s + 1)`` is least; it is convex.

        There an error of ``e^K`` is the least share of delta.
        """

        def slope(log_tilt: float) -> float:
            tilt = math.exp(log_tilt)
            return self._cumulants(tilt)[1] - 1.0 / tilt - 1.0 / (1.0 + tilt) - epsilon

        low, high = math.log(self._least), math.log(self._largest)
        if slope(low) >= 0.0 or slope(high) <= 0.0:
            return math.exp(low if slope(low) >= 0.0 else high)
        return math.exp(scipy.optimize.brentq(slope, low, high, xtol=1e-2))

    def at_point(self, epsilon: float, log_delta: float) -> Saddle:
        """Return that tilt for a point which is known already, roughly."""
        found = self.saddle(self.flattest(epsilon))
        height = found.log_height + found.tilt * (found.epsilon - epsilon)
        log_delta = min(log_delta, max(height, _LEAST_LOG_DELTA))
        return replace(found, epsilon=epsilon, log_delta=log_delta, log_height=height)

    def one_step_epsilon(self, delta: float) -> float:
        """Return about where delta is if at most one step has a loss that matters."""
        if self._one_step_delta(0.0)[0] <= delta:
            return 0.0
        high = max(float(np.max(losses)) for _, losses, _ in self._terms)
        return float(
            scipy.optimize.brentq(
                lambda e: self._one_step_delta(e)[0] - delta, 0.0, high, xtol=1e-300, rtol=1e-4
            )
        )

    def one_step_slope(self, epsilon: float) -> float:
        """Return about the slope of ``-log delta`` then."""
        delta, fall = self._one_step_delta(epsilon)
        return fall / delta if delta > 0.0 else 0.0

    def _one_step_delta(self, epsilon: float) -> tuple[float, float]:
        """Return that delta, and how fast it falls."""
        delta = fall = 0.0
        for logs, losses, count in self._terms:
            above = losses > epsilon
            masses = count * np.exp(logs[above])
            others = masses * np.exp(epsilon - losses[above])
            delta += float((masses - others).sum())
            fall += float(others.sum())
        return delta, fall

    def for_delta(self, delta: float) -> Saddle:
        """Return the saddle of the largest tilt below which delta is larger.

        There may be others at smaller tilts, where ``e^K - 1`` is hardly anything.
        """

        def excess(saddle: Saddle) -> float:
            return math.log(delta) - saddle.log_delta

        high = low = self._largest
        while low > self._least and excess(self.saddle(low)) > 0.0:
            high, low = low, max(low / 1.6, self._least)
        if high == low or excess(self.saddle(low)) > 0.0:
            return self.saddle(low)

        def at(log_tilt: float) -> float:
            return excess(self.saddle(math.exp(log_tilt)))

        return self.saddle(
            math.exp(scipy.optimize.brentq(at, math.log(low), math.log(high), xtol=1e-3))
        )
