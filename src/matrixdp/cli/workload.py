"""``matrixdp workload``: the best way to answer linear queries, its error, and the answers."""

import math
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from matrixdp.cli.options import AsJson, DeltaOption, EpsilonOption, Force
from matrixdp.cli.output import print_json, print_table
from matrixdp.cli.paid_answers import answer_into
from matrixdp.cli.workload_text import WORKLOAD_HELP, read_workload, workload_files
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.atomic import check_target
from matrixdp.files.matrices import FORMATS, read_matrix
from matrixdp.files.statement import statement_path
from matrixdp.files.strategies import (
    check_strategy_target,
    load_strategy,
    save_strategy,
    stated_gap,
)
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.rounding import shown_down, shown_up
from matrixdp.workloads import optimal_strategy, svd_bound
from matrixdp.workloads.comparison import compared_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from matrixdp.workloads.solve.interior_point import Progress

__all__ = ["app"]

app = typer.Typer(
    help="Linear queries on a histogram: optimise, evaluate, answer.", no_args_is_help=True
)

_Workload = Annotated[
    str,
    typer.Option("--workload", help=WORKLOAD_HELP),
]
_Neighbouring = Annotated[
    str, typer.Option("--neighbouring", help="What a record's change is: add-remove, replace.")
]
_Saved = Annotated[
    Path | None, typer.Option("--strategy", help="A strategy saved by workload optimise.")
]


@app.command()
def optimise(
    workload: _Workload,
    neighbouring: _Neighbouring,
    output: Annotated[
        Path | None, typer.Option("--output", help="Save the strategy in this .npz file.")
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Find the strategy with the least error, and prove how close to the best it is."""
    relation = checked_neighbouring(neighbouring)
    queries = read_workload(workload)
    if output is not None:
        check_strategy_target(output, force=force)
        _check_distinct(output, workload_files(workload))
    with _progress() as progress:
        found = optimal_strategy(queries, neighbouring=relation, progress=progress)
    if output is not None:
        save_strategy(found, output, force=force)
        typer.echo(f"wrote {output} and {output}.json", err=True)
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
    workload: _Workload,
    neighbouring: _Neighbouring,
    strategy: _Saved = None,
    as_json: AsJson = False,
) -> None:
    """Compare the errors of strategies on a workload, before anything is spent."""
    relation = checked_neighbouring(neighbouring)
    queries = read_workload(workload)
    errors = compared_errors(queries, relation)
    if strategy is None:
        with _progress() as progress:
            best = optimal_strategy(queries, neighbouring=relation, progress=progress)
        errors["optimal"] = best.rmse
        errors["lower bound"] = math.sqrt(best.certificate.lower_bound / queries.rows)
    else:
        saved = load_strategy(strategy).strategy
        saved.check_supports(queries)
        total = saved.squared_error(queries) / queries.rows
        errors[strategy.name] = saved.sensitivity(relation) * math.sqrt(total)
    if relation == "add-remove":
        errors["SVD bound"] = math.sqrt(svd_bound(queries) / queries.rows)
    if not all(map(math.isfinite, errors.values())):
        raise InvalidParameterError(
            f"workload {workload!r} has errors beyond the largest float: scale its entries down, "
            "or leave out attributes"
        )
    if as_json:
        print_json({"workload": repr(queries), "neighbouring": relation, "rmse": errors})
        return
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


@app.command()
def answer(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="Counts of records: .npy, .npz or .csv.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file for the answers.")],
    workload: _Workload,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    neighbouring: _Neighbouring,
    strategy: _Saved = None,
    nonnegative: Annotated[
        bool, typer.Option("--nonnegative", help="Answers of a histogram without negative counts.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Answers of a histogram of whole counts.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Answer the queries with exact noise, and state beside them (OUT.json) what is guaranteed."""
    relation = checked_neighbouring(neighbouring)
    budget = Budget(epsilon, delta)
    queries = read_workload(workload)
    queries.check_answerable()
    _check_format(target)
    _check_format(source)
    beside = statement_path(target)
    saved = [] if strategy is None else [strategy]
    _check_distinct(target, [source, *saved, *workload_files(workload)])
    for made in (target, beside):
        check_target(made, force=force)
    counts = _read_counts(source)
    queries.checked_cells(counts)
    if strategy is None:
        with _progress() as progress:
            chosen = optimal_strategy(queries, neighbouring=relation, progress=progress).strategy
    else:
        chosen = load_strategy(strategy).strategy
    mechanism = MatrixMechanism(queries, budget, neighbouring=relation, strategy=chosen)
    expected = mechanism.expected_error  # before anything is drawn
    wanted = _steps(nonnegative=nonnegative, whole=whole)
    done = answer_into(mechanism, counts, target, wanted, force=force)
    if as_json:
        print_json(
            {
                "output": str(target),
                "statement": str(beside),
                "queries": queries.rows,
                "expected_rmse": expected,  # without post-processing
                "post_processing": list(done),
                **asdict(mechanism.guarantee),
            }
        )
        return
    typer.echo(f"{mechanism.guarantee}", err=True)
    typer.echo(
        f"r.m.s. error per query {shown_up(expected)}{' before post-processing' if done else ''}; "
        f"wrote {target} and {beside}",
        err=True,
    )


@contextmanager
def _progress() -> "Iterator[Progress]":
    """Show the gap as it closes, on a terminal."""
    console = Console(stderr=True)
    with console.status("optimising") as status:

        def told(steps: int, gap: float) -> None:
            status.update(f"optimising: relative gap {gap:.1e} after {steps} steps")

        yield told


def _check_distinct(target: Path, inputs: list[Path]) -> None:
    """Refuse to write over what is read, even if forced; and to read a folder."""
    written = {path.resolve() for path in (target, statement_path(target))}
    for path in inputs:
        if path.is_dir():
            raise InvalidParameterError(f"{path} is a folder: name a file in it")
        if {path.resolve(), statement_path(path).resolve()} & written:
            raise InvalidParameterError(
                f"{target} would replace {path}, which is read: choose another name to write to"
            )


def _read_counts(source: Path) -> "NDArray[Any]":
    try:
        with source.open("rb") as file:
            counts = read_matrix(file, source.suffix, str(source)).array
    except FileNotFoundError:
        raise FileFormatError(f"{source} does not exist: name a file with counts") from None
    return counts.ravel() if 1 in counts.shape else counts


def _check_format(path: Path) -> None:
    if path.suffix not in FORMATS:
        raise InvalidParameterError(f"{path} is of no known format: use {', '.join(FORMATS)}")


def _steps(*, nonnegative: bool, whole: bool) -> tuple[str, ...]:
    chosen = {"non-negative": nonnegative, "whole": whole}
    return tuple(step for step, wanted in chosen.items() if wanted)
