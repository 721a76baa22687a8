"""Differential privacy for matrix-valued queries.

Say what one record can change and what is to be guaranteed; get the least Gaussian noise that
guarantees it.
"""

from importlib.metadata import version

from matrixdp.audit.claim import ClaimAudit, audit_claim
from matrixdp.audit.empirical import (
    EmpiricalAudit,
    audit_mechanism,
    exposed_difference,
    released,
    simulated,
)
from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Isotropic,
    Kronecker,
    OneSided,
    SymmetricIsotropic,
)
from matrixdp.errors import (
    BudgetExceededError,
    CalibrationError,
    FileFormatError,
    InvalidParameterError,
    KeyStateError,
    MatrixDPError,
    MissingExtraError,
    NotPositiveDefiniteError,
    ShapeError,
    StorageError,
)
from matrixdp.mechanisms.analytic import AnalyticGaussian
from matrixdp.mechanisms.classic import ClassicGaussian
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.mvg import MVG, binary_precision
from matrixdp.mechanisms.private_directions import PrivateDirections, private_directions
from matrixdp.mechanisms.release import ConfidenceBounds, Release
from matrixdp.noise import ReleaseKey
from matrixdp.privacy.accountants import (
    Accountant,
    SampledPlan,
    noise_multiplier_for,
    plan_epsilon,
)
from matrixdp.privacy.amplification import SampledClaim, amplified, before_amplification
from matrixdp.privacy.bound import privacy_bound, privacy_delta, privacy_epsilon
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.claims import (
    Claim,
    best_equal_claims,
    composed_delta,
    composed_epsilon,
    equal_claims,
)
from matrixdp.privacy.composition import composed_mu, group_mu
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.mvg import Zeta, mvg_precision_budget
from matrixdp.privacy.planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from matrixdp.privacy.renyi import renyi_divergence, renyi_epsilon, renyi_to_epsilon
from matrixdp.sensitivity.sets import Box, FrobeniusBall, Radius, RowBounds, SymmetricBall
from matrixdp.sensitivity.theorems import Verdict, theorem_1, theorem_2, theorem_3
from matrixdp.workloads import OptimalStrategy, Strategy, optimal_strategy

__all__ = [
    "IMGM",
    "MVG",
    "Accountant",
    "AnalyticGaussian",
    "Box",
    "Budget",
    "BudgetExceededError",
    "CalibrationError",
    "Claim",
    "ClaimAudit",
    "ClassicGaussian",
    "ConfidenceBounds",
    "Covariance",
    "Diagonal",
    "EmpiricalAudit",
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
    "Mechanism",
    "MissingExtraError",
    "NotPositiveDefiniteError",
    "OneSided",
    "OptimalStrategy",
    "Plan",
    "PrivateDirections",
    "Radius",
    "Release",
    "ReleaseKey",
    "RowBounds",
    "SampledClaim",
    "SampledPlan",
    "ShapeError",
    "StorageError",
    "Strategy",
    "SymmetricBall",
    "SymmetricIsotropic",
    "Verdict",
    "WorkloadRelease",
    "Zeta",
    "amplified",
    "audit_claim",
    "audit_mechanism",
    "before_amplification",
    "best_equal_claims",
    "binary_precision",
    "composed_delta",
    "composed_epsilon",
    "composed_mu",
    "equal_claims",
    "exposed_difference",
    "group_mu",
    "mvg_precision_budget",
    "noise_multiplier_for",
    "optimal_strategy",
    "plan_epsilon",
    "plan_for_budget",
    "plan_for_error",
    "privacy_bound",
    "privacy_delta",
    "privacy_epsilon",
    "private_directions",
    "released",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_to_epsilon",
    "simulated",
    "theorem_1",
    "theorem_2",
    "theorem_3",
]

__version__ = version("matrixdp")
