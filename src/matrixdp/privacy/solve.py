r"""The three questions to the privacy curve, answered to a few units in the last place.

Results are rounded to neither side and arguments are not checked; `privacy_mu` and its inverses
do both. All functions take float64 numbers or arrays of one shape inside the documented domain. The
unknowns are found by Halley's iteration on the logarithm of g (or of 1 - g where delta > 1/2),
whose derivatives cost nothing once g is known. It starts at the solution without one of g's two
terms, and no point of the domain is known to need more than seven steps.
"""

import math
from collections.abc import Callable
from typing import Generic, NamedTuple

from matrixdp.errors import CalibrationError
from matrixdp.privacy.arithmetic import Arithmetic, Real
from matrixdp.privacy.curve import complement, mean_slope, mills_ratio, point_at

__all__ = [
    "Conditioned",
    "delta_high",
    "delta_low",
    "solve_bound_high",
    "solve_bound_low",
    "solve_epsilon_high",
    "solve_epsilon_low",
]

_SQRT_TAU = math.sqrt(math.tau)  # tau = 2 pi
_SQRT_EIGHT = math.sqrt(8)

# Halley's method cubes the error with each step, so the step taken from such a residual is the last
# one needed.
_LAST_RESIDUAL = 1e-5
# Four times what was ever needed. More would mean a mistake, so it is an error and not an answer.
_MOST_STEPS = 30


class Conditioned(NamedTuple, Generic[Real]):
    """A number with the absolute change that a relative change of one in its arguments makes."""

    value: Real
    condition: Real


class _Step(NamedTuple, Generic[Real]):
    """What one iteration found: the better unknown, how far off it was, and how it reacts to g."""

    unknown: Real
    residual: Real
    reaction: Real


def solve_bound_low(epsilon: Real, delta: Real, functions: Arithmetic[Real]) -> Real:
    """Return the mu with ``g(mu; epsilon) = delta``, for ``delta <= 1/2``.

    In ``u = log mu``, which keeps mu positive, the function ``F = log(g/delta)`` has
    ``F' = 1/K`` and ``F'' = (1/K)(1 + ab - 1/K)``.
    """

    def step(mu: Real) -> _Step[Real]:
        point = point_at(mu, epsilon / mu)
        slope = mean_slope(point, functions)
        residual = _log_density_ratio(mu * slope, delta, point.lower, functions)
        curvature = slope * (1.0 + point.lower * point.upper) - 1.0
        change = -slope * residual / _halley_divisor(residual * curvature, functions)
        return _Step(mu * functions.exp(change), residual, slope)

    return _iterate(step, _smallest_bound(epsilon, delta, functions), functions).unknown


def solve_bound_high(epsilon: Real, delta: Real, functions: Arithmetic[Real]) -> Real:
    """Return the mu with ``g(mu; epsilon) = delta``, for ``delta > 1/2``.

    In mu itself, ``F = log((1-g)/(1-delta))`` has ``F' = -1/M`` and ``F'' = -(ab/mu)/M - 1/M^2``.
    """

    def step(mu: Real) -> _Step[Real]:
        point = point_at(mu, epsilon / mu)
        survival = complement(point, functions)
        residual = _log_density_ratio(survival, 1.0 - delta, point.lower, functions)
        curvature = -(point.lower * point.upper / mu) * survival - 1.0
        change = survival * residual / _halley_divisor(residual * curvature, functions)
        return _Step(mu + change, residual, survival)

    return _iterate(step, _smallest_bound(epsilon, delta, functions), functions).unknown


def solve_epsilon_low(mu: Real, delta: Real, functions: Arithmetic[Real]) -> Conditioned[Real]:
    """Return the epsilon with ``g(mu; epsilon) = delta``, for ``delta <= 1/2``, g(mu; 0) > delta.

    In ``t = epsilon/mu``, ``F = log(g/delta)`` has ``F' = -R(b)/K`` and
    ``F'' = F' (mu - 1/R(b) - F')``.
    """

    def step(centre: Real) -> _Step[Real]:
        point = point_at(mu, centre)
        slope = mean_slope(point, functions)
        upper = mills_ratio(point.upper, functions)
        residual = _log_density_ratio(mu * slope, delta, point.lower, functions)
        curvature = -1.0 - slope * (mu - 1.0 / upper) / upper
        change = slope / upper * residual / _halley_divisor(residual * curvature, functions)
        return _Step(centre + change, residual, mu * (1.0 + slope) / upper)

    # Two upper bounds of a: phi(a) mu K = delta with K <= 1, and g without its second term. The
    # smaller one is closer to the root.
    quotient = functions.larger(mu / delta / _SQRT_TAU, delta * 0.0 + 1.0)
    lower = functions.smaller(
        -functions.normal_quantile(delta), functions.sqrt(2.0 * functions.log(quotient))
    )
    last = _iterate(step, lower + 0.5 * mu, functions)
    return Conditioned(mu * last.unknown, last.reaction)


def solve_epsilon_high(mu: Real, delta: Real, functions: Arithmetic[Real]) -> Conditioned[Real]:
    """Return the epsilon with ``g(mu; epsilon) = delta``, for ``delta > 1/2`` and g(mu; 0) > delta.

    In ``t = epsilon/mu``, ``F = log((1-g)/(1-delta))`` has ``F' = mu R(b)/M`` and
    ``F'' = F' (b - 1/R(b) - (a R(-a) + b R(b))/M)``.
    """

    def step(centre: Real) -> _Step[Real]:
        point = point_at(mu, centre)
        upper = mills_ratio(point.upper, functions)
        survival = complement(point, functions)
        residual = _log_density_ratio(survival, 1.0 - delta, point.lower, functions)
        bend = (point.lower * (survival - upper) + point.upper * upper) / survival
        curvature = survival / (mu * upper) * (point.upper - 1.0 / upper - bend)
        change = -survival / (mu * upper) * residual
        change = change / _halley_divisor(residual * curvature, functions)
        return _Step(centre + change, residual, (mu + survival) / upper)

    # The start ignores g's second term: Phi(-a) = delta.
    last = _iterate(step, 0.5 * mu - functions.normal_quantile(delta), functions)
    return Conditioned(mu * last.unknown, last.reaction)


def delta_low(mu: Real, epsilon: Real, functions: Arithmetic[Real]) -> Conditioned[Real]:
    """Return ``g = phi(a) mu K``, for g <= 1/2.

    Its condition is ``g + mu dg/dmu - epsilon dg/depsilon = g + phi(a) (mu + epsilon R(b))``.
    """
    point = point_at(mu, epsilon / mu)
    slope = mean_slope(point, functions)
    upper = mills_ratio(point.upper, functions)
    scale = functions.exp(-0.5 * point.lower * point.lower) / _SQRT_TAU * mu
    return Conditioned(scale * slope, scale * (slope + 1.0 + point.centre * upper))


def delta_high(mu: Real, epsilon: Real, functions: Arithmetic[Real]) -> Conditioned[Real]:
    """Return ``1 - g = phi(a) M``, for a <= 37; its condition is its size plus g's changes."""
    point = point_at(mu, epsilon / mu)
    survival = complement(point, functions)
    upper = mills_ratio(point.upper, functions)
    density = functions.exp(-0.5 * point.lower * point.lower) / _SQRT_TAU
    condition = density * (survival + mu + epsilon * upper)
    return Conditioned(density * survival, condition)


def _iterate(
    step: Callable[[Real], _Step[Real]], start: Real, functions: Arithmetic[Real]
) -> _Step[Real]:
    """Repeat a step until the residual is small, or raise if it does not become so."""
    unknown = start
    for _ in range(_MOST_STEPS):
        last = step(unknown)
        unknown = last.unknown
        # An array goes on until its slowest point is done; the others only get more accurate.
        if functions.everywhere(abs(last.residual) < _LAST_RESIDUAL):
            return last
    raise CalibrationError(
        f"the calibration did not converge in {_MOST_STEPS} steps; this is a defect of matrixdp: "
        "please report the arguments"
    )


def _log_density_ratio(
    factor: Real, target: Real, argument: Real, functions: Arithmetic[Real]
) -> Real:
    """Return ``log(factor phi(argument) / target)``.

    At a root the two terms are opposite, so their rounding is relative to ``argument**2 / 2``,
    which the factor K ~ 1/argument**2 of the bound's reaction makes up for.
    """
    return functions.log(factor / (target * _SQRT_TAU)) - 0.5 * argument * argument


def _halley_divisor(product: Real, functions: Arithmetic[Real]) -> Real:
    """Return ``1 - F F'' / (2 F'^2)``, kept away from zero where the iteration is still far off."""
    return functions.larger(1.0 - 0.5 * product, 0.0 * product + 0.5)


def _smallest_bound(epsilon: Real, delta: Real, functions: Arithmetic[Real]) -> Real:
    """Return a mu below the root: the larger of two bounds.

    ``Phi(-a) >= g`` gives ``a = -Phi^-1(delta)`` and with it ``mu = sqrt(a^2 + 2 epsilon) - a``;
    ``g(mu; 0) >= g(mu; epsilon)`` gives ``mu = sqrt(8) erfinv(delta)``.
    """
    lower = -functions.normal_quantile(delta)
    upper = functions.sqrt(lower * lower + 2.0 * epsilon)
    by_first_term = functions.select(
        lower > 0.0, lambda: 2.0 * epsilon / (lower + upper), lambda: upper - lower
    )
    return functions.larger(by_first_term, _SQRT_EIGHT * functions.erfinv(delta))
