"""Measurements for the answers of a workload: their mechanism, their preview and their report."""

import math
from dataclasses import asdict
from pathlib import Path

import typer

from matrixdp.cli.commands.workload.options import search_status
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.output import print_json
from matrixdp.cli.shared.paying import Paying
from matrixdp.cli.shared.streams import reporting_release
from matrixdp.files.publishing.statement import statement_path
from matrixdp.files.publishing.strategies import load_strategy
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.rounding import shown_up
from matrixdp.workloads import CellNames, Workload, optimal_strategy

__all__ = ["computed_mechanism", "report_measurements", "show_preview"]


def computed_mechanism(
    queries: Workload,
    budget: Budget,
    relation: Neighbouring,
    strategy: Path | None = None,
    attributes: tuple[CellNames, ...] | None = None,
) -> MatrixMechanism:
    """Return the mechanism of a saved strategy, or of the best one, and compute its error.

    If the error cannot be computed, nothing is drawn.
    """
    if strategy is None:
        with search_status() as progress:
            chosen = optimal_strategy(queries, neighbouring=relation, progress=progress).strategy
    else:
        chosen = load_strategy(strategy).strategy
    with interrupted_at_once():
        mechanism = MatrixMechanism(
            queries, budget, neighbouring=relation, strategy=chosen, attributes=attributes
        )
        _ = mechanism.expected_error
    return mechanism


def show_preview(mechanism: MatrixMechanism, *, as_json: bool) -> None:
    """Show what would be measured, and the error of the answers; IN is not read."""
    queries, expected = mechanism.workload, mechanism.expected_error
    least = math.ceil(expected)
    if as_json:
        print_json(
            {
                "workload": repr(queries),
                "queries": queries.rows,
                "noise_scale": mechanism.covariance.scale,
                "expected_rmse": expected,
                "least_records": least,
                **asdict(mechanism.guarantee),
            }
        )
        return
    typer.echo(
        f"{mechanism.guarantee}\n{queries!r}: {queries.rows} queries on {queries.cells} cells\n"
        f"noise scale of each measurement: {shown_up(mechanism.covariance.scale, 3)}\n"
        f"r.m.s. error per query {shown_up(expected)}\n"
        f"with fewer than {least} records the noise is larger than the range of a count"
    )


def report_measurements(
    mechanism: MatrixMechanism, target: Path, paying: Paying, *, as_json: bool
) -> None:
    """Say what was measured, and how the answers are written."""
    beside, expected = statement_path(target), mechanism.expected_error
    with reporting_release(beside, paying.again):
        if as_json:
            print_json(
                {
                    "output": str(target),
                    "statement": str(beside),
                    "queries": mechanism.workload.rows,
                    "expected_rmse": expected,
                    **asdict(mechanism.guarantee),
                    **paying.fields(),
                }
            )
            return
        typer.echo(f"{mechanism.guarantee}", err=True)
        typer.echo(
            f"r.m.s. error per query {shown_up(expected)}; wrote {target} and {beside}; write the "
            f"answers with: matrixdp workload export {target} answers.csv",
            err=True,
        )
        for line in paying.lines():
            typer.echo(line, err=True)
