"""The real cost of mechanisms: comparisons, audits of claims, and audits from samples."""

from matrixdp.audit.claim import (
    ClaimAudit,
    SampledClaimAudit,
    audit_claim,
    audit_sampled_claim,
)
from matrixdp.audit.comparison import Comparison, Contender, compare
from matrixdp.audit.empirical import (
    EmpiricalAudit,
    audit_mechanism,
    exposed_difference,
    release_sampler,
    simulation_sampler,
)
from matrixdp.audit.rank_one import rank_one_delta, rank_one_noise_scale

__all__ = [
    "ClaimAudit",
    "Comparison",
    "Contender",
    "EmpiricalAudit",
    "SampledClaimAudit",
    "audit_claim",
    "audit_mechanism",
    "audit_sampled_claim",
    "compare",
    "exposed_difference",
    "rank_one_delta",
    "rank_one_noise_scale",
    "release_sampler",
    "simulation_sampler",
]


def __dir__() -> list[str]:
    return __all__
