"""``matrixdp workload answer`` and ``export``: noisy measurements in a file, and their answers."""

import io
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from matrixdp.cli.interrupts import interrupted_at_once
from matrixdp.cli.options import (
    AsJson,
    DeltaOption,
    Force,
    MuOption,
    OptionalEpsilonOption,
    budget_from,
)
from matrixdp.cli.output import print_json
from matrixdp.cli.streams import SPENDS_AGAIN, read_source, reporting_release
from matrixdp.cli.workload_options import (
    NeighbouringOption,
    SavedStrategyOption,
    WorkloadOption,
    check_distinct,
    search_status,
)
from matrixdp.cli.workload_text import read_workload, workload_files
from matrixdp.errors import InvalidParameterError
from matrixdp.files.answer_tables import encode_answers
from matrixdp.files.array_archive import check_archive_target
from matrixdp.files.atomic import check_target, write_all
from matrixdp.files.formats import FORMATS, check_format, format_of
from matrixdp.files.matrices import write_matrix
from matrixdp.files.statement import statement_path
from matrixdp.files.strategies import load_strategy
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.parameters import LARGEST_EXACT_INTEGER, real_array
from matrixdp.privacy.guarantee import checked_neighbouring
from matrixdp.rounding import shown_up
from matrixdp.workloads import Workload, optimal_strategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["answer", "export"]

# Not .npz, the format that releases are saved in.
_EXPORTS = (".csv", ".tsv", ".npy")


def answer(
    source: Annotated[
        Path,
        typer.Argument(metavar="IN", help=f"Counts of records, or records: {', '.join(FORMATS)}."),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="The .npz file for the noisy measurements.")
    ],
    workload: WorkloadOption,
    delta: DeltaOption,
    neighbouring: NeighbouringOption,
    epsilon: OptionalEpsilonOption = None,
    mu: MuOption = None,
    strategy: SavedStrategyOption = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="IN holds a record in each row: the number of its cell, from 0, by attribute.",
        ),
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Measure with exact noise, and state beside it (OUT.json) what is guaranteed.

    The answers follow from OUT: see workload export.
    """
    # Everything that can be refused is refused before minutes of optimising, and that before a
    # draw.
    relation = checked_neighbouring(neighbouring)
    budget = budget_from(epsilon, delta, mu)
    queries = read_workload(workload)
    queries.check_answerable()
    check_format(source)
    check_archive_target(target, force=force)
    saved = [] if strategy is None else [strategy]
    check_distinct(target, [source, *saved, *workload_files(workload)])
    given = _read_records(source) if records else _read_counts(source, queries)
    if strategy is None:
        with search_status() as progress:
            chosen = optimal_strategy(queries, neighbouring=relation, progress=progress).strategy
    else:
        chosen = load_strategy(strategy).strategy
    with interrupted_at_once():
        mechanism = MatrixMechanism(queries, budget, neighbouring=relation, strategy=chosen)
        expected = mechanism.expected_error  # if it cannot be computed, nothing is drawn
    release = mechanism.release_records if records else mechanism.release
    release(given).save(target, force=force)
    with reporting_release(statement_path(target)):
        _report_release(mechanism, expected, target, as_json=as_json)


def _report_release(
    mechanism: MatrixMechanism, expected: float, target: Path, *, as_json: bool
) -> None:
    beside = statement_path(target)
    if as_json:
        print_json(
            {
                "output": str(target),
                "statement": str(beside),
                "queries": mechanism.workload.rows,
                "expected_rmse": expected,
                **asdict(mechanism.guarantee),
            }
        )
        return
    typer.echo(f"{mechanism.guarantee}", err=True)
    typer.echo(
        f"r.m.s. error per query {shown_up(expected)}; wrote {target} and {beside}; write the "
        f"answers with: matrixdp workload export {target} answers.csv",
        err=True,
    )
    typer.echo(SPENDS_AGAIN, err=True)


def export(
    source: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="What workload answer wrote: a .npz file.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="ANSWERS", help="The .csv, .tsv or .npy file for the answers.")
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

    A .csv or .tsv file names each query and states its standard error; answers that were made
    non-negative or whole have none. The order is that of the workload: parts follow each other, and
    the last attribute changes fastest. A .npy file holds the answers alone.

    This spends no budget and can be repeated. The guarantee is stated beside RELEASE alone.
    """
    check_format(target, _EXPORTS)
    check_target(target, force=force)
    check_distinct(target, [source])
    release = WorkloadRelease.load(source)
    # Warnings are shown as one line each, like everything else that the program says.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answers = _processed_answers(release, nonnegative=nonnegative, whole=whole)
    processed = nonnegative or whole
    if format_of(target) == ".npy":
        content = _plain(answers)
    else:
        errors = None if processed else release.standard_errors()
        content = encode_answers(release.workload, answers, errors, format_of(target))
    write_all([(target, content)], force=force)
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


def _plain(answers: "NDArray[Any]") -> bytes:
    content = io.BytesIO()
    write_matrix(content, MatrixFile(answers.reshape(-1, 1)), ".npy")
    return content.getvalue()


def _processed_answers(
    release: WorkloadRelease, *, nonnegative: bool, whole: bool
) -> "NDArray[Any]":
    """Return the answers of the estimate, or of one that looks more like a histogram."""
    from matrixdp.postprocess.counts import nonnegative_estimate, whole_counts  # noqa: PLC0415

    if not nonnegative and not whole:
        return release.answers
    # Non-negative first: rounding keeps numbers non-negative, but not the other way round.
    estimate = nonnegative_estimate(release) if nonnegative else release.estimate
    if estimate is None:
        raise InvalidParameterError(
            "--whole needs the histogram, which has more cells than fit in memory: leave it out"
        )
    return release.workload.apply(whole_counts(estimate) if whole else estimate)


def _read_counts(source: Path, queries: Workload) -> "NDArray[Any]":
    queries.check_histogram()
    # A count that float64 would round is not the count of the file: the noise covers what one
    # record changes in whole numbers, and nothing else.
    counts = read_source(str(source), format_of(source), decimals="exact").array
    counts = counts.ravel() if 1 in counts.shape else counts
    return queries.checked_cells(counts, "IN")


def _read_records(source: Path) -> "NDArray[Any]":
    given = read_source(
        str(source), format_of(source), decimals="exact", rows_are_records=True
    ).array
    numbers = real_array(given, "IN")
    # Text files hold decimals; whether these are cells is checked where they are counted.
    if not bool((abs(numbers) <= LARGEST_EXACT_INTEGER).all() and (numbers % 1 == 0).all()):
        raise InvalidParameterError(
            "IN must hold whole numbers, the cells of a record in a row: number the categories"
        )
    return numbers.astype("int64")
