"""Workload releases in files: what was measured, and what proves it.

The ``.npz`` file holds the noisy measurements, the strategy and the matrices of dense queries. The
statement beside it says which workload was asked and what is guaranteed. Answers are not saved:
they are computed from the measurements, which alone can be checked.
"""

import hashlib
import io
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance, Isotropic
from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError, ShapeError
from matrixdp.files.formats.numpy_format import (
    packed_arrays,
    read_archive,
    unpacked_arrays,
)
from matrixdp.files.publishing.lasting import write_paid
from matrixdp.files.publishing.noise_grid import can_be_released
from matrixdp.files.publishing.statement import (
    check_archive_target,
    check_digest,
    encoded,
    read_statement,
    statement_path,
)
from matrixdp.files.publishing.undeclared import check_archive
from matrixdp.files.schemas.about import (
    AboutSchema,
    about_of,
    checked_stamp,
    stamped,
    stated_about,
)
from matrixdp.files.schemas.values import (
    DigestSchema,
    EvidenceSchema,
    FrobeniusBallSchema,
    GuaranteeSchema,
    IsotropicSchema,
    MechanismName,
    Schema,
    guarantee_of,
    stated_evidence,
    stated_guarantee,
)
from matrixdp.files.schemas.workloads import (
    CellNamesSchema,
    FactorSchema,
    stated_workload,
    workload_of,
)
from matrixdp.mechanisms.about import About
from matrixdp.mechanisms.drawing import Promise
from matrixdp.mechanisms.measuring import Counts
from matrixdp.mechanisms.proof import NoiseProof
from matrixdp.mechanisms.release import Release
from matrixdp.mechanisms.workload_release import WorkloadRelease
from matrixdp.noise import NOISE_VERSION
from matrixdp.privacy.payment import Evidence, Payment
from matrixdp.sensitivity.sets import FrobeniusBall
from matrixdp.workloads import (
    CellNames,
    ProductStrategy,
    ResidualStrategy,
    StackedStrategy,
    Strategy,
    Workload,
)
from matrixdp.workloads.strategies.strategy import LARGEST_TOTAL

__all__ = [
    "WorkloadDraft",
    "WorkloadStatement",
    "attributes_of",
    "drafted_workload",
    "load_stated_workload",
    "load_workload_release",
    "save_workload_release",
    "stated_measurements",
    "workload_draft",
]

# Names of arrays; all others belong to the strategy.
_MEASUREMENTS = "measurements"
_QUERIES = "queries_"
# A ledger is locked while it writes a draft.
_MOST_BYTES_KEPT = 1 << 20
_KINDS: dict[str, type[Strategy]] = {"part_": StackedStrategy, "residual_": ResidualStrategy}


class WorkloadStatement(Schema, frozen=True, omit_defaults=True):
    """The statement of a saved workload release."""

    schema: Literal["matrixdp-workload-release/1"]
    mechanism: MechanismName
    guarantee: GuaranteeSchema
    in_words: str
    sensitivity: FrobeniusBallSchema
    covariance: IsotropicSchema
    noise: str
    workload: list[list[FactorSchema]]
    workload_in_words: str
    file: DigestSchema
    # The names of the cells along each attribute, where they have any.
    attributes: tuple[CellNamesSchema, ...] = ()
    # The entry of the ledger that paid, if one did.
    payment: EvidenceSchema | None = None
    # For people: what it is about, in the words of whoever made it; when, and by which version.
    about: AboutSchema | None = None
    date: str | None = None
    version: str | None = None


class WorkloadDraft(Schema, frozen=True, omit_defaults=True):
    """What finishes a workload release that is paid, beside the counts that it measures."""

    schema: Literal["matrixdp-workload-draft/1"]
    statement: WorkloadStatement
    counts: Counts
    most_records: int = LARGEST_TOTAL
    # The strategy, and the matrices of dense queries, unless they are large.
    arrays: bytes | None = None


def save_workload_release(
    release: WorkloadRelease,
    path: str | PathLike[str],
    *,
    force: bool = False,
    about: About | None = None,
    payment: Payment | None = None,
) -> str:
    """Write a workload release and its statement, and return the digest of its file.

    See `WorkloadRelease.save`; the statement says where a payment stands.
    """
    target = Path(path)
    if payment is None:
        check_archive_target(target, force=force)
    data = packed_arrays(
        {
            _MEASUREMENTS: np.asarray(release.measurements.value),
            **_arrays(release.workload, release.strategy),
        }
    )
    measured = release.measurements
    statement = stated_measurements(
        Promise(measured.proof, measured.guarantee, measured.mechanism),
        release.workload,
        DigestSchema(target.name, hashlib.sha256(data).hexdigest()),
        attributes=release.attributes,
        about=about,
        evidence=None if payment is None else payment.evidence,
    )
    # The statement first: there are never measurements without a statement of their guarantee.
    contents = [(statement_path(target), encoded(stamped(statement))), (target, data)]
    write_paid(contents, payment, force=force)
    return statement.file.sha256


def _arrays(workload: Workload, strategy: Strategy) -> dict[str, NDArray[Any]]:
    """Return the arrays of a strategy and of dense queries; raises if they cannot be saved."""
    return {**strategy.named_arrays(), **stated_workload(workload)[1]}


def workload_draft(
    statement: WorkloadStatement,
    workload: Workload,
    strategy: Strategy,
    counts: Counts,
    most_records: int,
) -> WorkloadDraft:
    """Return what finishes a release of measurements."""
    arrays = _arrays(workload, strategy)
    small = sum(each.nbytes for each in arrays.values()) <= _MOST_BYTES_KEPT
    return WorkloadDraft(
        schema="matrixdp-workload-draft/1",
        statement=statement,
        counts=counts,
        most_records=most_records,
        arrays=packed_arrays(arrays) if small else None,
    )


def drafted_workload(
    draft: WorkloadDraft,
) -> tuple[Promise, Workload, Strategy]:
    """Return what a draft promises, the workload and the strategy.

    Raises
    ------
    InvalidParameterError
        If the strategy is too large for a draft.
    """
    if draft.arrays is None:
        raise InvalidParameterError(
            "the strategy of this release is too large to be kept in a ledger: repeat the call "
            "that paid, with the same request, which pays nothing"
        )
    arrays = unpacked_arrays(io.BytesIO(draft.arrays), "the draft of a release")
    strategy, workload = _strategy_and_workload(arrays, draft.statement)
    return _promise(draft.statement), workload, strategy


def stated_measurements(
    promise: Promise,
    workload: Workload,
    file: DigestSchema,
    *,
    attributes: tuple[CellNames, ...] | None = None,
    about: About | None = None,
    evidence: Evidence | None = None,
) -> WorkloadStatement:
    """Return the statement of measurements that answer a workload."""
    sensitivity, covariance = promise.sensitivity, promise.covariance
    if not isinstance(sensitivity, FrobeniusBall) or not isinstance(covariance, Isotropic):
        raise InvalidParameterError("measurements are not those of a MatrixMechanism")
    return WorkloadStatement(
        schema="matrixdp-workload-release/1",
        mechanism=promise.mechanism,
        guarantee=stated_guarantee(promise.guarantee),
        in_words=str(promise.guarantee),
        sensitivity=FrobeniusBallSchema(sensitivity.neighbouring, sensitivity.bound),
        covariance=IsotropicSchema(covariance.scale),
        noise=NOISE_VERSION,
        workload=stated_workload(workload)[0],
        workload_in_words=repr(workload),
        file=file,
        attributes=tuple(CellNamesSchema(*each) for each in attributes or ()),
        payment=stated_evidence(evidence),
        about=stated_about(about),
    )


def load_workload_release(path: str | PathLike[str]) -> WorkloadRelease:
    """Read a saved workload release, and prove it on the way; see `WorkloadRelease.load`."""
    return load_stated_workload(path)[0]


def load_stated_workload(
    path: str | PathLike[str],
) -> tuple[WorkloadRelease, WorkloadStatement]:
    """Read a saved workload release with its statement, and verify both."""
    source = Path(path)
    data = read_archive(source)
    statement = read_statement(source, WorkloadStatement, "a saved workload release")
    check_digest(hashlib.sha256(data).hexdigest(), statement.file.sha256, source)
    arrays = unpacked_arrays(io.BytesIO(data), source)
    check_archive(data, list(arrays), source)
    try:
        release = _proven(arrays, statement)
    except MatrixDPError as error:
        raise FileFormatError(f"{source} does not prove its guarantee ({error})") from error
    # What people read must be what was proven.
    said = (statement.noise, statement.in_words, statement.workload_in_words)
    if said != (NOISE_VERSION, str(release.guarantee), repr(release.workload)):
        raise FileFormatError(
            f"{statement_path(source)} was altered: noise, in_words or workload_in_words is not "
            "what the file holds"
        )
    return release, statement


def _proven(arrays: dict[str, NDArray[Any]], statement: WorkloadStatement) -> WorkloadRelease:
    """Return the release that arrays and a statement make, or raise if they prove nothing.

    That the noise gives the guarantee, and that the strategy has the stated sensitivity, is proven
    where `Release` and `WorkloadRelease` are made.
    """
    checked_stamp(statement)
    about_of(statement.about)  # raises if it is more than a few lines
    strategy, workload = _strategy_and_workload(arrays, statement)
    promise = _promise(statement)
    release = WorkloadRelease(
        measurements=Release(
            value=_checked_measurements(arrays, promise.covariance),
            sensitivity=promise.sensitivity,
            covariance=promise.covariance,
            guarantee=promise.guarantee,
            mechanism=promise.mechanism,
        ),
        workload=workload,
        strategy=strategy,
        attributes=attributes_of(statement),
    )
    # Not a matter of privacy: without this, answers would be silently wrong.
    strategy.check_supports(workload)
    return release


def attributes_of(statement: WorkloadStatement) -> tuple[CellNames, ...] | None:
    """Return the names of cells that a statement has, or None if it has none."""
    return tuple(CellNames(each.name, each.labels) for each in statement.attributes) or None


def _promise(statement: WorkloadStatement) -> Promise:
    """Return what a statement promises, if its noise proves it."""
    # Only these kinds of sets and noise are made by the mechanism, and only these can be stated.
    ball = FrobeniusBall(statement.sensitivity.bound, statement.sensitivity.neighbouring)
    proof = NoiseProof(ball, Isotropic(statement.covariance.scale))
    return Promise(proof, guarantee_of(statement.guarantee), statement.mechanism)


def _strategy_and_workload(
    arrays: Mapping[str, NDArray[Any]], statement: WorkloadStatement
) -> tuple[Strategy, Workload]:
    """Return what was measured and what was asked; no array may be left over."""
    queries = {name: array for name, array in arrays.items() if name.startswith(_QUERIES)}
    others = {
        name: array
        for name, array in arrays.items()
        if name != _MEASUREMENTS and name not in queries
    }
    # Each kind of strategy has its own names of arrays; those of a product are the default.
    prefix = next((prefix for prefix in _KINDS if any(n.startswith(prefix) for n in others)), None)
    kind: type[Strategy] = ProductStrategy if prefix is None else _KINDS[prefix]
    strategy = kind.from_named_arrays(others)
    workload = workload_of(statement.workload, queries)
    # Sizes first: the sensitivity of a strategy that nobody could have measured may take forever.
    workload.check_answerable()
    if strategy.kind != "residual":
        workload.check_histogram()
    if strategy.dimensions not in (workload.dimensions, (workload.cells,)):
        raise ShapeError(
            f"its strategy is for cells laid out as {strategy.dimensions} and its workload for "
            f"{workload.dimensions}"
        )
    return strategy, workload


def _checked_measurements(
    arrays: Mapping[str, NDArray[Any]], covariance: Covariance
) -> NDArray[np.float64]:
    """Return one column of numbers that exact noise of a covariance can have left."""
    values = arrays.get(_MEASUREMENTS)
    # float64 exactly: other types have other grids, and integers would be converted silently.
    if values is None or values.dtype != np.float64 or values.ndim != 2:
        raise FileFormatError("its measurements are not a matrix of float64")
    if not can_be_released(values, covariance):
        raise FileFormatError("its measurements are not finite numbers on the grid of the noise")
    return values
