"""``matrixdp workload``: the best way to answer linear queries, its error, and the answers."""

import io
import math
import warnings
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    Force,
    MuOption,
    OptionalEpsilonOption,
    budget_from,
)
from matrixdp.cli.output import print_json, print_table
from matrixdp.cli.overwriting import check_inputs_survive
from matrixdp.cli.workload_text import WORKLOAD_HELP, read_workload, workload_files
from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.array_archive import check_archive_target
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.matrices import FORMATS, read_matrix, write_matrix
from matrixdp.files.statement import statement_path
from matrixdp.files.strategies import load_strategy, save_strategy, stated_gap
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.rounding import shown_down, shown_up
from matrixdp.workloads import optimal_strategy, svd_bound
from matrixdp.workloads.accuracy import check_answers, squared_error
from matrixdp.workloads.comparison import compared_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

__all__ = ["app"]

# Not .npz, which is what releases are saved in.
_EXPORTS = (".csv", ".npy")

app = typer.Typer(
    help="Linear queries on a histogram: optimise, evaluate, answer, export.", no_args_is_help=True
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
        check_archive_target(output, force=force)
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
        check_answers(queries, saved)
        total = squared_error(queries, saved) / queries.rows
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
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The .npz file for the noisy measurements.")
    ],
    workload: _Workload,
    delta: DeltaOption,
    neighbouring: _Neighbouring,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    strategy: _Saved = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure with exact noise, and state beside it (OUT.json) what is guaranteed.

    The answers follow from OUT: see workload export.
    """
    relation = checked_neighbouring(neighbouring)
    budget = budget_from(epsilon, delta, mu)
    queries = read_workload(workload)
    queries.check_answerable()
    _check_format(source, FORMATS)
    check_archive_target(target, force=force)
    saved = [] if strategy is None else [strategy]
    _check_distinct(target, [source, *saved, *workload_files(workload)])
    counts = _read_counts(source)
    queries.checked_cells(counts)
    if strategy is None:
        with _progress() as progress:
            chosen = optimal_strategy(queries, neighbouring=relation, progress=progress).strategy
    else:
        chosen = load_strategy(strategy).strategy
    mechanism = MatrixMechanism(queries, budget, neighbouring=relation, strategy=chosen)
    expected = mechanism.expected_error  # if it cannot be computed, nothing is drawn
    mechanism.release(counts).save(target, force=force)
    beside = statement_path(target)
    if as_json:
        print_json(
            {
                "output": str(target),
                "statement": str(beside),
                "queries": queries.rows,
                "expected_rmse": expected,
                **asdict(mechanism.guarantee),
            }
        )
        return
    typer.echo(f"{mechanism.guarantee}", err=True)
    typer.echo(
        f"r.m.s. error per query {shown_up(expected)}; wrote {target} and {beside}; "
        f"write the answers with: matrixdp workload export {target} answers.csv",
        err=True,
    )


@app.command()
def export(
    source: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="What workload answer wrote: a .npz file.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="ANSWERS", help="The .csv or .npy file for the answers.")
    ],
    nonnegative: Annotated[
        bool, typer.Option("--non-negative", help="Answers of a histogram without negative counts.")
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Answers of a histogram of whole counts.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prove a saved release again, and write its answers, one in a row, as plain numbers.

    This spends no budget and can be repeated. The guarantee is stated beside RELEASE alone.
    """
    _check_format(target, _EXPORTS)
    check_target(target, force=force)
    _check_distinct(target, [source])
    release = WorkloadRelease.load(source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = _processed_answers(release, nonnegative=nonnegative, whole=whole)
    content = io.BytesIO()
    write_matrix(content, MatrixFile(answers.reshape(-1, 1)), target.suffix)
    write_all([(target, content.getvalue())], force=force)
    for warning in caught:
        typer.echo(f"matrixdp: {warning.message}", err=True)
    if as_json:
        print_json(
            {
                "output": str(target),
                "release": str(source),
                "queries": release.workload.rows,
                "non_negative": nonnegative,
                "whole": whole,
                **asdict(release.guarantee),
            }
        )
        return
    typer.echo(
        f"wrote {target}: plain numbers without a certificate; keep {source} and "
        f"{statement_path(source)}, which prove the guarantee: {release.guarantee}",
        err=True,
    )


def _processed_answers(
    release: WorkloadRelease, *, nonnegative: bool, whole: bool
) -> "NDArray[Any]":
    """Return the answers of the estimate, or of one that looks more like a histogram."""
    from matrixdp.postprocess.counts import nonnegative_estimate, whole_counts  # noqa: PLC0415

    if not nonnegative and not whole:
        return release.answers
    estimate = nonnegative_estimate(release) if nonnegative else release.estimate
    return release.workload.apply(whole_counts(estimate) if whole else estimate)


@contextmanager
def _progress() -> "Iterator[Callable[[int, float], None]]":
    """Show the gap as it closes, on a terminal."""
    console = Console(stderr=True)
    with console.status("optimising") as status:

        def show(steps: int, gap: float) -> None:
            status.update(f"optimising: relative gap {gap:.1e} after {steps} steps")

        yield show


def _check_distinct(target: Path, inputs: list[Path]) -> None:
    """Raise if a file to be written is one that is read, even if forced; or if one is a folder."""
    for path in inputs:
        if path.is_dir():
            raise InvalidParameterError(f"{path} is a folder: name a file in it")
    read = [file for path in inputs for file in (path, statement_path(path))]
    check_inputs_survive([target, statement_path(target)], read)


def _read_counts(source: Path) -> "NDArray[Any]":
    try:
        with source.open("rb") as file:
            # A count that float64 would round is not the count of the file: the noise covers what
            # one record changes in whole numbers, and nothing else.
            counts = read_matrix(file, source.suffix, str(source), decimals="exact").array
    except FileNotFoundError:
        raise FileFormatError(f"{source} does not exist: name a file with counts") from None
    return counts.ravel() if 1 in counts.shape else counts


def _check_format(path: Path, formats: tuple[str, ...]) -> None:
    if path.suffix not in formats:
        raise InvalidParameterError(f"{path} has an unknown format: use {', '.join(formats)}")
