"""An account of a ledger, as mechanisms, queries and training pay from it."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from matrixdp.covariance import Covariance, Diagonal, Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.balances import Balance, path_to
from matrixdp.ledger.chain import Entry, first_of
from matrixdp.ledger.checked_store import CheckedStore
from matrixdp.ledger.explanation import left_in_words, percent
from matrixdp.ledger.key_file import KeyFile
from matrixdp.ledger.payments import (
    claim_costs,
    evidence_of,
    forfeit,
    pay,
    publish,
    release_costs,
    spend,
)
from matrixdp.ledger.pending import (
    PayingCommand,
    Pending,
    bound_to,
    pending_release,
    standing,
    unsealed,
)
from matrixdp.ledger.runs import LedgerRun
from matrixdp.ledger.stores.store import Rows
from matrixdp.ledger.terms import Terms, checked_name
from matrixdp.markup import card
from matrixdp.parameters import DELTA, EPSILON
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee, Neighbouring
from matrixdp.privacy.payment import Cost, Order, Payment, stated_mu
from matrixdp.rounding import shown_up
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["LedgerAccount"]


@dataclass(frozen=True, repr=False)
class LedgerAccount:
    """A budget that survives: pays for releases wherever a `PrivacyFilter` can.

    Made by `Ledger.account`. It may be shared by threads, processes and machines. A payment debits
    the account and all above it, or none.

    Attributes
    ----------
    name : str
        ``parent/child``.
    terms : Terms
        What the account promises.

    Notes
    -----
    *Guarantee:* everything ever paid from the account and from those below it is together
    (epsilon, delta)-DP for its unit, however adaptively it was chosen (docs/ledger.md).
    That is a statement about the whole account, whatever part of it is spent.
    """

    name: str
    terms: Terms
    ledger: CheckedStore
    # How a release that is paid here can be done again, for `matrixdp ledger finish`.
    command: PayingCommand | None = None

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation that everything paid from the account is for."""
        return self.terms.neighbouring

    @property
    def budget(self) -> Budget:
        """What the account promises for its unit."""
        return self.terms.budget

    @property
    def balance(self) -> Balance:
        """What is spent and left now, in this account alone."""
        return self.path[0]

    @property
    def path(self) -> list[Balance]:
        """The balances of the account and of all above it now, from below."""
        return self.ledger.read(lambda rows: path_to(rows, self.name))

    @property
    def remaining(self) -> float:
        """The largest mu that one more release may have now, by all accounts above as well."""
        return min(balance.remaining_mu for balance in self.path)

    def spend(self, cost: Cost) -> None:
        """Pay for a release in memory, or raise and change nothing; see `PrivacyFilter.spend`."""
        mu = stated_mu(cost, self.neighbouring)
        facts = {"mu": mu, "about": _description(cost)}
        self._spend(facts, lambda path: release_costs(path, mu))

    def spend_claim(self, epsilon: float, delta: float, *, about: str) -> None:
        """Pay for a release of other software that claims to be (epsilon, delta)-DP per record.

        Parameters
        ----------
        epsilon, delta : float
            The claim, under the relation of the account; a delta of 0 is a pure claim.
        about : str
            What it was for, in words.

        Raises
        ------
        BudgetExceededError
            If it does not fit. A delta comes from the account's ``claims_delta``.
        """
        loss = EPSILON.number(epsilon)
        failing = 0.0 if delta == 0.0 else DELTA.number(delta)
        facts = {"epsilon": loss, "delta": failing, "about": {"claim": str(about)}}
        self._spend(facts, lambda path: claim_costs(path, loss, failing))

    def _spend(self, facts: dict[str, Any], costs: Callable[[Sequence[Balance]], Any]) -> None:
        payment = secrets.token_hex(16)  # so that it counts once, if a connection breaks

        def operation(rows: Rows) -> Entry:
            path = path_to(rows, self.name)
            return spend(rows, path, payment, facts, costs(path))

        self.ledger.write(operation)

    def run(self, name: str, *, delta: float | None = None) -> LedgerRun:
        """Return a training run that this account pays for: ``PrivateTraining(..., spending=run)``.

        Parameters
        ----------
        name : str
            Of the run. The same name continues it after a crash, with its checkpoint.
        delta : float, optional
            For a plan that was not declared when the account was opened: the part of the account's
            ``claims_delta`` that it may use. More of it leaves more for other releases.
        """
        share = None if delta is None else DELTA.number(delta)
        return LedgerRun(self.ledger, self.name, self.terms, checked_name(name, "name"), share)

    def resumes(self, request: str) -> bool:
        """Return whether a request was paid before."""
        return self.ledger.read(lambda rows: first_of(rows, request)) is not None

    def is_pending(self, request: str) -> bool:
        """Return whether a request is paid and its release not out."""
        return self.ledger.read(lambda rows: pending_release(rows, request)) is not None

    def pay(self, cost: Cost, order: Order) -> Payment:
        """Pay for a release to files, once for each request, and keep what finishes it.

        Raises
        ------
        InvalidParameterError
            If the request was paid for another release or value, or was forfeited; or the ledger
            was opened without its key file.
        BudgetExceededError
            If it does not fit.
        """
        mu, keys = stated_mu(cost, self.neighbouring), self._keys()
        _check_text(order.target)
        if self.resumes(order.request):
            return self._resumed(order, mu)
        about = {**_description(cost), **order.about}
        command = None if self.command is None else asdict(self.command)
        facts = {"mu": mu, "about": about} | ({} if command is None else {"command": command})
        bare = Pending(
            release=order.request,
            account=self.name,
            tag=order.tag(order.secret).hex(),
            sealed="",
            draft=order.draft.decode(),
            target=order.target,
            sequence=0,
        )
        bound = bound_to(self.ledger.identity, bare, command)
        kept = replace(bare, sealed=keys.seal(order.secret, bound))

        def operation(rows: Rows) -> Entry | None:
            self.ledger.check_keys(rows)  # they may have been rotated meanwhile
            # Unless it is this very payment, whose connection broke.
            known = standing(rows, order.request)
            if known.kept is not None and known.kept.sealed == kept.sealed:
                return known.paid
            if known.kept is not None or known.paid is not None:
                return None
            path = path_to(rows, self.name)
            return pay(rows, path, kept, facts, release_costs(path, mu))

        entry = self.ledger.write(operation)
        # Somebody else has paid the same request meanwhile.
        return self._resumed(order, mu) if entry is None else self._paid(entry, order.secret)

    def _resumed(self, order: Order, mu: float) -> Payment:
        """Return the payment of a request that was paid before, if it is the same release."""
        known = self.ledger.read(lambda rows: standing(rows, order.request))
        paid, last, kept = known.paid, known.last, known.kept
        if paid is None or last is None or (paid.kind, paid.account) != ("pay", self.name):
            raise InvalidParameterError(
                f"request={order.request!r} names something else in this ledger: choose another"
            )
        if last.kind == "forfeit":
            raise InvalidParameterError(
                f"request={order.request!r} was forfeited: its key is gone and what it cost stays "
                "spent; make another request"
            )
        if kept is None:
            self.ledger.erase()  # what published it may have been killed before
            # The tag is gone with the key; what is left to compare is public.
            if (paid.facts["target"], paid.facts["mu"]) != (order.target, mu):
                raise InvalidParameterError(
                    f"request={order.request!r} was released as {paid.facts['target']} with "
                    f"mu={paid.facts['mu']!r}: repeat that release, or make another request"
                )
            evidence = evidence_of(self.ledger.identity, paid)
            return Payment(b"", evidence, resumed=True, digest=last.facts["sha256"])
        secret = unsealed(self._keys(), self.ledger.identity, kept, paid)
        # The tag is of the draft, too, so of the mechanism and of the query.
        if kept.target != order.target or kept.tag != order.tag(secret).hex():
            raise InvalidParameterError(
                f"request={order.request!r} was paid for another value, mechanism or file. With "
                "the same noise, two values would show their difference: repeat the very same "
                "release, or forfeit this one"
            )
        return self._paid(paid, secret, resumed=True)

    def _keys(self) -> KeyFile:
        if self.ledger.keys is None:
            raise InvalidParameterError(
                "the ledger was opened without keys, and a release to a file seals its key: pass "
                "Ledger.open(url, keys=...). If the key file is lost, make another one with "
                "Ledger.rotate_keys"
            )
        return self.ledger.keys

    def _paid(self, entry: Entry, secret: bytes, *, resumed: bool = False) -> Payment:
        return Payment(
            secret,
            evidence_of(self.ledger.identity, entry),
            resumed=resumed,
            published=lambda digest: self._ended(lambda rows: publish(rows, entry.release, digest)),
            forfeited=lambda: self._ended(lambda rows: forfeit(rows, entry.release)),
        )

    def _ended(self, operation: Callable[[Rows], None]) -> None:
        self.ledger.write(operation)
        self.ledger.erase()

    def _repr_html_(self) -> str:
        path = self.path
        spent, limit = path[0].spent.mu_squared, path[0].limit.mu_squared
        facts = [
            ("promise", self.terms.in_words),
            ("spent", f"{percent(spent, limit)} of its budget"),
            ("one more release may have", left_in_words(path)),
        ]
        return card(f"Account {self.name}", facts)

    def __repr__(self) -> str:
        """Show the name and the promise."""
        return f"LedgerAccount({self.name!r}, {self.terms.in_words})"


def _check_text(target: str) -> None:
    """Raise if a path is not text, which is all that a ledger can hold."""
    try:
        target.encode()
    except UnicodeEncodeError:
        raise InvalidParameterError(
            f"target={target!r} is in a folder whose name is not text in UTF-8, and a ledger "
            "writes it down: choose another folder"
        ) from None


def _description(cost: Any) -> dict[str, str]:
    """Return what a release promises by itself; of a mechanism also what it adds, and for what."""
    sensitivity, covariance = getattr(cost, "sensitivity", None), getattr(cost, "covariance", None)
    guarantee = getattr(cost, "guarantee", cost)
    if not isinstance(guarantee, Guarantee):
        return {}
    alone = f"epsilon {shown_up(guarantee.epsilon, 4)} at delta {shown_up(guarantee.delta, 4)}"
    if not isinstance(sensitivity, SensitivitySet) or not isinstance(covariance, Covariance):
        return {"alone": alone}
    radius = sensitivity.radius(Isotropic(1.0)).value
    return {
        "alone": alone,
        "mechanism": str(getattr(cost, "mechanism", type(cost).__name__)),
        "sensitivity": f"at most {shown_up(radius)} ({type(sensitivity).__name__})",
        "noise": _noise(covariance),
    }


def _noise(covariance: Covariance) -> str:
    match covariance:
        case Isotropic(scale=scale):
            return f"scale {scale:g}"
        case Diagonal(scales=scales):
            return f"scale {scales.min():g} to {scales.max():g}"
        case _:
            least, most = covariance.smallest_singular_value, covariance.largest_singular_value
            return f"scale {least:g} to {most:g}"
