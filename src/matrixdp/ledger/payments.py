"""The state machine of payments, each step within one transaction.

::

    none --pay--> PAID --publish--> PUBLISHED (the key is destroyed)
                   |
                   +----forfeit---> FORFEITED (the key is destroyed, what was paid stays spent)

A release in memory is published when it returns, so it is spent at once and keeps no key. The
last entry of a release says what was done; the table of pending releases holds what is needed to
finish one.
"""

import getpass
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.balances import Balance, debit
from matrixdp.ledger.chain import Entry, append, entries_of
from matrixdp.ledger.costs import Spending, claim_spending, release_spending
from matrixdp.ledger.stores.store import Rows
from matrixdp.privacy.payment import Evidence

__all__ = [
    "Pending",
    "claim_costs",
    "evidence_of",
    "forfeit",
    "pay",
    "pending_release",
    "pending_releases",
    "publish",
    "release_costs",
    "spend",
    "stated_costs",
    "user",
]


@dataclass(frozen=True, slots=True, repr=False)
class Pending:
    """A release that is paid and not yet out.

    Attributes
    ----------
    release : str
        Its request.
    account : str
        Who paid.
    tag, sealed : str
        Of its value, and its key under the key file.
    draft : str
        The statement without what is only known once the file is written.
    target : str
        The file to make.
    sequence : int
        The number of the payment's entry.
    """

    release: str
    account: str
    tag: str
    sealed: str
    draft: str
    target: str
    sequence: int

    @property
    def kept_digest(self) -> str:
        """The SHA-256 of what finishes it, but for the key, which may be sealed anew.

        The payment's entry holds it. The tag tells nothing about the value, so this does not.
        """
        return hashlib.sha256(json.dumps([self.tag, self.draft]).encode()).hexdigest()

    def __repr__(self) -> str:
        """Show what is public."""
        return f"Pending(release={self.release!r}, account={self.account!r}, {self.target!r})"


def release_costs(path: Sequence[Balance], mu: float) -> dict[str, Spending]:
    """Return what a Gaussian release costs each account of a path."""
    return {one.name: release_spending(mu, one.terms.records_per_unit) for one in path}


def claim_costs(path: Sequence[Balance], epsilon: float, delta: float) -> dict[str, Spending]:
    """Return what an (epsilon, delta) claim costs each account of a path."""
    return {one.name: claim_spending(epsilon, delta, one.terms.records_per_unit) for one in path}


def stated_costs(costs: Mapping[str, Spending]) -> dict[str, list[str]]:
    """Return costs as exact text."""
    return {name: [str(one.mu_squared), str(one.delta)] for name, one in costs.items()}


def spend(
    rows: Rows,
    path: Sequence[Balance],
    payment: str,
    facts: Mapping[str, Any],
    costs: Mapping[str, Spending],
    *,
    kind: str = "spend",
) -> Entry:
    """Debit a path and say what for; the same payment again pays nothing.

    Raises
    ------
    BudgetExceededError
        If an account of the path does not hold enough; nothing is changed.
    """
    known = entries_of(rows, payment)
    if known:
        return known[0]
    debit(rows, path, costs)
    body = {**facts, "costs": stated_costs(costs), "by": user()}
    return append(rows, kind, path[0].name, payment, body)


def pay(
    rows: Rows,
    path: Sequence[Balance],
    pending: Pending,
    facts: Mapping[str, Any],
    costs: Mapping[str, Spending],
) -> Entry:
    """Debit a path for a release to a file, and keep what finishes it.

    The caller has made sure that the request is new.
    """
    body = {**facts, "target": pending.target, "kept": pending.kept_digest}
    entry = spend(rows, path, pending.release, body, costs, kind="pay")
    rows.execute(
        "INSERT INTO pending VALUES "
        "(:release, :account, :tag, :sealed, :draft, :target, :sequence)",
        release=pending.release,
        account=pending.account,
        tag=pending.tag,
        sealed=pending.sealed,
        draft=pending.draft,
        target=pending.target,
        sequence=entry.sequence,
    )
    return entry


def publish(rows: Rows, release: str, digest: str) -> None:
    """Note that a release is out, and delete its key; noting it again changes nothing.

    Raises
    ------
    InvalidParameterError
        If it was not paid, was forfeited, or is out as another file.
    """
    last = _last_entry(rows, release)
    if last.kind == "publish" and last.facts["sha256"] == digest:
        return
    if last.kind != "pay":
        raise InvalidParameterError(
            f"release={release!r} cannot be published: its last entry is {last.kind!r}. What was "
            "just written has noise of its own, and is paid"
        )
    _delete(rows, release)
    append(rows, "publish", last.account, release, {"sha256": digest})


def forfeit(rows: Rows, release: str) -> None:
    """Give a release up: its key is deleted, and what was paid stays spent.

    Raises
    ------
    InvalidParameterError
        If it was not paid, or is out.
    """
    last = _last_entry(rows, release)
    if last.kind == "forfeit":
        return
    if last.kind != "pay":
        raise InvalidParameterError(
            f"release={release!r} cannot be forfeited: its last entry is {last.kind!r}, and only "
            "what is paid and not yet out can be given up"
        )
    _delete(rows, release)
    append(rows, "forfeit", last.account, release, {"by": user()})


def evidence_of(ledger: str, entry: Entry) -> Evidence:
    """Return what a statement holds of a payment."""
    return Evidence(ledger, entry.account, entry.sequence, entry.digest)


def pending_release(rows: Rows, release: str) -> Pending | None:
    """Return a release that is paid and not yet out, or None."""
    found = rows.execute("SELECT * FROM pending WHERE release = :release", release=release)
    return Pending(*found[0]) if found else None


def pending_releases(rows: Rows) -> list[Pending]:
    """Return all releases that are paid and not yet out, the oldest first."""
    return [Pending(*row) for row in rows.execute("SELECT * FROM pending ORDER BY sequence")]


def _last_entry(rows: Rows, release: str) -> Entry:
    known = entries_of(rows, release)
    if not known or known[0].kind != "pay":
        raise InvalidParameterError(
            f"release={release!r} was never paid in this ledger: `matrixdp ledger pending` lists "
            "those that are"
        )
    return known[-1]


def _delete(rows: Rows, release: str) -> None:
    rows.execute("DELETE FROM pending WHERE release = :release", release=release)


@cache
def user() -> str:
    """Return who pays, as far as the system knows."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no name for the number
        return "unknown"
