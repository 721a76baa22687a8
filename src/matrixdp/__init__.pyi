from . import (
    audit,
    baselines,
    covariance,
    errors,
    postprocess,
    privacy,
    queries,
    sensitivity,
    workloads,
)
from .covariance import Diagonal, Isotropic, Kronecker, OneSided, SymmetricIsotropic
from .errors import BudgetExceededError, InvalidParameterError, MatrixDPError
from .mechanisms.imgm import IMGM
from .mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease
from .mechanisms.mechanism import Mechanism
from .mechanisms.release import Release
from .noise import ReleaseKey
from .privacy import (
    Budget,
    Filter,
    Guarantee,
    plan_for_budget,
    plan_for_error,
    privacy_bound,
    privacy_delta,
    privacy_epsilon,
)
from .queries import histogram
from .sensitivity import Box, FrobeniusBall, RowBounds, SymmetricBall

__version__: str

__all__ = [
    "IMGM",
    "Box",
    "Budget",
    "BudgetExceededError",
    "Diagonal",
    "Filter",
    "FrobeniusBall",
    "Guarantee",
    "InvalidParameterError",
    "Isotropic",
    "Kronecker",
    "MatrixDPError",
    "MatrixMechanism",
    "Mechanism",
    "OneSided",
    "Release",
    "ReleaseKey",
    "RowBounds",
    "SymmetricBall",
    "SymmetricIsotropic",
    "WorkloadRelease",
    "audit",
    "baselines",
    "covariance",
    "errors",
    "histogram",
    "plan_for_budget",
    "plan_for_error",
    "postprocess",
    "privacy",
    "privacy_bound",
    "privacy_delta",
    "privacy_epsilon",
    "queries",
    "sensitivity",
    "workloads",
]
