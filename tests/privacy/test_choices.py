"""Enumerations accept their own strings wherever a member is expected."""

import enum

import pytest

from matrixdp import Budget, FrobeniusBall, InvalidParameterError, plan_for_budget, plan_for_error
from matrixdp.baselines import MVG, Zeta
from matrixdp.parameters import checked_choice
from matrixdp.privacy import (
    Accountant,
    ErrorMeasure,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
)


@pytest.mark.parametrize("kind", [Accountant, ErrorMeasure, Zeta])
def test_a_member_or_its_string(kind: type[enum.Enum]) -> None:
    for member in kind:
        assert checked_choice(member, kind, "choice") is member
        assert checked_choice(member.value, kind, "choice") is member
        for wrong in ("nothing", member.name, None, 0):
            with pytest.raises(InvalidParameterError, match=r"choice=.* is not one of '"):
                checked_choice(wrong, kind, "choice")


def test_strings_give_what_their_members_give() -> None:
    plan = SampledPlan(noise_multiplier=2.0, sampling_rate=1.0, steps=3, neighbouring="replace")
    assert plan_epsilon(plan, 1e-5, "rdp") == plan_epsilon(plan, 1e-5, Accountant.RDP)
    multipliers = [
        noise_multiplier_for(
            1.0, 1e-5, sampling_rate=1.0, steps=3, neighbouring="replace", accountant=accountant
        )
        for accountant in ("moments", Accountant.MOMENTS)
    ]
    assert multipliers[0] == multipliers[1]
    made = MVG(
        FrobeniusBall(1.0, "replace"), Budget(1.0, 1e-5), shape=(2, 2), norm_bound=1.0, zeta="paper"
    )
    assert made.zeta is Zeta.PAPER
    planned = plan_for_budget(Budget(1.0, 1e-5), rows=2, columns=3, sensitivity=1.0)
    assert planned.error("largest") == planned.error(ErrorMeasure.LARGEST)
    wanted = [
        plan_for_error(9.0, measure, delta=1e-5, rows=2, columns=3, sensitivity=1.0)
        for measure in ("frobenius", ErrorMeasure.FROBENIUS)
    ]
    assert wanted[0] == wanted[1]
