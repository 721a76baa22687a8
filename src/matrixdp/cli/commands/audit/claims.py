"""``matrixdp audit claim`` and ``rank-one``: claims beside what is true, by exact curves."""

import math
from typing import Annotated

import typer

from matrixdp.audit.claim import (
    ClaimAudit,
    SampledClaimAudit,
    audit_claim,
    audit_sampled_claim,
)
from matrixdp.audit.rank_one import rank_one_delta, rank_one_noise_scale
from matrixdp.cli.shared.exit_codes import FALSE_CLAIM
from matrixdp.cli.shared.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    SamplingRateOption,
    SensitivityOption,
    ShapeOption,
    StepsOption,
    number_option,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.rounding import shown_down, shown_exactly, shown_up

__all__ = ["claim", "rank_one"]


def claim(
    noise_scale: Annotated[
        float, number_option("--noise-scale", "Standard deviation of the noise on every entry.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    steps: StepsOption = 1,
    sampling_rate: SamplingRateOption = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show what Gaussian noise really guarantees, beside what was claimed of it.

    With a sampling rate below 1, every step is on a Poisson sample, and the sensitivity is under
    adding or removing a record. Exit code 5 if the claim is false.
    """
    given = {"noise_scale": noise_scale, "sensitivity": sensitivity, "steps": steps}
    if sampling_rate == 1.0:
        found = audit_claim(noise_scale, sensitivity, epsilon=epsilon, delta=delta, steps=steps)
        _show_claim(found, given, as_json=as_json)
        _exit_unless(found.holds)
        return
    sampled = audit_sampled_claim(
        noise_scale,
        sensitivity,
        epsilon=epsilon,
        delta=delta,
        steps=steps,
        sampling_rate=sampling_rate,
    )
    _show_sampled_claim(sampled, {**given, "sampling_rate": sampling_rate}, as_json=as_json)
    _exit_unless(sampled.holds)


def rank_one(
    shape: ShapeOption, epsilon: EpsilonOption, delta: DeltaOption, *, as_json: AsJson = False
) -> None:
    """Show what the rank-one singular Gaussian mechanism (R1SMG) really guarantees.

    The noise is its authors' for that claim. Exit code 5 if the claim is false.
    """
    numbers = math.prod(shape)
    scale = rank_one_noise_scale(numbers, epsilon, delta)
    true_delta = rank_one_delta(numbers, scale, epsilon)
    if as_json:
        print_json(
            {
                "numbers": numbers,
                "epsilon": epsilon,
                "delta": delta,
                "frobenius_error": scale,
                "delta_at_least": true_delta,
                "refuted": true_delta > delta,
            }
        )
    else:
        print_table(
            ["", "claimed", "at least"],
            [["delta at that epsilon", shown_exactly(delta), shown_down(true_delta)]],
            title=f"R1SMG, {numbers} numbers at epsilon {shown_exactly(epsilon)}\n"
            f"Frobenius error {scale:.6g} at sensitivity 1\nthe claim is "
            + ("FALSE" if true_delta > delta else "not refuted"),
        )
    _exit_unless(true_delta <= delta)


def _exit_unless(holds: bool) -> None:
    # After the numbers, which can be read whatever the exit code.
    if not holds:
        raise typer.Exit(FALSE_CLAIM)


def _show_claim(found: ClaimAudit, given: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                **given,
                "epsilon": found.epsilon,
                "delta": found.delta,
                "holds": found.holds,
                "mu": found.mu,
                "true_epsilon": found.true_epsilon,
                "true_delta": found.true_delta,
                "needed_noise_scale": found.needed_noise_scale,
            }
        )
        return
    print_table(
        ["", "claimed", "true"],
        [
            # What was claimed is shown as entered; what is true is rounded to the private side.
            ["epsilon at that delta", shown_exactly(found.epsilon), shown_up(found.true_epsilon)],
            ["delta at that epsilon", shown_exactly(found.delta), shown_up(found.true_delta)],
            [
                "noise scale, used and needed",
                shown_exactly(given["noise_scale"]),
                shown_up(found.needed_noise_scale),
            ],
        ],
        title=f"mu = {shown_up(found.mu)}: the claim " + ("holds" if found.holds else "is FALSE"),
    )


def _show_sampled_claim(
    found: SampledClaimAudit, given: dict[str, float], *, as_json: bool
) -> None:
    if as_json:
        print_json(
            {
                **given,
                "epsilon": found.epsilon,
                "delta": found.delta,
                "holds": found.holds,
                "true_epsilon": found.true_epsilon.upper,
                "true_delta": found.true_delta.upper,
                "epsilon_at_least": found.true_epsilon.lower,
                "delta_at_least": found.true_delta.lower,
            }
        )
        return
    rows = [
        ("epsilon at that delta", found.epsilon, found.true_epsilon),
        ("delta at that epsilon", found.delta, found.true_delta),
    ]
    print_table(
        ["", "claimed", "true", "at least"],
        [
            [name, shown_exactly(claimed), shown_up(true.upper), shown_down(true.lower)]
            for name, claimed, true in rows
        ],
        title=f"{given['steps']} steps at sampling rate {shown_exactly(given['sampling_rate'])}, "
        "add-remove\nthe claim " + ("holds" if found.holds else "is FALSE"),
    )
