"""``matrixdp account``: the epsilon of a plan of sampled steps, or the noise for an epsilon."""

from typing import Annotated

import typer

from matrixdp.cli.options import AsJson, DeltaOption, number_option, whole_number_option
from matrixdp.cli.output import print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.accountants import (
    Accountant,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
)
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.rounding import shown_up

__all__ = ["account"]

_IN_WORDS = {
    Accountant.PLD: "privacy loss distribution (tight)",
    Accountant.RDP: "Rényi, improved conversion",
    Accountant.MOMENTS: "moments accountant",
    Accountant.CLAIMS: "amplification and Theorem 3.4",
}


def account(
    sampling_rate: Annotated[
        float, number_option("--sampling-rate", "Probability of a record to be in a step.")
    ],
    steps: Annotated[int, whole_number_option("--steps", "Number of steps.")],
    delta: DeltaOption,
    noise_multiplier: Annotated[
        float | None, number_option("--noise-multiplier", "Noise scale over sensitivity.")
    ] = None,
    target_epsilon: Annotated[
        float | None,
        number_option("--target-epsilon", "Instead: find the multiplier for this epsilon."),
    ] = None,
    neighbouring: Annotated[
        str,
        typer.Option("--neighbouring", help="What the sensitivity is for: add-remove, replace."),
    ] = "add-remove",
    as_json: AsJson = False,
) -> None:
    """Account for Gaussian steps on Poisson samples, by every accountant that applies."""
    if (noise_multiplier is None) == (target_epsilon is None):
        raise InvalidParameterError("pass either --noise-multiplier or --target-epsilon")
    relation = checked_neighbouring(neighbouring)
    plan = SampledPlan(
        noise_multiplier=1.0 if noise_multiplier is None else noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
        neighbouring=relation,
    )
    if target_epsilon is None:
        answers = {each: plan_epsilon(plan, delta, each) for each in Accountant}
        asked, found = ("noise_multiplier", plan.noise_multiplier), "epsilon"
    else:
        answers = {each: _multiplier(plan, target_epsilon, delta, each) for each in Accountant}
        asked, found = ("target_epsilon", target_epsilon), "noise_multiplier"
    if as_json:
        facts = {"sampling_rate": sampling_rate, "steps": steps, "delta": delta}
        named = {each.value: answer for each, answer in answers.items()}
        print_json({asked[0]: asked[1], **facts, "neighbouring": relation, found: named})
        return
    print_table(
        ["account", found.replace("_", " ")],
        [[_IN_WORDS[each], shown_up(answer)] for each, answer in answers.items()],
        title=f"{steps} steps at sampling rate {sampling_rate:g}\n"
        f"delta {shown_up(delta)}, {relation}\n{asked[0].replace('_', ' ')} {asked[1]:g}",
    )


def _multiplier(
    plan: SampledPlan, target_epsilon: float, delta: float, accountant: Accountant
) -> float:
    return noise_multiplier_for(
        target_epsilon,
        delta,
        sampling_rate=plan.sampling_rate,
        steps=plan.steps,
        neighbouring=plan.neighbouring,
        accountant=accountant,
    )
