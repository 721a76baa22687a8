"""The state machine of payments, each step within one transaction.

::

    none --pay--> PAID --publish--> PUBLISHED (the key is destroyed)
                   |
                   +----forfeit---> FORFEITED (the key is destroyed, what was paid stays spent)

A release in memory is published when it returns, so it is spent at once and keeps no key. The
last entry of a release says what was done; the table of pending releases holds what is needed to
finish one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.balances import Balance, debit
from matrixdp.ledger.chain import Entry, append, first_of, user
from matrixdp.ledger.costs import Spending, claim_spending, release_spending
from matrixdp.ledger.pending import Pending, Standing, standing
from matrixdp.ledger.stores.store import Rows
from matrixdp.privacy.payment import Evidence, GivenUpError

__all__ = [
    "claim_costs",
    "evidence_of",
    "forfeit",
    "pay",
    "payment_to_files",
    "publish",
    "release_costs",
    "spend",
]


def release_costs(path: Sequence[Balance], mu: float) -> dict[str, Spending]:
    """Return what a Gaussian release costs each account of a path."""
    return {one.name: release_spending(mu, one.terms.records_per_unit) for one in path}


def claim_costs(path: Sequence[Balance], epsilon: float, delta: float) -> dict[str, Spending]:
    """Return what an (epsilon, delta) claim costs each account of a path."""
    return {one.name: claim_spending(epsilon, delta, one.terms.records_per_unit) for one in path}


def _stated_costs(costs: Mapping[str, Spending]) -> dict[str, list[str]]:
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
    known = first_of(rows, payment)
    if known is not None:
        return known
    debit(rows, path, costs)
    body = {**facts, "costs": _stated_costs(costs), "by": user()}
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
    GivenUpError
        If it was given up.
    InvalidParameterError
        If it was not paid, or is out as another file.
    """
    last = _last_entry(rows, release)
    if last.kind == "forfeit":
        raise GivenUpError(
            f"release={release!r} was given up meanwhile: its key is gone and what it cost stays "
            "spent"
        )
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


def payment_to_files(known: Standing, release: str) -> Entry:
    """Return the entry that paid for a release to files.

    Raises
    ------
    InvalidParameterError
        If there is none.
    """
    if known.paid is None or known.paid.kind != "pay":
        raise InvalidParameterError(
            f"release={release!r} was never paid in this ledger: `matrixdp ledger pending` lists "
            "those that are"
        )
    return known.paid


def _last_entry(rows: Rows, release: str) -> Entry:
    known = standing(rows, release)
    paid = payment_to_files(known, release)
    return known.last or paid


def _delete(rows: Rows, release: str) -> None:
    rows.execute("DELETE FROM pending WHERE release = :release", release=release)
