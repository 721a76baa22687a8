"""The Improved Matrix Gaussian Mechanism."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixdp.covariance import Covariance, SymmetricIsotropic
from matrixdp.errors import BudgetExceededError, InvalidParameterError
from matrixdp.mechanisms.drawing import draw
from matrixdp.mechanisms.labelled import LabelledMatrix
from matrixdp.mechanisms.release import Release
from matrixdp.noise import ReleaseKey, SimulatedValue
from matrixdp.privacy.budget import Budget
from matrixdp.privacy.guarantee import Guarantee
from matrixdp.rounding import quotient_up
from matrixdp.sensitivity.sets import Box, FrobeniusBall, RowBounds, SymmetricBall

__all__ = ["IMGM"]


@dataclass(frozen=True, slots=True)
class IMGM:
    """Matrix Gaussian noise, calibrated exactly to what one record can change.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or Box
        What one record can change.
    budget : Budget
        What is to be guaranteed; for T releases one of ``budget.split(T)`` each.
    covariance : Covariance, optional
        The shape of the noise, within the budget (see `Covariance.rescaled_for`); by default the
        best for the set, which on the Frobenius ball is i.i.d. noise (Algorithm 1 of the paper).

    Raises
    ------
    BudgetExceededError
        If a given covariance is too small for the budget; the message says by what factor.

    Notes
    -----
    *Guarantee:* every release is (budget.epsilon, budget.delta)-DP under the set's relation, in
    exact arithmetic, for the matrix as it stands in memory: the noise scale is rounded up, the
    bound down, and the noise drawn exactly and rounded onto a grid that does not depend on the
    data. That neighbouring matrices really differ by a member of the set is the caller's promise.

    References
    ----------
    Yang, Xiang, Li, Liu and Wang, *Improved Matrix Gaussian Mechanism for Differential Privacy*,
    Algorithm 1 and Theorems 2, 3.

    Examples
    --------
    >>> import numpy as np
    >>> import matrixdp as mdp
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="replace")
    >>> mechanism = mdp.IMGM(sensitivity=ball, budget=mdp.Budget(epsilon=1.0, delta=1e-5))
    >>> release = mechanism.release(np.zeros((100, 50)))
    >>> print(release.guarantee)
    (1, 1e-05)-differential privacy under replacing one record (mu = 0.2681).
    >>> round(release.noise_scale, 4)
    3.7306
    """

    sensitivity: FrobeniusBall | SymmetricBall | RowBounds | Box
    budget: Budget
    covariance: Covariance

    def __init__(
        self,
        sensitivity: FrobeniusBall | SymmetricBall | RowBounds | Box,
        budget: Budget,
        covariance: Covariance | None = None,
    ) -> None:
        if not isinstance(sensitivity, FrobeniusBall | SymmetricBall | RowBounds | Box):
            raise InvalidParameterError(
                f"sensitivity is a {type(sensitivity).__name__}: pass FrobeniusBall, "
                "SymmetricBall, RowBounds or Box"
            )
        if not isinstance(budget, Budget):
            raise InvalidParameterError(
                f"budget is a {type(budget).__name__}: pass Budget(epsilon, delta)"
            )
        if covariance is not None and not isinstance(covariance, Covariance):
            raise InvalidParameterError(
                f"covariance is a {type(covariance).__name__}: pass Isotropic, Diagonal or "
                "Kronecker, or nothing for the best"
            )
        chosen = sensitivity.best_covariance(budget) if covariance is None else covariance
        object.__setattr__(self, "sensitivity", sensitivity)
        object.__setattr__(self, "budget", budget)
        object.__setattr__(self, "covariance", chosen)
        if not self.mu <= budget.mu:
            raise BudgetExceededError(
                f"covariance is too small for {budget!r}: neighbours may be mu={self.mu!r} apart, "
                f"so the noise must grow by a factor of {quotient_up(self.mu, budget.mu)!r}; use "
                "covariance.rescaled_for(sensitivity, budget)"
            )

    @property
    def mu(self) -> float:
        """How far neighbours may be apart under the noise; what a release costs."""
        return self.sensitivity.radius(self.covariance).value

    @property
    def guarantee(self) -> Guarantee:
        """What every release promises."""
        return Guarantee(
            epsilon=self.budget.epsilon,
            delta=self.budget.delta,
            mu=self.mu,
            neighbouring=self.sensitivity.neighbouring,
        )

    def release(self, matrix: Any, *, key: ReleaseKey | None = None) -> Release:
        """Return the matrix with exact noise, and what that guarantees.

        Parameters
        ----------
        matrix : ndarray, list of lists, pandas or polars DataFrame
            Finite numbers, two axes. float32 stays float32; integers and booleans become float64
            (integers beyond 2**53 are refused). Labels are kept.
        key : ReleaseKey, optional
            By default a fresh one from the operating system; a given one is spent.

        Returns
        -------
        Release
            Of the same kind and labels as the matrix.

        Raises
        ------
        InvalidParameterError, ShapeError
            Before anything is drawn.
        """
        labelled = self._checked(matrix)
        guarantee = self.guarantee
        noisy = draw(
            labelled.array,
            self.covariance,
            self.sensitivity,
            guarantee.mu,
            ReleaseKey.generate() if key is None else key,
        )
        return Release(
            value=labelled.relabel(noisy),
            sensitivity=self.sensitivity,
            covariance=self.covariance,
            guarantee=guarantee,
            mechanism="IMGM",
        )

    def simulate(self, matrix: Any, generator: np.random.Generator) -> SimulatedValue:
        """Return the matrix with seeded float noise of the same covariance: for experiments only.

        Nothing simulated can become a `Release`.
        """
        array = self._checked(matrix).array
        noise = self.covariance.colour(generator.standard_normal(array.shape))
        return SimulatedValue(
            array=array + noise, scale=self.covariance.entry_scales(_shape(array))
        )

    def _checked(self, matrix: Any) -> LabelledMatrix:
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
