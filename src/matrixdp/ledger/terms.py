"""The terms of an account: what it promises, about whom, and which plans it declares."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from matrixdp.errors import InvalidParameterError
from matrixdp.ledger.chain import canonical
from matrixdp.parameters import positive_integer, real_number
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring

__all__ = ["Terms", "checked_name", "parent_of", "plan_digest"]

_NAME = re.compile(r"[\w.@+-]+(/[\w.@+-]+)*")
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What an account promises; fixed when it is opened.

    Parameters
    ----------
    epsilon, delta : float
        Of everything that is ever paid from the account.
    neighbouring : {"add-remove", "replace"}
        The relation.
    unit : str, optional
        Whom the promise is about: "record", "patient".
    records_per_unit : int, optional
        How many records one of them has at most. That is assumed; plans that sample units do not
        need it.
    plans : sequence of SampledPlan, optional
        Sampled plans that are certain to come: they cost less than those chosen later. Where a unit
        may have several records, they sample units.
    claims_delta : float, optional
        The part of delta for claims of other software, and for sampled plans that are chosen later.
    """

    epsilon: float
    delta: float
    neighbouring: Neighbouring
    unit: str = "record"
    records_per_unit: int = 1
    claims_delta: float = 0.0
    plans: tuple[SampledPlan, ...] = field(default=())

    def __post_init__(self) -> None:
        """Raise if a term is outside its domain."""
        budget = Budget(self.epsilon, self.delta)
        self._set("epsilon", budget.epsilon)
        self._set("delta", budget.delta)
        self._set("neighbouring", checked_neighbouring(self.neighbouring))
        self._set("records_per_unit", positive_integer(self.records_per_unit, "records_per_unit"))
        self._set("plans", _checked_plans(self.plans, self.neighbouring))
        self._set("claims_delta", real_number(self.claims_delta, "claims_delta"))
        if not 0.0 <= self.claims_delta < self.delta:
            raise InvalidParameterError(
                f"claims_delta={self.claims_delta!r} must be from 0 to below delta={self.delta!r}"
            )
        checked_name(self.unit, "unit")
        if self.unit == "record" and self.records_per_unit != 1:
            raise InvalidParameterError(
                f"records_per_unit={self.records_per_unit} of unit='record': name the unit that "
                "has so many records, 'patient' for instance"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @property
    def budget(self) -> Budget:
        """The promise as a budget."""
        return Budget(self.epsilon, self.delta)

    @property
    def in_words(self) -> str:
        """The promise for people."""
        change = "adding or removing" if self.neighbouring == "add-remove" else "replacing"
        assumed = "" if self.unit == "record" else f", assumed to have {self.most_records}"
        return f"({self.epsilon:g}, {self.delta:g}) under {change} one {self.unit}{assumed}"

    @property
    def most_records(self) -> str:
        """How many records a unit has at most, in words."""
        number = self.records_per_unit
        return "at most one record" if number == 1 else f"at most {number} records"

    def encoded(self) -> str:
        """Return the terms as canonical JSON."""
        return canonical(asdict(self))

    @classmethod
    @lru_cache(maxsize=1024)  # they never change, and every payment reads those of its path
    def decoded(cls, text: str) -> "Terms":
        """Return the terms that a text holds."""
        return msgspec.json.decode(text, type=cls)


def plan_digest(plan: SampledPlan) -> str:
    """Return the SHA-256 of a plan, which slots and runs know it by."""
    return hashlib.sha256(canonical(asdict(plan)).encode()).hexdigest()


def checked_name(name: object, what: str = "account") -> str:
    """Return a name: letters, digits and ``. @ + - _``, with ``/`` between account and child."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InvalidParameterError(
            f"{what}={name!r} is not a name: use letters, digits and . @ + - _, at most "
            f"{_LONGEST_NAME} of them, with / between an account and the one below it"
        )
    return name


def parent_of(name: str) -> str | None:
    """Return the account above, or None.

    Examples
    --------
    >>> parent_of("clinic/patients/ann"), parent_of("clinic")
    ('clinic/patients', None)
    """
    return name.rpartition("/")[0] or None


def _checked_plans(plans: Iterable[Any], relation: Neighbouring) -> tuple[SampledPlan, ...]:
    checked = tuple(plans)
    for plan in checked:
        if not isinstance(plan, SampledPlan):
            raise InvalidParameterError(
                f"plans has a {type(plan).__name__}: pass SampledPlan(...), or a training plan's "
                "`sampled`"
            )
        if plan.neighbouring != relation:
            raise InvalidParameterError(
                f"plans has one for neighbouring={plan.neighbouring!r}, and the account is for "
                f"{relation!r}"
            )
    return checked
