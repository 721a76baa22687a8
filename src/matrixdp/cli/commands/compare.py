"""``matrixdp compare``: every mechanism and composition rule for one promise, side by side."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

import typer

from matrixdp.audit.comparison import Comparison, Contender
from matrixdp.audit.comparison import compare as compare_all
from matrixdp.cli.shared.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    Figure,
    Force,
    NormBoundOption,
    SensitivityOption,
    ShapeOption,
    StepsOption,
)
from matrixdp.cli.shared.output import check_file, draw_bars, file_format, print_json, print_table
from matrixdp.files.publishing.atomic import write_all
from matrixdp.rounding import shown_down, shown_exactly, shown_up

__all__ = ["compare"]


def compare(
    shape: ShapeOption,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    norm_bound: NormBoundOption = None,
    steps: StepsOption = 1,
    figure: Figure = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Show the noise that each mechanism and rule needs, and what it really guarantees."""
    # Before the comparison, which may take a while.
    check_file(figure, ".png", ".svg", force=force)
    setting = Comparison(
        rows=shape.rows,
        columns=shape.columns,
        epsilon=epsilon,
        delta=delta,
        sensitivity=sensitivity,
        norm_bound=norm_bound,
        steps=steps,
    )
    contenders = compare_all(setting)
    if figure is not None:
        drawn = draw_bars(_told_apart(contenders), _title(setting), file_format(figure))
        write_all([(figure, drawn)], force=force)
        typer.echo(f"wrote {figure}", err=True)
    if as_json:
        _print_json(setting, contenders)
        return
    # "x least" compares the scales, so refused contenders are not in it.
    least = min(one.noise_scale for one in contenders if one.noise_scale is not None)
    print_table(
        ["mechanism, rule", "noise scale", "x least", "Frobenius", "true epsilon"],
        [_shown(one, least) for one in _told_apart(contenders)],
        title=_title(setting),
    )
    typer.echo(_why(setting))
    for one in contenders:
        if one.refusal is not None:
            typer.echo(f"{one.name} is refused: {one.refusal}")


def _told_apart(contenders: Iterable[Contender]) -> list[Contender]:
    """Return contenders with one in place of neighbours that differ in nothing but the name."""
    groups = groupby(contenders, key=lambda one: replace(one, mechanism=""))
    return [
        replace(alike, mechanism=" = ".join(one.mechanism for one in members))
        for alike, members in groups
    ]


def _shown(one: Contender, least: float) -> list[str]:
    # One release has no rule to add up by, and the title says that it is one.
    name = one.name.removesuffix(", one release")
    # All three are None together; naming each one lets the type checker know.
    if one.noise_scale is None or one.frobenius_error is None or one.true_epsilon is None:
        return [name, "refused", "", "", ""]
    return [
        name,
        shown_up(one.noise_scale, 5),
        shown_up(one.noise_scale / least, 4),
        shown_up(one.frobenius_error, 5),
        shown_up(one.true_epsilon, 4),
    ]


# Parameters are shown as they were entered, results rounded up.
def _title(setting: Comparison) -> str:
    return (
        f"{setting.steps} x a {setting.rows} by {setting.columns} matrix, "
        f"sensitivity {shown_down(setting.sensitivity, 15)}"
        f"\nepsilon {shown_exactly(setting.epsilon)} at delta "
        f"{shown_exactly(setting.delta)} in all"
    )


def _why(setting: Comparison) -> str:
    if setting.steps == 1:
        return (
            "For one release IMGM and the analytic Gaussian are the same noise.\n"
            "For several (--steps) it matters how their costs are added up."
        )
    return (
        "In each step IMGM and the analytic Gaussian are the same noise.\n"
        "Adding up mu squared is exact; Theorem 3.4 uses only each step's claim."
    )


def _print_json(setting: Comparison, contenders: list[Contender]) -> None:
    print_json(
        {
            "shape": [setting.rows, setting.columns],
            "epsilon": setting.epsilon,
            "delta": setting.delta,
            "sensitivity": setting.sensitivity,
            "norm_bound": setting.norm_bound,
            "steps": setting.steps,
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
