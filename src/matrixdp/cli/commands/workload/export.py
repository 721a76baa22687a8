"""``matrixdp workload export``: the answers of a saved release, as plain numbers."""

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from matrixdp.cli.commands.workload.options import check_distinct
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.options import AsJson, Force
from matrixdp.cli.shared.output import print_json
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import LABELLED, check_format, format_of
from matrixdp.files.publishing.atomic import check_target, hidden_beside, hidden_file, write_all
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.workloads import Workload
from matrixdp.workloads.ranges import query_names

__all__ = ["export"]

# Not .npz, the format that releases are saved in.
_EXPORTS = (".npy", *LABELLED)


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
    integer: Annotated[
        bool, typer.Option("--integer", help="Answers of a histogram of integer counts.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prove a saved release again, and write its answers, one in a row, as plain numbers.

    A table names each query and states its standard error; answers that were made non-negative or
    integer have none. The order is that of the workload: parts follow each other, and the last
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
            release, nonnegative=nonnegative, integer=integer, named=format_of(target) in LABELLED
        )
    # Late, because progress bars are slow to import.
    from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415

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
                "whole": integer,
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
    release: WorkloadRelease, *, nonnegative: bool, integer: bool, named: bool
) -> MatrixFile:
    """Return the answers, with the names of the queries and with errors if the format has them."""
    with warnings.catch_warnings():
        # What was not found exactly is always said.
        warnings.simplefilter("always")
        answers = _processed_answers(release, nonnegative=nonnegative, integer=integer)
    # A .npy file holds no names, and no columns of another meaning.
    if not named:
        return MatrixFile(answers.reshape(-1, 1))
    errors = None if nonnegative or integer else release.standard_errors()
    return _answer_table(release.workload, answers, errors)


def _processed_answers(
    release: WorkloadRelease, *, nonnegative: bool, integer: bool
) -> "NDArray[Any]":
    """Return the answers of the estimate, or of one that looks more like a histogram."""
    from matrixdp.postprocess.counts import integer_counts, nonnegative_estimate  # noqa: PLC0415

    if not nonnegative and not integer:
        return release.answers
    # Non-negative first: rounding keeps numbers non-negative, but not the other way round.
    estimate = nonnegative_estimate(release) if nonnegative else release.estimate
    if estimate is None:
        raise InvalidParameterError(
            "--integer needs the histogram, which has more cells than fit in memory: leave it out"
        )
    return release.workload.apply(integer_counts(estimate) if integer else estimate)


def _answer_table(
    workload: Workload, answers: NDArray[Any], errors: NDArray[Any] | None
) -> MatrixFile:
    """Return a table with the columns ``query``, ``answer`` and ``standard_error``.

    Parameters
    ----------
    workload : Workload
        The queries, whose order is that of the rows.
    answers : ndarray, shape (queries,)
        One for each query.
    errors : ndarray, optional
        The standard error of each answer; without them the table has two columns.
    """
    columns = [answers] if errors is None else [answers, errors]
    return MatrixFile(
        np.column_stack(columns),
        columns=["answer", "standard_error"][: len(columns)],
        index=list(query_names(workload)),
        corner="query",
    )
