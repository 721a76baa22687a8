"""What all Gaussian mechanisms share: given a covariance, how a matrix is released.

They differ in nothing but the covariance they arrive at from a sensitivity set and a budget.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixdp.covariance import Covariance, Isotropic, SymmetricIsotropic
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.mechanisms.drawing import draw
from matrixdp.mechanisms.labelled import LabelledMatrix
from matrixdp.mechanisms.paying_key import PayingKey
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey, SimulatedValue
from matrixdp.noise.simulated import checked_generator
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.filter import Filter
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import quotient_up
from matrixdp.sensitivity.sets import SensitivitySet

__all__ = ["GaussianMechanism", "check_parts", "largest_norm"]


def check_parts(sensitivity: object, budget: object) -> None:
    """Refuse what is no sensitivity set and what is no budget."""
    if not isinstance(sensitivity, SensitivitySet):
        raise InvalidParameterError(
            f"sensitivity is a {type(sensitivity).__name__}: pass FrobeniusBall, SymmetricBall, "
            "RowBounds or Box"
        )
    check_budget(budget)


def largest_norm(sensitivity: SensitivitySet) -> float:
    """Return the largest Frobenius norm of a member of a set: its l2 sensitivity, rounded up."""
    return sensitivity.radius(Isotropic(1.0)).value


@dataclass(frozen=True)
class GaussianMechanism:
    """Gaussian noise of one covariance, and the mu that it gives a sensitivity set.

    The mechanisms of this package are made from it; a covariance of one's own goes into `IMGM`.

    Raises
    ------
    BudgetExceededError
        If the covariance is too small for the budget; the message says by what factor.

    Notes
    -----
    *Guarantee:* every release is (budget.epsilon, budget.delta)-DP, proven by the exact curve at
    ``mu``, the radius of the set under the covariance, whatever formula the covariance came from.
    Where mu is below ``budget.mu`` the noise is larger than the promise needs, and
    ``guarantee.epsilon_at(delta)`` says what it really guarantees.
    """

    sensitivity: SensitivitySet
    budget: Budget
    covariance: Covariance

    def __post_init__(self) -> None:
        """Refuse noise that does not keep the budget."""
        check_parts(self.sensitivity, self.budget)
        if not self.mu <= self.budget.mu:
            raise BudgetExceededError(
                f"covariance is too small for {self.budget!r}: neighbours may be mu={self.mu!r} "
                "apart, so the noise must grow by a factor of "
                f"{quotient_up(self.mu, self.budget.mu)!r}; use "
                "covariance.rescaled_for(sensitivity, budget)"
            )

    @property
    def mu(self) -> float:
        """How far neighbours may be apart under the noise; what a release costs."""
        return self.sensitivity.radius(self.covariance).value

    @property
    def guarantee(self) -> Guarantee:
        """What every release promises."""
        return Guarantee.of_budget(
            self.budget, mu=self.mu, neighbouring=self.sensitivity.neighbouring
        )

    def release(
        self,
        matrix: Any,
        *,
        key: ReleaseKey | None = None,
        filter: Filter | None = None,  # noqa: A002
    ) -> Release:
        """Return the matrix with exact noise, and what that guarantees.

        Parameters
        ----------
        matrix : ndarray, list of lists, pandas or polars DataFrame
            Finite numbers, two axes. float32 stays float32; integers and booleans become float64
            (integers beyond 2**53 are refused). Labels are kept.
        key : ReleaseKey, optional
            By default a fresh one from the operating system; a given one is spent.
        filter : Filter, optional
            What pays for the release: after all checks, and before anything is drawn.

        Returns
        -------
        Release
            Of the same kind and labels as the matrix.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn or paid.
        BudgetExceededError
            If the filter does not hold enough; nothing is drawn and the key is not spent.
        """
        labelled = self.checked(matrix)
        if key is not None and not isinstance(key, ReleaseKey):
            raise InvalidParameterError(
                f"key is a {type(key).__name__}: pass a ReleaseKey, or none for a fresh one"
            )
        guarantee = self.guarantee
        chosen = ReleaseKey.generate() if key is None else key
        # The key pays when it is bound: after the checks that are still to come.
        if filter is not None:
            chosen = PayingKey(chosen, filter, guarantee)
        noisy = draw(labelled.array, self.covariance, self.sensitivity, guarantee.mu, chosen)
        return Release(
            value=labelled.relabel(noisy),
            sensitivity=self.sensitivity,
            covariance=self.covariance,
            guarantee=guarantee,
            mechanism=type(self).__name__,
        )

    def simulate(self, matrix: Any, generator: np.random.Generator) -> SimulatedValue:
        """Return the matrix with seeded float noise of the same covariance: for experiments only.

        A `SimulatedValue` cannot become a `Release`.
        """
        checked_generator(generator)
        array = self.checked(matrix).array
        noise = self.covariance.colour(generator.standard_normal(array.shape))
        return SimulatedValue(
            array=(array + noise).astype(array.dtype, copy=False),
            scale=self.covariance.entry_scales(_shape(array)),
        )

    def checked(self, matrix: Any) -> LabelledMatrix:
        """Read a matrix that the mechanism may release, or say why it may not."""
        labelled = LabelledMatrix.of(matrix)
        shape = _shape(labelled.array)
        self.sensitivity.check_shape(shape)
        self.covariance.check_shape(shape)
        if isinstance(self.covariance, SymmetricIsotropic) and not np.array_equal(
            labelled.array, labelled.array.T
        ):
            raise InvalidParameterError(
                "matrix is not symmetric, but its noise is: pass (A + A.T) / 2, or a FrobeniusBall"
            )
        return labelled


def _shape(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    return (array.shape[0], array.shape[1])
