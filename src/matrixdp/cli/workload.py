"""``matrixdp workload``: the best way to answer linear queries, its error, and the answers."""

import math
from pathlib import Path
from typing import Annotated

import typer

from matrixdp.cli.groups import command_group
from matrixdp.cli.interrupts import interrupted_at_once
from matrixdp.cli.options import AsJson, Force
from matrixdp.cli.output import print_json, print_table
from matrixdp.cli.workload_answer import answer, export
from matrixdp.cli.workload_options import (
    NeighbouringOption,
    SavedStrategyOption,
    WorkloadOption,
    check_distinct,
    search_status,
)
from matrixdp.cli.workload_text import read_workload, workload_files
from matrixdp.errors import InvalidParameterError
from matrixdp.files.array_archive import check_archive_target
from matrixdp.files.strategies import load_strategy, save_strategy, stated_gap
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import shown_down, shown_up
from matrixdp.workloads import Workload, optimal_strategy, svd_bound
from matrixdp.workloads.comparison import compared_errors

__all__ = ["app"]

app = command_group("Linear queries on a histogram: optimise, evaluate, answer, export.")


@app.command()
def optimise(
    workload: WorkloadOption,
    neighbouring: NeighbouringOption,
    output: Annotated[
        Path | None, typer.Option("--output", help="Save the strategy in this .npz file.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find the strategy with the least error, and prove how close to the best it is."""
    relation = checked_neighbouring(neighbouring)
    queries = read_workload(workload)
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


@app.command()
def evaluate(
    workload: WorkloadOption,
    neighbouring: NeighbouringOption,
    strategy: SavedStrategyOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare the errors of strategies on a workload, before anything is spent."""
    relation = checked_neighbouring(neighbouring)
    queries = read_workload(workload)
    with interrupted_at_once():
        # The search comes last: workloads that cannot be compared are refused before it.
        errors = compared_errors(queries, relation) | _own_errors(queries, relation, strategy)
    if not all(map(math.isfinite, errors.values())):
        raise InvalidParameterError(
            f"workload {workload!r} has errors beyond the largest float: scale its entries down, "
            "or leave out attributes"
        )
    if as_json:
        print_json({"workload": repr(queries), "neighbouring": relation, "rmse": errors})
        return
    # Bounds are not strategies: nothing may have such an error.
    least = min(error for name, error in errors.items() if not name.endswith("bound"))
    print_table(
        ["strategy", "r.m.s. error per query at mu = 1", "over the least"],
        [
            [name, shown_up(error, 7), f"{error / least:.3f}"]
            if not name.endswith("bound")
            else [name, shown_down(error, 7), f"{error / least:.3f}"]
            for name, error in sorted(errors.items(), key=lambda item: -item[1])
        ],
        title=f"{queries!r}: {queries.rows} queries on {queries.cells} cells, {relation}",
    )


def _own_errors(queries: Workload, relation: Neighbouring, saved: Path | None) -> dict[str, float]:
    """Return the errors of the optimum or of a saved strategy, and bounds, by their names."""
    errors = {}
    if saved is None:
        with search_status() as progress:
            best = optimal_strategy(queries, neighbouring=relation, progress=progress)
        errors["optimal"] = best.rmse
        errors["lower bound"] = math.sqrt(best.certificate.lower_bound / queries.rows)
    else:
        strategy = load_strategy(saved).strategy
        strategy.check_supports(queries)
        total = strategy.squared_error(queries) / queries.rows
        errors[saved.name] = strategy.sensitivity(relation) * math.sqrt(total)
    # The SVD bound holds for adding and removing records only.
    if relation == "add-remove":
        errors["SVD bound"] = math.sqrt(svd_bound(queries) / queries.rows)
    return errors


app.command()(answer)
app.command()(export)
