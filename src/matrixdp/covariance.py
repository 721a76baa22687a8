"""How Gaussian noise is shaped: covariances of an m by n matrix that never become mn by mn.

A covariance here is a linear map: standard normal noise goes in, coloured noise comes out. It knows
nothing of privacy; a sensitivity set judges it, and `Covariance.rescaled_for` makes it tight.
"""

import abc
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg

from matrixdp.errors import CalibrationError, InvalidParameterError, ShapeError
from matrixdp.parameters import positive_number
from matrixdp.rounding import product_down, product_up, quotient_up
from matrixdp.spectra import (
    InverseEnclosure,
    checked_matrix,
    checked_symmetric,
    eigenvalue_lower_bounds,
    inverse_enclosure,
)

__all__ = ["Covariance", "Diagonal", "Isotropic", "Kronecker", "SymmetricIsotropic"]

FloatArray = NDArray[np.float64]
Shape = tuple[int, int]

_SQRT_HALF = math.nextafter(math.sqrt(0.5), 1.0)  # rounded up
_MOST_TIGHTENINGS = 40
_ORTHONORMAL_TOLERANCE = 1e-8


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
        """Refuse a matrix shape that the covariance does not fit."""

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
        """Return the covariance of this shape that a budget just allows for a sensitivity set.

        Parameters
        ----------
        sensitivity : a sensitivity set
            Judges how far neighbours are apart under this covariance.
        budget : Budget
            Its mu is what they may be apart.

        Examples
        --------
        >>> from matrixdp import Budget, Diagonal, FrobeniusBall
        >>> ball, budget = FrobeniusBall(1.0, neighbouring="replace"), Budget(1.0, 1e-5)
        >>> tight = Diagonal([[1.0, 2.0]]).rescaled_for(ball, budget)
        >>> tight.scales.round(4)
        array([[3.7306, 7.4613]])
        """
        tight = self.scaled(quotient_up(sensitivity.radius(self).value, budget.mu))
        excess = 2.0**-52
        for _ in range(_MOST_TIGHTENINGS):
            if sensitivity.radius(tight).value <= budget.mu:
                return tight
            tight = tight.scaled(1.0 + excess)
            excess *= 2.0
        raise CalibrationError(
            "the covariance could not be made tight: it is too close to singular for float64; add "
            "variance in its weakest direction"
        )


@dataclass(frozen=True, slots=True)
class Isotropic(Covariance):
    """Independent noise of one scale on every entry; fits every shape.

    Parameters
    ----------
    scale : float
        The standard deviation of every entry.
    """

    scale: float

    def __post_init__(self) -> None:
        """Refuse a scale that is not positive and finite."""
        object.__setattr__(self, "scale", positive_number(self.scale, "scale"))

    @property
    def smallest_singular_value(self) -> float:
        """The scale."""
        return self.scale

    @property
    def largest_singular_value(self) -> float:
        """The scale."""
        return self.scale

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

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose scale is a factor larger."""
        return type(self)(product_up(self.scale, factor))


@dataclass(frozen=True, slots=True)
class SymmetricIsotropic(Covariance):
    """Symmetric noise: ``scale`` on the diagonal, ``scale / sqrt(2)`` on each mirrored pair.

    It is i.i.d. noise in the isometric embedding of symmetric matrices, which weights each
    off-diagonal entry by sqrt(2); each pair is drawn once, so the noisy matrix stays symmetric.
    """

    scale: float

    def __post_init__(self) -> None:
        """Refuse a scale that is not positive and finite."""
        object.__setattr__(self, "scale", positive_number(self.scale, "scale"))

    @property
    def smallest_singular_value(self) -> float:
        """The scale, over symmetric matrices with their Frobenius norm."""
        return self.scale

    @property
    def largest_singular_value(self) -> float:
        """The scale, over symmetric matrices with their Frobenius norm."""
        return self.scale

    def check_shape(self, shape: Shape) -> None:
        """Refuse what is not square."""
        if shape[0] != shape[1]:
            raise ShapeError(
                f"symmetric noise does not fit a matrix of shape {shape}: it must be square"
            )

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return symmetric noise; the entries below the diagonal of the input are not used."""
        self.check_shape((standard.shape[0], standard.shape[1]))
        upper = np.triu(standard, 1) * (self.scale * _SQRT_HALF)
        return upper + upper.T + np.diag(np.diagonal(standard) * self.scale)

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

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose scale is a factor larger."""
        return type(self)(product_up(self.scale, factor))


@dataclass(frozen=True, eq=False)
class Diagonal(Covariance):
    """Independent noise with a scale of its own for every row, column or entry.

    Parameters
    ----------
    scales : array_like
        Standard deviations, all positive: of shape (m, 1) for rows, (1, n) for columns, (m, n) for
        entries.
    """

    scales: FloatArray

    def __init__(self, scales: ArrayLike) -> None:
        array = checked_matrix(scales, "scales")
        if not bool(np.all(array > 0.0)):
            raise InvalidParameterError(
                f"scales must all be positive, and the smallest is {float(array.min())!r}"
            )
        object.__setattr__(self, "scales", array)

    @property
    def smallest_singular_value(self) -> float:
        """The smallest scale."""
        return float(self.scales.min())

    @property
    def largest_singular_value(self) -> float:
        """The largest scale."""
        return float(self.scales.max())

    def check_shape(self, shape: Shape) -> None:
        """Refuse a shape that the scales do not broadcast to."""
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
        return np.array(np.broadcast_to(self.scales, shape))

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose scales are a factor larger."""
        return type(self)(np.nextafter(self.scales * factor, math.inf))


class _Eigen(NamedTuple):
    values: FloatArray
    vectors: FloatArray


@dataclass(frozen=True, eq=False)
class Kronecker(Covariance):
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
        _ = self.row_eigenvalues, self.column_eigenvalues  # proven positive, or refused

    @classmethod
    def from_factors(cls, row_factor: ArrayLike, column_factor: ArrayLike) -> Self:
        """Return the covariance of ``U1 N U2^T`` from U1 and U2; their products are rounded."""
        return cls(
            _gram(checked_matrix(row_factor, "row_factor")),
            _gram(checked_matrix(column_factor, "column_factor")),
        )

    @classmethod
    def from_directions(
        cls,
        row_directions: ArrayLike,
        row_scales: ArrayLike,
        column_directions: ArrayLike,
        column_scales: ArrayLike,
    ) -> Self:
        """Return directional noise: orthonormal directions (as columns) and their scales.

        The directions must come from public or already private data: singular vectors of the
        private matrix itself leak it.
        """
        return cls.from_factors(
            _directional_factor(row_directions, row_scales, "row"),
            _directional_factor(column_directions, column_scales, "column"),
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
        return inverse_enclosure(self.row_covariance, float(self.row_eigenvalues[0]))

    @cached_property
    def column_inverse(self) -> InverseEnclosure:
        """The inverse of the column covariance, enclosed."""
        return inverse_enclosure(self.column_covariance, float(self.column_eigenvalues[0]))

    @cached_property
    def row_eigen(self) -> _Eigen:
        """Eigenvalues and eigenvectors of the row covariance, to float accuracy."""
        return _Eigen(*linalg.eigh(self.row_covariance))

    @cached_property
    def column_eigen(self) -> _Eigen:
        """Eigenvalues and eigenvectors of the column covariance, to float accuracy."""
        return _Eigen(*linalg.eigh(self.column_covariance))

    @property
    def smallest_singular_value(self) -> float:
        """A proven lower bound of ``sigma_min(U1) sigma_min(U2)``."""
        rows, columns = float(self.row_eigenvalues[0]), float(self.column_eigenvalues[0])
        return product_down(
            math.nextafter(math.sqrt(rows), 0.0), math.nextafter(math.sqrt(columns), 0.0)
        )

    @property
    def largest_singular_value(self) -> float:
        """``sigma_max(U1) sigma_max(U2)``, to float accuracy."""
        return math.sqrt(float(self.row_eigen.values[-1] * self.column_eigen.values[-1]))

    def check_shape(self, shape: Shape) -> None:
        """Refuse a shape other than (m, n)."""
        own = (self.row_covariance.shape[0], self.column_covariance.shape[0])
        if shape != own:
            raise ShapeError(
                f"row_covariance {self.row_covariance.shape} and column_covariance "
                f"{self.column_covariance.shape} are for a matrix of shape {own}, not {shape}"
            )

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return ``U1 N U2^T`` with the factors ``V sqrt(Lambda)`` of the eigendecompositions."""
        rows, columns = self.row_eigen, self.column_eigen
        inner = np.sqrt(rows.values)[:, None] * standard * np.sqrt(columns.values)
        return rows.vectors @ inner @ columns.vectors.T

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return ``U1^-1 D U2^-T``."""
        rows, columns = self.row_eigen, self.column_eigen
        inner = rows.vectors.T @ difference @ columns.vectors
        return inner / np.sqrt(rows.values)[:, None] / np.sqrt(columns.values)

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return ``sqrt((Sigma1)_ii (Sigma2)_jj)``."""
        self.check_shape(shape)
        variances = np.outer(np.diagonal(self.row_covariance), np.diagonal(self.column_covariance))
        return np.sqrt(variances)

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose noise is about a factor larger; judge it again."""
        factor = positive_number(factor, "factor")
        return type(self)(self.row_covariance * factor * factor, self.column_covariance)


def _gram(factor: FloatArray) -> FloatArray:
    product = factor @ factor.T
    return np.asarray((product + product.T) / 2)


def _directional_factor(directions: ArrayLike, scales: ArrayLike, side: str) -> FloatArray:
    basis = checked_matrix(directions, f"{side}_directions")
    lengths = np.asarray(scales)
    if basis.shape[0] != basis.shape[1] or lengths.shape != (basis.shape[0],):
        raise ShapeError(
            f"{side}_directions of shape {basis.shape} and {side}_scales of shape {lengths.shape} "
            "do not fit: pass a square matrix of directions and one scale for each"
        )
    if lengths.dtype.kind not in "iuf" or not bool(np.all((lengths > 0) & (lengths < math.inf))):
        raise InvalidParameterError(f"{side}_scales must all be positive, finite numbers")
    defect = float(np.max(np.abs(basis.T @ basis - np.eye(len(basis)))))
    if not defect <= _ORTHONORMAL_TOLERANCE:
        raise InvalidParameterError(
            f"{side}_directions are not orthonormal (off by {defect:.3g}): pass unit vectors at "
            "right angles, for instance the Q of a QR decomposition"
        )
    return np.asarray(basis * lengths)
