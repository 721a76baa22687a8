"""``matrixdp workload optimise`` and ``evaluate``: strategies, and their errors."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from matrixdp.cli.commands.workload.options import (
    SavedStrategyOption,
    WorkloadOption,
    check_delimiter,
    check_distinct,
    read_workload,
    search_status,
    workload_files,
)
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.options import (
    AsJson,
    DelimiterOption,
    Force,
    MuOption,
    NeighbouringOption,
    OptionalDeltaOption,
    OptionalEpsilonOption,
    budget_from,
)
from matrixdp.cli.shared.output import print_json, print_table
from matrixdp.errors import InvalidParameterError
from matrixdp.files.publishing.statement import check_archive_target
from matrixdp.files.publishing.strategies import load_strategy, save_strategy, stated_gap
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import shown_down, shown_exactly, shown_up
from matrixdp.workloads import (
    OptimalStrategy,
    Strategy,
    Workload,
    optimal_strategy,
    svd_bound,
)
from matrixdp.workloads.comparison import compared_errors

__all__ = ["evaluate", "optimise"]


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


@dataclass(frozen=True)
class _Errors:
    """The error of a strategy: of all queries, and of the best and the worst where they are known.

    At mu = 1, or for a budget: then in counts of records.
    """

    rms: float
    best: float | None = None
    worst: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """Return what is known, by name."""
        found = {"rms": self.rms, "best": self.best, "worst": self.worst}
        return {name: value for name, value in found.items() if value is not None}


def evaluate(
    workload: WorkloadOption,
    neighbouring: NeighbouringOption,
    strategy: SavedStrategyOption = None,
    epsilon: OptionalEpsilonOption = None,
    delta: OptionalDeltaOption = None,
    mu: MuOption = None,
    delimiter: DelimiterOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare the errors of strategies on a workload, before anything is spent.

    With a budget (--delta with --epsilon or --mu) they are standard errors in counts, for all
    queries together (r.m.s.) and for the best and the worst query of the optimum and of a saved
    strategy.
    """
    relation = checked_neighbouring(neighbouring)
    budget = _budget(epsilon, delta, mu)
    check_delimiter(delimiter, workload_files(workload))
    queries = read_workload(workload, delimiter)
    if budget is not None:
        queries.check_answerable()
    with interrupted_at_once():
        # The search comes last: workloads that cannot be compared are refused before it.
        errors = {
            name: _Errors(error) for name, error in compared_errors(queries, relation).items()
        }
        saved = {} if strategy is None else {strategy.name: _saved(strategy, queries)}
        with search_status() as progress:
            best = optimal_strategy(queries, neighbouring=relation, progress=progress)
        for name, chosen in saved.items():
            errors[name] = _Errors(_unit_error(queries, chosen, relation))
        errors["optimal"] = _Errors(best.rmse)
        bounds = _bounds(best)
        if not all(math.isfinite(error.rms) for error in errors.values()):
            raise InvalidParameterError(
                f"workload {workload!r} has errors beyond the largest float: scale its entries "
                "down, or leave out attributes"
            )
        counts = (
            None
            if budget is None
            else _in_counts(queries, relation, budget, errors, saved | {"optimal": best.strategy})
        )
    title = f"{queries!r}: {queries.rows} queries on {queries.cells} cells, {relation}"
    if as_json:
        rmse = {name: error.rms for name, error in errors.items()} | bounds
        fields: dict[str, object] = {
            "workload": repr(queries),
            "neighbouring": relation,
            "rmse": rmse,
        }
        if budget is not None and counts is not None:
            fields |= {
                "mu": budget.mu,
                "in_counts": {name: error.numbers for name, error in counts.items()},
            }
        print_json(fields)
    elif budget is not None and counts is not None:
        title += f"\nat {shown_exactly(budget.epsilon)}, {shown_exactly(budget.delta)}"
        scaled = {name: bound / budget.mu for name, bound in bounds.items()}
        _print_errors(counts, scaled, "r.m.s. error in counts", title)
    else:
        _print_errors(errors, bounds, "r.m.s. error per query at mu = 1", title)


def _budget(epsilon: float | None, delta: float | None, mu: float | None) -> Budget | None:
    if delta is None:
        if epsilon is not None or mu is not None:
            raise InvalidParameterError("pass --delta with --epsilon or --mu, or none of them")
        return None
    return budget_from(epsilon, delta, mu)


def _saved(path: Path, queries: Workload) -> Strategy:
    """Return a saved strategy, if it answers the queries."""
    strategy = load_strategy(path).strategy
    strategy.check_supports(queries)
    return strategy


def _bounds(best: OptimalStrategy) -> dict[str, float]:
    """Return bounds of every strategy's error, by name."""
    rows = best.workload.rows
    bounds = {"lower bound": math.sqrt(best.certificate.lower_bound / rows)}
    # The SVD bound holds for adding and removing records only.
    if best.neighbouring == "add-remove":
        bounds["SVD bound"] = math.sqrt(svd_bound(best.workload) / rows)
    return bounds


def _unit_error(queries: Workload, strategy: Strategy, relation: Neighbouring) -> float:
    total = strategy.squared_error(queries) / queries.rows
    return strategy.sensitivity(relation) * math.sqrt(total)


def _in_counts(
    queries: Workload,
    relation: Neighbouring,
    budget: Budget,
    errors: dict[str, _Errors],
    own: dict[str, Strategy],
) -> dict[str, _Errors]:
    """Return the errors for a budget; those of own strategies are what `answer` would have."""
    found = {name: _Errors(error.rms / budget.mu) for name, error in errors.items()}
    for name, chosen in own.items():
        mechanism = MatrixMechanism(queries, budget, neighbouring=relation, strategy=chosen)
        each = mechanism.standard_errors()
        found[name] = _Errors(mechanism.expected_error, float(each.min()), float(each.max()))
    return found


def _print_errors(
    errors: dict[str, _Errors], bounds: dict[str, float], heading: str, title: str
) -> None:
    """Print the largest error first. Errors are rounded up and bounds down, so that both hold."""
    # Bounds are not strategies: nothing may have such an error.
    least = min(error.rms for error in errors.values())
    detailed = any(error.best is not None for error in errors.values())
    rows = [
        (error.rms, [name, shown_up(error.rms, 7), f"{error.rms / least:.3f}", *_extremes(error)])
        for name, error in errors.items()
    ] + [
        (bound, [name, shown_down(bound, 7), f"{bound / least:.3f}", "", ""])
        for name, bound in bounds.items()
    ]
    headings = ["strategy", heading, "over the least", "best query", "worst query"]
    width = len(headings) if detailed else 3
    print_table(
        headings[:width],
        [cells[:width] for _, cells in sorted(rows, key=lambda row: -row[0])],
        title=title,
    )


def _extremes(error: _Errors) -> list[str]:
    return ["" if value is None else shown_up(value) for value in (error.best, error.worst)]
