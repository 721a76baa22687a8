"""Noise with a covariance on one side of the matrix, and independent along the other."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from matrixdp.covariance.directional import Directional
from matrixdp.covariance.kronecker import Eigen, directional_factor, gram
from matrixdp.covariance.linear_map import FloatArray, Shape
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import EqualByValue, checked_symmetric, positive_number
from matrixdp.spectra import eigenvalue_lower_bounds

__all__ = ["OneSided", "Side", "checked_side"]

Side = Literal["rows", "columns"]
"""A side of a matrix."""


def checked_side(side: object) -> Side:
    """Return a side of the matrix, or raise if it is not one."""
    if side not in get_args(Side):
        raise InvalidParameterError(f"side={side!r} must be 'rows' or 'columns'")
    return "rows" if side == "rows" else "columns"


@dataclass(frozen=True, eq=False)
class OneSided(EqualByValue, Directional):
    """Matrix Gaussian noise MN(0, covariance, I), or MN(0, I, covariance).

    It is a `Kronecker` whose other side is the identity. The identity is never formed, so the other
    side may have any length.

    Parameters
    ----------
    covariance : array_like, shape (m, m) or (n, n)
        Symmetric and positive definite.
    side : {"rows", "columns"}
        The side that it belongs to.

    Raises
    ------
    NotPositiveDefiniteError
        If float64 cannot prove the covariance positive definite.
    """

    covariance: FloatArray
    side: Side

    def __init__(self, covariance: ArrayLike, side: Side) -> None:
        object.__setattr__(self, "side", checked_side(side))
        object.__setattr__(self, "covariance", checked_symmetric(covariance, "covariance"))
        _ = self.eigenvalues  # so that a covariance that exists is proven positive definite

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.covariance, self.side)

    @classmethod
    def from_directions(cls, directions: ArrayLike, scales: ArrayLike, side: Side) -> Self:
        """Return noise with given scales along orthonormal directions, the columns.

        The directions must come from public or already private data: singular vectors of the
        private matrix itself leak it.
        """
        return cls(gram(directional_factor(directions, scales, "")), side)

    @cached_property
    def eigenvalues(self) -> FloatArray:
        """Proven lower bounds of the eigenvalues of the covariance, ascending."""
        return eigenvalue_lower_bounds(self.covariance, "covariance")

    @cached_property
    def eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors of the covariance, to float accuracy."""
        return Eigen(*scipy.linalg.eigh(self.covariance))

    @property
    def smallest_singular_value(self) -> float:
        """A proven lower bound of the root of the smallest eigenvalue."""
        # A root is correctly rounded: one step down is below the true one.
        return math.nextafter(math.sqrt(float(self.eigenvalues[0])), 0.0)

    @property
    def largest_singular_value(self) -> float:
        """The root of the largest eigenvalue, to float accuracy."""
        return math.sqrt(float(self.eigen.values[-1]))

    @property
    def eigenbasis_scales(self) -> FloatArray:
        """The standard deviations in the eigenbasis, as a column or a row that broadcasts."""
        scales = np.sqrt(self.eigen.values)
        return np.asarray(scales[:, None] if self.side == "rows" else scales[None, :])

    def rotated(self, inner: FloatArray) -> FloatArray:
        """Return the matrix that has these coordinates in the eigenbasis."""
        vectors = self.eigen.vectors
        return vectors @ inner if self.side == "rows" else inner @ vectors.T

    def check_shape(self, shape: Shape) -> None:
        """Raise unless the side has the covariance's length."""
        have, want = len(self.covariance), shape[0 if self.side == "rows" else 1]
        if have != want:
            raise ShapeError(
                f"covariance {self.covariance.shape} is for {have} {self.side}, not for a matrix "
                f"of shape {shape}"
            )

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return ``V sqrt(Lambda) N``, or that of the transpose."""
        return self.rotated(self.eigenbasis_scales * standard)

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return ``(V sqrt(Lambda))^-1 D``, or that of the transpose."""
        vectors = self.eigen.vectors
        inner = vectors.T @ difference if self.side == "rows" else difference @ vectors
        return np.asarray(inner / self.eigenbasis_scales)

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return the roots of the covariance's diagonal, repeated along the other side."""
        self.check_shape(shape)
        # The other side is independent with unit variance, so the diagonal alone decides.
        scales = np.sqrt(np.diagonal(self.covariance))
        return np.broadcast_to(scales[:, None] if self.side == "rows" else scales, shape).copy()

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose noise is about a factor larger; its radius may be off."""
        factor = positive_number(factor, "factor")
        # Twice instead of by the square, which may overflow although the product does not.
        return type(self)(self.covariance * factor * factor, self.side)
