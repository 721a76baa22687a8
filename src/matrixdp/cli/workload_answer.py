"""``matrixdp workload answer`` and ``export``: noisy measurements in a file, and their answers."""

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from matrixdp.cli.interrupts import interrupted_at_once
from matrixdp.cli.options import (
    AsJson,
    DelimiterOption,
    DeltaOption,
    Force,
    MuOption,
    OptionalEpsilonOption,
    ThreadsOption,
    budget_from,
)
from matrixdp.cli.output import print_json
from matrixdp.cli.streams import read_source, reporting_release, saving_release
from matrixdp.cli.workload_options import (
    NeighbouringOption,
    SavedStrategyOption,
    WorkloadOption,
    check_delimiter,
    check_distinct,
    search_status,
)
from matrixdp.cli.workload_text import read_workload, workload_files
from matrixdp.errors import InvalidParameterError
from matrixdp.files.answer_tables import answer_table
from matrixdp.files.array_archive import check_archive_target
from matrixdp.files.atomic import check_target, hidden_beside, hidden_file, write_all
from matrixdp.files.formats import FORMATS, LABELLED, TEXT, check_format, format_of
from matrixdp.files.matrices import write_matrix
from matrixdp.files.statement import statement_path
from matrixdp.files.strategies import load_strategy
from matrixdp.mechanisms.counting import check_records, checked_counts
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
_EXPORTS = (".npy", *LABELLED)


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
    delimiter: DelimiterOption = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="IN holds a record in each row: the number of its cell, from 0, by attribute.",
        ),
    ] = False,
    threads: ThreadsOption = None,
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
    check_format(source)
    check_delimiter(delimiter, [source, *workload_files(workload)])
    queries = read_workload(workload, delimiter)
    queries.check_answerable()
    check_archive_target(target, force=force)
    saved = [] if strategy is None else [strategy]
    check_distinct(target, [source, *saved, *workload_files(workload)])
    if not records:
        queries.check_histogram()
    counted = _read(source, delimiter)
    given = _checked_records(counted, queries) if records else _checked_histogram(counted, queries)
    if strategy is None:
        with search_status() as progress:
            chosen = optimal_strategy(queries, neighbouring=relation, progress=progress).strategy
    else:
        chosen = load_strategy(strategy).strategy
    with interrupted_at_once():
        mechanism = MatrixMechanism(queries, budget, neighbouring=relation, strategy=chosen)
        expected = mechanism.expected_error  # if it cannot be computed, nothing is drawn
    release = mechanism.release_records if records else mechanism.release
    measured = release(given, threads=threads)
    with saving_release(statement_path(target)):
        measured.save(target, force=force)
        _report_release(mechanism, expected, target, as_json=as_json)


def _report_release(
    mechanism: MatrixMechanism, expected: float, target: Path, *, as_json: bool
) -> None:
    beside = statement_path(target)
    with reporting_release(beside):
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


def export(
    source: Annotated[
        Path, typer.Argument(metavar="RELEASE", help="What workload answer wrote: a .npz file.")
    ],
    target: Annotated[
        Path,
        typer.Argument(metavar="ANSWERS", help=f"The file for the answers: {', '.join(_EXPORTS)}."),
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

    A table names each query and states its standard error; answers that were made non-negative or
    whole have none. The order is that of the workload: parts follow each other, and the last
    attribute changes fastest. A .npy file holds the answers alone.

    This spends no budget and can be repeated. The guarantee is stated beside RELEASE alone.
    """
    check_format(target, _EXPORTS)
    check_target(target, force=force)
    check_distinct(target, [source])
    # Decompositions take long for many cells, and nothing is written before they are done.
    with interrupted_at_once():
        release = WorkloadRelease.load(source)
        table = _exported(
            release, nonnegative=nonnegative, whole=whole, named=format_of(target) in LABELLED
        )
    # Late, because progress bars are slow to import.
    from matrixdp.cli.progress import progress_bar  # noqa: PLC0415

    with hidden_beside(target) as hidden:
        with (
            hidden_file(hidden, target) as file,
            progress_bar(1.0, f"Writing {target}", after=1.0) as advance,
        ):
            write_matrix(file, table, format_of(target), advance)
        write_all([(target, hidden)], force=force)
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


def _exported(
    release: WorkloadRelease, *, nonnegative: bool, whole: bool, named: bool
) -> MatrixFile:
    """Return the answers, with the names of the queries and with errors if the format has them."""
    with warnings.catch_warnings():
        # What was not found exactly is always said.
        warnings.simplefilter("always")
        answers = _processed_answers(release, nonnegative=nonnegative, whole=whole)
    # A .npy file has no place for names, nor for columns of another meaning.
    if not named:
        return MatrixFile(answers.reshape(-1, 1))
    errors = None if nonnegative or whole else release.standard_errors()
    return answer_table(release.workload, answers, errors)


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


def _read(source: Path, delimiter: str | None) -> "NDArray[Any]":
    # A count that float64 would round is not the count of the file: the noise covers what one
    # record changes in whole numbers, and nothing else.
    return read_source(
        str(source),
        format_of(source),
        decimals="exact",
        delimiter=delimiter if format_of(source) in TEXT else None,
        offered=("--delimiter",),
    ).array


def _checked_histogram(given: "NDArray[Any]", queries: Workload) -> "NDArray[Any]":
    counts = queries.checked_cells(given.ravel() if 1 in given.shape else given, "IN")
    wrong = (counts < 0) | (counts % 1 != 0)
    if bool(wrong.any()):
        place = _first(wrong.reshape(given.shape))
        raise InvalidParameterError(
            f"IN, {place}: the number is not a count of records, a whole number of at least 0: "
            "count the records of each cell"
        )
    return checked_counts(counts, queries)


def _checked_records(given: "NDArray[Any]", queries: Workload) -> "NDArray[Any]":
    numbers = real_array(given, "IN", axes=2)
    # Text files hold decimals, which may be whole numbers.
    wrong = (abs(numbers) > LARGEST_EXACT_INTEGER) | (numbers % 1 != 0)
    if bool(wrong.any()):
        raise InvalidParameterError(
            f"IN, {_first(wrong)}: the number is not a whole number, the number of a cell: number "
            "the categories"
        )
    cells = numbers.astype("int64")
    check_records(cells, queries.dimensions)
    return cells


def _first(wrong: "NDArray[np.bool_]") -> str:
    """Return the place of the first entry that is true, in words; places count from 1."""
    place = [int(number) + 1 for number in np.argwhere(wrong)[0]]
    if len(place) == 2:
        return f"row {place[0]}, column {place[1]}"
    return f"entry {', '.join(map(str, place))}"
