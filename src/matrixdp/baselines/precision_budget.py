r"""The precision budget of the Matrix-Variate Gaussian mechanism (MVG).

MVG noise MN(0, Sigma1, Sigma2) on an m by n answer is proven (epsilon, delta)-DP if

    ||sigma(Sigma1^-1)||_2 ||sigma(Sigma2^-1)||_2
        <= (-beta + sqrt(beta^2 + 8 alpha epsilon))^2 / (4 alpha^2)
         = 16 epsilon^2 / (beta + sqrt(beta^2 + 8 alpha epsilon))^2,

    alpha = (H_r + H_(r,1/2)) gamma^2 + 2 H_r gamma s2,     beta = 2 (m n)^(1/4) H_r zeta s2,

with sigma(.) the vector of singular values, gamma the largest Frobenius norm of an answer, s2 the
sensitivity, ``r = min(m, n)``, ``H_r = sum_(i<=r) 1/i``, ``H_(r,1/2) = sum_(i<=r) 1/sqrt(i)``. The
second form does not cancel and is the one computed.

Chanyaswad, Dytso, Poor and Mittal (2018), *MVG Mechanism: Differential Privacy under Matrix-Valued
Query*, the theorem that proves it private. Their ``zeta = 2 sqrt(-m n log delta) - 2 log delta +
m n`` bounds the *square* of the norm that their proof needs (Laurent and Massart 2000, Lemma 1), so
its root is proven as well and gives less noise.
"""

import enum
import math
import sys

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, checked_choice, positive_integer, positive_number

__all__ = ["Zeta", "mvg_precision_budget", "precision_budget"]

# Some tens of float operations, each within a few units of 2**-53. The margin rounds their result
# down.
_MARGIN = 1e-13
_EULER_GAMMA = 0.57721566490153286061
_ZETA_HALF = -1.46035450880958681289  # Riemann's zeta at 1/2
_SUMMED = 64  # harmonic numbers up to here are added up, the others by Euler and Maclaurin


class Zeta(enum.Enum):
    """Which bound of the noise's norm enters MVG's proof.

    ``PAPER`` is the constant as MVG's authors print it, ``SHARP`` its square root, which their
    proof supports too.
    """

    PAPER = "paper"
    SHARP = "sharp"

    def value_at(self, entries: int, delta: float) -> float:
        """Return zeta for a number of entries m n and a delta."""
        # The tail bound of Laurent and Massart, for chi-square with m n degrees of freedom.
        surprise = -math.log(delta)
        squared = 2.0 * math.sqrt(entries * surprise) + 2.0 * surprise + entries
        return squared if self is Zeta.PAPER else math.sqrt(squared)


def mvg_precision_budget(
    rows: int,
    columns: int,
    *,
    norm_bound: float,
    sensitivity: float,
    epsilon: float,
    delta: float,
    zeta: Zeta | str = Zeta.SHARP,
) -> float:
    """Return the most precision that MVG's theorem allows, rounded down.

    Parameters
    ----------
    rows, columns : int
        The shape of the answer.
    norm_bound : float
        The largest Frobenius norm of an answer, gamma; at least half of the sensitivity.
    sensitivity : float
        The largest Frobenius norm of a difference of neighbouring answers.
    epsilon : float
        Above 0 and at most 1e6.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    zeta : Zeta or str, optional
        The constant of the proof.

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its domain, or the budget is below the smallest float.

    Notes
    -----
    *Guarantee:* never above the theorem's bound, and within 2e-13 of it, relatively.

    Examples
    --------
    >>> from matrixdp.baselines import mvg_precision_budget
    >>> budget = mvg_precision_budget(
    ...     7, 4, norm_bound=2.0, sensitivity=0.5, epsilon=0.3, delta=1e-6
    ... )
    >>> round(budget, 9)
    0.000162944
    """
    rows, columns = positive_integer(rows, "rows"), positive_integer(columns, "columns")
    gamma = positive_number(norm_bound, "norm_bound")
    difference = positive_number(sensitivity, "sensitivity")
    if not 2.0 * gamma >= difference:
        raise InvalidParameterError(
            f"norm_bound={gamma!r} is below half of sensitivity={difference!r}: answers within it "
            "cannot differ by so much; give the larger bound or the smaller sensitivity"
        )
    loss, delta = positive_number(EPSILON.number(epsilon), "epsilon"), DELTA.number(delta)
    bound = checked_choice(zeta, Zeta, "zeta")
    budget = precision_budget(
        rows,
        columns,
        norm_bound=gamma,
        sensitivity=difference,
        epsilon=loss,
        delta=delta,
        zeta=bound,
    )
    if budget == 0.0:
        raise InvalidParameterError(
            f"epsilon={loss!r} with norm_bound={gamma!r} and sensitivity={difference!r} gives a "
            "precision budget beyond the range of a float: rescale the matrix"
        )
    return budget


def precision_budget(
    rows: int,
    columns: int,
    *,
    norm_bound: float,
    sensitivity: float,
    epsilon: float,
    delta: float,
    zeta: Zeta,
) -> float:
    """Return `mvg_precision_budget`, or 0 where it is beyond a float; nothing is checked."""
    rank, entries = min(rows, columns), rows * columns
    harmonic = _harmonic(rank)
    # The bound is (4 epsilon / (beta + sqrt(beta^2 + 8 alpha epsilon)))^2. Of alpha, which holds
    # the square of the norm bound, only the root is computed: small squares underflow to 0.
    root_alpha = math.sqrt(norm_bound) * math.sqrt(
        (harmonic + _harmonic_of_roots(rank)) * norm_bound + 2.0 * harmonic * sensitivity
    )
    beta = (
        2.0 * math.sqrt(math.sqrt(entries)) * harmonic * zeta.value_at(entries, delta) * sensitivity
    )
    root = 4.0 * epsilon / (beta + math.hypot(beta, math.sqrt(8.0 * epsilon) * root_alpha))
    budget = root * root * (1.0 - _MARGIN)
    # Subnormal numbers have too few digits for the margin to cover.
    fits = sys.float_info.min < budget < math.inf and beta > sys.float_info.min
    return budget if fits else 0.0


def _harmonic(count: int) -> float:
    """Return ``sum_(i<=count) 1/i``; the first term left out of the series is below 1e-17."""
    # Summing 10^7 terms would take seconds; the expansion is as accurate from here on.
    if count <= _SUMMED:
        return math.fsum(1.0 / i for i in range(1, count + 1))
    square = 1.0 / count**2
    tail = 1.0 / (2 * count) - square / 12.0 + square**2 / 120.0 - square**3 / 252.0
    return math.log(count) + _EULER_GAMMA + tail


def _harmonic_of_roots(count: int) -> float:
    """Return ``sum_(i<=count) 1/sqrt(i)``; the first term left out of the series is below 3e-17."""
    if count <= _SUMMED:
        return math.fsum(1.0 / math.sqrt(i) for i in range(1, count + 1))
    root = math.sqrt(count)
    tail = 1.0 / (2.0 * root) - 1.0 / (24.0 * root**3)
    tail += 1.0 / (384.0 * root**7) - 1.0 / (1024.0 * root**11)
    return 2.0 * root + _ZETA_HALF + tail
