"""The Improved Matrix Gaussian Mechanism."""

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.gaussian import GaussianMechanism, checked_set
from matrixdp.privacy.budget import Budget
from matrixdp.sensitivity.sets import HasSensitivity, SensitivitySet

__all__ = ["IMGM"]


class IMGM(GaussianMechanism):
    """Matrix Gaussian noise, calibrated exactly to what one record can change.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox; or a query
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
    *Guarantee:* every release is (guarantee.epsilon, guarantee.delta)-DP under the set's relation,
    in exact arithmetic, for the matrix as it is in memory: the noise scale is rounded up, the
    privacy bound down, and the noise is drawn exactly and rounded onto a grid that does not depend
    on the data. That neighbouring matrices really differ by a member of the set is the caller's
    promise.

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

    def __init__(
        self,
        sensitivity: SensitivitySet | HasSensitivity,
        budget: Budget,
        covariance: Covariance | None = None,
    ) -> None:
        # Before the best covariance is asked for: it needs a set and a budget.
        members = checked_set(sensitivity, budget)
        if covariance is not None and not isinstance(covariance, Covariance):
            raise InvalidParameterError(
                f"covariance is a {type(covariance).__name__}: pass Isotropic, Diagonal or "
                "Kronecker, or nothing for the best"
            )
        # A given covariance is checked by the base class, and never scaled without being asked.
        chosen = members.best_covariance(budget) if covariance is None else covariance
        super().__init__(members, budget, chosen)
