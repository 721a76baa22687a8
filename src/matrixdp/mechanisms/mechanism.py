"""The interface of all mechanisms."""

from typing import Any, Protocol

import numpy as np

from matrixdp.covariance import Covariance
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey, SimulatedValue
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["Mechanism"]


# A protocol, not a base class: a user's own mechanism need not derive from anything.
class Mechanism(Protocol):
    """Built from what one record can change and what is to be guaranteed; releases matrices."""

    @property
    def sensitivity(self) -> SensitivitySet:
        """What one record can change."""

    @property
    def budget(self) -> Budget:
        """What the mechanism was built to guarantee."""

    @property
    def covariance(self) -> Covariance:
        """How its noise is shaped."""

    @property
    def guarantee(self) -> Guarantee:
        """What every release promises."""

    def release(
        self,
        matrix: Any,
        *,
        key: ReleaseKey | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> Release:
        """Return the matrix with exact noise, and what that guarantees; a filter pays for it."""

    def simulate(self, matrix: Any, generator: np.random.Generator) -> SimulatedValue:
        """Return the matrix with seeded noise of the same covariance, for experiments only."""
