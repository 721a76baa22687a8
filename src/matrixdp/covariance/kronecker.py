"""Matrix Gaussian noise: a covariance of the rows times a covariance of the columns."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy
from numpy.typing import ArrayLike

from matrixdp.covariance.directional import Directional
from matrixdp.covariance.linear_map import FloatArray, Shape
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import (
    EqualByValue,
    checked_matrix,
    checked_symmetric,
    positive_number,
    positive_vector,
)
from matrixdp.rounding import product_down
from matrixdp.spectra import InverseEnclosure, eigenvalue_lower_bounds, inverse_enclosure

__all__ = ["Eigen", "Kronecker", "directional_factor", "gram"]

# What computed directions may be off by. This guards against mistakes only: the guarantee rests on
# the covariance that results, whose eigenvalues are proven.
_ORTHONORMAL_TOLERANCE = 1e-8


class Eigen(NamedTuple):
    """Eigenvalues, ascending, and their eigenvectors, as columns."""

    values: FloatArray
    vectors: FloatArray


@dataclass(frozen=True, eq=False)
class Kronecker(EqualByValue, Directional):
    """Matrix Gaussian noise MN(0, row_covariance, column_covariance).

    The noise is ``U1 N U2^T`` with ``U1 U1^T = row_covariance``, ``U2 U2^T = column_covariance``.

    Parameters
    ----------
    row_covariance : array_like, shape (m, m)
        Symmetric and positive definite.
    column_covariance : array_like, shape (n, n)
        Symmetric and positive definite.

    Raises
    ------
    NotPositiveDefiniteError
        If float64 cannot prove a covariance positive definite.
    """

    row_covariance: FloatArray
    column_covariance: FloatArray

    def __init__(self, row_covariance: ArrayLike, column_covariance: ArrayLike) -> None:
        object.__setattr__(
            self, "row_covariance", checked_symmetric(row_covariance, "row_covariance")
        )
        object.__setattr__(
            self, "column_covariance", checked_symmetric(column_covariance, "column_covariance")
        )
        # Proven here, so that a covariance that exists is positive definite.
        _ = self.row_eigenvalues, self.column_eigenvalues

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.row_covariance, self.column_covariance)

    @classmethod
    def from_factors(cls, row_factor: ArrayLike, column_factor: ArrayLike) -> Self:
        """Return the covariance of ``U1 N U2^T`` from U1 and U2; their products are rounded."""
        return cls(
            gram(checked_matrix(row_factor, "row_factor")),
            gram(checked_matrix(column_factor, "column_factor")),
        )

    @classmethod
    def from_directions(
        cls,
        row_directions: ArrayLike,
        row_scales: ArrayLike,
        column_directions: ArrayLike,
        column_scales: ArrayLike,
    ) -> Self:
        """Return noise with given scales along orthonormal directions, the columns.

        The directions must come from public or already private data: singular vectors of the
        private matrix itself leak it.
        """
        return cls.from_factors(
            directional_factor(row_directions, row_scales, "row_"),
            directional_factor(column_directions, column_scales, "column_"),
        )

    @cached_property
    def row_eigenvalues(self) -> FloatArray:
        """Proven lower bounds of the eigenvalues of the row covariance, ascending."""
        return eigenvalue_lower_bounds(self.row_covariance, "row_covariance")

    @cached_property
    def column_eigenvalues(self) -> FloatArray:
        """Proven lower bounds of the eigenvalues of the column covariance, ascending."""
        return eigenvalue_lower_bounds(self.column_covariance, "column_covariance")

    @cached_property
    def row_inverse(self) -> InverseEnclosure:
        """The inverse of the row covariance, enclosed."""
        # Sets need single entries of the inverse, which eigenvalues alone do not give.
        return inverse_enclosure(self.row_covariance, float(self.row_eigenvalues[0]))

    @cached_property
    def column_inverse(self) -> InverseEnclosure:
        """The inverse of the column covariance, enclosed."""
        return inverse_enclosure(self.column_covariance, float(self.column_eigenvalues[0]))

    @cached_property
    def row_eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors of the row covariance, to float accuracy."""
        # For drawing and whitening, where an error in the last digits costs no privacy.
        return Eigen(*scipy.linalg.eigh(self.row_covariance))

    @cached_property
    def column_eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors of the column covariance, to float accuracy."""
        return Eigen(*scipy.linalg.eigh(self.column_covariance))

    @property
    def smallest_singular_value(self) -> float:
        """A proven lower bound of ``sigma_min(U1) sigma_min(U2)``."""
        rows, columns = float(self.row_eigenvalues[0]), float(self.column_eigenvalues[0])
        # A root is correctly rounded: one step down is below the true one.
        return product_down(
            math.nextafter(math.sqrt(rows), 0.0), math.nextafter(math.sqrt(columns), 0.0)
        )

    @property
    def largest_singular_value(self) -> float:
        """``sigma_max(U1) sigma_max(U2)``, to float accuracy."""
        rows, columns = float(self.row_eigen.values[-1]), float(self.column_eigen.values[-1])
        # Roots before the product, which may overflow.
        return math.sqrt(rows) * math.sqrt(columns)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless the shape is (m, n)."""
        own = (self.row_covariance.shape[0], self.column_covariance.shape[0])
        if shape != own:
            raise ShapeError(
                f"row_covariance {self.row_covariance.shape} and column_covariance "
                f"{self.column_covariance.shape} are for a matrix of shape {own}, not {shape}"
            )

    @property
    def eigenbasis_scales(self) -> FloatArray:
        """The standard deviations in the eigenbases."""
        return np.outer(np.sqrt(self.row_eigen.values), np.sqrt(self.column_eigen.values))

    def rotated(self, inner: FloatArray) -> FloatArray:
        """Return the matrix that has these coordinates in the eigenbases."""
        return self.row_eigen.vectors @ inner @ self.column_eigen.vectors.T

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return ``U1 N U2^T`` with the factors ``V sqrt(Lambda)`` of the eigendecompositions."""
        return self.rotated(self.eigenbasis_scales * standard)

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return ``U1^-1 D U2^-T``."""
        rows, columns = self.row_eigen, self.column_eigen
        # Divided one side after the other: the product of two roots may underflow.
        inner = rows.vectors.T @ difference @ columns.vectors
        return inner / np.sqrt(rows.values)[:, None] / np.sqrt(columns.values)

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return ``sqrt((Sigma1)_ii (Sigma2)_jj)``."""
        self.check_shape(shape)
        rows, columns = np.diagonal(self.row_covariance), np.diagonal(self.column_covariance)
        return np.outer(np.sqrt(rows), np.sqrt(columns))

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose noise is about a factor larger; its radius may be off."""
        factor = positive_number(factor, "factor")
        # Each side takes the factor: standard deviations are the root of the product of the two.
        return type(self)(self.row_covariance * factor, self.column_covariance * factor)


def gram(factor: FloatArray) -> FloatArray:
    """Return the product of a factor and its transpose, rounded and exactly symmetric."""
    # BLAS does not promise that a product with its own transpose comes out symmetric.
    product = factor @ factor.T
    return np.asarray((product + product.T) / 2)


def directional_factor(directions: ArrayLike, scales: ArrayLike, side: str) -> FloatArray:
    """Return orthonormal directions times their scales; ``side`` begins the arguments' names."""
    basis = checked_matrix(directions, f"{side}directions")
    lengths = positive_vector(scales, f"{side}scales")
    if basis.shape[0] != basis.shape[1] or lengths.shape != (basis.shape[0],):
        raise ShapeError(
            f"{side}directions of shape {basis.shape} and {side}scales of shape {lengths.shape} "
            "do not fit: pass a square matrix of directions and one scale for each"
        )
    defect = float(np.max(np.abs(basis.T @ basis - np.eye(len(basis)))))
    if not defect <= _ORTHONORMAL_TOLERANCE:
        raise InvalidParameterError(
            f"{side}directions are not orthonormal (off by {defect:.3g}): pass unit vectors at "
            "right angles, for instance the Q of a QR decomposition"
        )
    return np.asarray(basis * lengths)
