"""The choice of tilt, lattice and window for an account: estimates, on which no bound depends."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy
from numpy.typing import NDArray

from matrixdp.privacy.loss.pairs import Pair

__all__ = ["Cumulants", "Saddle", "Split"]

FloatArray = NDArray[np.float64]

_MESH = 1500  # points of an integral over one step
_LEAST_TILT = 1e-3  # over the deviation of the whole loss
_SHARES = (0.75, 0.85, 0.95)  # of the tilt, that are tried
_MOST_LOST = 2.0


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
        ``log(e^K - 1) - tilt epsilon``.
    """

    tilt: float
    epsilon: float
    log_delta: float
    deviation: float
    log_height: float


@dataclass(frozen=True)
class Split:
    """A division of the losses of one kind of step into small and large ones.

    Attributes
    ----------
    index : int
        Which kind of step.
    cut : float
        The largest small loss.
    number : int
        How many of these steps have a large loss.
    """

    index: int
    cut: float
    number: int = 0


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
    split : Split, optional
        Of one kind of step only so many large losses.
    """

    def __init__(
        self,
        steps: Sequence[tuple[Pair, int]],
        tail: float,
        *,
        exchanged: bool = False,
        split: Split | None = None,
    ) -> None:
        # A tilt by theta moves u to about theta l'(u), and l' is at least q mu where most of the
        # mass is: further than this it would be where no mass was kept.
        self._largest = min(
            max(map(abs, pair.reach(tail))) / (pair.mu * pair.rate) for pair, _ in steps
        )
        self._terms: list[tuple[FloatArray, FloatArray, int]] = []
        for index, (pair, count) in enumerate(steps):
            u = np.linspace(*pair.reach(tail), _MESH)
            logs, losses = pair.log_density(u) + math.log(u[1] - u[0]), pair.losses(u)
            if exchanged:
                logs, losses = logs - losses, -losses
            if split is None or split.index != index:
                self._terms.append((logs, losses, count))
                continue
            for chosen, number in (
                (losses <= split.cut, count - split.number),
                (losses > split.cut, split.number),
            ):
                if number > 0 and chosen.any():
                    self._terms.append((logs[chosen], losses[chosen], number))
        self._least = min(_LEAST_TILT / max(self._deviation(0.0), 1e-200), 1e-3 * self._largest)

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

    def softened(self, saddle: Saddle) -> Saddle:
        """Return the same point of the curve with less tilt, as far as hardly anything is lost.

        With less tilt there is less mass far above epsilon, where a few large losses of single
        steps take it. The mass near epsilon falls by a factor of ``e^-f``, f the difference of
        ``log(e^K(s) - 1) - s epsilon`` from its least value.
        """
        least = saddle.log_height
        for share in _SHARES:
            tilt = share * saddle.tilt
            if self.at(tilt)[0] - tilt * saddle.epsilon - least <= _MOST_LOST:
                return replace(saddle, tilt=tilt, deviation=self._deviation(tilt))
        return saddle

    def for_epsilon(self, epsilon: float) -> Saddle:
        """Return the saddle at an epsilon."""
        return self._found(lambda saddle: saddle.epsilon - epsilon)

    def for_delta(self, delta: float) -> Saddle:
        """Return the saddle at a delta."""
        return self._found(lambda saddle: math.log(delta) - saddle.log_delta)

    def _found(self, excess: Callable[[Saddle], float]) -> Saddle:
        """Return the saddle of the largest tilt below which a function is negative.

        There may be others at smaller tilts, where ``e^K - 1`` is hardly anything.
        """
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
