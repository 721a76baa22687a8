"""Guarantees: frozen statements to print, and to read at another delta or epsilon."""

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from matrixdp.errors import InvalidParameterError
from matrixdp.markup import card, element
from matrixdp.parameters import DELTA, EPSILON, MU, positive_integer
from matrixdp.privacy.bound import epsilon_bounds, largest_mu, least_delta, privacy_epsilon
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import group_mu
from matrixdp.privacy.renyi import renyi_divergence
from matrixdp.rounding import shown_up

__all__ = ["Guarantee", "HasGuarantee", "Neighbouring", "checked_neighbouring"]

Neighbouring = Literal["add-remove", "replace"]

_IN_WORDS = {
    "add-remove": ("adding or removing one record", "adding or removing up to {} records"),
    "replace": ("replacing one record", "replacing up to {} records"),
}


def checked_neighbouring(neighbouring: object) -> Neighbouring:
    """Return a neighbouring relation, or raise if it is not one; there is no default."""
    # isinstance first: comparing an array with a string would be an array.
    for relation in get_args(Neighbouring):
        if isinstance(neighbouring, str) and neighbouring == relation:
            return relation  # type: ignore[no-any-return]
    raise InvalidParameterError(
        f"neighbouring={neighbouring!r} is not a relation: say whether a neighbouring data set has "
        "one record more or less ('add-remove') or one record exchanged ('replace')"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """An (epsilon, delta) guarantee of Gaussian noise, with the mu that proves it.

    Parameters
    ----------
    epsilon : float
        From 0 to 1e6.
    delta : float
        From the smallest normal double to 1 - 1e-12.
    mu : float
        The Gaussian privacy parameter; the whole curve follows from it.
    neighbouring : {"add-remove", "replace"}
        What neighbouring data sets are. It is stated, and multiplies nothing.
    records : int, optional
        In how many records the two data sets may differ.

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its domain, or mu does not prove (epsilon, delta).

    Examples
    --------
    >>> from matrixdp import Guarantee
    >>> promise = Guarantee.of_mu(0.268, delta=1e-5, neighbouring="replace")
    >>> print(promise)
    (0.9998, 1e-05)-differential privacy under replacing one record (mu = 0.268).
    >>> print(promise.for_group(3))
    (3.407, 1e-05)-differential privacy under replacing up to 3 records (mu = 0.804).
    """

    epsilon: float
    delta: float
    mu: float
    neighbouring: Neighbouring
    records: int = 1

    def __post_init__(self) -> None:
        """Raise if mu does not prove the claim."""
        self._fill(self.epsilon, self.delta, self.mu, self.neighbouring, self.records)
        # Both inverses are rounded to the private side, so either one is a proof. A budget's own mu
        # passes the first test; an epsilon that was computed from mu passes the second.
        bound = largest_mu(self.epsilon, self.delta)
        if self.mu <= bound:
            return
        proven = epsilon_bounds(self.mu, self.delta)[1]
        if not proven <= self.epsilon:
            raise InvalidParameterError(
                f"epsilon={self.epsilon!r} is not guaranteed at delta={self.delta!r} by "
                f"mu={self.mu!r}: claim at least {proven!r}, or add noise until mu is at most "
                f"{bound!r}"
            )

    def _fill(
        self, epsilon: float, delta: float, mu: float, neighbouring: Neighbouring, records: int
    ) -> None:
        object.__setattr__(self, "epsilon", EPSILON.number(epsilon))
        object.__setattr__(self, "delta", DELTA.number(delta))
        object.__setattr__(self, "mu", MU.number(mu))
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))
        object.__setattr__(self, "records", positive_integer(records, "records"))

    @classmethod
    def _proven(
        cls, epsilon: float, delta: float, mu: float, neighbouring: Neighbouring, records: int = 1
    ) -> "Guarantee":
        """Return the guarantee of an epsilon that was just computed from its mu."""
        # The constructor would compute it once more.
        guarantee = cls.__new__(cls)
        guarantee._fill(epsilon, delta, mu, neighbouring, records)  # noqa: SLF001 - its own class
        return guarantee

    @classmethod
    def of_mu(
        cls, mu: float, *, delta: float, neighbouring: Neighbouring, records: int = 1
    ) -> "Guarantee":
        """Return the guarantee of a mu-Gaussian mechanism with the least epsilon at a delta."""
        epsilon = epsilon_bounds(MU.number(mu), DELTA.number(delta))[1]
        return cls._proven(epsilon, delta, mu, neighbouring, records)

    @classmethod
    def of_budget(cls, budget: Budget, *, mu: float, neighbouring: Neighbouring) -> "Guarantee":
        """Return what a mu-Gaussian mechanism made for a budget guarantees.

        The budget's own epsilon and delta; of a share, its epsilon rounded up, where the share has
        it rounded down. Only a mu above the budget's has an epsilon of its own.
        """
        # The budget has proven it for its own mu, and a smaller one proves no less. People expect
        # to read the number that they asked for.
        epsilon = budget.proven_epsilon
        if not MU.number(mu) <= budget.mu:
            epsilon = max(epsilon, epsilon_bounds(mu, budget.delta)[1])
        return cls._proven(epsilon, budget.delta, mu, neighbouring)

    def for_group(self, records: int) -> "Guarantee":
        """Return what holds, at the same delta, for this many times as many records.

        Use it when one person may own several records: mu is multiplied by their number.
        """
        # The relation stays, because k steps of it are k records.
        together = group_mu(self.mu, records)
        epsilon = privacy_epsilon(together, self.delta)
        return self._proven(
            epsilon, self.delta, together, self.neighbouring, self.records * records
        )

    def epsilon_at(self, delta: float) -> float:
        """Return the least epsilon that the same mu guarantees at another delta."""
        return epsilon_bounds(self.mu, DELTA.number(delta))[1]

    def delta_at(self, epsilon: float) -> float:
        """Return the least delta that the same mu guarantees at another epsilon."""
        return least_delta(self.mu, EPSILON.number(epsilon))

    def renyi_divergence(self, order: float) -> float:
        """Return the Rényi divergence of an order above 1, ``order * mu^2 / 2``."""
        return renyi_divergence(self.mu, order)

    def __str__(self) -> str:
        """Say the guarantee as a sentence, its numbers rounded up."""
        one, several = _IN_WORDS[self.neighbouring]
        change = one if self.records == 1 else several.format(self.records)
        return (
            f"({shown_up(self.epsilon, 4)}, {shown_up(self.delta, 4)})-differential privacy under "
            f"{change} (mu = {shown_up(self.mu, 4)})."
        )

    def _repr_html_(self) -> str:
        names = ("epsilon", "delta", "mu")
        facts = [(name, shown_up(getattr(self, name))) for name in names]
        return card("Guarantee", facts, element("p", str(self)))


class HasGuarantee(Protocol):
    """Anything that states a guarantee: a mechanism, several of them together, or a filter."""

    @property
    def guarantee(self) -> Guarantee:
        """What is promised."""
