"""The schema of a step of post-processing; kinds and parameters are part of the format."""

from typing import Literal, get_args

from msgspec import UNSET, UnsetType

from matrixdp.files.schemas.values import Rows, Schema

__all__ = ["PARAMETERS", "StepKind", "StepSchema"]

StepKind = Literal[
    "SingularValueShrinkage",
    "SingularValueThreshold",
    "EntryThreshold",
    "JamesStein",
    "EfronMorris",
    "PositiveSemidefinite",
    "CorrelationMatrix",
    "Simplex",
    "Clamp",
]

PARAMETERS: dict[StepKind, tuple[str, ...]] = dict.fromkeys(get_args(StepKind), ()) | {
    "SingularValueShrinkage": ("loss",),
    "SingularValueThreshold": ("threshold",),
    "EntryThreshold": ("threshold",),
    "JamesStein": ("target",),
    "Simplex": ("total", "over"),
    "Clamp": ("lower", "upper"),
}
"""The parameters of every kind: a statement holds all of them, and no others."""


class StepSchema(Schema, frozen=True):
    """A step, by the name of its class and its parameters."""

    kind: StepKind
    loss: Literal["frobenius", "operator", "nuclear"] | UnsetType = UNSET
    threshold: float | UnsetType | None = UNSET  # None: the one that follows from the noise
    target: Rows | UnsetType | None = UNSET  # None: all zeros
    total: float | UnsetType = UNSET
    over: Literal["matrix", "rows"] | UnsetType = UNSET
    # Of shape (m, n), (m, 1), (1, n) or (1, 1).
    lower: Rows | UnsetType | None = UNSET
    upper: Rows | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        """Raise unless the parameters are those of the kind."""
        given = tuple(
            name
            for name in self.__struct_fields__
            if name != "kind" and getattr(self, name) is not UNSET
        )
        if given != PARAMETERS[self.kind]:
            # msgspec makes a ValidationError of it that names the field.
            raise ValueError(f"a {self.kind} has the parameters {PARAMETERS[self.kind]}")
