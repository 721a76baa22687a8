"""Releases that are paid, made again from the drafts of their statements and from their values."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from matrixdp.errors import FileFormatError, InvalidParameterError
from matrixdp.files.publishing.chunked_release import CHUNKED_SCHEMA
from matrixdp.files.publishing.mean_files import mean_path, write_means
from matrixdp.files.publishing.paid import checked_request, publish_paid
from matrixdp.files.publishing.paid_counts import PaidCount, promise_of_count
from matrixdp.files.publishing.paid_release import PaidMatrix, release_prepared_to
from matrixdp.files.publishing.release_file import labelled_file
from matrixdp.files.publishing.releases import ReleaseStatement, promise_of
from matrixdp.files.publishing.statement import decoded, schema_of, statement_path
from matrixdp.files.publishing.streamed_release import release_promised_npy
from matrixdp.files.schemas.about import about_of
from matrixdp.files.schemas.values import guarantee_of
from matrixdp.mechanisms.drawing import PreparedRelease, checked_matrix
from matrixdp.privacy.payment import Payer, Payment

__all__ = ["release_drafted_to"]

_NAME = "the draft of a release"


def release_drafted_to(
    draft: bytes,
    value: Any,
    target: Path,
    *,
    counts: Mapping[str, int],
    payer: Payer,
    request: str,
    force: bool,
) -> None:
    """Draw and publish what was paid, from the same value.

    Parameters
    ----------
    draft : bytes
        Of the payment's `Order`.
    value, counts : array_like or path, and mapping
        See `Ledger.finish`.
    target : Path
        The file that the statement describes.
    payer, request, force
        As in `IMGM.release_to`.

    Raises
    ------
    InvalidParameterError
        If the draft does not hold all that is needed, or the counts are not those that it states.
    """
    if schema_of(draft, _NAME).startswith(CHUNKED_SCHEMA):
        # Late, because what knows Dask is above files.
        from matrixdp.distributed.release import finish_drafted  # noqa: PLC0415

        finish_drafted(draft, value, target, payer=payer, request=request)
        return
    try:
        statement = decoded(draft, ReleaseStatement, _NAME)
    except FileFormatError:
        _release_measured(draft, value, target, payer=payer, request=request, force=force)
        return
    if counts.keys() != statement.counts.keys():
        stated = ", ".join(statement.counts) or "none"
        raise InvalidParameterError(
            f"counts names {', '.join(counts) or 'none'}, and the release has {stated}: pass the "
            "number of each, for instance counts={'records': 50}"
        )
    promise = promise_of(statement)
    if isinstance(value, str | PathLike):
        release_promised_npy(
            *(promise, value, target),
            privacy_filter=payer,
            request=request,
            force=force,
            threads=None,
            about=about_of(statement.about),
        )
        return
    matrix = PaidMatrix(
        main=PreparedRelease(checked_matrix(value, promise.proof), promise),
        counts={what: _prepared_count(statement, what, counts[what]) for what in statement.counts},
        query=statement.query,
        about=about_of(statement.about),
    )
    if "records" in statement.counts:
        _release_means(matrix, target, payer=payer, request=request, force=force)
        return
    release_prepared_to(
        matrix, target, privacy_filter=payer, request=request, force=force, threads=None
    )


def _prepared_count(statement: ReleaseStatement, what: PaidCount, number: int) -> PreparedRelease:
    promise = promise_of_count(statement.counts[what], guarantee_of(statement.guarantee))
    return PreparedRelease(checked_matrix(np.array([[float(number)]]), promise.proof), promise)


def _release_means(
    matrix: PaidMatrix, beside: Path, *, payer: Payer, request: str, force: bool
) -> None:
    """Release the sum and the number of records, and the means that follow from them."""
    target = mean_path(beside)
    files = [target, beside, statement_path(beside)]
    name = checked_request(payer, request, files, force=force)

    def write(payment: Payment) -> str:
        total, counts = matrix.drawn(payment.secret, None)
        columns = labelled_file(total.value, total.labels).columns
        return write_means(
            *(target, total, counts["records"], str(matrix.query), columns),
            force=force,
            about=matrix.about,
            payment=payment,
        )

    publish_paid(payer, name, matrix.publication(beside, write, others=[target]))


def _release_measured(
    draft: bytes, value: Any, target: Path, *, payer: Payer, request: str, force: bool
) -> None:
    """Release what a strategy measures of a histogram or of records."""
    # Late: workloads are slow to import.
    from matrixdp.files.publishing.paid_workload import release_measured_to  # noqa: PLC0415
    from matrixdp.files.publishing.workload_releases import (  # noqa: PLC0415
        WorkloadDraft,
        attributes_of,
        drafted_workload,
    )
    from matrixdp.mechanisms.measuring import measured  # noqa: PLC0415

    kept = decoded(draft, WorkloadDraft, _NAME)
    promise, workload, strategy = drafted_workload(kept)

    def measure() -> PreparedRelease:
        exact = measured(workload, strategy, kept.counts, value, kept.most_records)
        return PreparedRelease(checked_matrix(exact, promise.proof), promise)

    release_measured_to(
        target,
        measure,
        workload,
        strategy,
        attributes=attributes_of(kept.statement),
        counts=kept.counts,
        most_records=kept.most_records,
        privacy_filter=payer,
        request=request,
        force=force,
        threads=None,
        about=about_of(kept.statement.about),
    )
