"""Sensitivity sets: all that one record can change, and how noise measures it."""

from matrixdp.sensitivity.radius import Radius
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import (
    FrobeniusBall,
    RowBounds,
    RowBox,
    SensitivitySet,
    SymmetricBall,
)
from matrixdp.sensitivity.verdicts import (
    Verdict,
    protects_ball,
    protects_difference,
    protects_repeated,
)

__all__ = [
    "FrobeniusBall",
    "Radius",
    "RowBounds",
    "RowBox",
    "ScaledBall",
    "ScaledSymmetricBall",
    "SensitivitySet",
    "SymmetricBall",
    "Verdict",
    "protects_ball",
    "protects_difference",
    "protects_repeated",
]


def __dir__() -> list[str]:
    return __all__
