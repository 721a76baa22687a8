"""Differential privacy for matrix-valued queries.

Say what one record can change and what is to be guaranteed; get the least Gaussian noise that
guarantees it.
"""

from importlib.metadata import version

from matrixdp.errors import (
    BudgetExceededError,
    CalibrationError,
    InvalidParameterError,
    MatrixDPError,
    ShapeError,
)
from matrixdp.privacy.bound import privacy_bound, privacy_delta, privacy_epsilon
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.composition import composed_mu, group_mu
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from matrixdp.privacy.renyi import renyi_divergence, renyi_epsilon, renyi_to_epsilon

__all__ = [
    "Budget",
    "BudgetExceededError",
    "CalibrationError",
    "ErrorMeasure",
    "Filter",
    "Guarantee",
    "InvalidParameterError",
    "MatrixDPError",
    "Plan",
    "ShapeError",
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
]

__version__ = version("matrixdp")
