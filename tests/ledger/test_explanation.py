"""A ledger in words: complete, and for readers who know no mu."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from matrixdp import IMGM, Budget, FrobeniusBall
from matrixdp.errors import InvalidParameterError
from matrixdp.ledger import Ledger
from matrixdp.ledger.explanation import when
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.queries import PublicBounds, Sum
from matrixdp.rounding import shown_up

RELATION: Neighbouring = "replace"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(f"sqlite:///{tmp_path}/ledger", keys=tmp_path / "keys") as made:
        for name, epsilon in (("clinic", 3.0), ("clinic/ann", 2.0)):
            made.open_account(
                name,
                Budget(epsilon, 1e-5),
                neighbouring=RELATION,
                unit="patient",
                records_per_unit=2,
                claims_delta=1e-6,
            )
        yield made


def test_an_account_in_words(ledger: Ledger, tmp_path: Path) -> None:
    ann, clinic = ledger.account("clinic/ann"), ledger.account("clinic")
    query = Sum(PublicBounds(2, norm=1.0), RELATION)
    query.release_to(
        tmp_path / "sums.csv",
        [[0.6, 0.8]] * 5,
        Budget(0.25, 1e-6),
        privacy_filter=ann,
        request="sums",
    )
    mechanism = IMGM(FrobeniusBall(1.5, RELATION), Budget(0.5, 1e-6))
    mechanism.release(np.ones((3, 2)), privacy_filter=clinic)
    ann.spend_claim(0.125, 1e-8, about="counts by another program")
    clinic.spend(0.01)
    text = ledger.explain("clinic")
    # Two records of a patient, and what claims leave of delta.
    share = shown_up(100 * (2 * Budget(0.25, 1e-6).mu / Budget(3.0, 9e-6).mu) ** 2, 3)
    for part in (
        "makes a promise to every patient, who is assumed to have at most 2 records.",
        "is replaced changes",
        "factor of at most 20.1, apart from a probability of 1e-05",
        f"with account clinic/ann: paid {share} % of its budget for {tmp_path}/sums.csv",
        "a matrix of 1 x 2, sum of records",
        "One record changes it by at most 2",
        "(FrobeniusBall); IMGM added noise of scale",
        "By itself it has epsilon 0.25 at delta 1e-06 for one record.",
        "Out since 20",
        "for a release in memory.",
        "for a claim of epsilon 0.125 and delta 1e-08: counts by another program.",
        "One more release may by itself have epsilon",
    ):
        assert " ".join(part.split()) in " ".join(text.split()), part
    assert "mu" not in text.replace("sums.csv", "").replace("sum of", "").split()
    # What the account above paid by itself is none of the other's business.
    below = ledger.explain("clinic/ann")
    assert "sums.csv" in below
    assert "a release in memory" not in below
    assert "with account" not in below


def test_shares_add_up_to_what_is_spent(ledger: Ledger) -> None:
    account = ledger.account("clinic")
    for mu in (0.05, 0.1, 0.15):
        account.spend(mu)
    costs = [entry.facts["costs"]["clinic"][0] for entry in ledger.history("clinic")[2:]]
    assert len(costs) == 3
    text = ledger.explain("clinic")
    shares = [
        float(line.split("paid ")[1].split(" %")[0])
        for line in text.split("\n")
        if ": paid" in line
    ]
    assert sum(shares) == pytest.approx(100 * account.balance.spent_share, rel=0.02)
    assert len(shares) == 3


def test_the_account_above_may_be_the_tighter_one(ledger: Ledger) -> None:
    clinic, ann = ledger.account("clinic"), ledger.account("clinic/ann")
    clinic.spend(0.9 * clinic.remaining)
    assert "Account clinic above it has less left" in ledger.explain("clinic/ann")
    left = ledger.explain("clinic/ann").split("may by itself have ")[1].split(".\n")[0]
    assert left == ledger.explain("clinic").split("may by itself have ")[1].split(".\n")[0]
    clinic.spend(clinic.remaining)
    assert ann.remaining < 1e-6


def test_an_empty_account(ledger: Ledger) -> None:
    assert ledger.explain("clinic").endswith("Nothing was paid from it yet.")
    with pytest.raises(InvalidParameterError, match="does not exist"):
        ledger.explain("other")
    with pytest.raises(InvalidParameterError, match="was never paid"):
        ledger.explain_release("none")


def test_history_of_an_account_has_those_below_it(ledger: Ledger) -> None:
    ledger.open_account("clinics", Budget(1.0, 1e-5), neighbouring=RELATION)
    ledger.account("clinic/ann").spend(0.01)
    assert [entry.account for entry in ledger.history("clinic")] == [
        "clinic",
        "clinic/ann",
        "clinic/ann",
    ]
    assert [entry.sequence for entry in ledger.history("clinic/ann")] == [2, 4]
    assert len(ledger.history()) == 4
    assert [entry.sequence for entry in ledger.history("clinic", last=2)] == [2, 4]
    assert [entry.sequence for entry in ledger.history(last=3)] == [2, 3, 4]
    # No letter of a name is a pattern.
    assert ledger.history("c%") == ledger.history("clini_") == []


def test_times_are_for_people() -> None:
    assert when("2026-03-01T12:30:59.123456+00:00") == "2026-03-01 12:30:59 UTC"
