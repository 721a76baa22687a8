"""``matrixdp demo``: the main job in seconds; for now, how its noise is calibrated."""

from pathlib import Path
from typing import IO, Annotated

import numpy as np
import typer

from matrixdp.cli.options import AsJson
from matrixdp.cli.output import print_json, print_table, write_file
from matrixdp.privacy.bound import privacy_bound
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.planner import Plan, plan_for_budget
from matrixdp.rounding import shown_up

__all__ = ["demo"]

_DELTA = 1e-5
_EPSILONS = (0.1, 0.5, 1.0, 2.0, 5.0)
_RELEASES = 100


def demo(
    folder: Annotated[
        Path, typer.Option("--folder", help="Where the figure goes; made if absent.")
    ] = Path("demo-output"),
    as_json: AsJson = False,
) -> None:
    """Calibrate the noise for one and for a hundred releases of a matrix, and draw a figure."""
    folder.mkdir(parents=True, exist_ok=True)
    figure = folder / "calibration.png"
    rows = [_row(epsilon) for epsilon in _EPSILONS]
    write_file(figure, _draw)
    if as_json:
        print_json({"delta": _DELTA, "releases": _RELEASES, "rows": rows, "figure": str(figure)})
        return
    print_table(
        ["epsilon", "one release", f"each of {_RELEASES}", "dividing evenly", "wasted"],
        [
            [
                f"{row['epsilon']:g}",
                shown_up(row["noise_scale_once"], 4),
                shown_up(row["noise_scale_each"], 4),
                shown_up(row["noise_scale_even_split"], 4),
                f"{row['noise_scale_even_split'] / row['noise_scale_each']:.2f} x",
            ]
            for row in rows
        ],
        title=f"Noise scale per unit of sensitivity at delta = {_DELTA:g}",
    )
    typer.echo(
        "A matrix whose Frobenius norm one record changes by at most 1, released with noise of\n"
        "the scale shown on every entry, is (epsilon, delta)-differentially private: exactly, and\n"
        "with the least Gaussian noise that is. For many releases the budget is split by mu\n"
        "squared; dividing epsilon and delta by their number instead wastes the factor in the\n"
        f"last column. The figure is in {figure}."
    )


def _row(epsilon: float) -> dict[str, float]:
    even_split = privacy_bound(epsilon / _RELEASES, _DELTA / _RELEASES)
    return {
        "epsilon": epsilon,
        "noise_scale_once": _plan(epsilon, 1).noise_scale,
        "noise_scale_each": _plan(epsilon, _RELEASES).noise_scale,
        "noise_scale_even_split": 1.0 / even_split,
    }


def _plan(epsilon: float, releases: int) -> Plan:
    return plan_for_budget(
        Budget(epsilon, _DELTA), rows=1, columns=1, sensitivity=1.0, releases=releases
    )


def _draw(file: IO[bytes]) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415

    canvas = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = canvas.subplots()
    epsilons = np.geomspace(0.01, 10.0, 200)
    for delta in (1e-3, 1e-5, 1e-7, 1e-9):
        axes.loglog(epsilons, 1.0 / np.asarray(privacy_bound(epsilons, delta)), label=f"{delta:g}")
    axes.set_xlabel("epsilon")
    axes.set_ylabel("noise scale per unit of sensitivity")
    axes.set_title("The least Gaussian noise for one release")
    axes.legend(title="delta")
    axes.grid(visible=True, which="both", alpha=0.2)
    canvas.savefig(file, format="png", dpi=150)
