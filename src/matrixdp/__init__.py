"""Differential privacy for matrix-valued queries.

Say what one record can change and what is to be guaranteed; get the least Gaussian noise that
guarantees it.

Mechanisms and what they release
    `IMGM`, `MatrixMechanism`, `Mechanism`, `Release`, `WorkloadRelease`, `ReleaseKey`
Budgets and guarantees
    `Budget`, `Filter`, `Guarantee`, `privacy_bound`, `privacy_delta`, `privacy_epsilon`,
    `plan_for_budget`, `plan_for_error`
What one record can change
    `FrobeniusBall`, `SymmetricBall`, `RowBounds`, `Box`
The shape of the noise
    `Isotropic`, `SymmetricIsotropic`, `Diagonal`, `Kronecker`, `OneSided`
From records to counts
    `histogram`
Errors
    `MatrixDPError`, `InvalidParameterError`, `BudgetExceededError`; all of them in `errors`
One level down
    `workloads` (linear queries and their best strategies), `privacy` (accountants, composition,
    Rényi divergences, claims), `baselines` (what IMGM is compared with), `audit` (what a claim or a
    mechanism is really worth), `postprocess` (free accuracy), `sensitivity`, `covariance`,
    `queries`; to be imported: `matrixdp.noise` (exact noise by itself), `matrixdp.files` (files
    larger than memory, saved strategies), `matrixdp.training` (private training in PyTorch)
"""

from importlib.metadata import version

from matrixdp import (
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
from matrixdp.covariance import Diagonal, Isotropic, Kronecker, OneSided, SymmetricIsotropic
from matrixdp.errors import BudgetExceededError, InvalidParameterError, MatrixDPError
from matrixdp.mechanisms.imgm import IMGM
from matrixdp.mechanisms.matrix_mechanism import MatrixMechanism, WorkloadRelease
from matrixdp.mechanisms.mechanism import Mechanism
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey
from matrixdp.privacy import (
    Budget,
    Filter,
    Guarantee,
    plan_for_budget,
    plan_for_error,
    privacy_bound,
    privacy_delta,
    privacy_epsilon,
)
from matrixdp.queries import histogram
from matrixdp.sensitivity import Box, FrobeniusBall, RowBounds, SymmetricBall

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

__version__ = version("matrixdp")
