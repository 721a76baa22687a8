"""Training runs that are paid from an account: the whole plan before its first step, then counted.

A plan costs each account of the path either a slot, if the account declared such a plan, or its
*envelope*: a mu squared and a delta that dominate all of its steps together, which may be chosen
after anything that was released before (`matrixdp.privacy.plan_envelope`). Steps are never drawn
again: a step that dies stays spent.
"""

import secrets
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from matrixdp.errors import BudgetExceededError, InvalidParameterError, StorageError
from matrixdp.ledger.balances import path_to
from matrixdp.ledger.chain import append, first_of, last_of
from matrixdp.ledger.checked_store import CheckedStore
from matrixdp.ledger.costs import Spending
from matrixdp.ledger.payments import spend
from matrixdp.ledger.stores.store import Rows
from matrixdp.ledger.terms import Terms, plan_digest
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.payment import StepCounter

__all__ = ["LedgerRun"]


@dataclass(frozen=True, repr=False)
class LedgerRun:
    """A named training run of an account; pass it as ``spending`` of a `PrivateTraining`.

    Made by `LedgerAccount.run`.

    Attributes
    ----------
    ledger : CheckedStore
        The ledger of the account.
    account : str
        Who pays.
    terms : Terms
        What the account promises.
    name : str
        Of the run: the same name continues it.
    delta : float or None
        The part of the account's ``claims_delta`` that a plan which was not declared may use.
    """

    ledger: CheckedStore
    account: str
    terms: Terms
    name: str
    delta: float | None

    def counter(
        self, sampled: SampledPlan, *, plan: str, mode: str, unit: str = "record"
    ) -> StepCounter:
        """Return the counter of the run's steps; it is paid for when the first one is spent.

        Parameters
        ----------
        sampled : SampledPlan
            What is accounted for.
        plan : str
            The digest of the training plan: a run is continued by the same plan only.
        mode : str
            How gradients are added up, which is a part of the guarantee for all steps.
        unit : str, optional
            What is sampled and protected: "record", or the unit of the account.

        Raises
        ------
        InvalidParameterError
            If the run belongs to another plan, mode or account; the account has another relation
            or unit; or the plan is not declared and no delta is given.
        """
        return _Counter(self, sampled, f"{plan} {mode}", unit)

    def __repr__(self) -> str:
        """Show the account and the name."""
        return f"LedgerRun({self.account!r}, {self.name!r})"


class _Counter:
    """The steps of one run, counted in the ledger before each is drawn."""

    def __init__(self, run: LedgerRun, sampled: SampledPlan, owner: str, unit: str) -> None:
        self._ledger, self._account, self._terms = run.ledger, run.account, run.terms
        self._name, self._sampled, self._owner = run.name, sampled, owner
        self._unit = unit
        self._check_terms()
        self.spent, declared = self._ledger.read(self._look)
        self._fitting = self.spent
        # Before anything is trained: it takes seconds, and may say that the plan cannot be paid.
        paid = declared or self.spent > 0
        self._envelope = None if paid else _envelope(sampled, self._stated_delta(run.delta))

    def _look(self, rows: Rows) -> tuple[int, bool]:
        """Return the steps that are counted, and whether the whole path has declared the plan."""
        digest, path = plan_digest(self._sampled), path_to(rows, self._account)
        declared = all(_free_slot(rows, one.name, digest) is not None for one in path)
        return self._counted(rows), declared

    def _stated_delta(self, delta: float | None) -> float:
        if delta is None:
            raise InvalidParameterError(
                f"the plan of run={self._name!r} was not declared when account "
                f"{self._account!r} and those above it were opened: say how much of their "
                "claims_delta it may use, account.run(name, delta=...)"
            )
        return delta

    @property
    def run(self) -> str:
        """The name by which checkpoints know the run."""
        return f"{self._ledger.identity}/{self._name}"

    def spend(self) -> None:
        """Count one more step, durably, before it is drawn; the first pays for all.

        Raises
        ------
        BudgetExceededError
            If the plan does not fit, or has no step left. Nothing was spent.
        StorageError
            If that cannot be written, or another process continues the run. Nothing may be drawn.
        """
        # No count fits until the step is counted here as well: after an interrupt in between, this
        # object does not know any more what the ledger says. Checkpoints are still of `spent`.
        counted, self._fitting = self._fitting, -1
        nonce = secrets.token_hex(16)

        def operation(rows: Rows) -> None:
            last = last_of(rows, self._name)
            if last is not None and last.facts.get("nonce") == nonce:
                return  # the connection broke after it was counted
            if last is None:
                self._pay(rows)
            if self._counted(rows) != counted:
                raise StorageError(
                    f"run={self._name!r} is not where this training left it: another one continues "
                    "it, or counting was interrupted. Nothing was drawn. Only one training may "
                    "continue a run; make PrivateTraining again for this one"
                )
            if not counted < self._sampled.steps:
                raise BudgetExceededError(f"all steps of run={self._name!r} are spent")
            rows.execute(
                "UPDATE runs SET spent = :spent WHERE run = :run",
                spent=counted + 1,
                run=self._name,
            )
            facts = {"step": counted + 1, "nonce": nonce}
            append(rows, "step", self._account, self._name, facts)

        self._ledger.write(operation)
        self.spent = self._fitting = counted + 1

    def _counted(self, rows: Rows) -> int:
        """Return how many steps are counted, if the run is this one or new."""
        found = rows.execute(
            "SELECT account, plan, mode, spent FROM runs WHERE run = :run", run=self._name
        )
        if not found:
            if first_of(rows, self._name):
                raise InvalidParameterError(
                    f"run={self._name!r} is the name of a release: choose another"
                )
            return 0
        account, digest, owner, spent = found[0]
        wanted = (self._account, plan_digest(self._sampled), self._owner)
        if (account, digest, owner) != wanted:
            raise InvalidParameterError(
                f"run={self._name!r} belongs to another plan, mode or account: it is continued by "
                "those that it was begun with; choose another name"
            )
        return int(spent)

    def _pay(self, rows: Rows) -> None:
        path, digest = path_to(rows, self._account), plan_digest(self._sampled)
        slots = {one.name: _free_slot(rows, one.name, digest) for one in path}
        costs = {one.name: self._cost(slots[one.name]) for one in path}
        facts = {
            "plan": digest,
            "mode": self._owner,
            "noise_multiplier": self._sampled.noise_multiplier,
            "sampling_rate": self._sampled.sampling_rate,
            "steps": self._sampled.steps,
            "bounded": self._sampled.bounded,
            "unit": self._unit,
            "slots": {name: slot for name, slot in slots.items() if slot is not None},
            "about": {},
        }
        spend(rows, path, self._name, facts, costs, kind="run")
        for name, slot in facts["slots"].items():  # type: ignore[attr-defined]
            rows.execute(
                "UPDATE slots SET used_by = :run WHERE account = :account AND number = :number",
                run=self._name,
                account=name,
                number=slot,
            )
        rows.execute(
            "INSERT INTO runs VALUES (:run, :account, :plan, :mode, :steps, 0)",
            run=self._name,
            account=self._account,
            plan=digest,
            mode=self._owner,
            steps=self._sampled.steps,
        )

    def _cost(self, slot: int | None) -> Spending:
        if slot is not None:
            return Spending(Fraction(0))
        if self._envelope is None:
            raise BudgetExceededError(
                f"run={self._name!r}: another run has used the slot of its plan meanwhile. Nothing "
                "was spent; make PrivateTraining again, with a run that states a delta"
            )
        return self._envelope

    def _check_terms(self) -> None:
        terms = self._terms
        if terms.neighbouring != self._sampled.neighbouring:
            raise InvalidParameterError(
                f"the plan is for neighbouring={self._sampled.neighbouring!r}, and account "
                f"{self._account!r} for {terms.neighbouring!r}"
            )
        # A plan of users protects no single record: one more changes a user's mean, which moves a
        # sum by up to two clip norms.
        if self._unit not in ("record", terms.unit):
            raise InvalidParameterError(
                f"the plan protects every {self._unit}, and account {self._account!r} every "
                f"{terms.unit}: pay from an account whose unit is {self._unit!r}"
            )
        if self._unit == "record" and terms.records_per_unit != 1:
            raise InvalidParameterError(
                f"account {self._account!r} protects units of up to "
                f"{terms.records_per_unit} records, and a plan that samples records protects no "
                f"such unit: make the plan with units=Units(..., name={terms.unit!r})"
            )


@lru_cache(maxsize=32)
def _envelope(sampled: SampledPlan, delta: float) -> Spending:
    """Return what a plan costs that is chosen later; it is kept, as it takes seconds to find."""
    from matrixdp.privacy.loss.envelope import plan_envelope  # noqa: PLC0415 - imports scipy

    envelope = plan_envelope(sampled, delta=delta)
    return Spending(Fraction(envelope.mu) ** 2, Fraction(envelope.delta))


def _free_slot(rows: Rows, account: str, digest: str) -> int | None:
    """Return the number of an unused slot for a plan, or None."""
    found = rows.execute(
        "SELECT number FROM slots WHERE account = :account AND plan = :plan AND used_by IS NULL "
        "ORDER BY number LIMIT 1",
        account=account,
        plan=digest,
    )
    return int(found[0][0]) if found else None
