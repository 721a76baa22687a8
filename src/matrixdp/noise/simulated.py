"""Seeded, fast noise for experiments and tests. It protects nothing.

numpy's generators are neither secret nor safe in floating point. The result is a
``SimulatedValue``. It is not an array, and cannot be converted to one by accident, so that nothing
that expects an array, such as a release, can be made from it.
"""

from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from matrixdp.errors import InvalidParameterError
from matrixdp.noise.application.checks import checked_value
from matrixdp.noise.specification.scales import checked_scale

__all__ = ["SimulatedValue", "checked_generator", "simulate_noise", "simulation_generator"]


@dataclass(frozen=True, eq=False, repr=False)
class SimulatedValue:
    """A value with simulated noise.

    Attributes
    ----------
    array : NDArray
        The noisy numbers, to be asked for by name.
    scale : NDArray[np.float64]
        The standard deviations that were used.
    """

    array: NDArray[Any]
    scale: NDArray[np.float64]

    def __repr__(self) -> str:
        """Say what it is, without the numbers."""
        return f"SimulatedValue(shape={self.array.shape}, dtype={self.array.dtype.name!r})"

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        """Raise: a simulated value is not an array."""
        # numpy calls this whenever it is given the object, also from within other libraries.
        raise InvalidParameterError(
            "simulated noise is not a release; for an experiment take the attribute .array, for a "
            "release use exact noise"
        )


def simulation_generator(seed: Any) -> np.random.Generator:
    """Return the generator of an experiment; the same seed, at least 0, gives the same numbers.

    Examples
    --------
    >>> simulation_generator(7).integers(100)
    np.int64(94)
    """
    # None would be a seed for numpy too, and a different experiment every time.
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not seed >= 0:
        raise InvalidParameterError(f"seed={seed!r} must be an integer of at least 0")
    return np.random.default_rng(seed)


def checked_generator(generator: object) -> np.random.Generator:
    """Return the generator of a simulation, or raise if it is not one."""
    if not isinstance(generator, np.random.Generator):
        raise InvalidParameterError(
            f"generator must be a numpy Generator, got {type(generator).__name__}; make one with "
            "simulation_generator(seed)"
        )
    return generator


def simulate_noise(
    value: NDArray[Any], scale: Any, generator: np.random.Generator
) -> SimulatedValue:
    """Return ``value + scale * z`` with z from a seeded generator, for experiments only.

    Parameters
    ----------
    value : NDArray
        float64 or float32.
    scale : float or array_like
        As in ``add_noise``.
    generator : np.random.Generator
        See ``simulation_generator``.

    Raises
    ------
    InvalidParameterError, ShapeError
        If an argument is not of the right kind.

    Examples
    --------
    >>> simulate_noise(np.zeros((2, 3)), 1.0, simulation_generator(7))
    SimulatedValue(shape=(2, 3), dtype='float64')
    """
    checked_generator(generator)
    array = checked_value(value)
    scales = checked_scale(scale, array.shape, array.dtype)
    # Drawn in float64 and then rounded, so that float32 values get the same noise.
    noisy = generator.standard_normal(array.shape) * scales + array
    return SimulatedValue(array=noisy.astype(array.dtype, copy=False), scale=scales)
