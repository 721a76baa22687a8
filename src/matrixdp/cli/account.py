"""``matrixdp account``: the epsilon of a plan of sampled steps, or the noise for an epsilon."""

from typing import Annotated, Any

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
    answers: dict[Accountant, float] = {}
    if noise_multiplier is not None:
        plan = SampledPlan(
            noise_multiplier=noise_multiplier,
            sampling_rate=sampling_rate,
            steps=steps,
            neighbouring=relation,
        )
        answers = {each: plan_epsilon(plan, delta, each) for each in Accountant}
    elif target_epsilon is not None:
        answers = {
            each: noise_multiplier_for(
                target_epsilon,
                delta,
                sampling_rate=sampling_rate,
                steps=steps,
                neighbouring=relation,
                accountant=each,
            )
            for each in Accountant
        }
    asked: dict[str, Any] = (
        {"noise_multiplier": noise_multiplier}
        if target_epsilon is None
        else {"target_epsilon": target_epsilon}
    )
    found = "epsilon" if target_epsilon is None else "noise_multiplier"
    facts = {"sampling_rate": sampling_rate, "steps": steps, "delta": delta}
    if as_json:
        named = {each.value: answer for each, answer in answers.items()}
        print_json({**asked, **facts, "neighbouring": relation, found: named})
        return
    ((what, number),) = asked.items()
    print_table(
        ["account", found.replace("_", " ")],
        [[_IN_WORDS[each], shown_up(answer)] for each, answer in answers.items()],
        title=f"{steps} steps at sampling rate {sampling_rate:g}\n"
        f"delta {shown_up(delta)}, {relation}\n{what.replace('_', ' ')} {number:g}",
    )
