"""Steps of post-processing, as typed records; their kinds are part of the format."""

from typing import Literal, TypeAlias

from matrixdp.files.records import Record, Rows

__all__ = [
    "ClampRecord",
    "CorrelationMatrixRecord",
    "EfronMorrisRecord",
    "EntryThresholdRecord",
    "JamesSteinRecord",
    "PositiveSemidefiniteRecord",
    "SimplexRecord",
    "SingularValueShrinkageRecord",
    "SingularValueThresholdRecord",
    "StepRecord",
]


class _Kind(Record, frozen=True, tag_field="kind"):
    """One of several steps, which the field ``kind`` distinguishes."""


class SingularValueShrinkageRecord(_Kind, frozen=True, tag="SingularValueShrinkage"):
    """A `SingularValueShrinkage`."""

    loss: Literal["frobenius", "operator", "nuclear"]


# In these two, no threshold means the one that follows from the noise.
class SingularValueThresholdRecord(_Kind, frozen=True, tag="SingularValueThreshold"):
    """A `SingularValueThreshold`."""

    threshold: float | None


class EntryThresholdRecord(_Kind, frozen=True, tag="EntryThreshold"):
    """An `EntryThreshold`."""

    threshold: float | None


class JamesSteinRecord(_Kind, frozen=True, tag="JamesStein"):
    """A `JamesStein`; without a target it is all zeros."""

    target: Rows | None


class EfronMorrisRecord(_Kind, frozen=True, tag="EfronMorris"):
    """An `EfronMorris`."""


class PositiveSemidefiniteRecord(_Kind, frozen=True, tag="PositiveSemidefinite"):
    """A `PositiveSemidefinite`."""


class CorrelationMatrixRecord(_Kind, frozen=True, tag="CorrelationMatrix"):
    """A `CorrelationMatrix`."""


class SimplexRecord(_Kind, frozen=True, tag="Simplex"):
    """A `Simplex`."""

    total: float
    over: Literal["matrix", "rows"]


class ClampRecord(_Kind, frozen=True, tag="Clamp"):
    """A `Clamp`; its bounds have the shape (m, n), (m, 1), (1, n) or (1, 1)."""

    lower: Rows | None
    upper: Rows | None


StepRecord: TypeAlias = (
    SingularValueShrinkageRecord
    | SingularValueThresholdRecord
    | EntryThresholdRecord
    | JamesSteinRecord
    | EfronMorrisRecord
    | PositiveSemidefiniteRecord
    | CorrelationMatrixRecord
    | SimplexRecord
    | ClampRecord
)
