"""``matrixdp account``: the epsilon of a plan of sampled steps, or the noise for an epsilon."""

from collections.abc import Callable
from typing import Annotated

import typer

from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    SamplingRateOption,
    number_option,
    whole_number_option,
)
from matrixdp.cli.output import print_json, print_table
from matrixdp.errors import CalibrationError, InvalidParameterError, MissingExtraError
from matrixdp.privacy.accountants import Accountant, plan_epsilon
from matrixdp.privacy.events import SampledPlan
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.privacy.multiplier import noise_multiplier_for
from matrixdp.rounding import shown_exactly, shown_up

__all__ = ["account"]

_IN_WORDS = {
    Accountant.PLD: "privacy loss distribution (tight)",
    Accountant.RDP: "Rényi, improved conversion",
    Accountant.MOMENTS: "moments accountant",
    Accountant.CLAIMS: "amplification and Theorem 3.4",
}


def account(
    sampling_rate: SamplingRateOption,
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
    # Not a default for one of them: the two ask different questions.
    if (noise_multiplier is None) == (target_epsilon is None):
        raise InvalidParameterError("pass either --noise-multiplier or --target-epsilon")
    relation = checked_neighbouring(neighbouring)
    plan = SampledPlan(
        # With a target the plan only carries the other parameters; its multiplier is not used.
        noise_multiplier=1.0 if noise_multiplier is None else noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
        neighbouring=relation,
    )
    if target_epsilon is None:
        answers, refusals = _answers(lambda each: plan_epsilon(plan, delta, each))
        found, asked, value = "epsilon", "noise_multiplier", plan.noise_multiplier
    else:
        wanted = target_epsilon
        answers, refusals = _answers(lambda each: _multiplier(plan, wanted, delta, each))
        found, asked, value = "noise_multiplier", "target_epsilon", wanted
    # Both questions have the same table; only what was asked and what was found are exchanged.
    if as_json:
        facts = {"sampling_rate": sampling_rate, "steps": steps, "delta": delta}
        named = {each.value: answers.get(each) for each in Accountant}
        reasons = {each.value: reason for each, reason in refusals.items()}
        record = {asked: value, **facts, "neighbouring": relation, found: named}
        print_json({**record, "does_not_apply": reasons})
        return
    print_table(
        ["account", found.replace("_", " ")],
        [
            [_IN_WORDS[each], shown_up(answers[each]) if each in answers else "does not apply"]
            for each in Accountant
        ],
        title=f"{steps} steps at sampling rate {shown_exactly(sampling_rate)}\n"
        f"delta {shown_exactly(delta)}, {relation}\n"
        f"{asked.replace('_', ' ')} {shown_exactly(value)}",
    )
    for each, reason in refusals.items():
        typer.echo(f"{_IN_WORDS[each]} does not apply: {reason}")


def _answers(
    answer: Callable[[Accountant], float],
) -> tuple[dict[Accountant, float], dict[Accountant, str]]:
    """Return what each accountant answers, and why the others do not; raise if no one does."""
    answers, refusals = {}, {}
    for each in Accountant:
        try:
            answers[each] = answer(each)
        except (CalibrationError, MissingExtraError) as refusal:
            refusals[each] = str(refusal)
    if not answers:
        # RDP has the widest domain, so its reason is the most useful one.
        raise CalibrationError(f"no accountant applies: {refusals[Accountant.RDP]}")
    return answers, refusals


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
