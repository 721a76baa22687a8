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

from matrixdp.covariance import Isotropic
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

__all__ = [
    "WorkloadStatement",
    "load_workload_release",
    "save_workload_release",
    "stated_measurements",
]

# Names of arrays; all others belong to the strategy.
_MEASUREMENTS = "measurements"
_QUERIES = "queries_"
_KINDS: dict[str, type[Strategy]] = {"part_": StackedStrategy, "residual_": ResidualStrategy}


class WorkloadStatement(Schema, frozen=True, omit_defaults=True):
    """The statement of a saved workload release."""

    schema: Literal["matrixdp-workload-release/1"]
    mechanism: str
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
    # Raises for workloads that cannot be saved, before anything is written.
    _, matrices = stated_workload(release.workload)
    data = packed_arrays(
        {
            _MEASUREMENTS: np.asarray(release.measurements.value),
            **release.strategy.named_arrays(),
            **matrices,
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
    return release


def _proven(arrays: dict[str, NDArray[Any]], statement: WorkloadStatement) -> WorkloadRelease:
    """Return the release that arrays and a statement make, or raise if they prove nothing.

    That the noise gives the guarantee, and that the strategy has the stated sensitivity, is proven
    where `Release` and `WorkloadRelease` are made.
    """
    checked_stamp(statement)
    about_of(statement.about)  # raises if it is more than a few lines
    strategy, workload = _strategy_and_workload(arrays, statement)
    # Only these kinds of sets and noise are made by the mechanism, and only these can be stated.
    covariance = Isotropic(statement.covariance.scale)
    ball = statement.sensitivity
    release = WorkloadRelease(
        measurements=Release(
            value=_checked_measurements(arrays, covariance),
            sensitivity=FrobeniusBall(ball.bound, ball.neighbouring),
            covariance=covariance,
            guarantee=guarantee_of(statement.guarantee),
            mechanism=statement.mechanism,
        ),
        workload=workload,
        strategy=strategy,
        attributes=tuple(CellNames(each.name, each.labels) for each in statement.attributes)
        or None,
    )
    # Not a matter of privacy: without this, answers would be silently wrong.
    strategy.check_supports(workload)
    return release


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
    arrays: Mapping[str, NDArray[Any]], covariance: Isotropic
) -> NDArray[np.float64]:
    """Return one column of numbers that exact noise of a covariance can have left."""
    values = arrays.get(_MEASUREMENTS)
    # float64 exactly: other types have other grids, and integers would be converted silently.
    if values is None or values.dtype != np.float64 or values.ndim != 2:
        raise FileFormatError("its measurements are not a matrix of float64")
    if not can_be_released(values, covariance):
        raise FileFormatError("its measurements are not finite numbers on the grid of the noise")
    return values
