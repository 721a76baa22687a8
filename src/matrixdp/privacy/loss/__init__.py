"""Privacy loss distributions of Gaussian steps on Poisson samples: certified, and fast."""

from matrixdp.privacy.loss.account import LossAccount
from matrixdp.privacy.loss.curve import Interval
from matrixdp.privacy.loss.envelope import PlanEnvelope, plan_envelope

__all__ = ["Interval", "LossAccount", "PlanEnvelope", "plan_envelope"]
