"""Payments: exact totals, all accounts of a path or none, each request once."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.backends import Backend, backends
from ledger.steps import MECHANISM, MU, check_chain, paid_only, spent
from matrixdp import Budget, Release
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.ledger import Ledger, LedgerAccount, chain
from matrixdp.ledger.payments import publish
from matrixdp.privacy.payment import GivenUpError


@settings(max_examples=5)
@given(costs=st.lists(st.floats(1e-6, 0.3), min_size=1, max_size=8))
@pytest.mark.parametrize("kind", [0, 1], ids=["sqlite", "postgresql"])
def test_totals_are_exact_sums(
    kind: int, costs: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("exact")
    with backends()[kind].ledger(folder) as ledger:
        for name in ("a", "a/b", "a/c"):
            ledger.open_account(name, Budget(4.0, 1e-5), neighbouring="replace")
        below = {"a/b": Fraction(0), "a/c": Fraction(0)}
        for number, mu in enumerate(costs):
            name = ("a/b", "a/c")[number % 2]
            ledger.account(name).spend(mu)
            below[name] += Fraction(mu) ** 2
        assert spent(ledger) == {**below, "a": sum(below.values())}
        stated = [entry.facts["costs"] for entry in ledger.history() if entry.kind == "spend"]
        assert sum(Fraction(cost["a"][0]) for cost in stated) == sum(below.values())
        check_chain(ledger, ledger.history())


def test_a_path_pays_all_or_none(ledger: Ledger) -> None:
    ledger.open_account("clinic", Budget(1.0, 1e-5), neighbouring="replace")
    ann = ledger.open_account("clinic/ann", Budget(2.0, 1e-5), neighbouring="replace")
    ben = ledger.open_account("clinic/ben", Budget(0.1, 1e-5), neighbouring="replace")
    before = spent(ledger), len(ledger.history())
    with pytest.raises(BudgetExceededError, match="'clinic'"):
        ann.spend(Budget(1.5, 1e-5).mu)
    with pytest.raises(BudgetExceededError, match="'clinic/ben'"):
        ben.spend(MECHANISM)
    assert (spent(ledger), len(ledger.history())) == before
    ann.spend(MECHANISM)
    assert spent(ledger) == {"clinic": MU**2, "clinic/ann": MU**2, "clinic/ben": 0}


def test_the_last_payment_fits_exactly(ledger: Ledger) -> None:
    account = ledger.open_account("a", Budget(1.0, 1e-5), neighbouring="replace")
    account.spend(0.1)
    account.spend(account.remaining)
    assert 0.0 <= account.remaining < 1e-7
    with pytest.raises(BudgetExceededError):
        account.spend(np.nextafter(account.remaining, 1.0))


def test_claims_take_delta(ledger: Ledger, account: LedgerAccount) -> None:
    account.spend_claim(0.1, 1e-7, about="another program")
    once = [one.spent.delta for one in ledger.accounts()]
    assert once[0] == once[1] >= Fraction(1e-7)
    account.spend_claim(0.1, 1e-7, about="another program")
    assert [one.spent.delta for one in ledger.accounts()] == [2 * each for each in once]
    with pytest.raises(BudgetExceededError, match="delta"):
        account.spend_claim(0.1, 1e-6, about="another program")
    assert [one.spent.delta for one in ledger.accounts()] == [2 * each for each in once]


def test_a_request_pays_once(ledger: Ledger, account: LedgerAccount, tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    first = MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    again = MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    np.testing.assert_array_equal(first.value, again.value)
    assert spent(ledger) == {"clinic": MU**2, "clinic/ann": MU**2}
    assert [entry.kind for entry in ledger.history()] == ["open", "open", "pay", "publish"]
    assert ledger.pending() == []
    assert Release.verify(target) == MECHANISM.guarantee
    check_chain(ledger, ledger.history())


def test_a_request_is_for_one_release(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    target = tmp_path / "out.npy"
    MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    target.unlink()
    with pytest.raises(InvalidParameterError, match="not there any more"):
        MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    parent = ledger.account("clinic")
    with pytest.raises(InvalidParameterError, match="names something else"):
        MECHANISM.release_to(target, np.eye(3), privacy_filter=parent, request="monday")
    spending = ledger.history()[2].release
    assert spending == "monday"
    assert spent(ledger)["clinic"] == MU**2


def test_what_is_paid_is_finished(ledger: Ledger, account: LedgerAccount, tmp_path: Path) -> None:
    target = tmp_path / "out.npy"
    paid_only(account, target, "monday")
    (waiting,) = ledger.pending()
    assert (waiting.release, waiting.account) == ("monday", "clinic/ann")
    assert not target.exists()
    for value, path in ((np.ones((3, 3)), target), (np.eye(3), tmp_path / "other.npy")):
        with pytest.raises(InvalidParameterError, match="another value, mechanism or file"):
            MECHANISM.release_to(path, value, privacy_filter=account, request="monday")
    MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    assert [entry.kind for entry in ledger.history()][2:] == ["pay", "publish"]
    assert spent(ledger)["clinic"] == MU**2


def test_what_is_forfeited_stays_spent(
    ledger: Ledger, account: LedgerAccount, tmp_path: Path
) -> None:
    target = tmp_path / "out.npy"
    paid_only(account, target, "monday")
    ledger.forfeit("monday")
    ledger.forfeit("monday")
    assert ledger.pending() == []
    assert [entry.kind for entry in ledger.history()][2:] == ["pay", "forfeit"]
    with pytest.raises(InvalidParameterError, match="was forfeited"):
        MECHANISM.release_to(target, np.eye(3), privacy_filter=account, request="monday")
    assert spent(ledger)["clinic"] == MU**2


def test_transitions_that_are_none(ledger: Ledger, account: LedgerAccount, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameterError, match="never paid"):
        ledger.forfeit("nothing")
    with pytest.raises(InvalidParameterError, match="never paid"):
        ledger.write(lambda rows: publish(rows, "nothing", "0" * 64))
    account.spend(0.1)
    spending = ledger.history()[-1].release
    with pytest.raises(InvalidParameterError, match="never paid"):
        ledger.forfeit(spending)
    MECHANISM.release_to(tmp_path / "a.npy", np.eye(2), privacy_filter=account, request="a")
    with pytest.raises(InvalidParameterError, match="'publish'"):
        ledger.forfeit("a")
    with pytest.raises(InvalidParameterError, match="'publish'"):
        ledger.write(lambda rows: publish(rows, "a", "0" * 64))
    paid_only(account, tmp_path / "b.npy", "b")
    ledger.forfeit("b")
    with pytest.raises(GivenUpError, match="was given up meanwhile"):
        ledger.write(lambda rows: publish(rows, "b", "0" * 64))
    check_chain(ledger, ledger.history())


def test_terms_of_a_path_agree(ledger: Ledger, account: LedgerAccount) -> None:
    with pytest.raises(InvalidParameterError, match="exists"):
        ledger.open_account("clinic", Budget(1.0, 1e-5), neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="neighbouring='add-remove'"):
        ledger.open_account("clinic/ben", Budget(1.0, 1e-5), neighbouring="add-remove")
    with pytest.raises(InvalidParameterError, match="does not exist"):
        ledger.open_account("nobody/ben", Budget(1.0, 1e-5), neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="neighbouring"):
        account.spend(replace(MECHANISM.guarantee, neighbouring="add-remove"))
    assert [entry.kind for entry in ledger.history()] == ["open", "open"]


class Clock(datetime):
    """A clock that an hour is taken from with each look at it."""

    hours: ClassVar[int] = 0

    @classmethod
    def now(cls, tz: object = None) -> "Clock":  # noqa: ARG003
        cls.hours += 1
        return cls.fromtimestamp(1.7e9, UTC) - timedelta(hours=cls.hours)


def test_a_clock_that_runs_backwards(
    ledger: Ledger, account: LedgerAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    account.spend(0.1)
    monkeypatch.setattr(chain, "datetime", Clock)
    for _ in range(3):
        account.spend(0.1)
    check_chain(ledger, ledger.history())
    assert len({entry.time for entry in ledger.history()[-4:]}) == 1
    assert spent(ledger)["clinic"] == 4 * Fraction(0.1) ** 2


def test_a_ledger_is_made_once(backend: Backend, tmp_path: Path) -> None:
    url = backend.url(tmp_path)
    with Ledger.create(url, keys=tmp_path / "a.keys") as ledger:
        identity = ledger.identity
    with pytest.raises(InvalidParameterError, match=r"exists|has a ledger"):
        Ledger.create(url, keys=tmp_path / "a.keys")
    with Ledger.open(url) as ledger:
        assert ledger.identity == identity
    with pytest.raises(InvalidParameterError, match="there is no ledger"):
        Ledger.open(url.removesuffix("a.ledger") + "b")


@pytest.mark.parametrize("request_", ["", "x" * 201, "a\0b", "a\nb", "\udc80", 3])
def test_requests_that_name_nothing(
    account: LedgerAccount, tmp_path: Path, request_: object
) -> None:
    with pytest.raises(InvalidParameterError, match="names the release"):
        MECHANISM.release_to(
            tmp_path / "a.npy",
            np.eye(2),
            privacy_filter=account,
            request=request_,  # type: ignore[arg-type]
        )


def test_requests_in_any_language(ledger: Ledger, account: LedgerAccount, tmp_path: Path) -> None:
    name = "März: Ä/Ö, 三月 ' \" :x %s"
    target = tmp_path / "März 三月.npy"
    MECHANISM.release_to(target, np.eye(2), privacy_filter=account, request=name)
    MECHANISM.release_to(target, np.eye(2), privacy_filter=account, request=name)
    assert [entry.release for entry in ledger.history()][2:] == [name, name]


@pytest.mark.parametrize("unit", [("record", 1), ("visit", 3), ("patient", 2)])
def test_an_account_is_for_the_unit_of_the_one_above(ledger: Ledger, unit: tuple[str, int]) -> None:
    budget = Budget(1.0, 1e-5)
    terms = {"neighbouring": "replace", "unit": "patient", "records_per_unit": 3}
    ledger.open_account("ward", budget, **terms)  # type: ignore[arg-type]
    other = {**terms, "unit": unit[0], "records_per_unit": unit[1]}
    with pytest.raises(InvalidParameterError, match="differs from"):
        ledger.open_account("ward/ann", budget, **other)  # type: ignore[arg-type]
    ledger.open_account("ward/ann", budget, **terms)  # type: ignore[arg-type]
