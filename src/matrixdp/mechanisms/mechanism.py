"""The interface of all mechanisms."""

from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from matrixdp.covariance import Covariance
from matrixdp.noise import ReleaseKey, SimulatedValue
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.privacy.payment import Payer
from matrixdp.sensitivity.sets import SensitivitySet

if TYPE_CHECKING:
    from matrixdp.mechanisms.release import Release
    from matrixdp.mechanisms.workload_release import WorkloadRelease

__all__ = ["Mechanism"]

R_co = TypeVar("R_co", bound="Release | WorkloadRelease", covariant=True)


# A protocol, not a base class: a user's own mechanism need not derive from anything.
class Mechanism(Protocol[R_co]):
    """Built from what one record can change and what is to be guaranteed; makes releases.

    ``Mechanism[Release]`` takes a matrix and returns it with noise. ``Mechanism[WorkloadRelease]``,
    which `MatrixMechanism` is, takes a histogram and returns answers; its sensitivity and its
    covariance are those of its measurements.
    """

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
        /,
        *,
        key: ReleaseKey | None = None,
        privacy_filter: Payer | None = None,
        threads: int | None = None,
    ) -> R_co:
        """Return the matrix with exact noise, and its guarantee; a filter pays for it."""

    def release_to(
        self,
        path: str | PathLike[str],
        matrix: Any,
        /,
        *,
        privacy_filter: Payer | None = None,
        request: str | None = None,
        force: bool = False,
        threads: int | None = None,
    ) -> R_co:
        """Release into files; a release that a ledger paid for can be finished later."""

    def simulate(self, matrix: Any, /, generator: np.random.Generator) -> SimulatedValue:
        """Return the same with seeded noise of the same covariance, for experiments only."""
