"""Payment for releases: the protocol that filters and the accounts of ledgers meet.

A release in memory is paid by `Payer.spend`. A release to files is an `Order`: a payer that lasts
keeps what is needed to finish it after a crash. Release keys cross this border as bytes, since
formulas know no randomness.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import MU
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.guarantee import Guarantee, HasGuarantee, Neighbouring

__all__ = [
    "Cost",
    "Evidence",
    "GivenUpError",
    "Order",
    "Payer",
    "Payment",
    "RunPayer",
    "StepCounter",
    "check_payer",
    "stated_mu",
]

Cost: TypeAlias = float | Guarantee | HasGuarantee
"""What a release costs: a mu, or something that states it."""


class GivenUpError(InvalidParameterError):
    """A release was given up while somebody finished it: its files must go."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a payment stands in a ledger; statements beside releases hold it.

    Attributes
    ----------
    ledger : str
        The identity of the ledger.
    account : str
        The account that paid.
    sequence : int
        The number of the entry.
    digest : str
        Of the entry, which holds the digest of the one before it.
    """

    ledger: str
    account: str
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True, repr=False)
class Order:
    """A release to files that is about to be paid for.

    Attributes
    ----------
    request : str
        Names the release: paying again for the same request pays nothing.
    secret : bytes
        Of a fresh release key.
    tag : callable
        Returns a message authentication code of the draft and of the exact value, given the secret.
        It ties a key to one value: two values with the noise of one key would show their
        difference.
    target : str
        The file to make.
    draft : bytes
        The statement of the release as far as it is known: what a value can be finished with.
    about : mapping
        Public facts for people: what was asked, with which noise.
    """

    request: str
    secret: bytes
    tag: Callable[[bytes], bytes]
    target: str
    draft: bytes
    about: Mapping[str, str]

    def __repr__(self) -> str:
        """Show what is public."""
        return f"Order(request={self.request!r}, target={self.target!r})"


def _forget(*_digest: str) -> None:
    """Keep no word of a release."""


@dataclass(frozen=True, slots=True, repr=False)
class Payment:
    """A paid order.

    Attributes
    ----------
    secret : bytes
        Of the key to draw with: that of the first attempt, if this is not the first. Empty if the
        release is out already.
    evidence : Evidence or None
        What the statement holds of the payment.
    resumed : bool
        Whether an earlier attempt was paid, and may have left files.
    digest : str or None
        The SHA-256 of the file, if the release is out already.
    published : callable
        Called with the SHA-256 of the file once it has its name; the key is destroyed. Raises
        GivenUpError if somebody has given the release up meanwhile.
    forfeited : callable
        Called if the release must never be finished; the key is destroyed.
    """

    secret: bytes
    evidence: Evidence | None = None
    resumed: bool = False
    digest: str | None = None
    published: Callable[[str], None] = field(default=_forget)
    forfeited: Callable[[], None] = field(default=_forget)

    def __repr__(self) -> str:
        """Show what is public."""
        return f"Payment({self.evidence!r}, resumed={self.resumed})"


@runtime_checkable
class Payer(Protocol):
    """A privacy filter or an account of a ledger: pays before anything is drawn, or raises.

    Every method raises BudgetExceededError, with nothing spent, if a cost does not fit.
    """

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation that everything paid from here is for."""

    def spend(self, cost: Cost, /) -> None:
        """Pay for a release in memory, which nobody can repeat or finish."""

    def pay(self, cost: Cost, order: Order, /) -> Payment:
        """Pay for a release to files, once for each request."""

    def resumes(self, request: str, /) -> bool:
        """Return whether a request was paid before."""


class StepCounter(Protocol):
    """Counts the steps of one training run, across processes."""

    @property
    def run(self) -> str:
        """The name of the run, by which its checkpoints are recognised."""

    @property
    def spent(self) -> int:
        """How many steps were spent, by this process and by those before it."""

    def spend(self) -> None:
        """Count one more step, durably, before it is drawn; or raise, and it must not be drawn."""


@runtime_checkable
class RunPayer(Protocol):
    """Pays for a training run: a named run of a ledger's account."""

    def counter(
        self, sampled: SampledPlan, /, *, plan: str, mode: str, unit: str = "record"
    ) -> StepCounter:
        """Return the counter of a plan's steps, which sample records or units of that name."""


def check_payer(payer: object) -> None:
    """Raise unless this is nothing, or something that pays for releases."""
    if payer is not None and not isinstance(payer, Payer):
        raise InvalidParameterError(
            f"privacy_filter is a {type(payer).__name__}: pass "
            "PrivacyFilter(budget, neighbouring=...), an account of a ledger, or nothing"
        )


def stated_mu(cost: Cost, neighbouring: Neighbouring) -> float:
    """Return the mu of a cost, if it is for one record under a relation.

    Raises
    ------
    InvalidParameterError
        If it is no mu and states none, or is stated for another relation or for a group.
    """
    # A number has no such attribute. A filter has one, so filters can pay for filters.
    stated = cost if isinstance(cost, Guarantee) else getattr(cost, "guarantee", None)
    if stated is None:
        return MU.number(cost)
    if not isinstance(stated, Guarantee):
        raise InvalidParameterError(
            f"{type(cost).__name__}.guarantee is a {type(stated).__name__}: pass a mu, a "
            "Guarantee or a mechanism"
        )
    if stated.neighbouring != neighbouring:
        raise InvalidParameterError(
            f"neighbouring={stated.neighbouring!r} is what the release states, but its budget "
            f"is for {neighbouring!r}: use one relation for all releases"
        )
    # A mistake rather than a risk: this mu is larger than the one for a single record.
    if stated.records != 1:
        raise InvalidParameterError(
            f"records={stated.records} is a guarantee for a group, and budgets count single "
            "records: spend the guarantee for one, and call for_group on the whole"
        )
    return stated.mu
