"""The base of every covariance: a linear map of independent standard normal entries."""

import abc
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import CalibrationError, InvalidParameterError
from matrixdp.rounding import UNIT_ROUNDOFF, quotient_up

__all__ = ["Covariance", "FloatArray", "Shape", "noise_factor"]

FloatArray = NDArray[np.float64]
Shape = tuple[int, int]

# The excess doubles from one unit in the last place, 2**-52: after 40 steps it is 2**-12, more than
# rounding can explain.
_MOST_TIGHTENINGS = 40


# What a covariance uses of sets and budgets, whose parts this one may not import.
class _Radius(Protocol):
    @property
    def value(self) -> float: ...


class _Set(Protocol):
    def radius(self, covariance: Any, /) -> _Radius: ...


class _Budget(Protocol):
    @property
    def mu(self) -> float: ...


class Covariance(abc.ABC):
    """The covariance of matrix noise, as a linear map of independent standard normal entries."""

    mirrored: ClassVar[bool] = False
    """Whether the noise is symmetric: the same on both entries of a mirrored pair."""

    @property
    @abc.abstractmethod
    def smallest_singular_value(self) -> float:
        """A lower bound of the smallest singular value of the colouring map, as a map of vec(N)."""

    @property
    @abc.abstractmethod
    def largest_singular_value(self) -> float:
        """The largest singular value of the colouring map, to float accuracy."""

    @abc.abstractmethod
    def check_shape(self, shape: Shape) -> None:
        """Raise unless the covariance fits a matrix of this shape."""

    @abc.abstractmethod
    def colour(self, standard: FloatArray) -> FloatArray:
        """Return noise of this covariance from independent standard normal entries."""

    @abc.abstractmethod
    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return the difference measured in noise: the inverse of `colour`."""

    @abc.abstractmethod
    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return the standard deviation of every entry of the noise."""

    @abc.abstractmethod
    def scaled(self, factor: float) -> Self:
        """Return the covariance whose noise is a positive factor larger, to float accuracy."""

    def total_variance(self, shape: Shape) -> float:
        """Return the expected squared Frobenius norm of the noise."""
        return float(np.sum(np.square(self.entry_scales(shape))))

    def rescaled_for(self, sensitivity: _Set, budget: _Budget) -> Self:
        """Return this covariance, scaled so that a budget just allows it for a sensitivity set.

        Parameters
        ----------
        sensitivity : a sensitivity set
            Its radius under the covariance is to be at most the budget's mu.
        budget : Budget
            The budget to keep.

        Examples
        --------
        >>> from matrixdp import Budget, Diagonal, FrobeniusBall
        >>> ball, budget = FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5)
        >>> tight = Diagonal([[1.0, 2.0]]).rescaled_for(ball, budget)
        >>> tight.scales.round(4)
        array([[3.7306, 7.4613]])
        """
        if not hasattr(sensitivity, "radius"):
            raise InvalidParameterError(
                f"sensitivity is a {type(sensitivity).__name__}: pass a sensitivity set"
            )
        if not (isinstance(getattr(budget, "mu", None), float) and budget.mu > 0.0):
            raise InvalidParameterError(
                f"budget is a {type(budget).__name__} without a positive mu: pass Budget(epsilon, "
                "delta)"
            )
        tight = self.scaled(
            noise_factor("sensitivity of radius", sensitivity.radius(self).value, budget.mu)
        )
        # Scaling rounds, so the radius may end up slightly above what was aimed at.
        excess = 2 * UNIT_ROUNDOFF
        for _ in range(_MOST_TIGHTENINGS):
            if sensitivity.radius(tight).value <= budget.mu:
                return tight
            tight = tight.scaled(1.0 + excess)
            excess *= 2.0
        raise CalibrationError(
            "the covariance could not be made tight: it is too close to singular for float64; add "
            "variance in its weakest direction"
        )


def noise_factor(what: str, size: float, mu: float) -> float:
    """Return ``size / mu``, rounded up: how much noise hides a change of that size."""
    try:
        return quotient_up(size, mu)
    # The error of the division knows neither the argument nor the way out.
    except InvalidParameterError:
        raise InvalidParameterError(
            f"{what}={size!r} needs noise beyond the range of a float at mu={mu!r}: rescale the "
            "matrix"
        ) from None
