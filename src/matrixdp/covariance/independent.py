"""Independent entries: one scale for all, one for every entry, or one for every mirrored pair."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.covariance.linear_map import Covariance, FloatArray, Shape
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import EqualByValue, checked_matrix, positive_number, positive_vector
from matrixdp.rounding import product_up, sqrt_up

__all__ = ["Diagonal", "Isotropic", "SymmetricDiagonal", "SymmetricIsotropic"]

# Rounded up, as every factor of a noise scale.
_SQRT_HALF = math.nextafter(math.sqrt(0.5), 1.0)
_LEAST_SIDE = 1e-150


@dataclass(frozen=True, slots=True)
class _OneScale(Covariance):
    """Noise that one number describes: its standard deviation along every direction."""

    scale: float

    def __post_init__(self) -> None:
        """Raise unless the scale is positive and finite."""
        object.__setattr__(self, "scale", positive_number(self.scale, "scale"))

    @property
    def smallest_singular_value(self) -> float:
        """The scale."""
        return self.scale

    @property
    def largest_singular_value(self) -> float:
        """The scale."""
        return self.scale

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose scale is a factor larger."""
        # Up, because too little noise would break a promise and too much does not.
        return type(self)(product_up(self.scale, positive_number(factor, "factor")))


@dataclass(frozen=True, slots=True)
class Isotropic(_OneScale):
    """Independent noise of one scale on every entry; fits every shape.

    Parameters
    ----------
    scale : float
        The standard deviation of every entry.
    """

    def check_shape(self, shape: Shape) -> None:
        """Accept every shape."""

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return ``scale * N``."""
        return self.scale * standard

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return ``D / scale``."""
        return difference / self.scale

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return the scale for every entry."""
        return np.full(shape, self.scale)


@dataclass(frozen=True, slots=True)
class SymmetricIsotropic(_OneScale):
    """Symmetric noise: ``scale`` on the diagonal, ``scale / sqrt(2)`` on each mirrored pair.

    It is i.i.d. noise in the isometric embedding of symmetric matrices, which weights each
    off-diagonal entry by sqrt(2); each pair is drawn once, so the noisy matrix stays symmetric.
    """

    mirrored: ClassVar[bool] = True

    def check_shape(self, shape: Shape) -> None:
        """Raise unless the shape is square."""
        if shape[0] != shape[1]:
            raise ShapeError(
                f"symmetric noise does not fit a matrix of shape {shape}: it must be square"
            )

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return symmetric noise; the entries below the diagonal of the input are not used."""
        self.check_shape((standard.shape[0], standard.shape[1]))
        return _mirrored(standard * self.entry_scales((len(standard), len(standard))))

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return the difference with diagonal and upper triangle in noise units, zeros below."""
        upper = np.triu(difference, 1) / (self.scale * _SQRT_HALF)
        return upper + np.diag(np.diagonal(difference) / self.scale)

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return the scale on the diagonal and scale / sqrt(2) elsewhere."""
        self.check_shape(shape)
        scales = np.full(shape, product_up(self.scale, _SQRT_HALF))
        np.fill_diagonal(scales, self.scale)
        return scales


@dataclass(frozen=True, eq=False)
class Diagonal(EqualByValue, Covariance):
    """Independent noise with a scale of its own for every row, column or entry.

    Parameters
    ----------
    scales : array_like
        Standard deviations, all positive: of shape (m, 1) for rows, (1, n) for columns, (m, n) for
        entries.
    """

    scales: FloatArray

    def __init__(self, scales: ArrayLike) -> None:
        # Two axes even for one scale per row: (m,) could mean rows or columns.
        array = checked_matrix(scales, "scales")
        if not bool(np.all(array > 0.0)):
            raise InvalidParameterError(
                f"scales must all be positive, and the smallest is {float(array.min())!r}"
            )
        object.__setattr__(self, "scales", array)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.scales,)

    @property
    def smallest_singular_value(self) -> float:
        """The smallest scale."""
        return float(self.scales.min())

    @property
    def largest_singular_value(self) -> float:
        """The largest scale."""
        return float(self.scales.max())

    def check_shape(self, shape: Shape) -> None:
        """Raise unless the scales broadcast to the shape."""
        fits = all(have in (1, want) for have, want in zip(self.scales.shape, shape, strict=True))
        if not fits:
            raise ShapeError(
                f"scales of shape {self.scales.shape} do not fit a matrix of shape {shape}"
            )

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return ``scales * N``."""
        return self.scales * standard

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return ``D / scales``."""
        return difference / self.scales

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return the scales, spread over the shape."""
        self.check_shape(shape)
        return np.array(np.broadcast_to(self.scales, shape))  # a copy that may be written to

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose scales are a factor larger."""
        # One step up covers the rounding of the product: noise is never smaller than asked for.
        return type(self)(np.nextafter(self.scales * positive_number(factor, "factor"), math.inf))


@dataclass(frozen=True, eq=False)
class SymmetricDiagonal(EqualByValue, Covariance):
    """Symmetric noise on a matrix whose rows and columns are in units of their own.

    It is ``diag(scales) Z diag(scales)`` for symmetric noise Z of scale 1: entry (i, j) has the
    standard deviation ``scales[i] scales[j]`` on the diagonal and that over ``sqrt(2)`` on each
    mirrored pair, which is drawn once.

    Parameters
    ----------
    scales : array_like, shape (n,)
        Positive.

    Examples
    --------
    >>> SymmetricDiagonal([1.0, 10.0]).entry_scales((2, 2)).round(2).tolist()
    [[1.0, 7.07], [7.07, 100.0]]
    """

    mirrored: ClassVar[bool] = True

    scales: FloatArray

    def __init__(self, scales: ArrayLike) -> None:
        array = positive_vector(scales, "scales")
        least, most = float(array.min()), float(array.max())
        # Products of two are normal floats then.
        if not (least >= _LEAST_SIDE and most <= 1.0 / _LEAST_SIDE):
            raise InvalidParameterError(
                f"scales={least!r} to {most!r} must be from {_LEAST_SIDE} to {1.0 / _LEAST_SIDE}: "
                "rescale the matrix"
            )
        object.__setattr__(self, "scales", array)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.scales,)

    @property
    def smallest_singular_value(self) -> float:
        """The square of the smallest scale: the weakest direction is a diagonal entry."""
        return math.nextafter(float(self.scales.min()) ** 2, 0.0)

    @property
    def largest_singular_value(self) -> float:
        """The square of the largest scale."""
        return float(self.scales.max()) ** 2

    def check_shape(self, shape: Shape) -> None:
        """Raise unless the shape is square, with a scale for each row."""
        if shape != (len(self.scales), len(self.scales)):
            raise ShapeError(
                f"{len(self.scales)} scales of symmetric noise do not fit a matrix of shape {shape}"
            )

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return symmetric noise; the entries below the diagonal of the input are not used."""
        return _mirrored(standard * self.entry_scales((standard.shape[0], standard.shape[1])))

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return the difference with diagonal and upper triangle in noise units, zeros below."""
        scales = self.entry_scales((difference.shape[0], difference.shape[1]))
        return np.triu(difference / scales)

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return the standard deviations of the entries, rounded up."""
        self.check_shape(shape)
        return self.scales_of_rows(0, shape[0])

    def scales_of_rows(self, first: int, number: int) -> FloatArray:
        """Return the standard deviations of the entries of some rows, rounded up."""
        # Each product is below its true value by three roundings at most: 3 units, of the 8 here.
        whole = np.multiply.outer(self.scales[first : first + number], self.scales)
        whole *= 1.0 + 2.0**-50
        scales, indices = whole * _SQRT_HALF, np.arange(len(whole))
        scales[indices, first + indices] = whole[indices, first + indices]
        return np.asarray(scales)

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose noise is a factor larger."""
        root = sqrt_up(Fraction(positive_number(factor, "factor")))
        return type(self)(np.nextafter(self.scales * root, math.inf))


def _mirrored(noise: FloatArray) -> FloatArray:
    """Return the upper triangle and its mirror image, so that each pair has one draw."""
    upper = np.triu(noise, 1)
    return np.asarray(upper + upper.T + np.diag(np.diagonal(noise)))
