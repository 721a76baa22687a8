r"""Chances of those who want to learn something about one record, rounded up.

They know everything but one thing: whether the record is in the data (add-remove), or which of two
records it is (replace). A mechanism with Gaussian privacy mu leaves them at most the test of
N(0, 1) against N(mu, 1) (Dong, Roth and Su 2022, Definition 2.6 and equation 6).
"""

import math

from scipy.special import expit, ndtr, ndtri

__all__ = ["best_guess", "best_guess_of_promise", "power"]

# Above the relative error of the functions of scipy, and far below any digit that is shown.
_MARGIN = 1e-12


def best_guess(mu: float) -> float:
    """Return the largest chance of a right guess between two equally likely cases, ``Phi(mu/2)``.

    Examples
    --------
    >>> round(best_guess(0.268), 3)
    0.553
    """
    return _rounded_up(ndtr(mu / 2))


def best_guess_of_promise(epsilon: float, delta: float) -> float:
    """Return the same of a promise, ``(exp(epsilon) + delta) / (exp(epsilon) + 1)``.

    The two error rates of any test add up to at least ``2 (1 - delta) / (1 + exp(epsilon))``
    (Kairouz, Oh and Viswanath 2015, Theorem 2.1); the chance is 1 less half of that.

    Examples
    --------
    >>> round(best_guess_of_promise(1.0, 1e-5), 3)
    0.731
    """
    return _rounded_up(1.0 - (1.0 - delta) * expit(-epsilon))


def power(mu: float, false_alarms: float) -> float:
    """Return how often a test finds the record at most, ``Phi(Phi^-1(false_alarms) + mu)``.

    Parameters
    ----------
    mu : float
        Gaussian privacy of all that the test sees.
    false_alarms : float
        How often it says so although it is not there, above 0 and below 1.

    Examples
    --------
    >>> round(power(0.268, 0.01), 4)
    0.0198
    """
    return _rounded_up(ndtr(ndtri(false_alarms) + mu))


def _rounded_up(chance: float) -> float:
    return min(1.0, math.nextafter(float(chance) * (1.0 + _MARGIN), 1.0))
