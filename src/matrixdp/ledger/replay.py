"""The tables of a ledger as its entries say they are: every payment computed again.

Entries are replayed in their order. What an entry claims (its costs, the limit of an account) is
computed anew from the terms and from what was paid for; what does not agree is a finding. The
claims stand nevertheless, so that one wrong entry is one finding.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

from matrixdp.errors import MatrixDPError
from matrixdp.ledger.balances import Balance
from matrixdp.ledger.chain import Entry
from matrixdp.ledger.costs import Spending, claim_spending, is_worth, release_spending
from matrixdp.ledger.terms import Terms, parent_of, plan_digest
from matrixdp.privacy.events import SampledPlan

__all__ = ["Replay", "Table"]

Table: TypeAlias = Mapping[tuple[Any, ...], Mapping[str, Any]]
"""The rows of a table by what names them, each by its columns."""

# What costs of claims are rounded up by is more: other processors round differently.
_ROUNDING = Fraction(1, 2 * 10**12)
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, MatrixDPError)


@dataclass(frozen=True, slots=True)
class _Pending:
    """A release that is paid and not out: what its row holds."""

    account: str
    target: str
    kept: str
    sequence: int


@dataclass(slots=True)
class _Run:
    """A training run: what its row holds."""

    account: str
    plan: str
    mode: str
    steps: int
    spent: int = 0


@dataclass
class Replay:
    """What the entries of a ledger add up to.

    Attributes
    ----------
    accounts : dict
        Balances by name.
    slots : dict
        Of an account and a number: the digest of the plan, and the run that used it.
    pending, runs : dict
        What is paid and not out, and training runs, by their names.
    keys : list of str
        Fingerprints of the key files, in their order.
    findings : list of str
        What does not agree.
    """

    accounts: dict[str, Balance] = field(default_factory=dict)
    slots: dict[tuple[str, int], tuple[str, str | None]] = field(default_factory=dict)
    pending: dict[str, _Pending] = field(default_factory=dict)
    runs: dict[str, _Run] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    _named: set[str] = field(default_factory=set)
    _terms: dict[str, str] = field(default_factory=dict)

    def tables(self) -> Mapping[str, Table]:
        """Return what the tables must hold."""
        return {
            "accounts": {
                (name,): {
                    "parent": parent_of(name),
                    "terms": self._terms[name],
                    "mu2_limit": str(one.limit.mu_squared),
                    "delta_limit": str(one.limit.delta),
                    "mu2_spent": str(one.spent.mu_squared),
                    "delta_spent": str(one.spent.delta),
                }
                for name, one in self.accounts.items()
            },
            "slots": {
                name: {"plan": plan, "used_by": run} for name, (plan, run) in self.slots.items()
            },
            "pending": {
                (name,): {
                    "account": one.account,
                    "target": one.target,
                    "tag or draft": one.kept,
                    "sequence": one.sequence,
                }
                for name, one in self.pending.items()
            },
            "runs": {(name,): asdict(one) for name, one in self.runs.items()},
        }

    def add(self, entry: Entry) -> None:
        """Take the next entry."""
        try:
            wrong = list(self._wrong(entry, entry.facts))
        except _UNREADABLE as error:
            wrong = [f"cannot be read ({type(error).__name__})"]
        self.findings += [f"entry {entry.sequence} ({entry.kind}) {each}" for each in wrong]

    def _wrong(self, entry: Entry, facts: Mapping[str, Any]) -> Iterator[str]:
        match entry.kind:
            case "open":
                yield from self._open(entry.account, facts)
            case "spend" | "pay" | "run":
                yield from self._payment(entry, facts)
            case "publish" | "forfeit":
                paid = self.pending.pop(entry.release, None)
                if paid is None or paid.account != entry.account:
                    yield f"is about {entry.release!r}, which its account has not paid"
            case "step":
                run = self.runs[entry.release]
                run.spent += 1
                if facts["step"] != run.spent or run.spent > run.steps:
                    yield f"counts step {facts['step']}, and it is step {run.spent} of {run.steps}"
                if run.account != entry.account:
                    yield f"is of account {entry.account!r}, and {run.account!r} pays for the run"
            case "rotate":
                if self.keys and facts["former"] != self.keys[-1]:
                    yield "replaces a key file that was not in use"
                self.keys += [facts["key"]] if self.keys else [facts["former"], facts["key"]]
            case _:
                yield "is of a kind that this matrixdp does not know"

    def _open(self, name: str, facts: Mapping[str, Any]) -> Iterator[str]:
        terms = Terms.decoded(facts["terms"])
        limit = Spending(Fraction(facts["mu2_limit"]), Fraction(facts["delta_limit"]))
        if name in self.accounts:
            yield f"opens account {name!r} again"
        above = parent_of(name)
        if above is not None and not _alike(terms, self.accounts[above].terms):
            yield f"opens account {name!r} for another relation or unit than {above!r}"
        if limit.delta != Fraction(terms.claims_delta):
            yield f"gives account {name!r} another delta for claims than its terms"
        if not is_worth(terms.budget, terms.plans, terms.claims_delta, limit.mu_squared):
            yield f"gives account {name!r} more than its budget is worth"
        self.accounts[name] = Balance(name, terms, limit, Spending(Fraction(0)))
        self._terms[name] = facts["terms"]
        for number, plan in enumerate(terms.plans):
            self.slots[name, number] = (plan_digest(plan), None)

    def _payment(self, entry: Entry, facts: Mapping[str, Any]) -> Iterator[str]:
        if entry.release in self._named:
            yield f"pays {entry.release!r} again"
        self._named.add(entry.release)
        path = self._path_to(entry.account)
        stated = {
            name: Spending(Fraction(worth), Fraction(delta))
            for name, (worth, delta) in facts["costs"].items()
        }
        if set(stated) != {one.name for one in path}:
            yield f"debits other accounts than {entry.account!r} and those above it"
        for one in path:
            cost = stated.get(one.name, Spending(Fraction(0)))
            if not self._is_cost(cost, one, facts):
                yield f"debits account {one.name!r} by another cost than that of what it pays for"
            spent = Spending(one.spent.mu_squared + cost.mu_squared, one.spent.delta + cost.delta)
            if spent.mu_squared > one.limit.mu_squared or spent.delta > one.limit.delta:
                yield f"spends more than account {one.name!r} holds"
            self.accounts[one.name] = Balance(one.name, one.terms, one.limit, spent)
        if entry.kind == "pay":
            kept = _Pending(entry.account, facts["target"], facts["kept"], entry.sequence)
            self.pending[entry.release] = kept
        if entry.kind == "run":
            yield from self._use_slots(entry, facts)
            run = _Run(entry.account, facts["plan"], facts["mode"], facts["steps"])
            self.runs[entry.release] = run

    def _path_to(self, name: str) -> list[Balance]:
        path = [self.accounts[name]]
        while (above := parent_of(path[-1].name)) is not None:
            path.append(self.accounts[above])
        return path

    def _use_slots(self, entry: Entry, facts: Mapping[str, Any]) -> Iterator[str]:
        if facts["plan"] != plan_digest(_plan(facts, self.accounts[entry.account].terms)):
            yield "states the digest of another plan"
        terms, unit = self.accounts[entry.account].terms, facts.get("unit", "record")
        if unit != terms.unit and (unit != "record" or terms.records_per_unit != 1):
            yield f"protects every {unit}, and the account every {terms.unit}"
        for account, number in facts["slots"].items():
            if self.slots.get((account, number)) != (facts["plan"], None):
                yield f"uses a plan that account {account!r} has not declared, or has used"
            self.slots[account, number] = (facts["plan"], entry.release)

    def _is_cost(self, cost: Spending, account: Balance, facts: Mapping[str, Any]) -> bool:
        """Return whether a cost is that of what was paid, for the unit of an account."""
        records = account.terms.records_per_unit
        if "mu" in facts:
            return cost == release_spending(facts["mu"], records)
        if "epsilon" in facts:
            claimed = claim_spending(facts["epsilon"], facts["delta"], records)
            return _covers(cost, claimed) and _covers(claimed, cost)
        if account.name in facts["slots"]:
            return cost == Spending(Fraction(0))
        return _covers(cost, _envelope(_plan(facts, account.terms), float(cost.delta)))


def _alike(terms: Terms, above: Terms) -> bool:
    fields = ("neighbouring", "unit", "records_per_unit")
    return all(getattr(terms, each) == getattr(above, each) for each in fields)


def _plan(facts: Mapping[str, Any], terms: Terms) -> SampledPlan:
    return SampledPlan(
        noise_multiplier=facts["noise_multiplier"],
        sampling_rate=facts["sampling_rate"],
        steps=facts["steps"],
        neighbouring=terms.neighbouring,
        bounded=facts["bounded"],
    )


def _envelope(plan: SampledPlan, delta: float) -> Spending:
    from matrixdp.privacy.loss.envelope import plan_envelope  # noqa: PLC0415 - imports scipy

    found = plan_envelope(plan, delta=delta)
    return Spending(Fraction(found.mu) ** 2, Fraction(found.delta))


def _covers(cost: Spending, least: Spending) -> bool:
    return cost.mu_squared >= least.mu_squared * (1 - _ROUNDING) and cost.delta >= least.delta * (
        1 - _ROUNDING
    )
