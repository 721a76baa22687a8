"""A budget being spent: the only mutable value here, which raises before it changes."""

import threading
from fractions import Fraction
from typing import NoReturn

from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.guarantee import Guarantee, Neighbouring, checked_neighbouring
from matrixdp.privacy.payment import Cost, Order, Payment, stated_mu
from matrixdp.processes import current_process
from matrixdp.rounding import shown_up, sqrt_down, sqrt_up

__all__ = ["PrivacyFilter"]


class PrivacyFilter:
    """A privacy filter: spend a budget release by release, each chosen after seeing the last.

    A release costs the square of its mu. Costs are summed exactly, and one that does not fit is
    refused with nothing spent. A filter cannot be copied or pickled: two copies would be two
    budgets. It may be shared by threads, but not by processes: a forked child cannot spend it.

    Parameters
    ----------
    budget : Budget
        What may be spent in all.
    neighbouring : {"add-remove", "replace"}
        The relation that every release is for. Anything stated for another relation is refused.

    Notes
    -----
    *Guarantee:* stopping before ``sum mu_t^2`` exceeds the budget's worth keeps everything released
    within the budget even though every mu_t is chosen adaptively, provided that mu_t depends on
    public information and earlier outputs only, bounds every pair of neighbours, and is spent
    before the noise is drawn (Smith and Thakurta 2022). Poisson-subsampled steps are not
    Gaussian-private and must not be paid from a filter. A mu that is passed as a number must be for
    the filter's relation and for one record: a number cannot say so itself.

    Examples
    --------
    >>> from matrixdp import Budget, PrivacyFilter
    >>> spending = PrivacyFilter(Budget(epsilon=1.0, delta=1e-5), neighbouring="replace")
    >>> spending.spend(0.2)
    >>> round(spending.remaining, 4)
    0.1785
    >>> spending.spend(0.2)
    Traceback (most recent call last):
    ...
    matrixdp.errors.BudgetExceededError: mu=0.2 does not fit: at most mu=0.178... is left of ...
    >>> round(spending.spent, 4)
    0.2
    """

    def __init__(self, budget: Budget, *, neighbouring: Neighbouring) -> None:
        check_budget(budget)
        self._budget = budget
        self._neighbouring = checked_neighbouring(neighbouring)
        self._spent = Fraction(0)  # exact, so that many small costs do not vanish in rounding
        self._process = current_process()
        self._lock = threading.Lock()

    @property
    def budget(self) -> Budget:
        """What may be spent in all."""
        return self._budget

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation that everything paid from the filter is for."""
        return self._neighbouring

    @property
    def spent(self) -> float:
        """The root of the sum of the squares spent so far, rounded up: bookkeeping, no promise."""
        return sqrt_up(self._spent)

    @property
    def remaining(self) -> float:
        """The largest mu that one more release may have, rounded down."""
        return sqrt_down(self._budget.mu_squared - self._spent)

    @property
    def guarantee(self) -> Guarantee:
        """What everything paid from this filter guarantees: its whole budget.

        Not the spent mu: when each release is chosen after seeing the last, how much was spent
        depends on the outputs, and a claim for that amount would be false (it would have to hold
        at a stopping time). Releases planned in advance have their `composed_mu`.
        """
        # Rounded up: the costs may add up to more than budget.mu, which is rounded down.
        return Guarantee.of_budget(
            self._budget, mu=sqrt_up(self._budget.mu_squared), neighbouring=self._neighbouring
        )

    def spend(self, cost: Cost) -> None:
        """Pay for one release, or raise and change nothing.

        Parameters
        ----------
        cost : float, Guarantee or mechanism
            The mu of the release about to be made, from 0 to 1e4; or something that states it.

        Raises
        ------
        BudgetExceededError
            If what is left does not cover it.
        InvalidParameterError
            If it is not a mu, or is stated for another relation or for a group of records; or if
            the filter was made in another process.
        """
        # Before the lock: in a forked child another thread's lock is held for ever.
        self._check_process()
        mu = stated_mu(cost, self._neighbouring)
        square = Fraction(mu) ** 2
        # Comparing and adding in one step: otherwise two threads could both find enough left.
        with self._lock:
            if self._spent + square > self._budget.mu_squared:
                raise BudgetExceededError(
                    f"mu={mu!r} does not fit: at most mu={self.remaining!r} is left of "
                    f"{self._budget!r}; add more noise, or stop here"
                )
            self._spent += square

    def pay(self, cost: Cost, order: Order) -> Payment:
        """Pay for a release to files. A filter keeps no key, so a crash forfeits the release."""
        self.spend(cost)
        return Payment(order.secret)

    def resumes(self, _request: str) -> bool:
        """Return False: a filter remembers no requests."""
        return False

    def _check_process(self) -> None:
        """Raise in a forked child: the parent does not see what is spent there."""
        if self._process != current_process():
            raise InvalidParameterError(
                "this filter was made in another process, which may spend its budget too: split "
                "the budget and give each process a filter of its own"
            )

    def __repr__(self) -> str:
        """Show the budget, the relation, and what has been spent."""
        return (
            f"PrivacyFilter({self._budget!r}, neighbouring={self._neighbouring!r}, "
            f"spent={shown_up(self.spent)})"
        )

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise TypeError(
            "a PrivacyFilter cannot be copied or pickled, because each copy could spend the whole "
            "budget; share the one object, or split the budget and give each part a filter of its "
            "own"
        )
