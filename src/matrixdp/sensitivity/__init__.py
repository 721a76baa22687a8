"""What one record can change: sets of possible differences, and how noise measures them."""

from matrixdp.sensitivity.radius import Radius
from matrixdp.sensitivity.sets import (
    Box,
    FrobeniusBall,
    RowBounds,
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
    "Box",
    "FrobeniusBall",
    "Radius",
    "RowBounds",
    "SensitivitySet",
    "SymmetricBall",
    "Verdict",
    "protects_ball",
    "protects_difference",
    "protects_repeated",
]
