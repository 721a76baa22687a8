"""Budgets: immutable, worth mu squared, split without loss.

`privacy_epsilon` rounds up, because it states what noise guarantees. A budget needs the opposite:
its epsilon may be typed in again, and must then not buy more than the budget holds. So the pair
that a mu promises lies on or *below* the true curve of mu. The bound of a smaller epsilon or a
smaller delta is smaller still, so this survives any further rounding down, to however few digits.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.markup import card
from matrixdp.parameters import DELTA, EPSILON, MU, positive_integer, positive_number
from matrixdp.privacy.bound import epsilon_bounds, largest_mu
from matrixdp.privacy.curve import holds_at_zero_epsilon
from matrixdp.rounding import shown_down, sqrt_down

__all__ = ["Budget", "check_budget"]

_SQRT_EIGHT = math.sqrt(8)
_MOST_PARTS = 10**7  # a tuple of them takes 80 MB


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Budget:
    """An (epsilon, delta) budget, worth the largest mu it allows.

    A budget's worth is ``mu_squared``, an exact rational: releases cost the squares of their mu,
    and shares of a budget add up to it exactly. Budgets compare by worth alone, so two that name
    the same curve at different delta are equal.

    The epsilon and delta of a share are rounded down. ``Budget(share.epsilon, share.delta)`` is
    worth no more than the share, and so is the budget that its ``repr`` shows. To spend a share
    exactly, pass the share itself on, or ``Budget.from_mu(share.mu, share.delta)``.

    Parameters
    ----------
    epsilon : float
        From 0 to 1e6.
    delta : float
        From the smallest normal double to 1 - 1e-12.

    Examples
    --------
    >>> from matrixdp import Budget
    >>> whole = Budget(epsilon=1.0, delta=1e-5)
    >>> whole
    Budget(epsilon=1, delta=1e-05, mu=0.268051)
    >>> half, other = whole.split(2)
    >>> half
    Budget(epsilon=0.684148, delta=1e-05, mu=0.18954)
    >>> half.mu_squared + other.mu_squared == whole.mu_squared
    True
    """

    epsilon: float  # at `delta`; of a share, rounded down
    delta: float
    mu: float  # the largest mu a single release may have: the root of mu_squared, rounded down
    mu_squared: Fraction
    proven_epsilon: float  # what mu proves at `delta`: epsilon itself; of a share, rounded up

    def __init__(self, epsilon: float, delta: float) -> None:
        epsilon, delta = EPSILON.number(epsilon), DELTA.number(delta)
        mu = largest_mu(epsilon, delta)
        self._fill(epsilon, delta, mu, Fraction(mu) ** 2, epsilon)

    @classmethod
    def from_mu(cls, mu: float, delta: float) -> "Budget":
        """Return the budget of exactly this mu, named by its epsilon at a delta.

        Where even epsilon = 0 is worth more than mu at that delta, the budget has the smaller
        delta at which it is not.

        Examples
        --------
        >>> Budget.from_mu(1.0, delta=1e-6)
        Budget(epsilon=4.88655, delta=1e-06, mu=1)
        """
        mu = positive_number(MU.number(mu), "mu")
        return cls._of_worth(Fraction(mu) ** 2, DELTA.number(delta))

    @classmethod
    def from_zcdp(cls, rho: float, delta: float) -> "Budget":
        """Return the budget of Gaussian releases that are rho-zCDP together, ``mu^2 = 2 rho``.

        Examples
        --------
        >>> Budget.from_zcdp(0.5, delta=1e-6) == Budget.from_mu(1.0, delta=1e-6)
        True
        """
        worth = 2 * Fraction(positive_number(rho, "rho"))
        largest = MU.largest**2 / 2  # a power of ten over two: exact
        if worth > 2 * Fraction(largest):
            raise InvalidParameterError(
                f"rho={rho!r} is outside its domain: it must be positive and at most {largest!r}"
            )
        return cls._of_worth(worth, DELTA.number(delta))

    def split(self, shares: int | Sequence[float] | NDArray[Any]) -> tuple["Budget", ...]:
        """Return budgets that carry their shares of ``mu_squared`` exactly.

        Parameters
        ----------
        shares : int or sequence of float
            A number of equal parts (T-fold composition is ``split(T)``), or positive weights.

        Returns
        -------
        tuple of Budget
            Each reports the epsilon that its share is worth at the whole's delta, rounded down
            (at a smaller delta where that epsilon would be below 0). Spending all of them, in any
            order and adaptively, costs the whole and no more.

        Examples
        --------
        >>> [round(part.mu, 4) for part in Budget(1.0, 1e-5).split([9, 16])]
        [0.1608, 0.2144]
        """
        # numpy's numbers are checked like Python's, and an array is not a Sequence.
        if isinstance(shares, np.ndarray):
            shares = shares.tolist()
        if not isinstance(shares, Sequence):
            parts = positive_integer(shares, "shares")
            if not parts <= _MOST_PARTS:
                raise InvalidParameterError(
                    f"shares={parts} is more than {_MOST_PARTS} parts: split into groups, and each "
                    "group again where it is spent"
                )
            # Immutable, so that one object can stand for all of them.
            return (self._share(Fraction(1, parts)),) * parts
        # Rationals from here on: float shares would not add up to the whole.
        weights = [Fraction(positive_number(weight, "shares")) for weight in shares]
        if not weights:
            raise InvalidParameterError(
                "shares=[] has no weight: pass a number of parts or one positive weight per part"
            )
        total = sum(weights, start=Fraction(0))
        return tuple(self._share(weight / total) for weight in weights)

    def _share(self, part: Fraction) -> "Budget":
        """Return a part of this budget; the whole keeps the epsilon that it was given."""
        return self if part == 1 else self._of_worth(self.mu_squared * part, self.delta)

    @classmethod
    def _of_worth(cls, mu_squared: Fraction, delta: float) -> "Budget":
        mu = sqrt_down(mu_squared)
        promise = _largest_promise(mu, delta)
        # __init__ would compute the worth from epsilon, and lose what was rounded off it.
        budget = cls.__new__(cls)
        budget._fill(  # noqa: SLF001
            promise.epsilon, promise.delta, mu, mu_squared, promise.proven_epsilon
        )
        return budget

    # A frozen dataclass is filled through object.__setattr__, also by __new__ without __init__.
    def _fill(
        self, epsilon: float, delta: float, mu: float, mu_squared: Fraction, proven_epsilon: float
    ) -> None:
        object.__setattr__(self, "epsilon", epsilon)
        object.__setattr__(self, "delta", delta)
        object.__setattr__(self, "mu", mu)
        object.__setattr__(self, "mu_squared", mu_squared)
        object.__setattr__(self, "proven_epsilon", proven_epsilon)

    # Not the dataclass's own comparison, which would compare epsilon and delta.
    def __eq__(self, other: object) -> bool:
        """Compare by worth."""
        if not isinstance(other, Budget):
            return NotImplemented
        return self.mu_squared == other.mu_squared

    def __lt__(self, other: object) -> bool:
        """Compare by worth."""
        if not isinstance(other, Budget):
            return NotImplemented
        return self.mu_squared < other.mu_squared

    def __le__(self, other: object) -> bool:
        """Compare by worth."""
        if not isinstance(other, Budget):
            return NotImplemented
        return self.mu_squared <= other.mu_squared

    def __hash__(self) -> int:
        """Hash by worth, as equality compares it."""
        return hash(self.mu_squared)

    def __repr__(self) -> str:
        """Show six digits, rounded down: entered again they are worth no more than this."""
        return (
            f"Budget(epsilon={shown_down(self.epsilon)}, delta={shown_down(self.delta)}, "
            f"mu={shown_down(self.mu)})"
        )

    def _repr_html_(self) -> str:
        names = ("epsilon", "delta", "mu")
        return card("Budget", [(name, shown_down(getattr(self, name))) for name in names])


def check_budget(budget: object) -> None:
    """Raise unless this is a budget."""
    if not isinstance(budget, Budget):
        raise InvalidParameterError(
            f"budget is a {type(budget).__name__}: pass Budget(epsilon, delta)"
        )


class _Promise(NamedTuple):
    """An epsilon and a delta, rounded down, and the epsilon that mu proves at that delta."""

    epsilon: float
    delta: float
    proven_epsilon: float


def _largest_promise(mu: float, delta: float) -> _Promise:
    """Return an epsilon and a delta, rounded down, whose privacy bound is at most mu.

    The delta is the given one, unless even epsilon = 0 is worth more than mu there. Then epsilon is
    0 and the delta is the smaller one at which 0 is worth mu.

    Raises
    ------
    InvalidParameterError
        If that smaller delta is below the smallest that is supported.

    Examples
    --------
    >>> found = _largest_promise(0.27, 1e-5)
    >>> round(found.epsilon, 6), found.delta
    (1.007987, 1e-05)
    >>> found = _largest_promise(1e-6, 1e-5)
    >>> found.epsilon, round(found.delta, 10)
    (0.0, 3.989e-07)
    """
    if holds_at_zero_epsilon(mu, delta):
        delta = _delta_at_zero_epsilon(mu)
        return _Promise(0.0, delta, epsilon_bounds(mu, delta)[1])
    epsilon, proven = epsilon_bounds(mu, delta)
    return _Promise(epsilon, delta, proven)


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
