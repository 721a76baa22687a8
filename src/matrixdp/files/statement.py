"""What a saved release says of itself: a JSON file beside it, with a versioned schema.

It states the guarantee, the noise and a digest of the file, and nothing of the input. Reading it
back proves the guarantee again: the noise must give the mu, and the mu the epsilon.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Directional,
    Isotropic,
    Kronecker,
    OneSided,
    SymmetricIsotropic,
)
from matrixdp.errors import FileFormatError, InvalidParameterError, MatrixDPError
from matrixdp.mechanisms.proof import NoiseProof, check_proven
from matrixdp.noise import NOISE_VERSION
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import (
    Box,
    FrobeniusBall,
    RowBounds,
    SensitivitySet,
    SymmetricBall,
)

__all__ = [
    "SCHEMA",
    "Statement",
    "read_statement",
    "read_with_statement",
    "statement_path",
]

SCHEMA = "matrixdp-release/2"
_OLD_SCHEMA = "matrixdp-release/1"
_KEYS = {
    *("schema", "mechanism", "guarantee", "in_words"),
    *("sensitivity", "covariance", "noise", "file"),
}


def statement_path(path: Path) -> Path:
    """Return where the statement of a file lies: beside it, with ``.json`` added to its name."""
    return path.with_name(path.name + ".json")


def read_with_statement(source: Path, what: str) -> tuple[bytes, str]:
    """Return the content of a file and the text of the statement beside it.

    Raises
    ------
    FileFormatError
        If one of them is missing, or no file, or the statement is no text.
    """
    try:
        return source.read_bytes(), statement_path(source).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise FileFormatError(
            f"{error.filename} is missing: {what} lies in a file with its .json statement beside it"
        ) from error
    except IsADirectoryError as error:
        raise FileFormatError(f"{error.filename} is a folder: name a file in it") from error
    except UnicodeDecodeError:
        raise FileFormatError(f"{source.name}.json is not a statement of {what}") from None


@dataclass(frozen=True, eq=False, kw_only=True)
class Statement:
    """What is said of a saved release.

    ``file`` holds ``name``, ``sha256``, ``shape`` and ``dtype`` of the file that it speaks of, and
    for CSV whether it has a ``header`` and an ``index``.
    """

    mechanism: str
    sensitivity: SensitivitySet
    covariance: Covariance
    guarantee: Guarantee
    file: Mapping[str, Any]
    floor: float | None = None

    def to_json(self) -> str:
        """Return the statement as JSON; numbers read back to the same floats."""
        record: dict[str, Any] = {
            "schema": SCHEMA,
            "mechanism": self.mechanism,
            "guarantee": asdict(self.guarantee),
            "in_words": str(self.guarantee),
            "sensitivity": _sensitivity_record(self.sensitivity),
            "covariance": _covariance_record(self.covariance),
            "noise": NOISE_VERSION,
            "file": dict(self.file),
        }
        if self.floor is not None:
            record["floor"] = self.floor
        return json.dumps(record, indent=2, allow_nan=False) + "\n"

    def __post_init__(self) -> None:
        """Refuse a guarantee that does not follow from the sensitivity and the covariance."""
        check_proven(self.guarantee, self.sensitivity, self.covariance, self.floor)


def read_statement(text: str, name: str) -> Statement:
    """Return a statement, or say what is wrong with it.

    Raises
    ------
    FileFormatError
        If the text is no such statement, or what it claims does not follow from what it says.
    """
    try:
        record = json.loads(text)
        schema = record["schema"]
    except (KeyError, TypeError, ValueError, RecursionError):
        raise FileFormatError(f"{name} is not a statement of a release") from None
    if schema not in (SCHEMA, _OLD_SCHEMA):
        raise FileFormatError(f"{name} has schema {schema!r}: this version reads {SCHEMA!r}")
    if set(record) - {"floor"} != _KEYS or not isinstance(record["mechanism"], str):
        raise FileFormatError(f"{name} does not say what a statement says, no more and no less")
    try:
        sensitivity = _sensitivity_of(record["sensitivity"])
        covariance = _covariance_of(record["covariance"])
        claimed = proven = Guarantee(**record["guarantee"])
        if schema == _OLD_SCHEMA and isinstance(covariance, Directional):
            proven = NoiseProof(sensitivity, covariance).restated(claimed)
        statement = Statement(
            mechanism=record["mechanism"],
            sensitivity=sensitivity,
            covariance=covariance,
            guarantee=proven,
            file=dict(record["file"]),
            floor=record.get("floor"),
        )
        said = (record["noise"], record["in_words"])
    except (AttributeError, KeyError, TypeError, ValueError, MatrixDPError) as error:
        raise FileFormatError(
            f"{name} is not a statement of a release, or was altered ({error})"
        ) from error
    if said != (NOISE_VERSION, str(claimed)):
        raise FileFormatError(f"{name} says other words or other noise than it proves: altered")
    return statement


def _sensitivity_record(sensitivity: SensitivitySet) -> dict[str, Any]:
    record: dict[str, Any] = {
        "kind": type(sensitivity).__name__,
        "neighbouring": sensitivity.neighbouring,
    }
    if isinstance(sensitivity, FrobeniusBall | SymmetricBall):
        return record | {"bound": sensitivity.bound}
    record |= {"bounds": sensitivity.bounds.tolist()}
    return (
        record
        if isinstance(sensitivity, RowBounds)
        else record | {"weights": sensitivity.weights.tolist()}
    )


def _sensitivity_of(record: Mapping[str, Any]) -> SensitivitySet:
    kinds = {kind.__name__: kind for kind in (FrobeniusBall, SymmetricBall, RowBounds, Box)}
    arguments = {name: value for name, value in record.items() if name != "kind"}
    return kinds[record["kind"]](**arguments)


def _covariance_record(covariance: Covariance) -> dict[str, Any]:
    match covariance:
        case Isotropic() | SymmetricIsotropic():
            return {"kind": type(covariance).__name__, "scale": covariance.scale}
        case Diagonal():
            return {"kind": "Diagonal", "scales": covariance.scales.tolist()}
        case Kronecker():
            return {
                "kind": "Kronecker",
                "row_covariance": covariance.row_covariance.tolist(),
                "column_covariance": covariance.column_covariance.tolist(),
            }
        case OneSided():
            return {
                "kind": "OneSided",
                "side": covariance.side,
                "covariance": covariance.covariance.tolist(),
            }
    raise InvalidParameterError(f"a {type(covariance).__name__} cannot be saved")


def _covariance_of(record: Mapping[str, Any]) -> Covariance:
    match record["kind"]:
        case "Isotropic":
            return Isotropic(record["scale"])
        case "SymmetricIsotropic":
            return SymmetricIsotropic(record["scale"])
        case "Diagonal":
            return Diagonal(record["scales"])
        case "Kronecker":
            return Kronecker(record["row_covariance"], record["column_covariance"])
        case "OneSided":
            return OneSided(record["covariance"], record["side"])
    raise FileFormatError(f"covariance of kind {record['kind']!r} is not known")
