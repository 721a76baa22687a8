"""What a guarantee is: formulas only, no data and no randomness."""

from matrixdp.privacy.accountants import Accountant, plan_epsilon
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
from matrixdp.privacy.events import GaussianRelease, SampledPlan
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee, Neighbouring
from matrixdp.privacy.loss import Interval, LossAccount
from matrixdp.privacy.multiplier import noise_multiplier_for
from matrixdp.privacy.planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from matrixdp.privacy.renyi import renyi_divergence, renyi_epsilon, renyi_to_epsilon

__all__ = [
    "Accountant",
    "Budget",
    "Claim",
    "ErrorMeasure",
    "Filter",
    "GaussianRelease",
    "Guarantee",
    "Interval",
    "LossAccount",
    "Neighbouring",
    "Plan",
    "SampledClaim",
    "SampledPlan",
    "amplified",
    "before_amplification",
    "best_equal_claims",
    "composed_delta",
    "composed_epsilon",
    "composed_mu",
    "equal_claims",
    "group_mu",
    "noise_multiplier_for",
    "plan_epsilon",
    "plan_for_budget",
    "plan_for_error",
    "privacy_bound",
    "privacy_delta",
    "privacy_epsilon",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_to_epsilon",
]
