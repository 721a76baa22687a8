from .accountants import Accountant, plan_epsilon
from .amplification import SampledClaim, amplified, before_amplification
from .bound import privacy_delta, privacy_epsilon, privacy_mu
from .budget import Budget
from .claims import (
    Claim,
    best_equal_claims,
    composed_delta,
    composed_epsilon,
    equal_claims,
    unequal_claims_epsilon,
)
from .composition import composed_mu, group_mu
from .events import GaussianRelease, SampledPlan
from .filter import PrivacyFilter
from .guarantee import Guarantee, Neighbouring
from .loss import Interval, LossAccount, PlanEnvelope, plan_envelope
from .multiplier import noise_multiplier_for
from .planner import ErrorMeasure, Plan, plan_for_budget, plan_for_error
from .renyi import renyi_divergence, renyi_epsilon, renyi_to_epsilon

__all__ = [
    "Accountant",
    "Budget",
    "Claim",
    "ErrorMeasure",
    "GaussianRelease",
    "Guarantee",
    "Interval",
    "LossAccount",
    "Neighbouring",
    "Plan",
    "PlanEnvelope",
    "PrivacyFilter",
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
    "plan_envelope",
    "plan_epsilon",
    "plan_for_budget",
    "plan_for_error",
    "privacy_delta",
    "privacy_epsilon",
    "privacy_mu",
    "renyi_divergence",
    "renyi_epsilon",
    "renyi_to_epsilon",
    "unequal_claims_epsilon",
]
