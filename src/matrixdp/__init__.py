"""Differential privacy for matrix-valued queries.

Say what one record can change and what is to be guaranteed; get the least Gaussian noise that
guarantees it.
"""

from importlib.metadata import version

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    Kronecker,
    SymmetricIsotropic,
)
from matrixdp.errors import (
    BudgetExceededError,
    CalibrationError,
    FileFormatError,
    InvalidParameterError,
    KeyStateError,
    MatrixDPError,
    NotPositiveDefiniteError,
    ShapeError,
    StorageError,
)
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease
from matrixdp.mechanisms.release import ConfidenceBounds, Release
from matrixdp.noise import ReleaseKey
from matrixdp.privacy.bound import privacy_bound, privacy_delta, privacy_epsilon
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu, group_mu
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from matrixdp.privacy.renyi import renyi_divergence, renyi_epsilon, renyi_to_epsilon
from matrixdp.sensitivity.sets import Box, FrobeniusBall, Radius, RowBounds, SymmetricBall
from matrixdp.sensitivity.theorems import Verdict, theorem_1, theorem_2, theorem_3
from matrixdp.workloads import OptimalStrategy, Strategy, optimal_strategy

__all__ = [
    "IMGM",
    "Box",
    "Budget",
    "BudgetExceededError",
    "CalibrationError",
    "ConfidenceBounds",
    "Covariance",
    "Diagonal",
    "ErrorMeasure",
    "FileFormatError",
    "Filter",
    "FrobeniusBall",
    "Guarantee",
    "InvalidParameterError",
    "Isotropic",
    "KeyStateError",
    "Kronecker",
    "MatrixDPError",
    "MatrixMechanism",
    "NotPositiveDefiniteError",
    "OptimalStrategy",
    "Plan",
    "Radius",
    "Release",
    "ReleaseKey",
    "RowBounds",
    "ShapeError",
    "StorageError",
    "Strategy",
    "SymmetricBall",
    "SymmetricIsotropic",
    "Verdict",
    "WorkloadRelease",
    "composed_mu",
    "group_mu",
    "optimal_strategy",
    "plan_for_budget",
    "plan_for_error",
    "privacy_bound",
    "privacy_delta",
    "privacy_epsilon",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_to_epsilon",
    "theorem_1",
    "theorem_2",
    "theorem_3",
]

__version__ = version("matrixdp")
