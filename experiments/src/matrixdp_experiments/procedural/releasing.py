"""Sums of integers with noise: exact for a release, simulated for choosing settings."""

from fractions import Fraction
from typing import Final, Protocol

import numpy as np
import torch
from torch import Tensor

from matrixdp import IMGM, Budget, FrobeniusBall, PrivacyFilter
from matrixdp.errors import InvalidParameterError
from matrixdp.rounding import sqrt_up
from matrixdp_experiments.procedural.integers import EXACT

__all__ = ["ExactNoise", "Noise", "SimulatedNoise", "check_exact", "mechanism_for"]

NEIGHBOURING: Final = "add-remove"


def check_exact(largest_term: int, records: int) -> None:
    """Raise unless so many integers of at most this size add up exactly in float64."""
    if not largest_term * records <= EXACT:
        raise InvalidParameterError(
            f"records={records} of up to {largest_term} steps may add up to more than 2**53: use "
            "fewer records, or a coarser grid"
        )


def mechanism_for(squared_bound: int, budget: Budget) -> IMGM:
    """Return the mechanism of a sum of integers that one record moves by at most a norm.

    Parameters
    ----------
    squared_bound : int
        The square of that norm.
    budget : Budget
        Of this release.
    """
    bound = sqrt_up(Fraction(squared_bound))
    return IMGM(FrobeniusBall(bound, neighbouring=NEIGHBOURING), budget)


class Noise(Protocol):
    """What adds noise to a sum."""

    def __call__(self, total: Tensor, mechanism: IMGM) -> Tensor:
        """Return the sum with the mechanism's noise, on the same device."""


class ExactNoise:
    """Exact noise, paid from a filter.

    Attributes
    ----------
    privacy_filter : PrivacyFilter
        What pays; its guarantee is that of everything released.
    """

    def __init__(self, whole: Budget) -> None:
        self.privacy_filter = PrivacyFilter(whole, neighbouring=NEIGHBOURING)

    def __call__(self, total: Tensor, mechanism: IMGM) -> Tensor:
        """Return a release."""
        release = mechanism.release(total.cpu().numpy(), privacy_filter=self.privacy_filter)
        return torch.from_numpy(release.value).to(total.device)


class SimulatedNoise:
    """Seeded float noise of the same scale; it protects nothing."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def __call__(self, total: Tensor, mechanism: IMGM) -> Tensor:
        """Return the sum with simulated noise."""
        noisy = mechanism.simulate(total.cpu().numpy(), self._generator)
        return torch.from_numpy(noisy.array).to(total.device)
