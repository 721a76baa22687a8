"""The balances of accounts: read, opened and debited, all of a path or none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from matrixdp.errors import BudgetExceededError, InvalidParameterError, LedgerError
from matrixdp.ledger.chain import append, first_of
from matrixdp.ledger.costs import Spending, gaussian_worth
from matrixdp.ledger.stores.store import Rows
from matrixdp.ledger.terms import Terms, parent_of, plan_digest
from matrixdp.rounding import float_down, sqrt_down, sqrt_up

__all__ = [
    "Balance",
    "account_limit",
    "balances",
    "debit",
    "open_account",
    "path_to",
]


@dataclass(frozen=True, slots=True)
class Balance:
    """An account at one moment.

    Attributes
    ----------
    name : str
        ``parent/child``.
    terms : Terms
        What it promises.
    limit, spent : Spending
        What may be spent, and what is.
    """

    name: str
    terms: Terms
    limit: Spending
    spent: Spending

    @property
    def remaining_mu(self) -> float:
        """The largest mu per record that one more release may have, rounded down."""
        left = self.limit.mu_squared - self.spent.mu_squared
        return sqrt_down(left / self.terms.records_per_unit**2)

    @property
    def remaining_delta(self) -> float:
        """What is left of delta for claims and for plans that are chosen later, rounded down."""
        return float_down(self.limit.delta - self.spent.delta)

    @property
    def spent_share(self) -> float:
        """The part of the worth for releases that is spent, from 0 to 1."""
        if self.limit.mu_squared == 0:
            return 1.0
        return float(self.spent.mu_squared / self.limit.mu_squared)


def account_limit(terms: Terms) -> Spending:
    """Return what an account of these terms may spend.

    Raises
    ------
    BudgetExceededError
        If its declared plans exceed its budget.
    """
    worth = gaussian_worth(terms.budget, terms.plans, terms.claims_delta)
    return Spending(worth, Fraction(terms.claims_delta))


def open_account(rows: Rows, name: str, terms: Terms, limit: Spending, opening: str) -> None:
    """Open an account; the same opening again opens nothing.

    Raises
    ------
    InvalidParameterError
        If it exists, the account above does not, or has another relation or unit.
    """
    if first_of(rows, opening):
        return
    if _named(rows, [name]):
        raise InvalidParameterError(f"account={name!r} exists: choose another name")
    parent = parent_of(name)
    if parent is not None:
        above = _existing(_named(rows, [parent]), parent)
        for field in ("neighbouring", "unit", "records_per_unit"):
            own, other = getattr(terms, field), getattr(above.terms, field)
            if own != other:
                raise InvalidParameterError(
                    f"{field}={own!r} of account={name!r} differs from {other!r} of {parent!r}: "
                    "what an account pays, the one above pays too, for the same neighbours"
                )
    rows.execute(
        "INSERT INTO accounts VALUES (:name, :parent, :terms, :mu2_limit, :delta_limit, '0', '0')",
        name=name,
        parent=parent,
        terms=terms.encoded(),
        mu2_limit=str(limit.mu_squared),
        delta_limit=str(limit.delta),
    )
    for number, plan in enumerate(terms.plans):
        rows.execute(
            "INSERT INTO slots VALUES (:account, :number, :plan, NULL)",
            account=name,
            number=number,
            plan=plan_digest(plan),
        )
    facts = {
        "terms": terms.encoded(),
        "mu2_limit": str(limit.mu_squared),
        "delta_limit": str(limit.delta),
    }
    append(rows, "open", name, opening, facts)


def balances(rows: Rows) -> list[Balance]:
    """Return all accounts, parents before children."""
    found = rows.execute(f"SELECT {_COLUMNS} FROM accounts")  # noqa: S608 - a constant
    # Not by the database, whose language may have an order of its own.
    return sorted((_balance(row) for row in found), key=lambda balance: balance.name)


def path_to(rows: Rows, name: str) -> list[Balance]:
    """Return an account and all above it, from below."""
    names = [name]
    while (parent := parent_of(names[-1])) is not None:
        names.append(parent)
    found = _named(rows, names)
    return [_existing(found, one) for one in names]


def debit(rows: Rows, path: Sequence[Balance], costs: Mapping[str, Spending]) -> None:
    """Take what each account of a path has to pay, or raise and take nothing.

    Raises
    ------
    BudgetExceededError
        If one of them does not hold enough; the message says which, and how much it holds.
    """
    for account in path:
        cost = costs[account.name]
        if account.spent.mu_squared + cost.mu_squared > account.limit.mu_squared:
            records = account.terms.records_per_unit
            mu = sqrt_up(cost.mu_squared / records**2)
            raise BudgetExceededError(
                f"mu={mu!r} does not fit: at most mu={account.remaining_mu!r} is left in account "
                f"{account.name!r}, which promises {account.terms.in_words}; add more noise, or "
                "stop here"
            )
        if account.spent.delta + cost.delta > account.limit.delta:
            raise BudgetExceededError(
                f"delta={float(cost.delta)!r} does not fit: at most {account.remaining_delta!r} of "
                f"delta is left for claims in account {account.name!r}"
            )
    for account in path:
        cost = costs[account.name]
        rows.execute(
            "UPDATE accounts SET mu2_spent = :mu2, delta_spent = :delta WHERE name = :name",
            mu2=str(account.spent.mu_squared + cost.mu_squared),
            delta=str(account.spent.delta + cost.delta),
            name=account.name,
        )


_COLUMNS = "name, terms, mu2_limit, delta_limit, mu2_spent, delta_spent"


def _balance(row: tuple[str, ...]) -> Balance:
    name, terms, *numbers = row
    try:
        mu2_limit, delta_limit, mu2_spent, delta_spent = map(Fraction, numbers)
        promised = Terms.decoded(terms)
        if not (0 <= mu2_spent <= mu2_limit and 0 <= delta_spent <= delta_limit):
            raise ValueError  # noqa: TRY301 - as what cannot be read
    except (ArithmeticError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise LedgerError(
            f"account={name!r} was altered: what it holds cannot be read. Nothing was paid. Run "
            "`matrixdp ledger verify`"
        ) from error
    return Balance(
        name, promised, Spending(mu2_limit, delta_limit), Spending(mu2_spent, delta_spent)
    )


def _named(rows: Rows, names: Sequence[str]) -> dict[str, Balance]:
    """Return those accounts of some names that exist, in one statement."""
    values = {f"name{number}": name for number, name in enumerate(names)}
    wanted = ", ".join(f":{value}" for value in values)
    found = rows.execute(
        f"SELECT {_COLUMNS} FROM accounts WHERE name IN ({wanted})",  # noqa: S608 - no values
        **values,
    )
    return {row[0]: _balance(row) for row in found}


def _existing(accounts: Mapping[str, Balance], name: str) -> Balance:
    if name not in accounts:
        raise InvalidParameterError(
            f"account={name!r} does not exist: open it with Ledger.open_account or `matrixdp "
            "ledger create`"
        )
    return accounts[name]
