"""``matrixdp workload evaluate``: the errors of strategies, before anything is spent."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from matrixdp.cli.interrupts import interrupted_at_once
from matrixdp.cli.options import AsJson, DelimiterOption, MuOption, budget_from, number_option
from matrixdp.cli.output import print_json, print_table
from matrixdp.cli.workload_options import (
    NeighbouringOption,
    SavedStrategyOption,
    WorkloadOption,
    check_delimiter,
    search_status,
)
from matrixdp.cli.workload_text import read_workload, workload_files
from matrixdp.errors import InvalidParameterError
from matrixdp.files.strategies import load_strategy
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

__all__ = ["evaluate"]


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
    epsilon: Annotated[
        float | None, number_option("--epsilon", "With --delta: show errors in counts.")
    ] = None,
    delta: Annotated[
        float | None, number_option("--delta", "Of the budget that the errors are for.")
    ] = None,
    mu: MuOption = None,
    delimiter: DelimiterOption = None,
    as_json: AsJson = False,
) -> None:
    """Compare the errors of strategies on a workload, before anything is spent.

    With a budget they are standard errors in counts, for all queries together (r.m.s.) and for the
    best and the worst query of the optimum and of a saved strategy.
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
        record: dict[str, object] = {
            "workload": repr(queries),
            "neighbouring": relation,
            "rmse": rmse,
        }
        if budget is not None and counts is not None:
            record |= {
                "mu": budget.mu,
                "in_counts": {name: error.numbers for name, error in counts.items()},
            }
        print_json(record)
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
