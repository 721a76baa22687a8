r"""The two distributions that one record makes of a Gaussian step, in units of its noise.

A step sees each record with probability q and adds noise to a sum; nu is the bound of one record's
contribution over the noise scale. Everything about its privacy is in one pair (P, Q) on the real
line, which *dominates* the step: for each order alpha >= 0 the hockey-stick divergence of any two
neighbouring data sets is at most that of P and Q. Pairs of several steps compose, adaptively, to a
pair that dominates them together (Zhu, Dong and Wang 2022, Theorems 10 and 11).

The *loss* at u is ``l(u) = log P(u)/Q(u)``. For both pairs here it increases in u.
"""

import abc
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["AddRemovePair", "Pair", "ReplacePair"]

FloatArray = NDArray[np.float64]

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_NEAR = 0.5  # an exponent, up to which 1 - w + w e^y is formed as 1 + w (e^y - 1)
# Beyond this, asinh(e^y / 2) is y to the last digit.
_LARGE_EXPONENT = 40.0


def _normal(u: FloatArray) -> FloatArray:
    """Return the standard normal density."""
    density: FloatArray = np.exp(-0.5 * u * u - _HALF_LOG_TWO_PI)
    return density


def _quantile(tail: float) -> float:
    """Return z >= 0 beyond which the normal tail is at most this: it is below ``exp(-z^2/2) / 2``.

    At 0 it is one half, which is all that is asked for then.
    """
    return math.sqrt(max(-2.0 * math.log(2.0 * tail), 0.0))


def _log_shifted(log_weight: FloatArray, log_rest: FloatArray, y: FloatArray) -> FloatArray:
    """Return ``log(1 - w + w e^y)`` for a weight w in (0, 1], given log w and log(1 - w).

    Near y = 0 as ``log1p(w expm1(y))``. Further away as a sum of two positive terms: there the
    first form would lose the digits of 1 - w, or overflow.
    """
    near = np.log1p(np.exp(log_weight) * np.expm1(np.clip(y, -_NEAR, _NEAR)))
    return np.where(np.abs(y) <= _NEAR, near, np.logaddexp(log_rest, log_weight + y))


@dataclass(frozen=True)
class Pair(abc.ABC):
    """P and Q of one step.

    Parameters
    ----------
    rate : float
        The sampling rate q, above 0 and at most 1.
    mu : float
        The bound of a record's contribution over the noise scale, positive: nu above.
    """

    rate: float
    mu: float

    def _log_weights(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log q and log(1 - q) for every point; q below 1."""
        return np.full_like(u, math.log(self.rate)), np.full_like(u, math.log1p(-self.rate))

    def log_ratio(self, u: FloatArray) -> FloatArray:
        """Return ``log A(u)``, ``A = 1 - q + q e^t`` with ``t = nu u - nu^2/2``; q below 1."""
        return _log_shifted(*self._log_weights(u), self.mu * u - 0.5 * self.mu * self.mu)

    def share(self, u: FloatArray) -> FloatArray:
        """Return ``q e^t / A(u)``, which times nu is the derivative of ``log A``; q below 1."""
        t = self.mu * u - 0.5 * self.mu * self.mu
        found: FloatArray = np.exp(np.minimum(math.log(self.rate) + t - self.log_ratio(u), 0.0))
        return found

    def steepest(self, u: FloatArray) -> FloatArray:
        """Return a bound of ``|A'/A|`` up to u, where e^t is in the right half plane; q below 1."""
        t = self.mu * u - 0.5 * self.mu * self.mu
        exponent = np.minimum(math.log(self.rate) + t - math.log1p(-self.rate), 0.0)
        found: FloatArray = self.mu * np.exp(exponent)
        return found

    def _highest(self, tail: float) -> float:
        """Return u above which ``(1-q) N(0,1) + q N(nu,1)`` has at most so much mass."""
        return max(_quantile(0.5 * tail), self.mu + _quantile(0.5 * tail / self.rate))

    @property
    @abc.abstractmethod
    def symmetric(self) -> bool:
        """Whether exchanging P and Q changes nothing."""

    @property
    @abc.abstractmethod
    def one_sided(self) -> bool:
        """Whether Q is the normal distribution, so that the loss is ``log A(u)`` alone."""

    @abc.abstractmethod
    def reach(self, tail: float) -> tuple[float, float]:
        """Return an interval outside of which both P and Q have a mass of at most ``tail``."""

    @abc.abstractmethod
    def log_density(self, u: FloatArray) -> FloatArray:
        """Return log P(u), for choosing parameters."""

    @abc.abstractmethod
    def losses(self, u: FloatArray) -> FloatArray:
        """Return l(u), for choosing parameters."""

    @abc.abstractmethod
    def positions(self, losses: FloatArray) -> FloatArray:
        """Return where each loss is reached; minus infinity for losses below the least."""

    @property
    @abc.abstractmethod
    def least_loss(self) -> float:
        """The infimum of losses, or 0 if there is none."""


class AddRemovePair(Pair):
    """``(1-q) N(0,1) + q N(nu,1)`` against ``N(0,1)``: a record is there, or it is not.

    It dominates removing a record; exchanged it dominates adding one (Zhu, Dong and Wang 2022,
    Theorem 11). The loss is ``log(1 - q + q e^t)``, ``t = nu u - nu^2/2``, above ``log(1 - q)``.
    With q = 1 it is the pair of a Gaussian release.
    """

    @property
    def symmetric(self) -> bool:
        """Whether nothing is sampled."""
        return self.rate == 1.0

    @property
    def one_sided(self) -> bool:
        """It is."""
        return True

    def reach(self, tail: float) -> tuple[float, float]:
        """Return the interval; of P there is q times less about nu than of Q about 0."""
        return -_quantile(0.5 * tail), self._highest(0.5 * tail)

    def _exponent(self, u: FloatArray) -> FloatArray:
        return self.mu * u - 0.5 * self.mu * self.mu

    def log_density(self, u: FloatArray) -> FloatArray:
        """Return ``log Q(u) + l(u)``."""
        return -0.5 * u * u - _HALF_LOG_TWO_PI + self.losses(u)

    def losses(self, u: FloatArray) -> FloatArray:
        """Return ``log(1 - q + q e^t)``."""
        t = self._exponent(u)
        if self.rate == 1.0:
            return t
        return _log_shifted(*self._log_weights(u), t)

    def positions(self, losses: FloatArray) -> FloatArray:
        """Solve ``e^t = 1 + (e^l - 1)/q`` for t, in the form that keeps the digits of a small l."""
        return self.exponents(losses) / self.mu + 0.5 * self.mu

    def exponents(self, losses: FloatArray) -> FloatArray:
        """Return t for each loss: of positive ones within some units of itself."""
        if self.rate == 1.0:
            return losses
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            change = np.expm1(np.minimum(losses, 700.0)) / self.rate
            near = np.log1p(np.maximum(change, -1.0))
            # Where 1 + change cancels: e^t = e^l (1 - e^-a) / q, a the distance to the least loss.
            # Also where e^l is large.
            distance = np.maximum(losses - math.log1p(-self.rate), 0.0)
            far = losses - math.log(self.rate) + np.log(-np.expm1(-distance))
        return np.where((change < -0.5) | (losses > 1.0), far, near)

    @property
    def least_loss(self) -> float:
        """``log(1 - q)``."""
        return math.log1p(-self.rate) if self.rate < 1.0 else 0.0


class ReplacePair(Pair):
    r"""``(1-q) N(0,1) + q N(nu,1)`` against ``(1-q) N(0,1) + q N(-nu,1)``: a record is replaced.

    It dominates replacing one record by another, if each contributes a vector of norm at most nu
    (Schuchardt et al. 2024, Theorem 3.8). *Proof.* Given who else is sampled, the two data sets
    give ``(1-q) N(0) + q N(v)`` and ``(1-q) N(0) + q N(v')`` up to a shift, ``|v|, |v'| <= nu``;
    the mixture over samples does no harm, since divergences are jointly convex. For alpha >= 1
    their divergence is ``q int [phi_v - kappa phi_0 - alpha phi_v']_+`` with ``kappa = (alpha -
    1)(1 - q)/q >= 0``.

    *Opposite directions are worst.* Let v'' be the vector of length |v'| opposite to v, and reflect
    in the hyperplane through 0 that exchanges v' and v''. A point x on the side of v'' has ``x.v <=
    x*.v`` for its mirror image x*, so ``f = phi_v - kappa phi_0 = phi_0 (e^(x.v - |v|^2/2) -
    kappa)`` has ``f(x) <= f(x*)``. There ``phi_v''(x) = phi_v'(x*)`` is the larger of the two.
    Moving the larger subtrahend from x* to x, where f is smaller, spreads the two arguments of the
    convex positive part with their sum unchanged: the integral grows.

    *Long vectors are worst.* On the line the integrand is positive right of a threshold, so that
    the integral is the largest over thresholds s of ``Phi(|v| - s) - kappa Phi(-s) - alpha Phi(-s -
    |v'|)``, and for every s this grows with |v| and |v'|. For alpha < 1 exchange the two. QED.
    """

    @property
    def symmetric(self) -> bool:
        """Always: u and -u exchange P and Q."""
        return True

    @property
    def one_sided(self) -> bool:
        """It is not."""
        return False

    def reach(self, tail: float) -> tuple[float, float]:
        """Return the interval."""
        far = self._highest(0.5 * tail)
        return -far, far

    def _log_terms(self, u: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log(1 - q + q e^t) for t of u and of -u."""
        half = 0.5 * self.mu * self.mu
        weights = self._log_weights(u)
        return _log_shifted(*weights, self.mu * u - half), _log_shifted(
            *weights, -self.mu * u - half
        )

    def log_density(self, u: FloatArray) -> FloatArray:
        """Return ``log N(u) + log(1 - q + q e^t)``."""
        return -0.5 * u * u - _HALF_LOG_TWO_PI + self._log_terms(u)[0]

    def losses(self, u: FloatArray) -> FloatArray:
        """Return the difference of the two logarithms."""
        right, left = self._log_terms(u)
        return right - left

    def positions(self, losses: FloatArray) -> FloatArray:
        """Solve for u: with ``b = q e^(-nu^2/2)`` it is l/2 + asinh((1-q) sinh(l/2) / b), over nu.

        From ``1 - q + b y = e^l (1 - q + b / y)``, ``y = e^(nu u)``, a quadratic equation.
        """
        return (0.5 * losses + self._bend(losses)) / self.mu

    def _bend(self, losses: FloatArray) -> FloatArray:
        half, log_b = 0.5 * np.abs(losses), math.log(self.rate) - 0.5 * self.mu * self.mu
        with np.errstate(divide="ignore"):
            # log(2 sinh(l/2) (1-q) / b); asinh(y) is log(2y) to the last digit where y is large.
            log_twice = half + np.log(-np.expm1(-2.0 * half)) + math.log1p(-self.rate) - log_b
        small = np.arcsinh(0.5 * np.exp(np.minimum(log_twice, _LARGE_EXPONENT)))
        return np.copysign(np.where(log_twice > _LARGE_EXPONENT, log_twice, small), losses)

    @property
    def least_loss(self) -> float:
        """There is none."""
        return 0.0
