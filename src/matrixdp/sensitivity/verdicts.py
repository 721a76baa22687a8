r"""Theorems 1, 2 and 3 of the IMGM paper, for given row and column covariances.

``sigma_i`` are singular values in descending order, ``U_k U_k^T = Sigma_k``, B is the privacy
bound. All answers are on the private side: "yes" is proven in exact arithmetic.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.covariance import Kronecker
from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import checked_matrix, positive_integer, positive_number
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.rounding import inflated, quotient_up, sqrt_down
from matrixdp.spectra import singular_value_upper_bounds

__all__ = ["Verdict", "protects_ball", "protects_difference", "protects_repeated"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a theorem proves that a covariance keeps a budget.

    ``mu`` is the whitened norm that the theorem proves, ``allowed`` the one that the budget
    allows; the release is within the budget if ``holds``. ``shortfall`` is the factor by which the
    noise is too small (at most 1 if it holds).
    """

    mu: float
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether the budget is kept."""
        return self.mu <= self.allowed

    @property
    def shortfall(self) -> float:
        """By what factor the noise would have to grow."""
        return quotient_up(self.mu, self.allowed)


def protects_difference(difference: ArrayLike, covariance: Kronecker, budget: Budget) -> Verdict:
    r"""Test one known difference: a pair is protected if its whitened norm is at most B.

    The norm is bounded by ``sqrt(sum_i sigma_i^2(D) / (sigma_(m-i+1)^2(U1) sigma_(n-i+1)^2(U2)))``,
    which pairs the largest change with the weakest noise (by Horn's inequality for the singular
    values of a product). Sufficient, not necessary.

    Parameters
    ----------
    difference : array_like, shape (m, n)
        The difference of two neighbouring answers.
    covariance : Kronecker
        The noise.
    budget : Budget
        The budget to keep.

    Examples
    --------
    >>> import numpy as np
    >>> from matrixdp import Budget, Kronecker
    >>> from matrixdp.sensitivity import protects_difference
    >>> noise = Kronecker(25.0 * np.eye(2), np.eye(3))
    >>> protects_difference([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]], noise, Budget(1.0, 1e-5)).holds
    True
    """
    _check_kronecker(covariance)
    check_budget(budget)
    matrix = checked_matrix(difference, "difference")
    covariance.check_shape((matrix.shape[0], matrix.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):  # an overflow raises below
        values = singular_value_upper_bounds(matrix)
    rank = len(values)
    # Ascending eigenvalues are sigma_m^2, sigma_(m-1)^2, ...: the pairing of the theorem.
    rows, columns = (
        side.eigenvalues(length)[:rank]
        for side, length in zip(covariance.sides, matrix.shape, strict=True)
    )
    weakest = np.sqrt(rows) * np.sqrt(columns)
    # The largest ratio is taken out before squaring, which could over- or underflow.
    ratios = values / weakest
    largest = float(np.max(ratios))
    if not largest < math.inf:
        raise InvalidParameterError(
            "difference is so large against the covariance that its whitened norm is beyond the "
            "range of a float: rescale them"
        )
    # Ratios may underflow to 0 for a difference that is not zero: that is bounded by `inflated`.
    if largest == 0.0 and not matrix.any():
        return Verdict(0.0, budget.mu)
    scaled = ratios / largest if largest > 0.0 else np.zeros(1)
    norm = largest * math.sqrt(float(np.sum(np.square(scaled))))
    return Verdict(inflated(norm, rank + 16), budget.mu)


def protects_ball(covariance: Kronecker, sensitivity: float, budget: Budget) -> Verdict:
    """Test a covariance on the whole Frobenius ball: ``sigma_min(U1) sigma_min(U2) >= s2 / B``.

    Necessary and sufficient where every difference of norm at most the sensitivity can occur.

    Parameters
    ----------
    covariance : Kronecker
        The noise.
    sensitivity : float
        The largest Frobenius norm of a difference.
    budget : Budget
        The budget to keep.
    """
    # Theorem 2 is Theorem 3 with a single release.
    return protects_repeated(covariance, sensitivity, budget, steps=1)


def protects_repeated(
    covariance: Kronecker, sensitivity: float, budget: Budget, *, steps: int
) -> Verdict:
    """Test a covariance for T releases: ``sigma_min(U1) sigma_min(U2) >= s2 sqrt(T) / B``.

    Examples
    --------
    >>> import numpy as np
    >>> from matrixdp import Budget, Kronecker
    >>> from matrixdp.sensitivity import protects_repeated
    >>> noise = Kronecker(25.0 * np.eye(2), np.eye(3))
    >>> verdict = protects_repeated(noise, 1.0, Budget(1.0, 1e-5), steps=4)
    >>> verdict.holds, round(verdict.shortfall, 4)
    (False, 1.4923)
    """
    _check_kronecker(covariance)
    check_budget(budget)
    sensitivity = positive_number(sensitivity, "sensitivity")
    count = positive_integer(steps, "steps")
    # Each release may cost a T-th of the budget's mu squared, as an exact rational.
    allowed = sqrt_down(budget.mu_squared / Fraction(count))
    # The proven bound, not the estimate: "yes" must hold in exact arithmetic.
    return Verdict(quotient_up(sensitivity, covariance.smallest_singular_value), allowed)


def _check_kronecker(covariance: object) -> None:
    if not isinstance(covariance, Kronecker):
        raise InvalidParameterError(
            f"covariance is a {type(covariance).__name__}: the theorems are about Kronecker; use "
            "the radius of a sensitivity set for the others"
        )
