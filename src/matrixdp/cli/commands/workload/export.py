"""``matrixdp workload export``: the answers of a saved release, as plain numbers."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from matrixdp.cli.commands.workload.options import check_distinct
from matrixdp.cli.shared.interrupts import interrupted_at_once
from matrixdp.cli.shared.options import AsJson, Force, names_of
from matrixdp.cli.shared.output import print_json
from matrixdp.errors import InvalidParameterError
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import LABELLED, check_format, format_of
from matrixdp.files.publishing.atomic import check_target, hidden_beside, hidden_file, write_all
from matrixdp.files.publishing.statement import statement_path
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.queries.preview import shown_errors
from matrixdp.workloads import CellNames, marginals
from matrixdp.workloads.cell_names import named_queries

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
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            metavar="NAMES",
            help="One table of counts by these attributes, with commas between them, instead of "
            "all answers: by their names, or by numbers from 0 where they have none.",
        ),
    ] = None,
    wide: Annotated[
        bool,
        typer.Option(
            "--wide",
            help="With --table: a row for each cell of the first attribute and a column for each "
            "combination of the others; standard errors are in the report. Default: a row for each "
            "count, with its standard error.",
        ),
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
    if wide and table is None:
        raise InvalidParameterError("--wide needs --table, which names one table")
    # Decompositions take long for many cells, and nothing is written before they are done.
    with interrupted_at_once():
        release = WorkloadRelease.load(source)
        asked = _Asked.of(release, table)
        with warnings.catch_warnings():
            # What was not found exactly is always said.
            warnings.simplefilter("always")
            answers = asked.answers(nonnegative=nonnegative, integer=integer)
        errors = None if nonnegative or integer else asked.errors()
        in_report = errors.reshape(asked.shape[0], -1) if wide and errors is not None else None
        written = _laid_out(asked, answers, errors, wide=wide, named=format_of(target) in LABELLED)
    # Late, because progress bars are slow to import.
    from matrixdp.cli.shared.progress import progress_bar  # noqa: PLC0415

    with hidden_beside(target) as hidden:
        with (
            hidden_file(hidden, target) as file,
            progress_bar(1.0, f"Writing {target}", after=1.0) as advance,
        ):
            write_matrix(file, written, format_of(target), advance)
        write_all([(target, hidden)], force=force)
    if as_json:
        print_json(
            {
                "output": str(target),
                "release": str(source),
                "queries": len(answers),
                "non_negative": nonnegative,
                "whole": integer,
                **({} if in_report is None else {"standard_errors": in_report.tolist()}),
                **asdict(release.guarantee),
            }
        )
        return
    if in_report is not None:
        typer.echo(shown_errors(in_report), err=True)
    typer.echo(
        f"wrote {target}: plain numbers without a certificate; keep {source} and "
        f"{statement_path(source)}, which prove the guarantee: {release.guarantee}",
        err=True,
    )


@dataclass(frozen=True)
class _Asked:
    """Some queries that a release answers: all of its own, or the cells of one table.

    Attributes
    ----------
    release : WorkloadRelease
        What was measured.
    kept : tuple of int or None
        The attributes of the table, in the order of its axes.
    """

    release: WorkloadRelease
    kept: tuple[int, ...] | None

    @classmethod
    def of(cls, release: WorkloadRelease, table: str | None) -> "_Asked":
        names = names_of(table)
        if names is None:
            return cls(release, None)
        known = [each.name for each in release.attributes or ()] or [
            str(number) for number in range(len(release.workload.dimensions))
        ]
        for name in names:
            if name not in known:
                raise InvalidParameterError(
                    f"--table names {name!r}: the attributes are {', '.join(known)}"
                )
        return cls(release, tuple(known.index(name) for name in names))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table."""
        return tuple(self.release.workload.dimensions[number] for number in self.kept or ())

    def names(self, numbers: Sequence[int]) -> list[str]:
        """Return the names of all cells by some attributes, the last of which changes fastest."""
        sizes = self.release.workload.dimensions
        named = self.release.attributes
        attributes = [
            named[number]
            if named is not None
            else CellNames(str(number), tuple(map(str, range(sizes[number]))))
            for number in numbers
        ]
        kept = range(len(attributes))
        cells = marginals([sizes[number] for number in numbers], [kept])
        return list(named_queries(cells, attributes))

    def answers(self, *, nonnegative: bool, integer: bool) -> "NDArray[Any]":
        """Return the answers of the estimate, or of one that looks more like a histogram."""
        # Late, because these searches import much.
        from matrixdp.postprocess.counts import (  # noqa: PLC0415
            integer_counts,
            nonnegative_estimate,
        )

        release = self.release
        if not nonnegative and not integer:
            return release.answers if self.kept is None else release.table(self.kept).ravel()
        # Non-negative first: rounding keeps numbers non-negative, but not the other way round.
        estimate = nonnegative_estimate(release) if nonnegative else release.estimate
        if estimate is None:
            raise InvalidParameterError(
                "--integer needs the histogram, which has more cells than fit in memory: leave it "
                "out"
            )
        counts = integer_counts(estimate) if integer else estimate
        if self.kept is None:
            return release.workload.apply(counts)
        cells = np.asarray(counts).reshape(release.workload.dimensions)
        others = tuple(axis for axis in range(cells.ndim) if axis not in self.kept)
        ascending = sorted(self.kept)
        order = [ascending.index(number) for number in self.kept]
        return np.asarray(cells.sum(axis=others).transpose(order).ravel())

    def errors(self) -> "NDArray[Any]":
        """Return the standard error of each answer."""
        if self.kept is None:
            return self.release.standard_errors()
        return self.release.table_errors(self.kept).ravel()


def _laid_out(
    asked: _Asked,
    answers: NDArray[Any],
    errors: NDArray[Any] | None,
    *,
    wide: bool,
    named: bool,
) -> MatrixFile:
    """Return a table with names, or the numbers alone where the format has none.

    Long it has the columns ``answer`` and, with errors, ``standard_error``; wide it has the cells
    of the first attribute in rows.
    """
    if wide:
        numbers, kept = answers.reshape(asked.shape[0], -1), asked.kept or ()
        if not named:
            return MatrixFile(numbers)
        columns = asked.names(kept[1:]) if kept[1:] else ["count"]
        return MatrixFile(numbers, columns=columns, index=asked.names(kept[:1]), corner="query")
    # A .npy file holds no names, and no columns of another meaning.
    if not named:
        return MatrixFile(answers.reshape(-1, 1))
    release = asked.release
    queries = (
        list(named_queries(release.workload, release.attributes))
        if asked.kept is None
        else asked.names(asked.kept)
    )
    parts = [answers] if errors is None else [answers, errors]
    return MatrixFile(
        np.column_stack(parts),
        columns=["answer", "standard_error"][: len(parts)],
        index=queries,
        corner="query",
    )
