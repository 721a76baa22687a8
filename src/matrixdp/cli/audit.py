"""``matrixdp audit``: what noise really guarantees, by the exact curve and from samples."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from matrixdp.audit.claim import audit_claim
from matrixdp.audit.curves import CURVES
from matrixdp.audit.empirical import (
    EmpiricalAudit,
    audit_mechanism,
    exposed_difference,
    released,
    simulated,
)
from matrixdp.cli.figures import draw_curve
from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    Force,
    SensitivityOption,
    number_option,
    whole_number_option,
)
from matrixdp.cli.output import check_file, print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.analytic import AnalyticGaussian
from matrixdp.mechanisms.classic import ClassicGaussian
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.matrix_files import write_all
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.mvg import MVG
from matrixdp.noise import simulation_generator
from matrixdp.parameters import positive_integer
from matrixdp.privacy.budget import Budget
from matrixdp.rounding import shown_down, shown_up
from matrixdp.sensitivity.sets import FrobeniusBall

__all__ = ["app", "claim", "curves", "run"]

_REFUTED = 1

app = typer.Typer(help="Audit claims and mechanisms.")


@app.callback(invoke_without_command=True)
def _group(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("claim")
def claim(
    noise_scale: Annotated[
        float, number_option("--noise-scale", "Standard deviation of the noise on every entry.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    releases: Annotated[int, whole_number_option("--releases", "Number of releases.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Answer what Gaussian noise really guarantees, beside what was claimed of it."""
    found = audit_claim(noise_scale, sensitivity, epsilon=epsilon, delta=delta, releases=releases)
    if as_json:
        print_json(
            {
                "noise_scale": noise_scale,
                "sensitivity": sensitivity,
                "releases": releases,
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
            ["epsilon at that delta", shown_up(found.epsilon), shown_up(found.true_epsilon)],
            ["delta at that epsilon", shown_up(found.delta), shown_up(found.true_delta)],
            [
                "noise scale, used and needed",
                shown_down(noise_scale),
                shown_up(found.needed_noise_scale),
            ],
        ],
        title=f"mu = {shown_up(found.mu)}: the claim " + ("holds" if found.holds else "is FALSE"),
    )


@app.command("curves")
def curves(
    tables: Annotated[Path, typer.Option("--tables", help="Folder for the numbers, as CSV.")],
    figures: Annotated[Path, typer.Option("--figures", help="Folder for the figures, as SVG.")],
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Compute the comparison over dimension, epsilon and steps: tables, and figures of them."""
    targets = {
        name: (tables / f"comparison_{name}.csv", figures / f"comparison_{name}.svg")
        for name in CURVES
    }
    for table, figure in targets.values():
        check_file(table, ".csv", force=force)
        check_file(figure, ".svg", force=force)
    contents = []
    for name, (table, figure) in targets.items():
        curve = CURVES[name]()
        contents += [(table, curve.to_csv().encode()), (figure, draw_curve(curve, "svg"))]
    write_all(contents, force=force)
    for written, _ in contents:
        typer.echo(f"wrote {written}", err=True)
    if as_json:
        print_json(
            {
                name: {"table": str(table), "figure": str(figure)}
                for name, (table, figure) in targets.items()
            }
        )


@app.command("run")
def run(
    mechanism: Annotated[str, typer.Option("--mechanism", help="imgm, analytic, classic or mvg.")],
    rows: Annotated[int, whole_number_option("--rows", "Rows of the matrix.")],
    columns: Annotated[int, whole_number_option("--columns", "Columns of the matrix.")],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    gamma: Annotated[
        float | None,
        number_option(
            "--gamma", "Largest Frobenius norm of a matrix, for MVG; default: sensitivity."
        ),
    ] = None,
    samples: Annotated[int, whole_number_option("--samples", "Outputs of each input.")] = 50_000,
    confidence: Annotated[
        float, number_option("--confidence", "With which a mechanism that is right passes.")
    ] = 0.999,
    seed: Annotated[int, whole_number_option("--seed", "Of the simulated noise.")] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Audit exact releases with fresh keys; slower.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Try to refute a mechanism of this library from samples on two neighbouring inputs.

    Exit code 1 if it is refuted, which would be a defect.
    """
    shape = (positive_integer(rows, "rows"), positive_integer(columns, "columns"))
    made = _mechanism(mechanism, sensitivity, Budget(epsilon, delta), shape, gamma)
    matrix = np.zeros(shape)
    found = audit_mechanism(
        made,
        matrix,
        exposed_difference(made, shape),
        released(made) if exact else simulated(made, simulation_generator(seed)),
        samples=samples,
        confidence=confidence,
    )
    _report(found, type(made).__name__, as_json=as_json)
    if found.refuted:
        typer.echo(f"matrixdp: {type(made).__name__} does not keep its claim", err=True)
        raise typer.Exit(_REFUTED)


def _mechanism(
    name: str, sensitivity: float, budget: Budget, shape: tuple[int, int], gamma: float | None
) -> Mechanism:
    # The relation is part of a statement and multiplies nothing here.
    ball = FrobeniusBall(sensitivity, neighbouring="replace")
    match name:
        case "imgm":
            return IMGM(ball, budget)
        case "analytic":
            return AnalyticGaussian(ball, budget)
        case "classic":
            return ClassicGaussian(ball, budget)
        case "mvg":
            return MVG(
                ball, budget, shape=shape, norm_bound=sensitivity if gamma is None else gamma
            )
    raise InvalidParameterError(
        f"mechanism={name!r} is not known: use imgm, analytic, classic or mvg"
    )


def _report(found: EmpiricalAudit, name: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "mechanism": name,
                "samples": found.samples,
                "confidence": found.confidence,
                "refuted": found.refuted,
                "claimed": {
                    "epsilon": found.guarantee.epsilon,
                    "delta": found.guarantee.delta,
                    "mu": found.guarantee.mu,
                },
                "at_least": {
                    "epsilon": found.epsilon,
                    "gaussian_epsilon": found.gaussian_epsilon,
                    "mu": found.mu,
                },
            }
        )
        return
    print_table(
        ["", "claimed", "at least"],
        [
            ["epsilon", shown_up(found.guarantee.epsilon), shown_down(found.epsilon)],
            ["epsilon, if Gaussian", "", shown_down(found.gaussian_epsilon)],
            ["mu", shown_up(found.guarantee.mu), shown_down(found.mu)],
        ],
        title=f"{name}: {'REFUTED' if found.refuted else 'not refuted'}\n{found.samples} samples "
        f"of each input\nconfidence {found.confidence:g}",
    )
