"""Sensitivity and noise in words."""

from typing import Any

import numpy as np

from matrixdp.covariance import Covariance, Diagonal, Isotropic, SymmetricIsotropic
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall
from matrixdp.sensitivity.sets import FrobeniusBall, RowBounds, RowBox, SymmetricBall

__all__ = ["noise_in_words", "sensitivity_in_words"]

# So many numbers are written out; of more, the least and the largest.
_MOST_NUMBERS = 6


def sensitivity_in_words(sensitivity: Any) -> str:
    """Return what one record can change."""
    match sensitivity:
        case FrobeniusBall(bound=bound):
            said = f"the matrix by a Frobenius norm of at most {bound:g}"
        case SymmetricBall(bound=bound):
            said = f"a symmetric matrix by a Frobenius norm of at most {bound:g}"
        case RowBounds(bounds=bounds):
            said = f"one row, row i by a norm of at most the i-th of {_numbers(bounds)}"
        case RowBox(bounds=bounds):
            said = f"one row, its entry j by at most the j-th of {_numbers(bounds)}"
        case ScaledBall(bound=bound):
            said = (
                f"the matrix by a Frobenius norm of at most {bound:g} in public units: rows "
                f"{_numbers(sensitivity.rows)}, columns {_numbers(sensitivity.columns)}"
            )
        case ScaledSymmetricBall(bound=bound):
            said = (
                f"a symmetric matrix by a Frobenius norm of at most {bound:g} in the public units "
                f"{_numbers(sensitivity.units)}"
            )
        case _:
            said = "what its kind says"
    return f"{said} ({type(sensitivity).__name__})"


def noise_in_words(covariance: Covariance) -> str:
    """Return the scale of the noise, or the least and the largest."""
    kind = type(covariance).__name__
    match covariance:
        case Isotropic(scale=scale):
            return f"Gaussian, independent, scale {scale:g} in every entry ({kind})"
        case SymmetricIsotropic(scale=scale):
            return (
                f"Gaussian, symmetric, scale {scale:g}, half the variance off the diagonal ({kind})"
            )
        case Diagonal(scales=scales):
            return f"Gaussian, independent, scales {_numbers(scales)} ({kind})"
        case _:
            least, most = covariance.smallest_singular_value, covariance.largest_singular_value
            return f"Gaussian, scale {least:g} to {most:g} by direction ({kind})"


def _numbers(numbers: Any) -> str:
    values = np.ravel(numbers)
    if values.size <= _MOST_NUMBERS:
        return ", ".join(f"{value:g}" for value in values.tolist())
    return f"{values.size} numbers from {values.min():g} to {values.max():g}"
