"""A budget being spent: the one mutable noun, which refuses before it changes."""

import threading
from fractions import Fraction
from typing import NoReturn

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.parameters import MU
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee, Neighbouring
from matrixdp.rounding import shown_up, sqrt_down, sqrt_up

__all__ = ["Filter"]


class Filter:
    """A privacy filter: spend a budget release by release, each chosen after seeing the last.

    A release costs the square of its mu; costs are summed exactly, and one that does not fit is
    refused with nothing spent. A filter cannot be copied or pickled: two copies would be two
    budgets. It may be shared by threads.

    Parameters
    ----------
    budget : Budget
        What may be spent in all.

    Notes
    -----
    *Guarantee:* stopping before ``sum mu_t^2`` exceeds the budget's worth keeps everything released
    within the budget even though every mu_t is chosen adaptively, provided that mu_t depends on
    public information and earlier outputs only, bounds every pair of neighbours, and is spent
    before the noise is drawn (Smith and Thakurta 2022). Poisson-subsampled steps are
    not Gaussian-private and do not belong here. All mu must be for one neighbouring relation.

    Examples
    --------
    >>> from matrixdp import Budget, Filter
    >>> purse = Filter(Budget(epsilon=1.0, delta=1e-5))
    >>> purse.spend(0.2)
    >>> round(purse.remaining, 4)
    0.1785
    >>> purse.spend(0.2)
    Traceback (most recent call last):
    ...
    matrixdp.errors.BudgetExceededError: mu=0.2 does not fit: at most mu=0.178... is left of ...
    >>> round(purse.spent, 4)
    0.2
    """

    def __init__(self, budget: Budget) -> None:
        if not isinstance(budget, Budget):
            raise InvalidParameterError(
                f"budget is a {type(budget).__name__}: pass Budget(epsilon, delta)"
            )
        self._budget = budget
        self._spent = Fraction(0)
        self._lock = threading.Lock()

    @property
    def budget(self) -> Budget:
        """What may be spent in all."""
        return self._budget

    @property
    def spent(self) -> float:
        """The root of the sum of the squares spent so far, rounded up: bookkeeping, no promise."""
        return sqrt_up(self._spent)

    @property
    def remaining(self) -> float:
        """The largest mu that one more release may have, rounded down."""
        return sqrt_down(self._budget.mu_squared - self._spent)

    def spend(self, mu: float) -> None:
        """Pay for one release, or refuse it and change nothing.

        Parameters
        ----------
        mu : float
            The mu of the release about to be made, from 0 to 1e4.

        Raises
        ------
        BudgetExceededError
            If what is left does not cover it.
        """
        mu = MU.number(mu)
        cost = Fraction(mu) ** 2
        with self._lock:
            if self._spent + cost > self._budget.mu_squared:
                raise BudgetExceededError(
                    f"mu={mu!r} does not fit: at most mu={self.remaining!r} is left of "
                    f"{self._budget!r}; add more noise, or stop here"
                )
            self._spent += cost

    def guarantee(self, neighbouring: Neighbouring) -> Guarantee:
        """Return what everything released under this filter guarantees: its whole budget.

        Not the spent mu: when each release is chosen after seeing the last, how much was spent
        depends on the outputs, and a claim for that amount would be false (it would have to hold
        at a stopping time). Releases planned in advance have their `composed_mu`.

        Parameters
        ----------
        neighbouring : {"add-remove", "replace"}
            The relation for which every mu that was spent holds.
        """
        return Guarantee(
            epsilon=self._budget.epsilon,
            delta=self._budget.delta,
            mu=self._budget.mu,
            neighbouring=neighbouring,
        )

    def __repr__(self) -> str:
        """Show the budget and what has been spent of it."""
        return f"Filter({self._budget!r}, spent={shown_up(self.spent)})"

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise TypeError(
            "a Filter cannot be copied or pickled, because each copy could spend the whole budget; "
            "share the one object, or split the budget and give each part a filter of its own"
        )
