"""``matrixdp audit``: what noise really guarantees, by the exact curve and from samples."""

from pathlib import Path
from typing import Annotated

import typer

from matrixdp.audit.claim import ClaimAudit, audit_claim
from matrixdp.audit.curves import CURVES
from matrixdp.cli.audit_run import run
from matrixdp.cli.exit_codes import FALSE_CLAIM
from matrixdp.cli.figures import draw_curve
from matrixdp.cli.groups import command_group
from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    EpsilonOption,
    Force,
    ReleasesOption,
    SensitivityOption,
    number_option,
)
from matrixdp.cli.output import check_file, print_json, print_table
from matrixdp.files.atomic import write_all
from matrixdp.rounding import shown_exactly, shown_up

__all__ = ["app", "claim", "curves"]

app = command_group("Audit claims and mechanisms.")


@app.command("claim")
def claim(
    noise_scale: Annotated[
        float, number_option("--noise-scale", "Standard deviation of the noise on every entry.")
    ],
    epsilon: EpsilonOption,
    delta: DeltaOption,
    sensitivity: SensitivityOption = 1.0,
    releases: ReleasesOption = 1,
    as_json: AsJson = False,
) -> None:
    """Show what Gaussian noise really guarantees, beside what was claimed of it.

    Exit code 5 if the claim is false.
    """
    found = audit_claim(noise_scale, sensitivity, epsilon=epsilon, delta=delta, releases=releases)
    _show_claim(found, noise_scale, sensitivity, releases, as_json=as_json)
    # After the numbers, which can be read whatever the exit code.
    if not found.holds:
        raise typer.Exit(FALSE_CLAIM)


def _show_claim(
    found: ClaimAudit, noise_scale: float, sensitivity: float, releases: int, *, as_json: bool
) -> None:
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
            # What was claimed is shown as entered; what is true is rounded to the private side.
            ["epsilon at that delta", shown_exactly(found.epsilon), shown_up(found.true_epsilon)],
            ["delta at that epsilon", shown_exactly(found.delta), shown_up(found.true_delta)],
            [
                "noise scale, used and needed",
                shown_exactly(noise_scale),
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
    # Computing the curves takes a while, so everything that can fail is checked before.
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


app.command("run")(run)
