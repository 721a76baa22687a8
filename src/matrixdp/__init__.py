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
    InvalidParameterError,
    MatrixDPError,
    NotPositiveDefiniteError,
    ShapeError,
)
from matrixdp.privacy.bound import privacy_bound, privacy_delta, privacy_epsilon
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu, group_mu
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from matrixdp.privacy.renyi import renyi_divergence, renyi_epsilon, renyi_to_epsilon
from matrixdp.sensitivity.sets import Box, FrobeniusBall, Radius, RowBounds, SymmetricBall
from matrixdp.sensitivity.theorems import Verdict, theorem_1, theorem_2, theorem_3

__all__ = [
    "Box",
    "Budget",
    "BudgetExceededError",
    "CalibrationError",
    "Covariance",
    "Diagonal",
    "ErrorMeasure",
    "Filter",
    "FrobeniusBall",
    "Guarantee",
    "InvalidParameterError",
    "Isotropic",
    "Kronecker",
    "MatrixDPError",
    "NotPositiveDefiniteError",
    "Plan",
    "Radius",
    "RowBounds",
    "ShapeError",
    "SymmetricBall",
    "SymmetricIsotropic",
    "Verdict",
    "composed_mu",
    "group_mu",
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
