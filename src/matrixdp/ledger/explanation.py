"""The history of a ledger in words, for people who know neither mu nor SQL."""

import math
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.balances import Balance, path_to
from matrixdp.ledger.chain import Entry, entries_of, first_of, latest
from matrixdp.ledger.stores.store import Rows
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import shown_down, shown_up

__all__ = [
    "PAYMENTS",
    "AccountInWords",
    "account_in_words",
    "explain_account",
    "explain_release",
    "left_in_words",
    "payment_of",
    "percent",
    "share",
    "what_for",
    "when",
]

PAYMENTS = {"spend", "pay", "run"}
"""The kinds of entries that cost something."""
_WIDTH = 100


class AccountInWords(NamedTuple):
    """What an account promises, how much of it is left, and each payment: what, when and by whom.

    The first line of a payment says what was paid for; the others are what else is known of it.
    """

    promise: str
    balance: list[str]
    payments: list[list[str]]


def account_in_words(rows: Rows, name: str) -> AccountInWords:
    """Return who spent what of an account, when and on what; what is left, and what is pending."""
    path = path_to(rows, name)
    own = latest(rows, name)
    followed = _followed(own)
    payments = [
        list(_payment(entry, followed.get(entry.release, []), path[0]))
        for entry in own
        if entry.kind in PAYMENTS
    ]
    return AccountInWords(_promise(path[0]), list(_balance(path)), payments)


def explain_account(rows: Rows, name: str) -> str:
    """Return an account in words, as a text for a terminal."""
    promise, balance, payments = account_in_words(rows, name)
    lines = [*textwrap.wrap(promise, _WIDTH), "", *balance, ""]
    for number, (first, *rest) in enumerate(payments, start=1):
        lines += [f"{number}. {first}", *(f"   {line}" for line in rest)]
    return "\n".join(lines if payments else [*lines, "Nothing was paid from it yet."])


def explain_release(rows: Rows, request: str) -> str:
    """Return who paid for a release or a training run, when, what for, and what became of it."""
    own = [payment_of(rows, request), *entries_of(rows, request)[1:]]
    path = path_to(rows, own[0].account)
    lines = list(_payment(own[0], own[1:], path[0]))
    lines += [
        f"Account {above.name} above it paid {share(own[0], above)}, too." for above in path[1:]
    ]
    return "\n".join(lines)


def payment_of(rows: Rows, request: str) -> Entry:
    """Return the entry that paid for a release or a training run.

    Raises
    ------
    InvalidParameterError
        If there is none.
    """
    paid = first_of(rows, request)
    if paid is None or paid.kind not in PAYMENTS:
        raise InvalidParameterError(
            f"request={request!r} was never paid in this ledger: `matrixdp ledger history` lists "
            "what was"
        )
    return paid


def share(entry: Entry, account: Balance) -> str:
    """Return what part of an account's budget an entry took, in words."""
    worth, delta = (Fraction(each) for each in entry.facts["costs"][account.name])
    if entry.kind == "run" and not worth and not delta:
        return "what it had declared"
    words = [f"{percent(worth, account.limit.mu_squared)} of its budget"] if worth else []
    if delta:
        words.append(f"{shown_up(float(delta), 3)} of its delta for claims")
    return " and ".join(words)


def left_in_words(path: Sequence[Balance]) -> str:
    """Return how private one more release must be by itself to fit an account and those above."""
    mu = min(one.remaining_mu for one in path)
    if mu == 0.0:
        return "nothing more"
    largest = Budget.from_mu(mu, path[0].terms.delta)
    return f"epsilon {shown_down(largest.epsilon)} at delta {shown_down(largest.delta)}"


def when(time: str) -> str:
    """Return the time of an entry for people, in UTC.

    Examples
    --------
    >>> when("2026-03-01T12:30:59.123456+00:00")
    '2026-03-01 12:30:59 UTC'
    """
    return f"{time[:10]} {time[11:19]} UTC"


def _promise(account: Balance) -> str:
    terms = account.terms
    change = "added or removed" if terms.neighbouring == "add-remove" else "replaced"
    several = "" if terms.unit == "record" else f", who is assumed to have {terms.most_records}"
    return (
        f"Account {account.name} makes a promise to every {terms.unit}{several}. Whether one of "
        f"them is {change} changes the probability of whatever can be concluded from all that is "
        f"ever paid from it by a factor of at most {_factor(terms.epsilon)}, apart from a "
        f"probability of {shown_up(terms.delta)} (epsilon {shown_up(terms.epsilon)}, delta "
        f"{shown_up(terms.delta)})."
    )


def _factor(epsilon: float) -> str:
    return shown_up(math.exp(epsilon), 3) if epsilon < 700.0 else f"e^{shown_up(epsilon, 3)}"


def _balance(path: Sequence[Balance]) -> Iterator[str]:
    account = path[0]
    spent, limit = account.spent, account.limit
    yield (
        f"{percent(spent.mu_squared, limit.mu_squared)} of its budget is spent. One more release "
        f"may by itself have {left_in_words(path)}."
    )
    if limit.delta:
        yield (
            f"For claims of other software, and plans chosen later, {shown_up(float(spent.delta))} "
            f"of delta {shown_up(float(limit.delta))} is spent."
        )
    tightest = min(path, key=lambda one: one.remaining_mu)
    if tightest is not account and tightest.remaining_mu < account.remaining_mu:
        yield f"Account {tightest.name} above it has less left, and pays for everything, too."


def percent(part: Fraction, whole: Fraction) -> str:
    """Return a part in per cent, rounded up."""
    return "all" if whole == 0 else f"{shown_up(float(100 * part / whole), 3)} %"


def _followed(own: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Return what followed each payment."""
    found: dict[str, list[Entry]] = {}
    for entry in own:
        if entry.kind not in {*PAYMENTS, "open"}:
            found.setdefault(entry.release, []).append(entry)
    return found


def _payment(entry: Entry, followed: Sequence[Entry], account: Balance) -> Iterator[str]:
    facts = entry.facts
    origin = "" if entry.account == account.name else f" with account {entry.account}"
    yield (
        f"{when(entry.time)}, {facts['by']}{origin}: paid {share(entry, account)} for "
        f"{what_for(entry)}."
    )
    yield from _noise(facts, account)
    if "command" in facts:
        yield f"Command: {shlex.join(['matrixdp', *facts['command']['arguments']])}"
    yield from _outcome(entry, followed)


def what_for(entry: Entry) -> str:
    """Return what was paid for, in words."""
    facts = entry.facts
    about = facts["about"]
    if entry.kind == "run":
        return (
            f"the training run {entry.release}: {facts['steps']} steps on samples of "
            f"{facts.get('unit', 'record')}s at rate {facts['sampling_rate']:g} with noise "
            f"multiplier {facts['noise_multiplier']:g}"
        )
    if "claim" in about:
        return (
            f"a claim of epsilon {facts['epsilon']:g} and delta {facts['delta']:g}: "
            f"{about['claim']}"
        )
    shape = f", a matrix of {about['shape']}" if "shape" in about else ""
    query = f", {about['query']}" if "query" in about else ""
    return f"{facts.get('target', 'a release in memory')}{shape}{query}"


def _noise(facts: Mapping[str, Any], account: Balance) -> Iterator[str]:
    about = facts["about"]
    if "noise" in about:
        yield (
            f"One record changes it by {about['sensitivity']}; {about['mechanism']} added noise of "
            f"{about['noise']} to every entry."
        )
    if "mu" in facts:
        yield f"By itself it has {about.get('alone', _alone(facts['mu'], account))} for one record."


def _alone(mu: float, account: Balance) -> str:
    terms = account.terms
    promise = Guarantee.of_mu(mu, delta=terms.delta, neighbouring=terms.neighbouring)
    return f"epsilon {shown_up(promise.epsilon)} at delta {shown_up(promise.delta)}"


def _outcome(entry: Entry, followed: Sequence[Entry]) -> Iterator[str]:
    last = followed[-1] if followed else None
    if entry.kind == "run":
        steps = sum(each.kind == "step" for each in followed)
        yield f"{steps} of {entry.facts['steps']} steps are taken."
    elif entry.kind == "pay" and last is None:
        yield (
            f"PENDING: it is not out yet. Finish it with `matrixdp ledger finish {entry.release}`, "
            "or give it up with `forfeit`."
        )
    elif last is not None and last.kind == "publish":
        yield f"Out since {when(last.time)}, with SHA-256 {last.facts['sha256']}."
    elif last is not None:
        yield f"Given up by {last.facts['by']}, {when(last.time)}: no file, and the cost stays."
