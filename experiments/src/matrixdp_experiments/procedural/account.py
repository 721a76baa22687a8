"""The schedule of all releases, and their shares of the budget, which add up to it exactly."""

from dataclasses import dataclass
from itertools import accumulate

from matrixdp import Budget
from matrixdp.errors import InvalidParameterError

__all__ = ["Account", "Descent"]

_MOMENTUM = 0.9


@dataclass(frozen=True)
class Descent:
    """The public schedule of the head's gradient descent.

    Attributes
    ----------
    steps : int
        Releases of the clipped gradient.
    rate : float
        Learning rate of the first step; it falls linearly to ``last_rate`` times that.
    last_rate : float
        See there.
    averaged : float
        The share of the last iterates whose mean is the result.
    records : int
        What sums are divided by: a public guess of their number.
    clip : float
        The most that the norm of a residual may be, times that of its row.
    """

    steps: int = 200
    rate: float = 14.0
    last_rate: float = 0.1
    averaged: float = 0.3
    records: int = 50_000
    clip: float = 0.2

    def __post_init__(self) -> None:
        """Raise unless there is a step."""
        if not self.steps >= 1:
            raise InvalidParameterError(f"steps={self.steps} must be at least 1")

    def rate_at(self, step: int) -> float:
        """Return the learning rate of a step, from 0."""
        fallen = (1 - self.last_rate) * step / max(1, self.steps - 1)
        return self.rate * (1 - fallen)

    @property
    def first_averaged(self) -> int:
        """The first step whose iterate counts in the mean."""
        return self.steps - max(1, round(self.averaged * self.steps))

    def influences(self) -> list[float]:
        """Return how far each step's gradient moves the mean iterate, over that of all steps.

        Notes
        -----
        With rates r_s and momentum m, the gradient of step t moves the iterate of step s by
        ``r_t m^0 + ... + r_s m^(s - t)``. Its influence is the mean of this over the iterates that
        count. Noise of variance proportional to 1 / influence is best where the mean is linear in
        the noise: it minimises ``sum a_t^2 v_t`` for a given ``sum 1 / v_t``.

        Examples
        --------
        >>> Descent(steps=1).influences()
        [1.0]
        >>> [round(part, 3) for part in Descent(steps=3, averaged=1.0).influences()]
        [0.759, 0.222, 0.019]
        """
        found = []
        for step in range(self.steps):
            moved = accumulate(
                self.rate_at(later) * _MOMENTUM ** (later - step)
                for later in range(step, self.steps)
            )
            found.append(
                sum(part for s, part in enumerate(moved, start=step) if s >= self.first_averaged)
            )
        total = sum(found)
        return [part / total for part in found]

    @property
    def momentum(self) -> float:
        """How much of a step's direction the next one keeps."""
        return _MOMENTUM


@dataclass(frozen=True)
class Account:
    """The budget, and the shares of all releases.

    Attributes
    ----------
    whole : Budget
        For everything, under adding or removing one record.
    mean : Budget
        Of the mean of the blocks' first columns.
    steps : tuple of Budget
        Of each gradient.
    """

    whole: Budget
    mean: Budget
    steps: tuple[Budget, ...]

    @classmethod
    def of(cls, whole: Budget, descent: Descent) -> "Account":
        """Return the account of a descent: one part in a hundred for the mean.

        Examples
        --------
        >>> account = Account.of(Budget(1.0, 1e-5), Descent(steps=5))
        >>> parts = [account.mean, *account.steps]
        >>> sum(part.mu_squared for part in parts) == account.whole.mu_squared
        True
        """
        mean, head = whole.split([1, 99])
        return cls(whole, mean, head.split(descent.influences()))
