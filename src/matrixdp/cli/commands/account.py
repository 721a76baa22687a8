"""``matrixdp account``: the epsilon of a plan of sampled steps, or the noise for an epsilon."""

from collections.abc import Callable
from typing import Annotated, cast

import typer

from matrixdp.cli.shared.options import (
    AsJson,
    BoundedOption,
    DeltaOption,
    NeighbouringOption,
    OptionalEpsilonOption,
    SamplingRateOption,
    StepsOption,
    number_option,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.cli.shared.progress import progress_bar
from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, positive_number
from matrixdp.privacy.accountants import Accountant, accounted_epsilon
from matrixdp.privacy.events import Bounded, SampledPlan
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.privacy.loss import Interval, LossAccount
from matrixdp.privacy.multiplier import least_multiplier
from matrixdp.rounding import shown_down, shown_exactly, shown_up

__all__ = ["account"]

_IN_WORDS = {
    Accountant.PLD: "privacy loss distribution (tight)",
    Accountant.RDP: "Rényi, improved conversion",
    Accountant.MOMENTS: "moments accountant",
    Accountant.CLAIMS: "amplification and Theorem 3.4",
}
_LONG_WAIT = 1.0  # seconds, after which progress is shown


def account(
    sampling_rate: SamplingRateOption,
    steps: StepsOption,
    neighbouring: NeighbouringOption,
    delta: DeltaOption,
    epsilon: OptionalEpsilonOption = None,
    noise_multiplier: Annotated[
        float | None, number_option("--noise-multiplier", "Noise scale over sensitivity.")
    ] = None,
    bounded: BoundedOption = "difference",
    as_json: AsJson = False,
) -> None:
    """Account for Gaussian steps on Poisson samples, by every accountant that applies.

    With --noise-multiplier it finds the epsilon, with --epsilon the multiplier.
    """
    # Not a default for one of them: the two ask different questions.
    if (noise_multiplier is None) == (epsilon is None):
        raise InvalidParameterError("pass either --noise-multiplier or --epsilon")
    plan = SampledPlan(
        # With an epsilon the plan only carries the other parameters; its multiplier is not used.
        noise_multiplier=1.0 if noise_multiplier is None else noise_multiplier,
        sampling_rate=sampling_rate,
        steps=steps,
        neighbouring=checked_neighbouring(neighbouring),
        bounded=cast("Bounded", bounded),  # which the plan checks
    )
    delta = DELTA.number(delta)
    if epsilon is None:
        answers, refusals = _answers(lambda each: _epsilon(plan, delta, each))
        asked, value, found = "noise_multiplier", plan.noise_multiplier, "epsilon"
    else:
        wanted = positive_number(EPSILON.number(epsilon), "epsilon")
        # How much less would do is not computed.
        answers, refusals = _answers(
            lambda each: Interval(0.0, least_multiplier(plan, wanted, delta, each))
        )
        asked, value, found = "epsilon", wanted, "noise_multiplier"
    # Both questions have the same table; only what was asked and what was found are exchanged.
    if as_json:
        print_json({asked: value, **_fields(plan, delta, found, answers, refusals)})
        return
    _print_answers(found, answers, title=f"{_heading(plan, delta, asked)} {shown_exactly(value)}")
    for each, reason in refusals.items():
        typer.echo(f"{_IN_WORDS[each]} does not apply: {reason}")


_Answers = dict[Accountant, Interval]
_Refusals = dict[Accountant, str]


def _answers(answer: Callable[[Accountant], Interval]) -> tuple[_Answers, _Refusals]:
    """Return what each accountant answers, and why the others do not; raise if no one does."""
    answers, refusals = {}, {}
    with progress_bar(len(Accountant), "Accounting", after=_LONG_WAIT) as advance:
        for each in Accountant:
            try:
                answers[each] = answer(each)
            except CalibrationError as refusal:
                refusals[each] = str(refusal)
            advance(1)
    if not answers:
        # RDP has the widest domain, so its reason is the most useful one.
        raise CalibrationError(f"no accountant applies: {refusals[Accountant.RDP]}")
    return answers, refusals


def _epsilon(plan: SampledPlan, delta: float, accountant: Accountant) -> Interval:
    """Return the epsilon of an account, and what it is proven to be above; 0 if nothing is."""
    if accountant is Accountant.PLD:
        return LossAccount([plan]).epsilon_at(delta)
    return Interval(0.0, accounted_epsilon(plan, delta, accountant))


def _fields(
    plan: SampledPlan, delta: float, found: str, answers: _Answers, refusals: _Refusals
) -> dict[str, object]:
    fields: dict[str, object] = {
        "sampling_rate": plan.sampling_rate,
        "steps": plan.steps,
        "delta": delta,
        "neighbouring": plan.neighbouring,
        "bounded": plan.bounded,
        found: {
            each.value: answers[each].upper if each in answers else None for each in Accountant
        },
    }
    if found == "epsilon" and Accountant.PLD in answers:
        fields["epsilon_at_least"] = answers[Accountant.PLD].lower
    return {**fields, "does_not_apply": {each.value: text for each, text in refusals.items()}}


def _heading(plan: SampledPlan, delta: float, asked: str) -> str:
    # Under add-remove the two kinds of bound are the same.
    what = f", {plan.bounded} bounded" if plan.neighbouring == "replace" else ""
    return (
        f"{plan.steps} steps at sampling rate {shown_exactly(plan.sampling_rate)}\n"
        f"delta {shown_exactly(delta)}, {plan.neighbouring}{what}\n"
        f"{asked.replace('_', ' ')}"
    )


def _print_answers(found: str, answers: _Answers, title: str) -> None:
    """Print a row for each accountant; of epsilons also how small the truth could be."""
    bounds = found == "epsilon"
    rows = []
    for each in Accountant:
        # Only the loss distribution bounds the truth from both sides.
        lower = (
            shown_down(answers[each].lower) if each in answers and each is Accountant.PLD else ""
        )
        upper = shown_up(answers[each].upper) if each in answers else "does not apply"
        rows.append([_IN_WORDS[each], upper, lower] if bounds else [_IN_WORDS[each], upper])
    headings = ["account", found.replace("_", " "), "at least"]
    print_table(headings if bounds else headings[:2], rows, title=title)
