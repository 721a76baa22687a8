r"""The losses of one step at the points of a Gauss rule, tilted: its characteristic function.

With A(u) = 1 - q + q e^(nu u - nu^2/2) and N the normal density, each moment that is needed is

    phi(z) = int N(u) A(u)^a A(-u)^b du,    (a, b) = (1 + z, 0), (-z, 0) or (1 + z, -z),

for removing, adding and replacing a record: the mean of e^(z L). For z = theta + i s, and over an
interval outside of which there is hardly any mass, it is a sum over Gauss points whose error is a
few units of roundoff of phi(theta), for all s up to a largest one.

*The rule's error.* On a disc of radius R about the middle m of a part, with ``nu R <= pi/2``, the
argument of q e^t is at most pi/2, so ``|A'/A| <= nu min(1, q e^t(m + R) / (1 - q))``. With it the
logarithmic derivative of the integrand is at most some G, and the integrand at most ``e^(G R)``
times its size at m. An ellipse of radius rho about a part of half length r is within ``R = r (rho +
1/rho) / 2``; so the error of n points is at most ``64/15 r e^(G R) rho^(2 - 2n) / (1 - rho^-2)``
times the size at m (Trefethen 2019, Theorem 19.3), and parts are so short that ``G r <= 20``.

*Decay.* Moved up by b into the complex plane the integral stays what it is, up to the ways there at
the two ends of the interval. As ``Im L(u + i b) >= 0``, the integrand there, ``|f(u + i b)|``,
falls as s grows: its integral at one s bounds ``|phi(theta + i s')|`` for all s' >= s. It is taken
at the same points: ``|f(u + i b)|`` is the root of the product of two analytic functions, ``f_z(u +
i b)`` and ``f_z*(u - i b)``, whose logarithmic derivatives have the same bound on a disc larger by
b. (Adding a record, b is negative: the loss is turned round.)
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import CalibrationError
from matrixdp.privacy.loss.pairs import Pair
from matrixdp.rounding import UNIT_ROUNDOFF

__all__ = [
    "NODES",
    "WEIGHTS",
    "Points",
    "TooManyPointsError",
    "log_decay_of",
    "points_of",
]

FloatArray = NDArray[np.float64]
Height = float | FloatArray

# The Gauss rule of 32 points, correctly rounded: numpy's has weights that are off by hundreds of
# units.
_HALF = (
    (0.04830766568773832, 0.0965400885147278),
    (0.1444719615827965, 0.09563872007927486),
    (0.23928736225213706, 0.09384439908080457),
    (0.33186860228212767, 0.09117387869576389),
    (0.42135127613063533, 0.08765209300440381),
    (0.5068999089322294, 0.08331192422694675),
    (0.5877157572407623, 0.07819389578707031),
    (0.6630442669302152, 0.0723457941088485),
    (0.7321821187402897, 0.06582222277636185),
    (0.7944837959679424, 0.058684093478535544),
    (0.84936761373257, 0.050998059262376175),
    (0.8963211557660521, 0.04283589802222668),
    (0.9349060759377397, 0.03427386291302143),
    (0.9647622555875064, 0.02539206530926206),
    (0.9856115115452684, 0.01627439473090567),
    (0.9972638618494816, 0.007018610009470096),
)
_RIGHT = np.array(_HALF)
NODES = np.concatenate((-_RIGHT[::-1, 0], _RIGHT[:, 0]))
"""In order, on the interval from -1 to 1."""
WEIGHTS = np.concatenate((_RIGHT[::-1, 1], _RIGHT[:, 1]))
"""They add up to 2."""
_MOST_POINTS = 1 << 19
_RULE = len(NODES)
_RADIUS = 4.0  # rho
_REACH = 0.5 * (_RADIUS + 1.0 / _RADIUS)  # R / r
_STEEPEST = 20.0  # G r
# Over half a part's length times the integrand's size in its middle.
_RULE_ERROR = (
    64.0
    / 15.0
    * math.exp(_STEEPEST * _REACH)
    * _RADIUS ** (2.0 - 2.0 * _RULE)
    / (1.0 - _RADIUS**-2.0)
)
_WIDEST, _HIGHEST = 1.0, 0.5  # of nu R and of nu b; together at most pi/2
_MESH = 300  # points, to choose b
_HEIGHTS = np.geomspace(0.02, 1.0, 20)  # over the largest
_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class TooManyPointsError(CalibrationError):
    """Losses that would take too much memory."""


@dataclass(frozen=True)
class Points:
    """One step's tilted losses, as atoms whose characteristic function is that of the step.

    Attributes
    ----------
    losses, weights : array
        Where the atoms are, and how large; they add up to 1.
    off, errors : array
        How far each may be off: losses absolutely, weights relatively.
    log : float
        The logarithm of what the weights were divided by: ``log phi(theta)``.
    rule_error : float
        Of ``phi(theta + i s) / phi(theta)``, for s up to the largest one, beside that.
    log_decay : float
        A bound of ``log |phi(theta + i s) / phi(theta)|`` for all s from the largest one on.
    """

    losses: FloatArray
    weights: FloatArray
    off: FloatArray
    errors: FloatArray
    log: float
    rule_error: float
    log_decay: float

    def error(self, s: FloatArray) -> FloatArray:
        """Return the error of ``phi(theta + i s) / phi(theta)``, as a sum of ``e^(i s L) - 1``.

        Each term is off by what its weight is, and all of them by what they were divided by is.
        """
        both, size = float(self.weights @ self.errors), np.abs(self.losses)
        slope = float(self.weights @ (self.errors * size)) + both * float(self.weights @ size)
        found: FloatArray = np.minimum(4.0 * both, s * slope)
        return 1.01 * (found + s * float(self.weights @ self.off) + 2.0 * self.rule_error)

    @property
    def relative_error(self) -> float:
        """Of ``phi(theta)``; at most this, and of its logarithm as well."""
        logarithm = UNIT_ROUNDOFF * (64.0 + 4.0 * abs(self.log))
        return 1.01 * (float(self.weights @ self.errors) + self.rule_error) + logarithm

    def log_moment(self, order: float) -> float:
        """Return a bound of ``log E[e^(c L)]`` of the tilted losses, for an order c up to s.

        The rule's error is then at most ``e^(G r) / 2`` of each part of the sum.
        """
        exponents = order * self.losses
        largest = float(np.max(exponents))
        errors = self.errors + order * self.off
        total = float((self.weights * (1.0 + 2.0 * errors)) @ np.exp(exponents - largest))
        relative = _RULE_ERROR * math.exp(_STEEPEST) + 4.0 * UNIT_ROUNDOFF * len(self.losses)
        relative += self.relative_error + 4.0 * UNIT_ROUNDOFF * abs(largest)
        return float(largest + math.log(total) + relative)


@dataclass(frozen=True)
class _Integrand:
    """The size of f for one pair, direction and tilt."""

    pair: Pair
    exchanged: bool
    tilt: float

    @property
    def powers(self) -> tuple[float, ...]:
        """The real parts of a and b."""
        right, left = 1.0 + self.tilt, -self.tilt
        if self.exchanged:
            right, left = left, right
        return (right,) if self.pair.one_sided else (right, left)

    def losses(self, u: FloatArray) -> FloatArray:
        """Return L."""
        losses = self.pair.losses(u)
        return -losses if self.exchanged else losses

    def log_size(self, u: FloatArray) -> FloatArray:
        """Return ``log f`` at real points."""
        found = -0.5 * u * u - _HALF_LOG_TWO_PI
        for power, points in zip(self.powers, (u, -u), strict=False):
            found += power * self.pair.log_ratio(points)
        return found

    def log_shifted(self, u: FloatArray, height: Height, s: float) -> FloatArray:
        """Return ``log |f(u + i b)|``.

        With w the share of q e^t in A and an angle of nu b, ``|A(u + i b) / A(u)|^2`` is ``1 - 4 w
        (1 - w) sin^2(angle / 2)``.
        """
        found = self.log_size(u) + 0.5 * height * height
        sine, half_sine = np.sin(self.pair.mu * height), np.sin(0.5 * self.pair.mu * height)
        for power, points in zip(self.powers, (u, -u), strict=False):
            share = self.pair.share(points)
            turned = share * half_sine * half_sine
            found = found + 0.5 * power * np.log1p(-4.0 * turned * (1.0 - share))
            found = found - s * np.arctan2(share * sine, 1.0 - 2.0 * turned)
        return found

    def log_largest(self, u: FloatArray, height: Height) -> FloatArray:
        """Return a bound of ``log |f(u + i b')|`` for b' up to b; negative powers grow."""
        found = self.log_size(u) + 0.5 * height * height
        half_sine = np.sin(0.5 * self.pair.mu * height)
        for power, points in zip(self.powers, (u, -u), strict=False):
            share = self.pair.share(points)
            turned = share * (1.0 - share) * half_sine * half_sine
            found = found + 0.5 * min(power, 0.0) * np.log1p(-4.0 * turned)
        return found

    def steepness(self, middle: FloatArray, reach: FloatArray, s: float) -> FloatArray:
        """Return G on discs about points."""
        order = 1.0 + self.tilt + s
        found = np.abs(middle) + reach
        for points in (middle, -middle)[: len(self.powers)]:
            found += order * self.pair.steepest(points + reach)
        return found

    def off(self, u: FloatArray, half: FloatArray) -> FloatArray:
        """Return how far each loss may be off, and with it each ``log A``.

        log A has some units of itself, each function up to eight, and its share of those of log q
        and of t, and of those by which rounding moves u.
        """
        found, log_rate = np.zeros_like(u), abs(math.log(self.pair.rate))
        for points in (u, -u)[: len(self.powers)]:
            size = self.pair.mu * (4.0 * np.abs(points) + self.pair.mu + half)
            found += 32.0 * np.abs(self.pair.log_ratio(points))
            found += self.pair.share(points) * (16.0 + 8.0 * size + 4.0 * log_rate)
        return found * UNIT_ROUNDOFF

    def errors(self, u: FloatArray, half: FloatArray) -> FloatArray:
        """Return the relative errors of f times the width of a point, and of sums of these."""
        normal = np.abs(u) * (4.0 * np.abs(u) + 4.0 * half)
        return UNIT_ROUNDOFF * (96.0 + normal) + (1.0 + self.tilt) * self.off(u, half)


def points_of(
    pair: Pair, interval: tuple[float, float], tilt: float, s: float, *, exchanged: bool = False
) -> Points:
    """Return the points of one step.

    Parameters
    ----------
    pair : Pair
        Sampled: its rate is below 1.
    interval : tuple of (float, float)
        Outside of which nothing is counted.
    tilt, s : float
        Theta, and the largest s.
    exchanged : bool
        Whether P and Q are exchanged.
    """
    integrand = _Integrand(pair, exchanged, tilt)
    middle, half = _parts(integrand, interval, s)
    u = (middle[:, None] + half[:, None] * NODES).ravel()
    widths = (half[:, None] * WEIGHTS).ravel()
    logs = integrand.log_size(u)
    largest = float(np.max(logs))
    weights = widths * np.exp(logs - largest)
    total = float(weights.sum())
    log = largest + math.log(total)
    halves = np.repeat(half, _RULE)
    errors, off = integrand.errors(u, halves), integrand.off(u, halves)

    found = Points(
        losses=integrand.losses(u),
        weights=weights / total,
        off=off,
        errors=errors,
        log=log,
        rule_error=_RULE_ERROR * float(half @ np.exp(integrand.log_size(middle) - log)),
        log_decay=0.0,
    )
    if s == 0.0:
        return found
    height = _best_height(integrand, interval, s)[1]
    # The share, which turns the argument of A, is off by no more than `off` says.
    shifted = np.exp(integrand.log_shifted(u, height, s) - log)
    size = float(widths @ (shifted * (1.0 + 2.0 * (errors + (1.0 + tilt + s) * off))))
    rule = float(half @ np.exp(integrand.log_shifted(middle, height, s) - log))
    ends = np.exp(integrand.log_largest(np.array(interval), height) - log)
    size += _RULE_ERROR * rule + height * float(ends.sum())
    # What all are divided by is off, too.
    log_decay = math.log(size) + 2.0 * found.relative_error
    return replace(found, log_decay=min(0.0, log_decay))


def log_decay_of(
    pair: Pair, interval: tuple[float, float], tilt: float, s: float, *, exchanged: bool = False
) -> float:
    """Return about the ``log_decay`` that the points of a step have."""
    return _best_height(_Integrand(pair, exchanged, tilt), interval, s)[0]


def _best_height(
    integrand: _Integrand, interval: tuple[float, float], s: float
) -> tuple[float, float]:
    """Return about the least logarithm of the bound of decay, and the height that it is at."""
    u = np.linspace(*interval, _MESH)
    logs = integrand.log_size(u)
    log = float(np.logaddexp.reduce(logs)) + math.log(u[1] - u[0])
    heights = _highest(integrand.pair) * _HEIGHTS
    shifted = integrand.log_shifted(u, heights[:, None], s) - log
    sizes = np.exp(shifted).sum(axis=1) * (u[1] - u[0])
    ends = integrand.log_largest(u[[0, -1]], heights[:, None]) - log
    sizes += heights * np.exp(ends).sum(axis=1)
    best = int(np.argmin(sizes))
    return math.log(sizes[best]), float(heights[best])


def _highest(pair: Pair) -> float:
    return min(1.0, _HIGHEST / pair.mu)


def _parts(
    integrand: _Integrand, interval: tuple[float, float], s: float
) -> tuple[FloatArray, FloatArray]:
    """Return the middles and half lengths of parts on which the rule's error is bounded."""
    start, stop = interval
    mesh = np.linspace(start, stop, _MESH)
    # About what it comes to.
    turns = float(integrand.steepness(mesh, np.zeros(_MESH), s).mean()) * (stop - start)
    if _RULE * turns > 2.0 * _STEEPEST * _MOST_POINTS:
        raise TooManyPointsError("too many points for the losses of a sampled step")
    longest = min(0.5, _WIDEST / integrand.pair.mu / _REACH)
    ends = np.linspace(start, stop, math.ceil((stop - start) / (2.0 * longest)) + 1)
    while True:
        middle, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * np.diff(ends)
        steepness = integrand.steepness(middle, half * _REACH + _highest(integrand.pair), s)
        steep = steepness * half > _STEEPEST
        if not steep.any():
            return middle, half
        if _RULE * (len(middle) + int(steep.sum())) > _MOST_POINTS:
            raise TooManyPointsError("too many points for the losses of a sampled step")
        ends = np.sort(np.concatenate((ends, middle[steep])))
