"""What a mu may promise: an (epsilon, delta) that is worth no more than the mu itself.

`privacy_epsilon` rounds up, because it states what noise guarantees. A budget needs the opposite:
its epsilon may be typed in again, and must then not buy more than the budget holds. So the pair
found here lies on or *below* the true curve of mu. The bound of a smaller epsilon or a smaller
delta is smaller still, so this survives any further rounding down, to however few digits.
"""

import math

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA
from matrixdp.privacy import solve
from matrixdp.privacy.arithmetic import SCALAR
from matrixdp.privacy.bound import CURVE_MARGIN
from matrixdp.privacy.zero_epsilon import holds_at_zero_epsilon

__all__ = ["largest_promise"]

_SQRT_EIGHT = math.sqrt(8)


def largest_promise(mu: float, delta: float) -> tuple[float, float]:
    """Return an epsilon and a delta, rounded down, whose privacy bound is at most mu.

    The delta is the given one, unless even epsilon = 0 is worth more than mu there. Then epsilon is
    0 and the delta is the smaller one at which 0 is worth mu.

    Raises
    ------
    InvalidParameterError
        If that smaller delta is below the smallest that is supported.

    Examples
    --------
    >>> epsilon, delta = largest_promise(0.27, 1e-5)
    >>> round(epsilon, 6), delta
    (1.007987, 1e-05)
    >>> epsilon, delta = largest_promise(1e-6, 1e-5)
    >>> epsilon, round(delta, 10)
    (0.0, 3.989e-07)
    """
    if holds_at_zero_epsilon(mu, delta):
        return 0.0, _delta_at_zero_epsilon(mu)
    # As in privacy_epsilon: the two solvers work with g and with 1 - g, whichever has the digits.
    find = solve.solve_epsilon_low if delta <= 0.5 else solve.solve_epsilon_high
    found = find(mu, delta, SCALAR)
    # The mirror image of privacy_epsilon, which adds this margin.
    margin = CURVE_MARGIN * (abs(found.value) + found.condition)
    return max(0.0, found.value - margin), delta


def _delta_at_zero_epsilon(mu: float) -> float:
    """Return a float just below ``g(mu; 0) = erf(mu / sqrt(8))``."""
    delta = math.erf(mu / _SQRT_EIGHT)
    # The float erf is off by a few units at most, so that this takes a few steps at most.
    while delta >= DELTA.smallest and holds_at_zero_epsilon(mu, delta):
        delta = math.nextafter(delta, 0.0)
    if not delta >= DELTA.smallest:
        raise InvalidParameterError(
            f"mu={mu!r} is smaller than any (epsilon, delta) budget is worth: use fewer shares, "
            "less uneven shares, or a larger mu"
        )
    return delta
