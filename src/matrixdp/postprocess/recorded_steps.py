"""Steps to and from the records that a file holds of them."""

from typing import Any

from matrixdp.errors import InvalidParameterError
from matrixdp.files.step_records import (
    ClampRecord,
    CorrelationMatrixRecord,
    EfronMorrisRecord,
    EntryThresholdRecord,
    JamesSteinRecord,
    PositiveSemidefiniteRecord,
    SimplexRecord,
    SingularValueShrinkageRecord,
    SingularValueThresholdRecord,
    StepRecord,
)
from matrixdp.postprocess.james_stein import EfronMorris, JamesStein
from matrixdp.postprocess.projections import (
    Clamp,
    CorrelationMatrix,
    PositiveSemidefinite,
    Simplex,
)
from matrixdp.postprocess.shrinkage import SingularValueShrinkage
from matrixdp.postprocess.step import FloatArray, Step
from matrixdp.postprocess.thresholds import EntryThreshold, SingularValueThreshold

__all__ = ["recorded_step", "step_of"]


def recorded_step(step: Step) -> StepRecord:
    """Return the record of a step, or raise if the library could not read it again."""
    record = _record(step)
    # A subclass from elsewhere may do something else than what the record says.
    if record is None or type(step_of(record)) is not type(step):
        raise InvalidParameterError(
            f"a {type(step).__name__} cannot be saved, because it is not part of the library: save "
            "the release, and process it again when it is loaded"
        )
    return record


def _record(step: Step) -> StepRecord | None:  # noqa: PLR0911 - one for each kind
    match step:
        case SingularValueShrinkage():
            return SingularValueShrinkageRecord(step.loss)
        case SingularValueThreshold():
            return SingularValueThresholdRecord(step.threshold)
        case EntryThreshold():
            return EntryThresholdRecord(step.threshold)
        case JamesStein():
            return JamesSteinRecord(_numbers(step.target))
        case EfronMorris():
            return EfronMorrisRecord()
        case PositiveSemidefinite():
            return PositiveSemidefiniteRecord()
        case CorrelationMatrix():
            return CorrelationMatrixRecord()
        case Simplex():
            return SimplexRecord(step.total, step.over)
        case Clamp():
            return ClampRecord(_numbers(step.lower), _numbers(step.upper))
    return None


def step_of(record: StepRecord) -> Step:  # noqa: PLR0911 - one for each kind
    """Return the step of a record."""
    match record:
        case SingularValueShrinkageRecord():
            return SingularValueShrinkage(record.loss)
        case SingularValueThresholdRecord():
            return SingularValueThreshold(record.threshold)
        case EntryThresholdRecord():
            return EntryThreshold(record.threshold)
        case JamesSteinRecord():
            return JamesStein(record.target)
        case EfronMorrisRecord():
            return EfronMorris()
        case PositiveSemidefiniteRecord():
            return PositiveSemidefinite()
        case CorrelationMatrixRecord():
            return CorrelationMatrix()
        case SimplexRecord():
            return Simplex(record.total, record.over)
        case ClampRecord():
            return Clamp(record.lower, record.upper)


def _numbers(matrix: FloatArray | None) -> Any:
    """Return a matrix as nested lists of floats."""
    return None if matrix is None else matrix.tolist()
