"""The interface of every step of post-processing, and a check of its arguments."""

import abc

import numpy as np
from numpy.typing import NDArray

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError

__all__ = ["FloatArray", "Shape", "Step", "check_choice"]

FloatArray = NDArray[np.float64]
Shape = tuple[int, int]


class Step(abc.ABC):
    """A function of a released matrix and of the law of its noise, which are both public.

    A subclass gives `apply` and says in `__str__` what it does; its parameters must not come from
    the private data.
    """

    @property
    def needs_noise(self) -> bool:
        """Whether the step uses the noise, so that it must be the first one."""
        return False

    # Not abstract: most steps fit every matrix.
    def check(self, shape: Shape, covariance: Covariance) -> None:  # noqa: B027
        """Raise if the step does not fit matrices of a shape, with noise of a covariance."""

    @abc.abstractmethod
    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the processed matrix, as a new array.

        Parameters
        ----------
        value : ndarray
            The released matrix, or what the step before made of it.
        covariance : Covariance
            Of the noise in the release.
        """

    @abc.abstractmethod
    def __str__(self) -> str:
        """Say what the step does."""


def check_choice(value: object, name: str, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of some words."""
    # isinstance first: comparing an array with a word would be an array.
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(map(repr, choices))
        raise InvalidParameterError(f"{name}={value!r} is not known: pass {words}")
