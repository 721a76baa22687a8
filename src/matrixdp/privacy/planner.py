"""Before anything is spent: what error a budget buys, and what budget an error costs.

Plans are for i.i.d. noise on a Frobenius ball, the mechanism's default: each of ``steps``
releases of an m by n matrix gets noise of scale ``sensitivity / mu`` with mu^2 the budget's worth
over the number of releases. Every error is that scale times a known factor.
"""

import enum
import math
from dataclasses import dataclass
from fractions import Fraction

import scipy

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, MU, checked_choice, positive_integer, positive_number
from matrixdp.privacy.bound import epsilon_bounds
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.rounding import product_up, quotient_down, quotient_up, sqrt_down, sqrt_up

__all__ = ["ErrorMeasure", "Plan", "plan_for_budget", "plan_for_error"]

_CONFIDENCE = 0.95
# The factors are a few float operations. The margin covers them, so that no error is understated.
_MARGIN = 1e-13


class ErrorMeasure(enum.Enum):
    """A way to say how far a released matrix is from the true one."""

    ENTRY = "entry"
    FROBENIUS = "frobenius"
    LARGEST = "largest"

    def per_unit_noise(self, rows: int, columns: int) -> float:
        """Return the error of an m by n release at noise scale 1, rounded up.

        ``ENTRY``: root mean squared error of one entry, 1. ``FROBENIUS``: root mean squared
        Frobenius norm, ``sqrt(m n)``. ``LARGEST``: what the largest absolute error of all entries
        stays below with probability 0.95, ``Phi^-1((1 + 0.95^(1/mn)) / 2)``.
        """
        entries = rows * columns
        match self:
            case ErrorMeasure.ENTRY:
                return 1.0
            case ErrorMeasure.FROBENIUS:
                return sqrt_up(Fraction(entries))
            case ErrorMeasure.LARGEST:
                # As a tail: the quantile of (1 + 0.95^(1/mn)) / 2 would lose its digits near 1.
                tail = -0.5 * math.expm1(math.log(_CONFIDENCE) / entries)
                return float(-scipy.special.ndtri(tail)) * (1.0 + _MARGIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a budget buys for a number of equal releases of a matrix.

    Made by `plan_for_budget` and `plan_for_error`.
    """

    budget: Budget
    rows: int
    columns: int
    sensitivity: float
    steps: int
    mu: float  # of each release, rounded down
    noise_scale: float  # of each release, rounded up

    def epsilon_at(self, delta: float) -> float:
        """Return what all releases together guarantee at a delta, rounded up.

        ``Budget(plan.epsilon_at(delta), delta)`` is enough to pay for the plan, which its
        ``budget.epsilon`` may just miss, because that is rounded down.
        """
        return epsilon_bounds(sqrt_up(self.budget.mu_squared), DELTA.number(delta))[1]

    def error(self, measure: ErrorMeasure | str) -> float:
        """Return the error of each release in a measure, rounded up."""
        measure = checked_choice(measure, ErrorMeasure, "measure")
        return product_up(self.noise_scale, measure.per_unit_noise(self.rows, self.columns))


def plan_for_budget(
    budget: Budget, *, rows: int, columns: int, sensitivity: float, steps: int = 1
) -> Plan:
    """Return what error a budget gets: "what error do I get?".

    Parameters
    ----------
    budget : Budget
        For all releases together.
    rows, columns : int
        The shape of the released matrix.
    sensitivity : float
        The largest Frobenius norm by which neighbouring answers differ.
    steps : int, optional
        How many matrices are released under the budget.

    Examples
    --------
    >>> from matrixdp import Budget, plan_for_budget
    >>> from matrixdp.privacy import ErrorMeasure
    >>> plan = plan_for_budget(Budget(1.0, 1e-5), rows=100, columns=20, sensitivity=1.0)
    >>> round(plan.noise_scale, 4), round(plan.error(ErrorMeasure.FROBENIUS), 1)
    (3.7306, 166.8)
    """
    check_budget(budget)
    rows, columns = positive_integer(rows, "rows"), positive_integer(columns, "columns")
    sensitivity = positive_number(sensitivity, "sensitivity")
    steps = positive_integer(steps, "steps")
    # From the exact worth: dividing budget.mu by sqrt(steps) would round twice.
    mu = sqrt_down(budget.mu_squared / steps)
    return Plan(
        budget=budget,
        rows=rows,
        columns=columns,
        sensitivity=sensitivity,
        steps=steps,
        mu=mu,
        noise_scale=quotient_up(sensitivity, mu),
    )


def plan_for_error(
    error: float,
    measure: ErrorMeasure | str,
    *,
    delta: float,
    rows: int,
    columns: int,
    sensitivity: float,
    steps: int = 1,
) -> Plan:
    """Return the cheapest plan with an error: "which epsilon do I need for this error?".

    Parameters
    ----------
    error : float
        The error that each release may have.
    measure : ErrorMeasure or str
        How the error is measured.
    delta : float
        The delta at which the epsilon is wanted.
    rows, columns, sensitivity, steps
        As for `plan_for_budget`.

    Returns
    -------
    Plan
        Its ``epsilon_at(delta)`` is the answer; its error is at most the one asked for.

    Examples
    --------
    >>> from matrixdp import plan_for_error
    >>> from matrixdp.privacy import ErrorMeasure
    >>> plan = plan_for_error(
    ...     10.0, ErrorMeasure.LARGEST, delta=1e-5, rows=100, columns=20, sensitivity=1.0
    ... )
    >>> round(plan.epsilon_at(1e-5), 4)
    1.6454
    """
    measure = checked_choice(measure, ErrorMeasure, "measure")
    rows, columns = positive_integer(rows, "rows"), positive_integer(columns, "columns")
    sensitivity = positive_number(sensitivity, "sensitivity")
    steps = positive_integer(steps, "steps")
    # The noise is rounded down and the mu up: the plan may cost a last digit more than needed, but
    # its error is at most the one asked for.
    noise_scale = quotient_down(
        positive_number(error, "error"), measure.per_unit_noise(rows, columns)
    )
    if not noise_scale > 0.0:
        raise InvalidParameterError(
            f"error={error!r} leaves no noise that a float can express: allow a larger error"
        )
    each = Fraction(quotient_up(sensitivity, noise_scale))
    # Before taking roots: a sum beyond the domain would raise an error about mu, not about error.
    if not steps * each**2 <= Fraction(MU.largest) ** 2:
        raise InvalidParameterError(
            f"error={error!r} in each of {steps} releases would take mu above {MU.largest!r}, "
            "which is no protection: allow a larger error or fewer releases"
        )
    return plan_for_budget(
        Budget.from_mu(sqrt_up(steps * each**2), delta),
        rows=rows,
        columns=columns,
        sensitivity=sensitivity,
        steps=steps,
    )
