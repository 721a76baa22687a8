"""Adversaries who choose every cost after every output: no account is ever overspent.

The test keeps books of its own, in exact rationals, from what was accepted.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.backends import Backend, backends
from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.errors import BudgetExceededError
from matrixdp.ledger import Ledger
from matrixdp.ledger.costs import pure_mu

RECORDS = 3
NAMES = ("clinic", "clinic/ann", "clinic/ben", "clinic/ann/june")


@dataclass
class Books:
    """What every account may spend, and what was accepted."""

    limits: dict[str, tuple[Fraction, Fraction]]
    spent: dict[str, tuple[Fraction, Fraction]] = field(default_factory=dict)

    def above(self, name: str) -> list[str]:
        return [other for other in NAMES if name == other or name.startswith(f"{other}/")]

    def fits(self, name: str, square: Fraction, delta: Fraction) -> bool:
        return all(
            self.spent.get(one, (0, 0))[0] + square <= self.limits[one][0]
            and self.spent.get(one, (0, 0))[1] + delta <= self.limits[one][1]
            for one in self.above(name)
        )

    def add(self, name: str, square: Fraction, delta: Fraction) -> None:
        for one in self.above(name):
            before = self.spent.get(one, (Fraction(0), Fraction(0)))
            self.spent[one] = (before[0] + square, before[1] + delta)


def opened(ledger: Ledger) -> Books:
    """Open the accounts; what children may spend adds up to more than their parent holds."""
    shares = (1.0, 0.8, 0.9, 0.5)
    for name, share in zip(NAMES, shares, strict=True):
        ledger.open_account(
            name,
            Budget(share, 1e-5),
            neighbouring="replace",
            unit="patient",
            records_per_unit=RECORDS,
            claims_delta=share * 1e-6,
        )
    # Worth by the definition of the pool, not by what the ledger wrote down.
    worth = [
        (Budget(share, 1e-5 - share * 1e-6).mu_squared, Fraction(share * 1e-6)) for share in shares
    ]
    return Books(dict(zip(NAMES, worth, strict=True)))


@pytest.mark.parametrize("backend", backends(), ids=str)
@settings(max_examples=12)
@given(data=st.data())
def test_no_adversary_overspends(backend: Backend, data: st.DataObject) -> None:
    with TemporaryDirectory() as folder, backend.ledger(Path(folder)) as ledger:
        books = opened(ledger)
        output = 0.0
        for _ in range(data.draw(st.integers(4, 14))):
            name = data.draw(st.sampled_from(NAMES))
            output = _one_choice(ledger, books, name, output, data)
            _check(ledger, books)


def _one_choice(
    ledger: Ledger, books: Books, name: str, output: float, data: st.DataObject
) -> float:
    account = ledger.account(name)
    left = account.remaining
    claim = data.draw(st.booleans())
    if claim:
        epsilon = data.draw(st.sampled_from([0.0, 1e-3, 0.02, 0.05]))
        delta = data.draw(st.sampled_from([0.0, 1e-9, 1e-7, 4e-7]))
        square = Fraction(pure_mu(RECORDS * epsilon)) ** 2
        failing = sum(Fraction(delta) * Fraction(math.exp(i * epsilon)) for i in range(RECORDS))
        # The margin of the ledger's own rounding: what fits by that much must be accepted.
        roomy = Fraction(10**12 + 10, 10**12)
        try:
            account.spend_claim(epsilon, delta, about="another tool")
        except BudgetExceededError:
            assert not books.fits(name, square, Fraction(failing) * roomy)
        else:
            books.add(name, square, Fraction(failing))
        return output
    # By what came out before, and by what is left: all of it, a hair more, a part, nothing.
    factor = data.draw(st.sampled_from([1.0, 1.0 + 2**-52, 0.5, 1e-3, 0.1 * abs(math.sin(output))]))
    mu = left * factor
    square = (RECORDS * Fraction(mu)) ** 2
    drawn: float
    try:
        if mu > 1e-6 and data.draw(st.booleans()):
            noise = Budget.from_mu(mu, 1e-5)
            mechanism = IMGM(FrobeniusBall(1.0, neighbouring="replace"), noise)
            square = (RECORDS * Fraction(mechanism.mu)) ** 2
            drawn = float(np.asarray(mechanism.release([[1.0]], privacy_filter=account))[0, 0])
        else:
            account.spend(mu)
            drawn = mu
    except BudgetExceededError:
        assert not books.fits(name, square, Fraction(0))
        return output
    assert books.fits(name, square, Fraction(0))
    books.add(name, square, Fraction(0))
    return drawn


def _check(ledger: Ledger, books: Books) -> None:
    for balance in ledger.accounts():
        square, delta = books.spent.get(balance.name, (Fraction(0), Fraction(0)))
        assert balance.spent.mu_squared == square
        assert square <= books.limits[balance.name][0]
        # The ledger rounds the deltas of claims up, and never by more than a digit that counts.
        assert delta <= balance.spent.delta <= delta * Fraction(10**11 + 1, 10**11)
        assert balance.spent.delta <= books.limits[balance.name][1]


@pytest.fixture(name="budget_of_one")
def _budget_of_one(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        ledger.open_account("clinic", Budget(1.0, 1e-5), neighbouring="replace")
        yield ledger


def test_the_books_notice_a_payment_that_is_too_large(budget_of_one: Ledger) -> None:
    # The check above can fail: books with a smaller limit refuse what the ledger accepts.
    account = budget_of_one.account("clinic")
    mu = account.remaining
    account.spend(mu)
    books = Books({"clinic": (Fraction(mu) ** 2 / 2, Fraction(0))})
    books.add("clinic", Fraction(mu) ** 2, Fraction(0))
    with pytest.raises(AssertionError):
        _check(budget_of_one, books)
