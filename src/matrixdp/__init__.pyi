from . import (
    audit,
    baselines,
    covariance,
    errors,
    files,
    ledger,
    noise,
    postprocess,
    privacy,
    queries,
    report,
    sensitivity,
    workloads,
)
from . import distributed as distributed
from . import estimators as estimators
from . import training as training
from .covariance import Diagonal, Isotropic, Kronecker, SymmetricIsotropic
from .errors import BudgetExceededError, InvalidParameterError, MatrixDPError
from .mechanisms.imgm import IMGM
from .mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease
from .mechanisms.mechanism import Mechanism
from .mechanisms.release import Release
from .noise import ReleaseKey
from .privacy import (
    Budget,
    Guarantee,
    PrivacyFilter,
    plan_for_budget,
    plan_for_error,
    privacy_delta,
    privacy_epsilon,
    privacy_mu,
)
from .sensitivity import FrobeniusBall, RowBounds, RowBox, SymmetricBall

__version__: str

__all__ = [
    "IMGM",
    "Budget",
    "BudgetExceededError",
    "Diagonal",
    "FrobeniusBall",
    "Guarantee",
    "InvalidParameterError",
    "Isotropic",
    "Kronecker",
    "MatrixDPError",
    "MatrixMechanism",
    "Mechanism",
    "PrivacyFilter",
    "Release",
    "ReleaseKey",
    "RowBounds",
    "RowBox",
    "SymmetricBall",
    "SymmetricIsotropic",
    "WorkloadRelease",
    "audit",
    "baselines",
    "covariance",
    "errors",
    "files",
    "ledger",
    "noise",
    "plan_for_budget",
    "plan_for_error",
    "postprocess",
    "privacy",
    "privacy_delta",
    "privacy_epsilon",
    "privacy_mu",
    "queries",
    "report",
    "sensitivity",
    "workloads",
]
