"""``matrixdp workload``: the best way to answer linear queries, its error, and the answers."""

import math
from pathlib import Path
from typing import Annotated

import typer

from matrixdp.cli.groups import command_group
from matrixdp.cli.options import AsJson, DelimiterOption, Force
from matrixdp.cli.output import print_json, print_table
from matrixdp.cli.workload_answer import answer, export
from matrixdp.cli.workload_evaluate import evaluate
from matrixdp.cli.workload_options import (
    NeighbouringOption,
    WorkloadOption,
    check_delimiter,
    check_distinct,
    search_status,
)
from matrixdp.cli.workload_text import read_workload, workload_files
from matrixdp.files.array_archive import check_archive_target
from matrixdp.files.strategies import save_strategy, stated_gap
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.rounding import shown_down, shown_up
from matrixdp.workloads import optimal_strategy

__all__ = ["app"]

app = command_group("Linear queries on a histogram: optimise, evaluate, answer, export.")


@app.command()
def optimise(
    workload: WorkloadOption,
    neighbouring: NeighbouringOption,
    delimiter: DelimiterOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Save the strategy in this .npz file.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find the strategy with the least error, and prove how close to the best it is."""
    relation = checked_neighbouring(neighbouring)
    check_delimiter(delimiter, workload_files(workload))
    queries = read_workload(workload, delimiter)
    # The search may take minutes; a target that cannot be written is known at once.
    if output is not None:
        check_archive_target(output, force=force)
        check_distinct(output, workload_files(workload))
    with search_status() as progress:
        found = optimal_strategy(queries, neighbouring=relation, progress=progress)
    if output is not None:
        save_strategy(found, output, force=force)
        typer.echo(f"wrote {output} and {output}.json", err=True)
    # Errors are shown rounded up and bounds down, so that what is shown holds.
    bound = math.sqrt(found.certificate.lower_bound / queries.rows)
    if as_json:
        print_json(
            {
                "workload": repr(queries),
                "queries": queries.rows,
                "cells": queries.cells,
                "neighbouring": relation,
                "rmse": found.rmse,
                "rmse_lower_bound": bound,
                "gap": stated_gap(found.certificate),
                "strategy": None if output is None else str(output),
            }
        )
        return
    print_table(
        ["", "r.m.s. error per query at mu = 1"],
        [
            ["this strategy", shown_up(found.rmse, 8)],
            ["no strategy is below", shown_down(bound, 8)],
            ["relative gap of the squares", shown_up(found.certificate.gap, 2)],
        ],
        title=f"{queries!r}: {queries.rows} queries on {queries.cells} cells, {relation}",
    )


app.command()(evaluate)
app.command()(answer)
app.command()(export)
