"""The classic Gaussian formula, kept to show what exact calibration saves."""

import math

from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import DELTA, EPSILON, positive_number

__all__ = ["classic_noise_scale"]

# The formula is a handful of float operations; this rounds their result up.
_MARGIN = 1e-14


def classic_noise_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Return ``sensitivity sqrt(2 log(1.25/delta)) / epsilon``, for epsilon above 0 and at most 1.

    Its proof needs epsilon < 1 (Dwork and Roth 2014, Theorem A.1); at epsilon 10 and delta 1e-5 its
    true delta is 2.27e-5, so larger epsilons are refused.

    Examples
    --------
    >>> from matrixdp.privacy.classic import classic_noise_scale
    >>> round(classic_noise_scale(1.0, 1.0, 1e-5), 4)
    4.8448
    """
    sensitivity = positive_number(sensitivity, "sensitivity")
    epsilon, delta = positive_number(EPSILON.number(epsilon), "epsilon"), DELTA.number(delta)
    if not epsilon <= 1.0:
        raise InvalidParameterError(
            f"epsilon={epsilon!r} is above 1, where the classic formula is not proven: use the "
            "privacy bound"
        )
    scale = sensitivity * math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon * (1.0 + _MARGIN)
    if not scale < math.inf:
        raise InvalidParameterError(
            f"sensitivity={sensitivity!r} needs noise beyond the range of a float at epsilon="
            f"{epsilon!r}: rescale the matrix"
        )
    return scale
