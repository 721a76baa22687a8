"""Training runs of a ledger: declared plans, envelopes, and steps that are counted once."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from matrixdp import Budget, PrivacyFilter
from matrixdp.errors import BudgetExceededError, InvalidParameterError, StorageError
from matrixdp.ledger import Ledger, LedgerAccount
from matrixdp.ledger import runs as ledger_runs
from matrixdp.ledger.costs import Spending
from matrixdp.ledger.stores.store import LostConnectionError, Rows
from matrixdp.privacy import SampledPlan
from matrixdp.privacy.payment import RunPayer, StepCounter

PLAN = SampledPlan(noise_multiplier=4.0, sampling_rate=0.1, steps=3, neighbouring="add-remove")
ENVELOPE = Spending(Fraction(0.25) ** 2, Fraction(1e-8))


@pytest.fixture(name="ledger")
def _ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(f"sqlite:///{tmp_path}/a.ledger", keys=tmp_path / "a.keys") as ledger:
        yield ledger


@pytest.fixture(autouse=True)
def _known_envelope(monkeypatch: pytest.MonkeyPatch) -> None:
    # Here it is a cost like any other; that it covers the plan is tested where it is found.
    monkeypatch.setattr(ledger_runs, "_envelope", lambda *_: ENVELOPE)


def opened(
    ledger: Ledger, name: str = "clinic", plans: tuple[SampledPlan, ...] = ()
) -> LedgerAccount:
    return ledger.open_account(
        name, Budget(2.0, 1e-5), neighbouring="add-remove", plans=plans, claims_delta=1e-7
    )


def counter(account: LedgerAccount, name: str, delta: float | None = None) -> StepCounter:
    return account.run(name, delta=delta).counter(PLAN, plan="plan", mode="fast")


class Counting:
    """Rows that count what is read of them."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self.read = rows, 0

    def execute(self, statement: str, /, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement."""
        found = self._rows.execute(statement, **values)
        self.read += len(found)
        return found


def test_a_late_step_reads_no_more_than_an_early_one(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = ledger.write, list[int]()

    def counted(operation: Callable[[Rows], Any]) -> Any:
        def look(rows: Rows) -> Any:
            counting = Counting(rows)
            result = operation(counting)
            read.append(counting.read)
            return result

        return write(look)

    plan = replace(PLAN, steps=20)
    steps = opened(ledger, plans=(plan,)).run("may").counter(plan, plan="plan", mode="fast")
    monkeypatch.setattr(ledger, "write", counted)
    for _ in range(20):
        steps.spend()
    assert set(read[1:]) == {read[1]}


def test_a_declared_plan_has_its_place_and_costs_nothing_more(ledger: Ledger) -> None:
    account = opened(ledger, plans=(PLAN,))
    before = account.balance
    steps = counter(account, "may")
    assert steps.spent == 0
    for number in (1, 2, 3):
        steps.spend()
        assert steps.spent == number
    assert account.balance.spent == before.spent
    with pytest.raises(BudgetExceededError, match="all steps of run='may' are spent"):
        steps.spend()


def test_a_slot_is_used_once(ledger: Ledger) -> None:
    account = opened(ledger, plans=(PLAN,))
    # Both look while the slot is free.
    first, second = counter(account, "may"), counter(account, "june")
    first.spend()
    with pytest.raises(BudgetExceededError, match="has used the slot of its plan meanwhile"):
        second.spend()
    with pytest.raises(InvalidParameterError, match="was not declared"):
        counter(account, "june")
    assert [entry.kind for entry in ledger.history()] == ["open", "run", "step"]


def test_two_slots_serve_two_runs(ledger: Ledger) -> None:
    account = opened(ledger, plans=(PLAN, PLAN))
    for name in ("may", "june"):
        counter(account, name).spend()
    assert account.balance.spent.mu_squared == 0


def test_another_plan_has_no_slot(ledger: Ledger) -> None:
    account = opened(ledger, plans=(replace(PLAN, steps=2),))
    with pytest.raises(InvalidParameterError, match="was not declared"):
        counter(account, "may")


def test_a_plan_that_is_chosen_later_costs_its_envelope_everywhere(ledger: Ledger) -> None:
    above = opened(ledger, plans=(PLAN,))
    below = opened(ledger, "clinic/ann")
    steps = counter(below, "may", delta=1e-8)
    assert below.balance.spent.mu_squared == 0  # until the first step
    steps.spend()
    assert below.balance.spent == ENVELOPE
    # The account above has declared the plan, so it pays with its slot.
    assert above.balance.spent == Spending(Fraction(0))
    steps.spend()
    assert below.balance.spent == ENVELOPE


def test_the_accounts_above_pay_too(ledger: Ledger) -> None:
    above, below = opened(ledger), opened(ledger, "clinic/ann", plans=(PLAN,))
    counter(below, "may", delta=1e-8).spend()
    assert (above.balance.spent, below.balance.spent) == (ENVELOPE, Spending(Fraction(0)))


def test_a_plan_that_does_not_fit_is_refused_before_its_first_step(ledger: Ledger) -> None:
    account = ledger.open_account(
        "clinic", Budget.from_mu(0.3, 1e-5), neighbouring="add-remove", claims_delta=1.5e-8
    )
    counter(account, "may", delta=1e-8).spend()
    before = account.balance
    refused = counter(account, "june", delta=1e-8)
    with pytest.raises(BudgetExceededError, match=r"mu=0\.25.* does not fit"):
        refused.spend()
    assert account.balance == before
    assert [entry.kind for entry in ledger.history()] == ["open", "run", "step"]


def test_a_run_is_continued_by_the_same_plan_only(ledger: Ledger) -> None:
    account = opened(ledger, plans=(PLAN,))
    counter(account, "may").spend()
    assert counter(account, "may").spent == 1
    for other in (("other", "fast"), ("plan", "exact")):
        with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or account"):
            account.run("may").counter(PLAN, plan=other[0], mode=other[1])
    other_account = opened(ledger, "other", plans=(PLAN,))
    with pytest.raises(InvalidParameterError, match="belongs to another plan, mode or account"):
        counter(other_account, "may")


def test_two_trainings_of_one_run_do_not_count_one_step(ledger: Ledger) -> None:
    account = opened(ledger, plans=(PLAN,))
    first, second = counter(account, "may"), counter(account, "may")
    first.spend()
    with pytest.raises(StorageError, match="another one continues it"):
        second.spend()
    with pytest.raises(StorageError, match="another one continues it"):
        second.spend()  # and it does not catch up
    assert counter(account, "may").spent == 1


def test_an_interrupted_step_leaves_the_count_of_checkpoints(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = opened(ledger, plans=(PLAN,))
    steps = counter(account, "may")
    steps.spend()
    write = ledger.write

    def interrupted(operation: Any) -> None:
        write(operation)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            steps.spend()
    assert steps.spent == 1  # what was drawn
    with pytest.raises(StorageError, match="counting was interrupted"):
        steps.spend()
    assert counter(account, "may").spent == 2


def test_a_step_whose_connection_breaks_counts_once(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = opened(ledger, plans=(PLAN,))
    steps = counter(account, "may")
    steps.spend()
    store = ledger._store
    write = store.write
    broken: list[bool] = []

    class Breaking:
        """A block whose end is durable, and whose connection breaks then, once."""

        def __enter__(self) -> Rows:
            self._inner = write()
            return self._inner.__enter__()

        def __exit__(self, *error: object) -> None:
            self._inner.__exit__(*error)  # type: ignore[arg-type]
            if not broken:
                broken.append(True)
                raise LostConnectionError("the server went away")

    monkeypatch.setattr(store, "write", Breaking)
    monkeypatch.setattr("matrixdp.ledger.stores.store._PAUSES", (0.0, 0.0))
    steps.spend()
    assert broken == [True]
    assert counter(account, "may").spent == steps.spent == 2
    assert [entry.kind for entry in ledger.history()] == ["open", "run", "step", "step"]


def test_relations_and_units_that_a_plan_does_not_protect(ledger: Ledger) -> None:
    replaced = ledger.open_account("a", Budget(1.0, 1e-5), neighbouring="replace")
    with pytest.raises(InvalidParameterError, match="the plan is for neighbouring='add-remove'"):
        counter(replaced, "may", delta=1e-8)
    patients = ledger.open_account(
        "b", Budget(1.0, 1e-5), neighbouring="add-remove", unit="patient", records_per_unit=2
    )
    with pytest.raises(InvalidParameterError, match="protects no such unit"):
        counter(patients, "may", delta=1e-8)
    with pytest.raises(InvalidParameterError, match="protects every user, and account"):
        patients.run("may", delta=1e-8).counter(PLAN, plan="plan", mode="fast", unit="user")


def test_plans_that_sample_units_are_paid_for_by_accounts_of_that_unit(ledger: Ledger) -> None:
    """Whatever records a unit has: its gradient is clipped once, so the plan costs it as it is."""
    terms: Any = {"neighbouring": "add-remove", "unit": "patient", "records_per_unit": 2}
    account = ledger.open_account("a", Budget(1.0, 1e-5), **terms, plans=[PLAN])
    with pytest.raises(InvalidParameterError, match="protects no such unit"):
        counter(account, "may")  # records, even if such a plan is declared
    steps = account.run("may").counter(PLAN, plan="plan", mode="fast", unit="patient")
    steps.spend()
    assert ledger.verify().good
    # One record more or less of a patient may move a sum by two clip norms.
    records = ledger.open_account("b", Budget(1.0, 1e-5), neighbouring="add-remove")
    with pytest.raises(InvalidParameterError, match="protects every patient, and account 'b'"):
        records.run("june", delta=1e-8).counter(PLAN, plan="plan", mode="fast", unit="patient")


def test_verification_finds_runs_that_protect_another_unit(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    terms: Any = {"neighbouring": "add-remove", "unit": "patient", "records_per_unit": 2}
    account = ledger.open_account("a", Budget(1.0, 1e-5), **terms, plans=[PLAN])
    monkeypatch.setattr(ledger_runs._Counter, "_check_terms", lambda _: None)
    counter(account, "may").spend()
    (finding,) = ledger.verify().findings
    assert "protects every record, and the account every patient" in finding


def test_names_of_releases_are_not_those_of_runs(ledger: Ledger, tmp_path: Path) -> None:
    from matrixdp import IMGM, FrobeniusBall  # noqa: PLC0415

    account = opened(ledger, plans=(PLAN,))
    mechanism = IMGM(FrobeniusBall(1.0, neighbouring="add-remove"), Budget.from_mu(0.1, 1e-5))
    mechanism.release_to(tmp_path / "a.npy", [[1.0]], privacy_filter=account, request="may")
    with pytest.raises(InvalidParameterError, match="is the name of a release"):
        counter(account, "may")
    counter(account, "june").spend()
    with pytest.raises(InvalidParameterError, match="names something else in this ledger"):
        mechanism.release_to(tmp_path / "b.npy", [[1.0]], privacy_filter=account, request="june")


def test_a_filter_does_not_pay_for_sampled_plans() -> None:
    assert not isinstance(PrivacyFilter(Budget(1.0, 1e-5), neighbouring="replace"), RunPayer)
