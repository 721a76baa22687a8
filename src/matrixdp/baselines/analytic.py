"""The analytic Gaussian mechanism."""

from matrixdp.covariance import Isotropic
from matrixdp.mechanisms.gaussian import GaussianMechanism, checked_set
from matrixdp.privacy.budget import Budget
from matrixdp.sensitivity.sets import HasSensitivity, SensitivitySet

__all__ = ["AnalyticGaussian"]


class AnalyticGaussian(GaussianMechanism):
    """I.i.d. noise of scale s2 / B on the flattened matrix.

    On a Frobenius ball this *is* `IMGM`'s default noise, to the last digit: with the same
    sensitivity the two differ only in how several releases are composed, and here both compose
    exactly. On other sets it uses nothing but the largest Frobenius norm, and `IMGM` needs less
    noise.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or Box; or a query
        What one record can change.
    budget : Budget
        What is to be guaranteed.

    Notes
    -----
    *Guarantee:* (guarantee.epsilon, guarantee.delta)-DP under the set's relation, exactly: the
    noise is the least i.i.d. noise for the set's largest norm.

    References
    ----------
    Balle and Wang (2018), *Improving the Gaussian Mechanism for Differential Privacy*, Algorithm 1.

    Examples
    --------
    >>> import matrixdp as mdp
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="replace")
    >>> budget = mdp.Budget(epsilon=1.0, delta=1e-5)
    >>> mdp.baselines.AnalyticGaussian(ball, budget).covariance == mdp.IMGM(ball, budget).covariance
    True
    """

    def __init__(self, sensitivity: SensitivitySet | HasSensitivity, budget: Budget) -> None:
        members = checked_set(sensitivity, budget)
        # The unit covariance is only a shape; rescaling it makes it tight for the budget.
        super().__init__(members, budget, Isotropic(1.0).rescaled_for(members, budget))
