"""The covariance of one side of a matrix: of its rows or of its columns."""

import abc
import math
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import scipy
from numpy.typing import ArrayLike

from matrixdp.covariance.linear_map import FloatArray
from matrixdp.errors import InvalidParameterError
from matrixdp.parameters import checked_symmetric
from matrixdp.spectra import InverseEnclosure, eigenvalue_lower_bounds, inverse_enclosure

__all__ = ["Eigen", "FullSide", "IdentitySide", "Side", "SideCovariance", "checked_side"]

Side = Literal["rows", "columns"]
"""A side of a matrix."""


def checked_side(side: object) -> Side:
    """Return a side of the matrix, or raise if it is not one."""
    if side not in get_args(Side):
        raise InvalidParameterError(f"side={side!r} must be 'rows' or 'columns'")
    return "rows" if side == "rows" else "columns"


class Eigen(NamedTuple):
    """Eigenvalues, ascending, and their eigenvectors, as columns; to float accuracy."""

    values: FloatArray
    vectors: FloatArray


class SideCovariance(abc.ABC):
    """A positive definite covariance of one side."""

    @property
    @abc.abstractmethod
    def length(self) -> int | None:
        """The number of rows or columns; None if any number will do."""

    @property
    @abc.abstractmethod
    def smallest_root(self) -> float:
        """A proven lower bound of the root of the smallest eigenvalue."""

    @property
    @abc.abstractmethod
    def scales(self) -> FloatArray:
        """The roots of the eigenvalues, ascending, to float accuracy; one if all are the same."""

    @property
    @abc.abstractmethod
    def variances(self) -> FloatArray:
        """The diagonal; one number if all are the same."""

    @abc.abstractmethod
    def eigenvalues(self, length: int) -> FloatArray:
        """Return proven lower bounds of the eigenvalues, ascending."""

    @property
    @abc.abstractmethod
    def vectors(self) -> FloatArray | None:
        """The eigenvectors as columns, to float accuracy; None if all directions are the same."""

    @abc.abstractmethod
    def inverse(self, length: int) -> InverseEnclosure:
        """Return the inverse, enclosed."""


class IdentitySide(SideCovariance):
    """Independent entries of variance 1, as many as there are; the identity is never formed."""

    length = None
    smallest_root = 1.0
    vectors = None

    @property
    def scales(self) -> FloatArray:
        """One."""
        return np.ones(1)

    @property
    def variances(self) -> FloatArray:
        """One."""
        return np.ones(1)

    def eigenvalues(self, length: int) -> FloatArray:
        """Return ones."""
        return np.ones(length)

    def inverse(self, length: int) -> InverseEnclosure:
        """Return the identity, which is exact."""
        return InverseEnclosure(np.eye(length), 0.0)


class FullSide(SideCovariance):
    """A covariance that is written out.

    Parameters
    ----------
    matrix : array_like, shape (n, n)
        Symmetric and positive definite.
    name : str
        What errors call it.

    Raises
    ------
    NotPositiveDefiniteError
        If float64 cannot prove it positive definite.
    """

    def __init__(self, matrix: ArrayLike, name: str) -> None:
        self.matrix = checked_symmetric(matrix, name)
        # Proven here, so that a covariance that exists is positive definite.
        self._lower_bounds = eigenvalue_lower_bounds(self.matrix, name)

    @property
    def length(self) -> int:
        """The number of rows or columns."""
        return len(self.matrix)

    @property
    def smallest_root(self) -> float:
        """A proven lower bound of the root of the smallest eigenvalue."""
        # A root is correctly rounded: one step down is below the true one.
        return math.nextafter(math.sqrt(float(self._lower_bounds[0])), 0.0)

    @cached_property
    def eigen(self) -> Eigen:
        """Eigenvalues and eigenvectors."""
        # For drawing and whitening, where an error in the last digits costs no privacy.
        return Eigen(*scipy.linalg.eigh(self.matrix))

    @property
    def scales(self) -> FloatArray:
        """The roots of the eigenvalues."""
        return np.sqrt(self.eigen.values)

    @property
    def variances(self) -> FloatArray:
        """The diagonal."""
        return np.diagonal(self.matrix)

    def eigenvalues(self, length: int) -> FloatArray:  # noqa: ARG002
        """Return proven lower bounds of the eigenvalues, ascending."""
        return self._lower_bounds

    @property
    def vectors(self) -> FloatArray:
        """The eigenvectors."""
        return self.eigen.vectors

    @cached_property
    def _inverse(self) -> InverseEnclosure:
        return inverse_enclosure(self.matrix, float(self._lower_bounds[0]))

    def inverse(self, length: int) -> InverseEnclosure:  # noqa: ARG002
        """Return the inverse, enclosed."""
        # Sets need single entries of the inverse, which eigenvalues alone do not give.
        return self._inverse
