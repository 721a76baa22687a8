"""The output of ``matrixdp query``: files that prove themselves, and a report."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from matrixdp.cli.commands.workload.measuring import (
    computed_mechanism,
    report_measurements,
    show_preview,
)
from matrixdp.cli.shared.exit_codes import ReleasedButCutShortError
from matrixdp.cli.shared.labels import warn_of_lost_labels
from matrixdp.cli.shared.output import preview_fields, print_json
from matrixdp.cli.shared.paying import Paying
from matrixdp.cli.shared.streams import reporting_release
from matrixdp.errors import MatrixDPError
from matrixdp.files.formats.matrices import write_matrix
from matrixdp.files.formats.suffixes import check_format, format_of, with_word
from matrixdp.files.publishing.atomic import check_inputs_survive, check_target, write_all
from matrixdp.files.publishing.paid_counts import PaidCount
from matrixdp.files.publishing.paid_release import PaidMatrix, release_prepared_to
from matrixdp.files.publishing.statement import check_archive_name, statement_path
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.labelled import MatrixFile
from matrixdp.mechanisms.release import Release
from matrixdp.parameters import proper_fraction
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.queries import (
    ClippedRecords,
    ContingencyTable,
    Mean,
    MeanRelease,
    Preview,
    Query,
)
from matrixdp.queries.preview import shown_errors
from matrixdp.queries.private_count import release_means_to, sum_path
from matrixdp.queries.record_files import files_of
from matrixdp.rounding import shown_up
from matrixdp.workloads import Workload

__all__ = ["QueryOutput"]

Blocks = Callable[[], Any]
"""Starts to read the records; they are read once for each question."""

_IN_WORDS: dict[PaidCount, str] = {
    "records": "records in all",
    "clipped": "records changed by the bounds",
}


@dataclass(frozen=True)
class QueryOutput:
    """Files to write, and the budget that may be spent on what they hold."""

    source: Path
    target: Path
    budget: Budget
    paying: Paying
    threads: int | None
    force: bool
    as_json: bool
    preview: bool = False
    about: About | None = None
    reading: str = ""
    """What becomes of missing cells, in words; empty if nothing was said of them."""

    def __post_init__(self) -> None:
        """Raise if the target's name does not say a format, for instance because it is empty."""
        check_format(self.target)

    def release(
        self,
        query: Query,
        blocks: Blocks,
        *,
        columns: Sequence[str],
        index: Sequence[str],
        means: Callable[[Release], MatrixFile] | None = None,
    ) -> None:
        """Release the answer to a query, with public labels, and report it.

        ``means`` makes a second table of the release, which is written as ``OUT.means``.
        """
        if self.preview:
            self._preview(query.preview(self.budget))
            return
        # Everything that can be refused without reading the records is refused first.
        beside = [] if means is None else [with_word(self.target, "means")]
        self._check_targets([self.target, *beside, statement_path(self.target)])
        mechanism = IMGM(query, self.budget)
        # The labels were typed by the user, so that they are public.
        answer = MatrixFile(query.evaluate(blocks()), columns=list(columns), index=list(index))
        matrix = PaidMatrix(
            main=mechanism.prepared(answer), query=self._words(query), about=self.about
        )
        self._release(matrix, means)

    def release_with_clipped(
        self,
        query: Query,
        clipped: ClippedRecords,
        share: float,
        blocks: Blocks,
        *,
        columns: Sequence[str],
        index: Sequence[str],
    ) -> None:
        """Release the answer, and for a share of the budget how many records the bounds change."""
        part = proper_fraction(share, "clipped_share")
        rest = self.budget.split([1.0 - part, part])
        if self.preview:
            self._preview(query.preview(rest[0]), clipped.preview(rest[1]))
            return
        self._check_targets([self.target, statement_path(self.target)])
        of_answer, of_count = IMGM(query, rest[0]), IMGM(clipped, rest[1])
        both = Guarantee.of_budget(
            self.budget,
            mu=composed_mu([of_answer.mu, of_count.mu]),
            neighbouring=query.neighbouring,
        )
        answer = MatrixFile(query.evaluate(blocks()), columns=list(columns), index=list(index))
        main = of_answer.prepared(answer)
        matrix = PaidMatrix(
            # Stated with the guarantee of both, because the statement holds the count, too.
            main=main._replace(promise=main.promise._replace(guarantee=both)),
            counts={"clipped": of_count.prepared(clipped.evaluate(blocks()))},
            query=self._words(query),
            about=self.about,
        )
        self._release(matrix)

    def release_private_count_mean(
        self, query: Mean, blocks: Blocks, *, columns: Sequence[str]
    ) -> None:
        """Release a sum and a count within the budget, and write the means that follow."""
        if self.preview:
            self._preview(query.preview(self.budget))
            return
        beside = sum_path(self.target)
        statement = statement_path(beside)
        self._check_targets([self.target, beside, statement])
        with self.paying.reporting_pending():
            released = release_means_to(
                *(self.target, blocks(), query.of_records, self.budget, self._words(query)),
                privacy_filter=self.paying.account,
                request=self.paying.request,
                force=self.force,
                threads=self.threads,
                columns=columns,
                about=self.about,
            )
        self._report(
            released.query,
            released,
            [self.target, beside, statement],
            {"records": released.count},
        )

    def _preview(self, *previews: Preview) -> None:
        """Show what would be released: several answers share the budget."""
        if self.as_json:
            print_json({"previews": [preview_fields(preview) for preview in previews]})
            return
        typer.echo("\n".join(map(str, previews)))

    def _words(self, query: Query) -> str:
        return f"{query}; {self.reading}" if self.reading else str(query)

    def release_marginals(self, table: ContingencyTable, workload: Workload, cells: Blocks) -> None:
        """Release the tables of a workload, whose names the statement holds."""
        # Their statement has no query in words, after which the rule could be said.
        about = replace(self.about or About(), missing=self.reading) if self.reading else self.about
        check_archive_name(self.target)
        if not self.preview:
            self._check_targets([self.target, statement_path(self.target)])
        mechanism = computed_mechanism(
            workload, self.budget, table.neighbouring, attributes=table.cell_names
        )
        if self.preview:
            show_preview(mechanism, as_json=self.as_json)
            return
        with self.paying.reporting_pending():
            mechanism.release_records_to(
                *(self.target, cells()),
                privacy_filter=self.paying.account,
                request=self.paying.request,
                force=self.force,
                threads=self.threads,
                about=about,
            )
        report_measurements(mechanism, self.target, self.paying, as_json=self.as_json)

    def _release(
        self, matrix: PaidMatrix, means: Callable[[Release], MatrixFile] | None = None
    ) -> None:
        with self.paying.reporting_pending():
            done = release_prepared_to(
                *(matrix, self.target),
                privacy_filter=self.paying.account,
                request=self.paying.request,
                force=self.force,
                threads=self.threads,
            )
        files = [self.target, statement_path(self.target)]
        if means is not None:
            files.insert(1, self._write_means(means(done.release)))
        self._report(matrix.query or "", done.release, files, done.counts)

    def _write_means(self, table: MatrixFile) -> Path:
        """Write what follows from the release, which is out already; return its path."""
        path, content = with_word(self.target, "means"), io.BytesIO()
        write_matrix(content, table, format_of(path))
        try:
            write_all([(path, content.getvalue())], force=self.force or self.paying.resumed)
        except MatrixDPError as error:
            raise ReleasedButCutShortError(
                f"the release is out and {self.target} has it, but {path} could not be written: "
                f"{error}"
            ) from error
        return path

    def _check_targets(self, targets: Sequence[Path]) -> None:
        check_inputs_survive(targets, files_of(self.source))
        # An earlier attempt at what was paid may have made them.
        for path in () if self.paying.resumed else targets:
            check_target(path, force=self.force)

    def _report(
        self,
        query: str,
        released: Release | MeanRelease,
        files: Sequence[Path],
        counts: Mapping[PaidCount, Release] | None = None,
    ) -> None:
        """Say what was released, and name the files, of which the last is the statement."""
        paid, guarantee, statement = counts or {}, released.guarantee, files[-1]
        errors = released.standard_errors()
        least, most = float(errors.min()), float(errors.max())
        with reporting_release(statement, self.paying.again):
            warn_of_lost_labels(format_of(self.target))
            if self.as_json:
                print_json(
                    {
                        "output": str(self.target),
                        "statement": str(statement),
                        "files": [str(file) for file in files],
                        "query": query,
                        "epsilon": guarantee.epsilon,
                        "delta": guarantee.delta,
                        "mu": guarantee.mu,
                        "neighbouring": guarantee.neighbouring,
                        "shape": list(released.shape),
                        "standard_errors": errors.tolist() if least < most else least,
                        "counts": {what: float(count.value[0, 0]) for what, count in paid.items()},
                        **self.paying.fields(),
                    }
                )
                return
            lines = [str(guarantee), query, shown_errors(errors)]
            lines += [
                f"{_IN_WORDS[what]}: {float(count.value[0, 0]):.1f}, with a standard error of "
                f"{shown_up(count.standard_errors().item(), 3)}; paid for by this guarantee, too"
                for what, count in paid.items()
            ]
            lines.append(f"wrote {', '.join(map(str, files[:-1]))} and {files[-1]}")
            for line in [*lines, *self.paying.lines()]:
                typer.echo(line, err=True)
