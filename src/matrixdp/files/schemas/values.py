"""Typed schemas of what JSON statements hold, to and from the library's values.

Every schema refuses unknown fields, and values of another type than the one that is written. The
numbers are written so that they read back to the same floats.
"""

from typing import Annotated, Any, TypeAlias

import msgspec
from numpy.typing import NDArray

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    Kronecker,
    SymmetricDiagonal,
    SymmetricIsotropic,
)
from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Guarantee, Neighbouring
from matrixdp.privacy.payment import Evidence
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import (
    FrobeniusBall,
    RowBounds,
    RowBox,
    SensitivitySet,
    SymmetricBall,
)

__all__ = [
    "CovarianceSchema",
    "DigestSchema",
    "EvidenceSchema",
    "FrobeniusBallSchema",
    "GuaranteeSchema",
    "IsotropicSchema",
    "MechanismName",
    "Rows",
    "Schema",
    "SensitivitySchema",
    "covariance_of",
    "guarantee_of",
    "sensitivity_of",
    "stated_covariance",
    "stated_evidence",
    "stated_guarantee",
    "stated_sensitivity",
]

Rows: TypeAlias = list[list[float]]

# Texts of a statement that nothing else proves: none has room for data, and each is safe to print.
MechanismName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\W\d]\w{0,99}\Z")]
_FileName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^/\x00]{1,255}\Z")]
_AccountName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[\w.@+/-]{1,200}\Z")]
_LedgerName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
_Digest: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


# Unknown fields are refused: a reader that skips them might miss what they restrict.
class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a statement."""


# The names of kinds are those of the classes, and part of the format: they must not change.
class _Kind(Schema, frozen=True, tag_field="kind"):
    """One of several alternatives, which the field ``kind`` distinguishes."""


class GuaranteeSchema(Schema, frozen=True):
    """A `Guarantee`."""

    epsilon: float
    delta: float
    mu: float
    neighbouring: Neighbouring
    records: int  # in how many records the data sets may differ: 1 for every release


class DigestSchema(Schema, frozen=True):
    """The name and the digest of the file that a statement belongs to."""

    name: _FileName  # when it was saved; files may be renamed, so it is not compared
    sha256: str  # 64 hexadecimal digits


class EvidenceSchema(Schema, frozen=True):
    """Where the payment for a release stands in a ledger."""

    ledger: _LedgerName
    account: _AccountName
    sequence: int
    digest: _Digest  # of the entry: it ties the statement to all entries up to there


class FrobeniusBallSchema(_Kind, frozen=True, tag="FrobeniusBall"):
    """A `FrobeniusBall`."""

    neighbouring: Neighbouring
    bound: float


class _SymmetricBallSchema(_Kind, frozen=True, tag="SymmetricBall"):
    """A `SymmetricBall`."""

    neighbouring: Neighbouring
    bound: float


class _RowBoundsSchema(_Kind, frozen=True, tag="RowBounds"):
    """`RowBounds`."""

    neighbouring: Neighbouring
    bounds: list[float]


class _RowBoxSchema(_Kind, frozen=True, tag="RowBox"):
    """A `RowBox`."""

    neighbouring: Neighbouring
    bounds: list[float]
    weights: list[float]


class _ScaledBallSchema(_Kind, frozen=True, tag="ScaledBall"):
    """A `ScaledBall`."""

    neighbouring: Neighbouring
    bound: float
    rows: list[float]
    columns: list[float]


class _ScaledSymmetricBallSchema(_Kind, frozen=True, tag="ScaledSymmetricBall"):
    """A `ScaledSymmetricBall`."""

    neighbouring: Neighbouring
    bound: float
    units: list[float]


class IsotropicSchema(_Kind, frozen=True, tag="Isotropic"):
    """An `Isotropic` covariance."""

    scale: float


class _SymmetricIsotropicSchema(_Kind, frozen=True, tag="SymmetricIsotropic"):
    """A `SymmetricIsotropic` covariance."""

    scale: float


class _SymmetricDiagonalSchema(_Kind, frozen=True, tag="SymmetricDiagonal"):
    """A `SymmetricDiagonal` covariance."""

    scales: list[float]


class _DiagonalSchema(_Kind, frozen=True, tag="Diagonal"):
    """A `Diagonal` covariance."""

    scales: Rows  # of shape (m, n), (m, 1), (1, n) or (1, 1)


class _KroneckerSchema(_Kind, frozen=True, tag="Kronecker"):
    """A `Kronecker` covariance."""

    # The covariances themselves, not factors of them: factors are not unique.
    rows: Rows | None
    columns: Rows | None


SensitivitySchema: TypeAlias = (
    FrobeniusBallSchema
    | _SymmetricBallSchema
    | _RowBoundsSchema
    | _RowBoxSchema
    | _ScaledBallSchema
    | _ScaledSymmetricBallSchema
)
CovarianceSchema: TypeAlias = (
    IsotropicSchema
    | _SymmetricIsotropicSchema
    | _SymmetricDiagonalSchema
    | _DiagonalSchema
    | _KroneckerSchema
)


def stated_guarantee(guarantee: Guarantee) -> GuaranteeSchema:
    """Return the schema of a guarantee."""
    return GuaranteeSchema(
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        mu=guarantee.mu,
        neighbouring=guarantee.neighbouring,
        records=guarantee.records,
    )


def stated_evidence(evidence: Evidence | None) -> EvidenceSchema | None:
    """Return the schema of a payment's evidence, if a ledger paid."""
    if evidence is None:
        return None
    return EvidenceSchema(
        ledger=evidence.ledger,
        account=evidence.account,
        sequence=evidence.sequence,
        digest=evidence.digest,
    )


def guarantee_of(schema: GuaranteeSchema) -> Guarantee:
    """Return the guarantee of a schema; raise if its mu does not prove it."""
    # The constructor computes what mu proves; nothing of the schema is taken for granted.
    return Guarantee(**msgspec.structs.asdict(schema))


def stated_sensitivity(sensitivity: SensitivitySet) -> SensitivitySchema:
    """Return the schema of a sensitivity set."""
    relation = sensitivity.neighbouring
    match sensitivity:
        case FrobeniusBall():
            return FrobeniusBallSchema(relation, sensitivity.bound)
        case SymmetricBall():
            return _SymmetricBallSchema(relation, sensitivity.bound)
        case RowBounds():
            return _RowBoundsSchema(relation, _numbers(sensitivity.bounds))
        case RowBox():
            # Weights are written even if all are 1, so that the schema does not rest on a default.
            bounds, weights = _numbers(sensitivity.bounds), _numbers(sensitivity.weights)
            return _RowBoxSchema(relation, bounds, weights)
        case ScaledBall(bound=bound):
            rows, columns = _numbers(sensitivity.rows), _numbers(sensitivity.columns)
            return _ScaledBallSchema(relation, bound, rows, columns)
        case ScaledSymmetricBall(bound=bound):
            return _ScaledSymmetricBallSchema(relation, bound, _numbers(sensitivity.units))
    raise InvalidParameterError(f"a {type(sensitivity).__name__} cannot be saved")


def sensitivity_of(schema: SensitivitySchema) -> SensitivitySet:
    """Return the sensitivity set of a schema."""
    # No other case is left over: the type checker knows every kind of the union.
    match schema:
        case FrobeniusBallSchema():
            return FrobeniusBall(schema.bound, schema.neighbouring)
        case _SymmetricBallSchema():
            return SymmetricBall(schema.bound, schema.neighbouring)
        case _RowBoundsSchema():
            return RowBounds(schema.bounds, schema.neighbouring)
        case _RowBoxSchema():
            return RowBox(schema.bounds, schema.neighbouring, schema.weights)
        case _ScaledBallSchema():
            return ScaledBall(schema.bound, schema.rows, schema.columns, schema.neighbouring)
        case _ScaledSymmetricBallSchema():
            return ScaledSymmetricBall(schema.bound, schema.units, schema.neighbouring)


def stated_covariance(covariance: Covariance) -> CovarianceSchema:
    """Return the schema of a covariance."""
    match covariance:
        case Isotropic():
            return IsotropicSchema(covariance.scale)
        case SymmetricIsotropic():
            return _SymmetricIsotropicSchema(covariance.scale)
        case SymmetricDiagonal():
            return _SymmetricDiagonalSchema(_numbers(covariance.scales))
        case Diagonal():
            return _DiagonalSchema(_numbers(covariance.scales))
        case Kronecker():
            rows, columns = (
                None if side is None else _numbers(side)
                for side in (covariance.rows, covariance.columns)
            )
            return _KroneckerSchema(rows, columns)
    raise InvalidParameterError(f"a {type(covariance).__name__} cannot be saved")


def covariance_of(schema: CovarianceSchema) -> Covariance:
    """Return the covariance of a schema."""
    match schema:
        case IsotropicSchema():
            return Isotropic(schema.scale)
        case _SymmetricIsotropicSchema():
            return SymmetricIsotropic(schema.scale)
        case _SymmetricDiagonalSchema():
            return SymmetricDiagonal(schema.scales)
        case _DiagonalSchema():
            return Diagonal(schema.scales)
        case _KroneckerSchema():
            return Kronecker(schema.rows, schema.columns)


def _numbers(array: NDArray[Any]) -> Any:
    """Return an array as nested lists of floats."""
    # Any, because the depth of the lists depends on the number of axes.
    return array.tolist()
