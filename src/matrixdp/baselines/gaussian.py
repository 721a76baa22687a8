"""The classic Gaussian mechanism and the analytic one: i.i.d. noise, to be compared with."""

import math

from matrixdp.covariance import Isotropic
from matrixdp.errors import InvalidParameterError
from matrixdp.mechanisms.gaussian import GaussianMechanism, checked_set, largest_norm
from matrixdp.parameters import DELTA, EPSILON, positive_number
from matrixdp.privacy.budget import Budget
from matrixdp.rounding import product_up
from matrixdp.sensitivity.sets import HasSensitivity, SensitivitySet

__all__ = ["AnalyticGaussian", "ClassicGaussian", "classic_multiplier", "classic_noise_scale"]

# The formula is a handful of float operations. The margin rounds their result up.
_MARGIN = 1e-14


def classic_noise_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return ``sensitivity sqrt(2 log(1.25/delta)) / epsilon``, for epsilon above 0 and at most 1.

    Its proof needs epsilon < 1 (Dwork and Roth 2014, Theorem A.1); at epsilon 10 and delta 1e-5 its
    true delta is 2.27e-5, so larger epsilons are refused.

    Examples
    --------
    >>> from matrixdp.baselines import classic_noise_scale
    >>> round(classic_noise_scale(1.0, 1.0, 1e-5), 4)
    4.8448
    """
    sensitivity = positive_number(sensitivity, "sensitivity")
    epsilon, delta = positive_number(EPSILON.number(epsilon), "epsilon"), DELTA.number(delta)
    # Refused rather than extrapolated: beyond its proof the formula claims too much.
    if not epsilon <= 1.0:
        raise InvalidParameterError(
            f"epsilon={epsilon!r} is above 1, where the classic formula is not proven: use the "
            "privacy bound"
        )
    per_unit = classic_multiplier(epsilon, delta)
    if not sensitivity * per_unit < math.inf:
        raise InvalidParameterError(
            f"sensitivity={sensitivity!r} needs noise beyond the range of a float at epsilon="
            f"{epsilon!r}: rescale the matrix"
        )
    # Exactly, because a product that underflows could round down.
    return product_up(sensitivity, per_unit)


def classic_multiplier(epsilon: float, delta: float) -> float:
    """Return `classic_noise_scale` at sensitivity 1, infinite where it refuses; nothing is checked.

    That is at an epsilon of 0, of above 1, and where the noise is beyond the range of a float.
    """
    if not 0.0 < epsilon <= 1.0:
        return math.inf
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon * (1.0 + _MARGIN)


class ClassicGaussian(GaussianMechanism):
    """I.i.d. noise by the textbook formula: ``s2 sqrt(2 log(1.25/delta)) / epsilon``.

    It is here to be compared with: `IMGM` makes the same promise with less noise.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox; or a query
        What one record can change; the formula uses the largest Frobenius norm in it.
    budget : Budget
        What is to be guaranteed; its epsilon must be above 0 and at most 1.

    Raises
    ------
    InvalidParameterError
        If the budget's epsilon is above 1, where the formula's proof ends: at epsilon 10 and delta
        1e-5 its noise has a delta of 2.27e-5.

    Notes
    -----
    *Guarantee:* (budget.epsilon, budget.delta)-DP under the set's relation. ``guarantee.mu`` is the
    exact mu of the noise, and ``guarantee.epsilon_at(delta)`` is what it really guarantees.

    References
    ----------
    Dwork and Roth (2014), *The Algorithmic Foundations of Differential Privacy*, Theorem A.1.

    Examples
    --------
    >>> import matrixdp as mdp
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="replace")
    >>> mechanism = mdp.baselines.ClassicGaussian(ball, mdp.Budget(epsilon=1.0, delta=1e-5))
    >>> round(mechanism.covariance.scale, 4)
    4.8448
    >>> round(mechanism.guarantee.epsilon_at(1e-5), 4)  # what that noise really guarantees
    0.751
    """

    def __init__(self, sensitivity: SensitivitySet | HasSensitivity, budget: Budget) -> None:
        members = checked_set(sensitivity, budget)
        scale = classic_noise_scale(largest_norm(members), budget.epsilon, budget.delta)
        super().__init__(members, budget, Isotropic(scale))


class AnalyticGaussian(GaussianMechanism):
    """I.i.d. noise of scale s2 / B on the flattened matrix.

    On a Frobenius ball this *is* `IMGM`'s default noise, to the last digit: with the same
    sensitivity the two differ only in how several releases are composed, and here both compose
    exactly. On other sets it uses nothing but the largest Frobenius norm, and `IMGM` needs less
    noise.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox; or a query
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
