"""The radius of a set under noise, and what all sets need to compute it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance, Directional
from matrixdp.covariance.side import SideCovariance
from matrixdp.errors import InvalidParameterError, ShapeError

__all__ = [
    "Radius",
    "agree",
    "check_full_side",
    "check_known",
    "check_sides",
    "normalised",
    "refuse_mirrored",
    "resolved",
    "unknown_covariance",
]

FloatArray = NDArray[np.float64]

# Two bounds this close are one number to a user, and rounding stays far below it.
_AGREEMENT = 1e-6


@dataclass(frozen=True, slots=True)
class Radius:
    """The largest whitened norm of a set's members under a covariance.

    ``value`` is never below it. If ``exact``, some member attains it, up to rounding; otherwise it
    is a proven upper bound that may be larger.
    """

    value: float
    exact: bool

    def __post_init__(self) -> None:
        """Raise if no float can express the radius."""
        # Zero would be a release that costs nothing, and there is none with positive bounds.
        if not 0.0 < self.value < math.inf:
            raise InvalidParameterError(
                "covariance is so small against the set that the radius is beyond the range of a "
                "float: rescale them"
            )


def normalised(values: FloatArray) -> tuple[float, FloatArray]:
    """Return the largest value and all values over it, whose squares cannot over- or underflow."""
    largest = float(np.max(values))
    if not largest > 0.0:
        return 0.0, np.zeros_like(values)  # underflow, which `inflated` accounts for
    return largest, values / largest


def resolved(covariance: Covariance) -> bool:
    """Return whether float64 proves the weakest direction to 1e-6, as it mostly does."""
    # Independent entries have their scales exactly.
    if not isinstance(covariance, Directional):
        return True
    return agree(covariance.smallest_singular_value, covariance.estimated_floor)


def agree(least: float, most: float) -> bool:
    """Return whether two bounds of a number agree to 1e-6, which is what *exact* promises."""
    return most <= least * (1.0 + _AGREEMENT)


def check_full_side(covariance: SideCovariance, want: int, side: str) -> None:
    """Raise unless the covariance of a side is for as many as there are bounds, or for any."""
    if covariance.length is not None:
        _check_length(covariance.length, want, side)


def check_sides(have: int, want: int, side: str) -> None:
    """Raise unless there are as many scales as bounds, or one for all."""
    if have != 1:
        _check_length(have, want, side)


def _check_length(have: int, want: int, side: str) -> None:
    if have != want:
        raise ShapeError(f"a covariance of {have} {side} does not fit bounds for {want} {side}")


def check_known(covariance: object) -> None:
    """Raise unless this is a covariance."""
    # First, because everything after it asks for attributes that only a covariance has.
    if not isinstance(covariance, Covariance):
        raise unknown_covariance(covariance)


def refuse_mirrored(covariance: Covariance) -> None:
    """Raise if noise is the same on mirrored entries, which hides nothing in their difference."""
    check_known(covariance)
    if covariance.mirrored:
        raise InvalidParameterError(
            f"covariance={type(covariance).__name__} protects symmetric differences only: use it "
            "with a SymmetricBall"
        )


def unknown_covariance(covariance: object) -> InvalidParameterError:
    """Return the error about a covariance whose radius a set cannot compute."""
    return InvalidParameterError(
        f"covariance of type {type(covariance).__name__} is not known to this set: pass Isotropic, "
        "Diagonal or Kronecker"
    )
