"""What JSON statements hold, as typed records, and how these become the library's values.

Every record refuses unknown fields, and values of another type than the one that is written. The
numbers are written so that they read back to the same floats.
"""

from typing import Any, Literal, TypeAlias

import msgspec
from numpy.typing import NDArray

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    Kronecker,
    OneSided,
    SymmetricIsotropic,
)
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Guarantee, Neighbouring
from matrixdp.sensitivity.sets import (
    Box,
    FrobeniusBall,
    RowBounds,
    SensitivitySet,
    SymmetricBall,
)

__all__ = [
    "CovarianceRecord",
    "DigestRecord",
    "FrobeniusBallRecord",
    "GuaranteeRecord",
    "IsotropicRecord",
    "Record",
    "Rows",
    "SensitivityRecord",
    "covariance_of",
    "guarantee_of",
    "recorded_covariance",
    "recorded_guarantee",
    "recorded_sensitivity",
    "sensitivity_of",
]

Rows: TypeAlias = list[list[float]]


# Unknown fields are refused: a reader that skips them might miss what they restrict.
class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a statement."""


# The names of kinds are those of the classes, and part of the format: they must not change.
class _Kind(Record, frozen=True, tag_field="kind"):
    """One of several alternatives, which the field ``kind`` distinguishes."""


class GuaranteeRecord(Record, frozen=True):
    """A `Guarantee`."""

    epsilon: float
    delta: float
    mu: float
    neighbouring: Neighbouring
    records: int  # in how many records the data sets may differ: 1 for every release


class DigestRecord(Record, frozen=True):
    """The name and the digest of the file that a statement belongs to."""

    name: str  # when it was saved; files may be renamed, so it is not compared
    sha256: str  # 64 hexadecimal digits


class FrobeniusBallRecord(_Kind, frozen=True, tag="FrobeniusBall"):
    """A `FrobeniusBall`."""

    neighbouring: Neighbouring
    bound: float


class SymmetricBallRecord(_Kind, frozen=True, tag="SymmetricBall"):
    """A `SymmetricBall`."""

    neighbouring: Neighbouring
    bound: float


class RowBoundsRecord(_Kind, frozen=True, tag="RowBounds"):
    """`RowBounds`."""

    neighbouring: Neighbouring
    bounds: list[float]


class BoxRecord(_Kind, frozen=True, tag="Box"):
    """A `Box`."""

    neighbouring: Neighbouring
    bounds: list[float]
    weights: list[float]


class IsotropicRecord(_Kind, frozen=True, tag="Isotropic"):
    """An `Isotropic` covariance."""

    scale: float


class SymmetricIsotropicRecord(_Kind, frozen=True, tag="SymmetricIsotropic"):
    """A `SymmetricIsotropic` covariance."""

    scale: float


class DiagonalRecord(_Kind, frozen=True, tag="Diagonal"):
    """A `Diagonal` covariance."""

    scales: Rows  # of shape (m, n), (m, 1), (1, n) or (1, 1)


class KroneckerRecord(_Kind, frozen=True, tag="Kronecker"):
    """A `Kronecker` covariance."""

    # The covariances themselves, not factors of them: factors are not unique.
    row_covariance: Rows
    column_covariance: Rows


class OneSidedRecord(_Kind, frozen=True, tag="OneSided"):
    """A `OneSided` covariance."""

    side: Literal["rows", "columns"]
    covariance: Rows


SensitivityRecord: TypeAlias = (
    FrobeniusBallRecord | SymmetricBallRecord | RowBoundsRecord | BoxRecord
)
CovarianceRecord: TypeAlias = (
    IsotropicRecord | SymmetricIsotropicRecord | DiagonalRecord | KroneckerRecord | OneSidedRecord
)


def recorded_guarantee(guarantee: Guarantee) -> GuaranteeRecord:
    """Return the record of a guarantee."""
    return GuaranteeRecord(
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=guarantee.mu,
        neighbouring=guarantee.neighbouring,
        records=guarantee.records,
    )


def guarantee_of(record: GuaranteeRecord) -> Guarantee:
    """Return the guarantee of a record; raise if its mu does not prove it."""
    # The constructor computes what mu proves; nothing of the record is taken for granted.
    return Guarantee(**msgspec.structs.asdict(record))


def recorded_sensitivity(sensitivity: SensitivitySet) -> SensitivityRecord:
    """Return the record of a sensitivity set."""
    relation = sensitivity.neighbouring
    match sensitivity:
        case FrobeniusBall():
            return FrobeniusBallRecord(relation, sensitivity.bound)
        case SymmetricBall():
            return SymmetricBallRecord(relation, sensitivity.bound)
        case RowBounds():
            return RowBoundsRecord(relation, _numbers(sensitivity.bounds))
        case Box():
            # Weights are written even if all are 1, so that the record does not rest on a default.
            bounds, weights = _numbers(sensitivity.bounds), _numbers(sensitivity.weights)
            return BoxRecord(relation, bounds, weights)
    raise InvalidParameterError(f"a {type(sensitivity).__name__} cannot be saved")


def sensitivity_of(record: SensitivityRecord) -> SensitivitySet:
    """Return the sensitivity set of a record."""
    # No other case is left over: the type checker knows every kind of the union.
    match record:
        case FrobeniusBallRecord():
            return FrobeniusBall(record.bound, record.neighbouring)
        case SymmetricBallRecord():
            return SymmetricBall(record.bound, record.neighbouring)
        case RowBoundsRecord():
            return RowBounds(record.bounds, record.neighbouring)
        case BoxRecord():
            return Box(record.bounds, record.neighbouring, record.weights)


def recorded_covariance(covariance: Covariance) -> CovarianceRecord:
    """Return the record of a covariance."""
    match covariance:
        case Isotropic():
            return IsotropicRecord(covariance.scale)
        case SymmetricIsotropic():
            return SymmetricIsotropicRecord(covariance.scale)
        case Diagonal():
            return DiagonalRecord(_numbers(covariance.scales))
        case Kronecker():
            rows, columns = covariance.row_covariance, covariance.column_covariance
            return KroneckerRecord(_numbers(rows), _numbers(columns))
        case OneSided():
            return OneSidedRecord(covariance.side, _numbers(covariance.covariance))
    raise InvalidParameterError(f"a {type(covariance).__name__} cannot be saved")


def covariance_of(record: CovarianceRecord) -> Covariance:
    """Return the covariance of a record."""
    match record:
        case IsotropicRecord():
            return Isotropic(record.scale)
        case SymmetricIsotropicRecord():
            return SymmetricIsotropic(record.scale)
        case DiagonalRecord():
            return Diagonal(record.scales)
        case KroneckerRecord():
            return Kronecker(record.row_covariance, record.column_covariance)
        case OneSidedRecord():
            return OneSided(record.covariance, record.side)


def _numbers(array: NDArray[Any]) -> Any:
    """Return an array as nested lists of floats."""
    # Any, because the depth of the lists depends on the number of axes.
    return array.tolist()
