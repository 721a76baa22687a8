"""The worth of a budget: its mu, and the two inverses of the Gaussian privacy curve.

One number decides everything about Gaussian noise: ``mu = sup ||U1^-1 Delta U2^-T||_F``, the norm
of the whitened difference of two neighbouring answers (for noise of one scale, sensitivity /
scale). The three functions convert between it and (epsilon, delta), each rounded to the private
side.
"""

import math
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.parameters import DELTA, EPSILON, MU, broadcast_together
from matrixdp.privacy import solve
from matrixdp.privacy.arithmetic import ARRAY, SCALAR, FloatArray
from matrixdp.privacy.curve import holds_at_zero_epsilon

__all__ = [
    "CURVE_MARGIN",
    "epsilon_bounds",
    "largest_mu",
    "least_delta",
    "privacy_delta",
    "privacy_epsilon",
    "privacy_mu",
]

# The computed numbers are within 1.5e-15 times their condition number of the true ones
# (docs/numerics.md). The margins are several times that, so that no number is on the wrong side.
# That of epsilon and delta is larger, so that the bound at an epsilon that was computed from a mu
# is never below that mu.
_BOUND_MARGIN = 4e-15
CURVE_MARGIN = 8e-15
# Phi(-40) is below the smallest double, and g < Phi(-a).
_UNDERFLOW_LOWER = 40.0
_SMALLEST = math.ulp(0.0)
_SUBNORMAL_ROUNDING = 4 * _SMALLEST  # what four roundings to subnormal numbers can lose
_BLOCK = 4096  # points per pass: the temporaries of one pass stay in the processor's cache


@overload
def privacy_mu(epsilon: float, delta: float) -> float: ...
@overload
def privacy_mu(epsilon: ArrayLike, delta: ArrayLike) -> float | FloatArray: ...
def privacy_mu(epsilon: Any, delta: Any) -> float | FloatArray:
    r"""Return the largest mu that an (epsilon, delta) guarantee allows.

    The privacy bound ``B(epsilon, delta)`` is the root in mu of

        Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu) = delta.

    Noise of scale ``sensitivity / B`` on every entry of a matrix gives exactly (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon : float or array_like
        From 0 to 1e6.
    delta : float or array_like
        From the smallest normal double, about 2.2e-308, to 1 - 1e-12.

    Returns
    -------
    float or ndarray
        The bound; a float for two numbers, else an array of the broadcast shape.

    Raises
    ------
    InvalidParameterError
        If an argument is not a real number or lies outside its domain.
    ShapeError
        If two arrays do not broadcast together.

    Notes
    -----
    *Guarantee:* the result is never above the true bound and within 1e-14 of it, relatively, for
    the float64 numbers passed in. Balle and Wang's curve is exact, so a Gaussian mechanism with
    ``sensitivity / noise_scale <= B`` is (epsilon, delta)-DP, under the neighbouring relation that
    the sensitivity was computed for.

    References
    ----------
    Balle and Wang (2018), *Improving the Gaussian Mechanism for Differential Privacy*, Theorem 8.
    Yang, Xiang, Li, Liu and Wang, *Improved Matrix Gaussian Mechanism for Differential Privacy*,
    Lemma 3 and Algorithm 2 (whose line 7 has a stray T).

    Examples
    --------
    >>> from matrixdp import privacy_mu
    >>> round(privacy_mu(1.0, 1e-5), 6)
    0.268051
    >>> privacy_mu([0.5, 1.0, 2.0], 1e-5).round(6)
    array([0.142211, 0.268051, 0.501552])
    """
    epsilon, delta = EPSILON.numbers(epsilon), DELTA.numbers(delta)
    if isinstance(epsilon, float) and isinstance(delta, float):
        return largest_mu(epsilon, delta)
    return _blockwise(_bound_block, epsilon, delta, ("epsilon", "delta"))


@overload
def privacy_delta(mu: float, epsilon: float) -> float: ...
@overload
def privacy_delta(mu: ArrayLike, epsilon: ArrayLike) -> float | FloatArray: ...
def privacy_delta(mu: Any, epsilon: Any) -> float | FloatArray:
    r"""Return the delta of a mu-Gaussian mechanism at an epsilon: the privacy curve itself.

    ``g(mu; epsilon) = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``, rounded up.

    Parameters
    ----------
    mu : float or array_like
        From 0 to 1e4.
    epsilon : float or array_like
        From 0 to 1e6.

    Returns
    -------
    float or ndarray
        The delta; 0 only for ``mu = 0``, and the smallest double where the true value is below it.

    Raises
    ------
    InvalidParameterError
        If an argument is not a real number or lies outside its domain.
    ShapeError
        If two arrays do not broadcast together.

    Notes
    -----
    *Guarantee:* never below the true value, and within ``1e-14 k`` of it, relatively (or within
    eight of the smallest doubles, where the value is subnormal), with the condition number

        k = 1 + [mu phi(a) + epsilon exp(epsilon) Phi(-b)] / delta,

    ``a = epsilon/mu - mu/2``, ``b = epsilon/mu + mu/2``: the relative change of delta per relative
    change of mu and of epsilon. k grows like ``(epsilon/mu)**2`` into the tail.

    Examples
    --------
    >>> from matrixdp import privacy_delta
    >>> round(privacy_delta(mu=1.0, epsilon=1.0), 8)
    0.12693674
    """
    mu, epsilon = MU.numbers(mu), EPSILON.numbers(epsilon)
    if isinstance(mu, float) and isinstance(epsilon, float):
        return least_delta(mu, epsilon)
    return _blockwise(_delta_block, mu, epsilon, ("mu", "epsilon"))


@overload
def privacy_epsilon(mu: float, delta: float) -> float: ...
@overload
def privacy_epsilon(mu: ArrayLike, delta: ArrayLike) -> float | FloatArray: ...
def privacy_epsilon(mu: Any, delta: Any) -> float | FloatArray:
    r"""Return the smallest epsilon that a mu-Gaussian mechanism has at a delta.

    The root in epsilon of ``g(mu; epsilon) = delta``, rounded up; 0 exactly where
    ``g(mu; 0) = erf(mu / sqrt(8)) <= delta``.

    Parameters
    ----------
    mu : float or array_like
        From 0 to 1e4.
    delta : float or array_like
        From the smallest normal double, about 2.2e-308, to 1 - 1e-12.

    Returns
    -------
    float or ndarray
        The epsilon; it may exceed 1e6, the largest that `privacy_mu` takes.

    Raises
    ------
    InvalidParameterError
        If an argument is not a real number or lies outside its domain.
    ShapeError
        If two arrays do not broadcast together.

    Notes
    -----
    *Guarantee:* never below the true value, and within ``1e-14 k`` of it, relatively, with the
    condition number

        k = 1 + [mu phi(a) + min(delta, 1 - delta)] / [epsilon exp(epsilon) Phi(-b)],

    ``a = epsilon/mu - mu/2``, ``b = epsilon/mu + mu/2``: the relative change of epsilon per
    relative change of mu and of the smaller of delta and 1 - delta. k is of order one except as
    epsilon tends to 0, where it is the *absolute* error that stays small.

    Examples
    --------
    >>> from matrixdp import privacy_mu, privacy_epsilon
    >>> round(privacy_epsilon(mu=0.27, delta=1e-5), 6)
    1.007987
    >>> privacy_epsilon(mu=1e-6, delta=1e-5)
    0.0
    """
    mu, delta = MU.numbers(mu), DELTA.numbers(delta)
    if isinstance(mu, float) and isinstance(delta, float):
        return epsilon_bounds(mu, delta)[1]
    return _blockwise(_epsilon_block, mu, delta, ("mu", "delta"))


def largest_mu(epsilon: float, delta: float) -> float:
    """Return the `privacy_mu` of two floats; nothing is checked."""
    find = solve.solve_bound_low if delta <= 0.5 else solve.solve_bound_high
    return find(epsilon, delta, SCALAR) * (1.0 - _BOUND_MARGIN)


def least_delta(mu: float, epsilon: float) -> float:
    """Return the `privacy_delta` of two floats; nothing is checked."""
    if mu == 0.0:
        return 0.0
    # Decided before anything is evaluated: in the far tail the exponentials would underflow.
    lower = epsilon / mu - 0.5 * mu
    if lower > _UNDERFLOW_LOWER:
        return _SMALLEST
    # Above 1/2 the complement has the digits, and 1 minus it rounds once.
    if lower < 0.0:
        rest = solve.delta_high(mu, epsilon, SCALAR)
        if rest.value < 0.5:
            return min(1.0, math.nextafter(1.0 - rest.value + CURVE_MARGIN * rest.condition, 1.0))
    found = solve.delta_low(mu, epsilon, SCALAR)
    upper = found.value + CURVE_MARGIN * found.condition + _SUBNORMAL_ROUNDING
    return math.nextafter(upper, 1.0)


def epsilon_bounds(mu: float, delta: float) -> tuple[float, float]:
    """Return the epsilon of a mu at a delta, rounded down and rounded up; nothing is checked.

    One root gives both: what may be entered again as a budget, and what noise guarantees.
    """
    # Decided exactly: the root is negative there, and a computed one could be on either side of 0.
    if holds_at_zero_epsilon(mu, delta):
        return 0.0, 0.0
    # The two solvers work with g and with 1 - g, whichever has the digits.
    find = solve.solve_epsilon_low if delta <= 0.5 else solve.solve_epsilon_high
    found = find(mu, delta, SCALAR)
    # Near 0 the relative error is unbounded, so the margin has an absolute part: the condition.
    down = found.value - CURVE_MARGIN * (abs(found.value) + found.condition)
    up = max(found.value, 0.0) * (1.0 + CURVE_MARGIN) + CURVE_MARGIN * found.condition
    return max(0.0, down), up


def _bound_block(epsilon: FloatArray, delta: FloatArray) -> FloatArray:
    bound = np.empty_like(epsilon)
    low = delta <= 0.5
    bound[low] = solve.solve_bound_low(epsilon[low], delta[low], ARRAY)
    bound[~low] = solve.solve_bound_high(epsilon[~low], delta[~low], ARRAY)
    return bound * (1.0 - _BOUND_MARGIN)


def _delta_block(mu: FloatArray, epsilon: FloatArray) -> FloatArray:
    lower = epsilon / mu - 0.5 * mu
    rest = solve.delta_high(mu, epsilon, ARRAY)
    found = solve.delta_low(mu, epsilon, ARRAY)
    high = (lower < 0.0) & (rest.value < 0.5)
    delta = np.where(
        high,
        1.0 - rest.value + CURVE_MARGIN * rest.condition,
        found.value + CURVE_MARGIN * found.condition + _SUBNORMAL_ROUNDING,
    )
    # Special cases last: the formulas above gave NaN or 0 there.
    delta = np.nextafter(np.minimum(delta, 1.0), 1.0)
    delta[lower > _UNDERFLOW_LOWER] = _SMALLEST
    delta[mu == 0.0] = 0.0
    return delta


def _epsilon_block(mu: FloatArray, delta: FloatArray) -> FloatArray:
    epsilon = np.zeros_like(mu)
    positive = ~holds_at_zero_epsilon(mu, delta)
    for chosen, find in (
        (positive & (delta <= 0.5), solve.solve_epsilon_low),
        (positive & (delta > 0.5), solve.solve_epsilon_high),
    ):
        found = find(mu[chosen], delta[chosen], ARRAY)
        value = np.maximum(found.value, 0.0)
        epsilon[chosen] = value * (1.0 + CURVE_MARGIN) + CURVE_MARGIN * found.condition
    return epsilon


def _blockwise(compute: Any, first: Any, second: Any, names: tuple[str, str]) -> FloatArray:
    """Evaluate a function of two flat arrays over the broadcast shape, block by block."""
    one, two = broadcast_together(first, second, names)
    flat_one, flat_two = one.ravel(), two.ravel()
    result = np.empty(flat_one.shape)
    # An array evaluates both branches of every `select`; the unused one may overflow.
    with np.errstate(all="ignore"):
        for start in range(0, result.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            result[block] = compute(flat_one[block], flat_two[block])
    return result.reshape(one.shape)
