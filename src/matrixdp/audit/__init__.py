"""What mechanisms cost: comparison, the truth of a claim, and tests from samples."""

from matrixdp.audit.claim import ClaimAudit, audit_claim
from matrixdp.audit.empirical import (
    EmpiricalAudit,
    audit_mechanism,
    exposed_difference,
    release_sampler,
    simulation_sampler,
)

__all__ = [
    "ClaimAudit",
    "EmpiricalAudit",
    "audit_claim",
    "audit_mechanism",
    "exposed_difference",
    "release_sampler",
    "simulation_sampler",
]
