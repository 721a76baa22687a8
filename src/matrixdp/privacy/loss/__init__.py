"""Privacy loss distributions of Gaussian steps on Poisson samples: certified, and fast."""

from matrixdp.privacy.loss.account import Interval, LossAccount

__all__ = ["Interval", "LossAccount"]
