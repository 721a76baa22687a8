r"""The rank-one singular Gaussian mechanism (R1SMG): its noise, and the delta that it really has.

R1SMG (Ji and Li 2024) adds ``s z v`` to an answer of M numbers: v is uniform on the unit sphere, z
is standard normal, and ``s^2 = 2 / (epsilon psi)`` at sensitivity 1, with

    psi = (delta Gamma((M - 1) / 2) / (sqrt(pi) Gamma(M / 2)))^(2 / (M - 2)).

psi tends to 1, so the norm of the noise does not grow with M. Each draw is on one line, but the
line is random, and over all lines the noise has a density, which is steep at the answer itself:

    f(x) proportional to ||x||^(1 - M) exp(-||x||^2 / (2 s^2)).

That reveals which of two answers was perturbed. Let D be their difference, ``||D|| = 1``, and let
``x = r u`` be the noise, r > 0 its norm and c the cosine between u and D. The privacy loss
``ln f(x) - ln f(x - D)`` is, with ``w = ||x - D||^2 / r^2 = 1 - 2 c / r + 1 / r^2``,

    L = (M - 1) / 2 ln w + r^2 (w - 1) / (2 s^2),

which increases in w. With ``a = r^2 / ((M - 1) s^2)``, it is above t where ``ln w + a w`` is above
``a + 2 t / (M - 1)``: where w is above ``W(t, r) = omega(ln a + a + 2 t / (M - 1)) / a``, with
omega the Wright function, for which ``omega + ln omega`` is its argument.

Delta is ``P(L > epsilon) - e^epsilon Q(L > epsilon)``, with P of the one answer and Q of the other.
Under P the event is ``c < (1 + 1/r^2 - W(epsilon, r)) r / 2``. Under Q the noise is r u from the
other answer, the loss is that of the swapped pair, negated, and the event is
``c < (W(-epsilon, r) - 1 - 1/r^2) r / 2``. As r is half-normal of scale s, and c has the
distribution F of a coordinate on the sphere, Beta((M - 1) / 2, (M - 1) / 2) of (1 + c) / 2,

    delta = integral over r of sqrt(2/pi) / s exp(-r^2 / (2 s^2)) [F(c_P(r)) - e^epsilon F(c_Q(r))].
"""

import math

import scipy

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, positive_integer, positive_number

__all__ = ["rank_one_delta", "rank_one_noise_scale"]

_FEWEST_NUMBERS = 3  # the exponent of psi is 2 / (M - 2)
_LARGEST_EPSILON = 300.0  # e^epsilon times the smallest double is nothing
_LARGEST_SCALE = 1e100  # and its inverse; their squares are within the range of a float
_SMALLEST_NORM = 1e-12  # what is nearer to the answer adds to delta, and is left out
_MOST_SCALES = 38.0  # the density of a normal number beyond is 0 in floats
_PIECES = 200


def rank_one_noise_scale(numbers: int, epsilon: float, delta: float) -> float:
    """Return s, the root mean square norm of the noise for an (epsilon, delta) claim.

    At sensitivity 1; the noise is proportional to the sensitivity.

    Parameters
    ----------
    numbers : int
        How many numbers are released: the entries of the matrix, at least 3.
    epsilon : float
        What is claimed, above 0.
    delta : float
        Likewise.

    References
    ----------
    Ji and Li, *Less is More: Revisiting the Gaussian Mechanism for Differential Privacy*, USENIX
    Security 2024, arXiv 2306.02256: the abstract of its second version states the least expected
    squared error, ``2 / (epsilon psi)``, and psi. Its Theorem 5 uses them as the variance.

    Examples
    --------
    >>> round(rank_one_noise_scale(100, 1.0, 1e-5), 4)
    1.6319
    """
    count = _checked_count(numbers)
    loss, chance = positive_number(epsilon, "epsilon"), DELTA.number(delta)
    log_psi = (
        math.log(chance)
        + math.lgamma((count - 1) / 2)
        - math.lgamma(count / 2)
        - math.log(math.pi) / 2
    ) * (2 / (count - 2))
    return math.sqrt(2.0 / loss) * math.exp(-log_psi / 2)


def rank_one_delta(numbers: int, noise_scale: float, epsilon: float) -> float:
    """Return the delta at an epsilon of rank-one noise, for two answers at distance 1.

    Parameters
    ----------
    numbers : int
        How many numbers are released, at least 3.
    noise_scale : float
        Of the normal number z, over the distance of the answers; from 1e-100 to 1e100.
    epsilon : float
        Above 0, at most 300.

    Notes
    -----
    It is the value of the integral above, less what quadrature may have added: no mechanism with
    that noise has a smaller delta, if two answers can be so far apart.

    Examples
    --------
    R1SMG's claim of (1, 1e-5) for a 10 by 10 matrix:

    >>> round(rank_one_delta(100, rank_one_noise_scale(100, 1.0, 1e-5), 1.0), 4)
    0.971
    """
    count, scale = _checked_count(numbers), positive_number(noise_scale, "noise_scale")
    loss = positive_number(epsilon, "epsilon")
    if not loss <= _LARGEST_EPSILON:
        raise InvalidParameterError(
            f"epsilon={epsilon!r} is above {_LARGEST_EPSILON:g}: e^epsilon would be too large here"
        )

    if not 1.0 / _LARGEST_SCALE <= scale <= _LARGEST_SCALE:
        raise InvalidParameterError(
            f"noise_scale={scale!r} is outside of {1.0 / _LARGEST_SCALE:g} to {_LARGEST_SCALE:g}: "
            "audit a claim with another epsilon or delta"
        )

    def integrand(log_norm: float) -> float:
        norm = math.exp(log_norm)
        density = math.sqrt(2.0 / math.pi) * norm / scale * math.exp(-0.5 * (norm / scale) ** 2)
        return density * _difference_at(norm, count, scale, loss)

    start, end = math.log(_SMALLEST_NORM * min(scale, 1.0)), math.log(_MOST_SCALES * scale)
    # Where a ball around one answer reaches half of the way to the other, or all of it; and where
    # most of the noise is.
    points = [point for point in (-math.log(2.0), 0.0, math.log(scale)) if start < point < end]
    value, error = scipy.integrate.quad(
        integrand, start, end, points=points, limit=_PIECES, epsabs=0.0, epsrel=1e-10
    )
    return max(0.0, float(value - error))


def _difference_at(norm: float, count: int, scale: float, loss: float) -> float:
    """Return the probability that L > epsilon where the noise has a norm, under P less Q's."""
    first = (1.0 + norm**-2 - _threshold(norm, count, scale, loss)) * norm / 2.0
    second = (_threshold(norm, count, scale, -loss) - 1.0 - norm**-2) * norm / 2.0
    return _below(first, count) - math.exp(loss) * _below(second, count)


def _threshold(norm: float, count: int, scale: float, loss: float) -> float:
    """Return W, the squared ratio of the two distances at which the loss is reached."""
    a = (norm / scale) ** 2 / (count - 1)
    return float(scipy.special.wrightomega(math.log(a) + a + 2.0 * loss / (count - 1))) / a


def _below(cosine: float, count: int) -> float:
    """Return F: the probability that a coordinate of a uniform direction is below a cosine."""
    half = (count - 1) / 2
    return float(scipy.special.betainc(half, half, min(1.0, max(0.0, (1.0 + cosine) / 2))))


def _checked_count(numbers: int) -> int:
    count = positive_integer(numbers, "numbers")
    if count < _FEWEST_NUMBERS:
        raise InvalidParameterError(
            f"numbers={count} is below {_FEWEST_NUMBERS}: the mechanism is not defined there"
        )
    return count
