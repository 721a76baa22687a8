"""``matrixdp compare``: every mechanism and composition rule for one promise, side by side."""

from pathlib import Path
from typing import Annotated

import typer

from matrixdp.audit.comparison import Comparison, Contender
from matrixdp.audit.comparison import compare as compare_all
from matrixdp.cli.figures import draw_bars
from matrixdp.cli.options import (
    AsJson,
    ColumnsOption,
    DeltaOption,
    EpsilonOption,
    Force,
    GammaOption,
    RowsOption,
    SamplingRateOption,
    SensitivityOption,
    whole_number_option,
)
from matrixdp.cli.output import check_file, print_json, print_table
from matrixdp.files.atomic import write_all
from matrixdp.rounding import shown_exactly, shown_up

__all__ = ["compare"]


def compare(
    rows: RowsOption,
    columns: ColumnsOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    gamma: GammaOption = None,
    steps: Annotated[int, whole_number_option("--steps", "Number of releases.")] = 1,
    sampling_rate: SamplingRateOption = 1.0,
    figure: Annotated[
        Path | None, typer.Option("--figure", help="Draw the result in this PNG or SVG file.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the noise that each mechanism and rule needs, and what it really guarantees."""
    # Before the comparison, which may take a while.
    check_file(figure, ".png", ".svg", force=force)
    setting = Comparison(
        rows=rows,
        columns=columns,
        epsilon=epsilon,
        delta=delta,
        sensitivity=sensitivity,
        norm_bound=gamma,
        steps=steps,
        sampling_rate=sampling_rate,
    )
    contenders = compare_all(setting)
    if figure is not None:
        suffix = figure.suffix.lower().removeprefix(".")
        write_all([(figure, draw_bars(contenders, _title(setting), suffix))], force=force)
        typer.echo(f"wrote {figure}", err=True)
    if as_json:
        _print_json(setting, contenders)
        return
    # "x least" compares the scales, so refused contenders have no place in it.
    least = min(one.noise_scale for one in contenders if one.noise_scale is not None)
    print_table(
        ["mechanism, rule", "noise scale", "x least", "Frobenius", "true epsilon"],
        [_shown(one, least) for one in contenders],
        title=_title(setting),
    )
    typer.echo(_why(setting))
    for one in contenders:
        if one.refusal is not None:
            typer.echo(f"{one.name} is refused: {one.refusal}")


def _shown(one: Contender, least: float) -> list[str]:
    # All three are None together; naming each one lets the type checker know.
    if one.noise_scale is None or one.frobenius_error is None or one.true_epsilon is None:
        return [one.name, "refused", "", "", ""]
    return [
        one.name,
        shown_up(one.noise_scale, 5),
        shown_up(one.noise_scale / least, 4),
        shown_up(one.frobenius_error, 5),
        shown_up(one.true_epsilon, 4),
    ]


# Parameters are shown as they were entered, results rounded up.
def _title(setting: Comparison) -> str:
    sampled = setting.sampling_rate < 1.0
    return (
        f"{setting.steps} x a {setting.rows} by {setting.columns} matrix, "
        f"sensitivity {shown_exactly(setting.sensitivity)}"
        + (f", sampling rate {shown_exactly(setting.sampling_rate)}, add-remove" if sampled else "")
        + f"\nepsilon {shown_exactly(setting.epsilon)} at delta "
        f"{shown_exactly(setting.delta)} in all"
    )


def _why(setting: Comparison) -> str:
    if setting.sampling_rate < 1.0:
        return (
            "All of it is i.i.d. Gaussian noise; the accounts differ. PLD is tight;\n"
            "unsampled: sampling is not credited; amplified: amplification, then Theorem 3.4."
        )
    if setting.steps == 1:
        return (
            "For one release the analytic Gaussian and IMGM are the same noise: both are exact.\n"
            "They differ under composition (--steps), where IMGM adds up mu squared."
        )
    return (
        "The analytic Gaussian and IMGM are the same noise in each step; they differ in the rule.\n"
        "Adding up mu squared is exact; Theorem 3.4 uses only each step's claim."
    )


def _print_json(setting: Comparison, contenders: list[Contender]) -> None:
    print_json(
        {
            "rows": setting.rows,
            "columns": setting.columns,
            "epsilon": setting.epsilon,
            "delta": setting.delta,
            "sensitivity": setting.sensitivity,
            "gamma": setting.norm_bound,
            "steps": setting.steps,
            "sampling_rate": setting.sampling_rate,
            "contenders": [
                {
                    "mechanism": one.mechanism,
                    "rule": one.rule,
                    "noise_scale": one.noise_scale,
                    "frobenius_error": one.frobenius_error,
                    "true_epsilon": one.true_epsilon,
                    "refusal": one.refusal,
                }
                for one in contenders
            ],
        }
    )
