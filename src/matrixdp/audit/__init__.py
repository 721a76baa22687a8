"""The real cost of mechanisms: comparisons, audits of claims, and audits from samples."""

from matrixdp.audit.claim import ClaimAudit, audit_claim
from matrixdp.audit.comparison import Comparison, Contender, compare
from matrixdp.audit.empirical import (
    EmpiricalAudit,
    audit_mechanism,
    exposed_difference,
    release_sampler,
    simulation_sampler,
)

__all__ = [
    "ClaimAudit",
    "Comparison",
    "Contender",
    "EmpiricalAudit",
    "audit_claim",
    "audit_mechanism",
    "compare",
    "exposed_difference",
    "release_sampler",
    "simulation_sampler",
]


def __dir__() -> list[str]:
    return __all__
