"""The release of a workload's measurements to a file, paid for and finished after a crash."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from matrixdp.files.publishing.paid import Publication, checked_request, publish_paid
from matrixdp.files.publishing.statement import check_archive_name, encoded, statement_path
from matrixdp.files.publishing.workload_releases import (
    load_workload_release,
    save_workload_release,
    stated_measurements,
    workload_draft,
)
from matrixdp.files.schemas.values import DigestSchema
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import PreparedRelease
from matrixdp.mechanisms.measuring import Counts
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.noise import ReleaseKey
from matrixdp.noise.application.threads import checked_threads
from matrixdp.noise.keys.value_tag import ValueTag
from matrixdp.privacy.payment import Payer, Payment
from matrixdp.workloads import CellNames, Strategy, Workload

__all__ = ["release_measured_to"]


def release_measured_to(
    path: str | PathLike[str],
    measure: Callable[[], PreparedRelease],
    workload: Workload,
    strategy: Strategy,
    *,
    attributes: tuple[CellNames, ...] | None,
    counts: Counts,
    most_records: int,
    privacy_filter: Payer | None,
    request: str | None,
    force: bool,
    threads: int | None,
    about: About | None,
) -> WorkloadRelease:
    """Release what a strategy measures to a file; see `MatrixMechanism.release_to`.

    It is measured after the target and the payer were checked, since that may take long.
    """
    target = Path(path).absolute()
    check_archive_name(target)
    name = checked_request(privacy_filter, request, [target, statement_path(target)], force=force)
    workers = None if threads is None else checked_threads(threads)
    prepared = measure()
    checked, promise = prepared
    stated = stated_measurements(
        promise, workload, DigestSchema(target.name, ""), attributes=attributes, about=about
    )
    draft = workload_draft(stated, workload, strategy, counts, most_records)
    done: list[WorkloadRelease] = []

    def write(payment: Payment) -> str:
        measurements = prepared.drawn(ReleaseKey.from_bytes(payment.secret), threads=workers)
        release = WorkloadRelease(
            measurements=measurements, workload=workload, strategy=strategy, attributes=attributes
        )
        done.append(release)
        return save_workload_release(release, target, force=force, about=about, payment=payment)

    publication = Publication(
        cost=promise,
        target=target,
        draft=encoded(draft),
        # Not of the strategy, which versions of numpy pack in other ways: measurements tell it.
        tag=lambda secret: (
            ValueTag(secret, checked.drawing.noise.context, encoded(stated))
            .update(checked.array)
            .digest()
        ),
        about={"queries": repr(workload)},
        write=write,
    )
    publish_paid(privacy_filter, name, publication)
    return done[0] if done else load_workload_release(target)
