"""Noise with correlated entries: a covariance of the rows times one of the columns.

It contains i.i.d. noise of a proven scale, the `Directional.floor`.
"""

import abc
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.covariance.linear_map import Covariance, FloatArray, Shape
from matrixdp.covariance.side import FullSide, IdentitySide, SideCovariance
from matrixdp.errors import InvalidParameterError, NotPositiveDefiniteError, ShapeError
from matrixdp.parameters import EqualByValue, checked_matrix, positive_number, positive_vector
from matrixdp.rounding import float_down, product_down

__all__ = ["Directional", "Directions", "Kronecker"]

Directions = tuple[ArrayLike, ArrayLike]
"""Orthonormal directions, as columns, and the scale of the noise along each."""

# What computed directions may be off by. This guards against mistakes only: the guarantee rests on
# the covariance that results, whose eigenvalues are proven.
_ORTHONORMAL_TOLERANCE = 1e-8
# The floor is below the estimate by this many times the part that is not proven here. The estimate
# here, the estimate on another processor and the proof there may each be off by that part, which
# makes three; the fourth is a reserve.
_MARGIN = 4
# With a larger unproven share the floor would be lower than 3/4 of the noise, and the reasoning
# above, which is linear in the error, would no longer hold for the root of an eigenvalue.
_LARGEST_UNPROVEN_SHARE = 1 / 16


class Directional(Covariance):
    """Noise that is independent in some eigenbasis, with a scale for every direction in it."""

    @property
    @abc.abstractmethod
    def eigenbasis_scales(self) -> FloatArray:
        """The standard deviations in the eigenbasis, to float accuracy; they broadcast."""

    @abc.abstractmethod
    def rotated(self, inner: FloatArray) -> FloatArray:
        """Return the matrix that has these coordinates in the eigenbasis."""

    @property
    def estimated_floor(self) -> float:
        """The scale of the weakest direction, to float accuracy; nothing is proven of it."""
        # Only ever compared with a proven bound: no guarantee may rest on it.
        return float(np.min(self.eigenbasis_scales))

    @property
    def floor(self) -> float | None:
        """The scale of i.i.d. noise that the covariance contains, as any machine can prove it.

        Every direction has at least this scale, so that the noise is i.i.d. noise of the floor plus
        independent noise. It is below `smallest_singular_value`, the bound proven here, by three
        times what was left unproven: other processors round differently and prove a little less.
        None if float64 does not resolve the weakest direction.
        """
        try:
            return self.proven_floor()
        except NotPositiveDefiniteError:
            return None

    def proven_floor(self) -> float:
        """Return the `floor`, or raise if there is none.

        Raises
        ------
        NotPositiveDefiniteError
            If float64 does not resolve the weakest direction.
        """
        estimate, proven = self.estimated_floor, self.smallest_singular_value
        # Never negative, or the floor would be above what is proven.
        unproven = max(estimate - proven, 0.0)
        if not unproven <= _LARGEST_UNPROVEN_SHARE * estimate:
            raise NotPositiveDefiniteError(
                f"covariance is too ill-conditioned: its weakest direction has a scale of about "
                f"{estimate:.3g}, of which float64 proves {proven:.3g} only; add variance in that "
                "direction, or use independent noise"
            )
        # In rationals and rounded down: a lower floor is a weaker claim, never a false one.
        return float_down(Fraction(estimate) - _MARGIN * Fraction(unproven))


@dataclass(frozen=True, eq=False)
class Kronecker(EqualByValue, Directional):
    """Matrix Gaussian noise MN(0, rows, columns).

    The noise is ``U1 N U2^T`` with ``U1 U1^T = rows`` and ``U2 U2^T = columns``. A side that is
    left out is the identity, which is never formed, so that this side may have any length.

    Parameters
    ----------
    rows : array_like, shape (m, m), optional
        The covariance of the rows: symmetric and positive definite.
    columns : array_like, shape (n, n), optional
        The covariance of the columns: symmetric and positive definite.

    Raises
    ------
    NotPositiveDefiniteError
        If float64 cannot prove a covariance positive definite.

    Examples
    --------
    >>> import numpy as np
    >>> Kronecker(rows=np.diag([1.0, 4.0])).entry_scales((2, 3)).tolist()
    [[1.0, 1.0, 1.0], [2.0, 2.0, 2.0]]
    """

    rows: FloatArray | None
    columns: FloatArray | None
    # Made from the fields, and no field itself: values are equal if their matrices are.
    _sides: ClassVar[tuple[SideCovariance, SideCovariance]]

    def __init__(self, rows: ArrayLike | None = None, columns: ArrayLike | None = None) -> None:
        if rows is None and columns is None:
            raise InvalidParameterError(
                "rows and columns are both left out: pass one of them, or use Isotropic"
            )
        sides: list[SideCovariance] = []
        for name, matrix in (("rows", rows), ("columns", columns)):
            full = None if matrix is None else FullSide(matrix, name)
            object.__setattr__(self, name, None if full is None else full.matrix)
            sides.append(IdentitySide() if full is None else full)
        object.__setattr__(self, "_sides", tuple(sides))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.rows, self.columns)

    @classmethod
    def from_factors(cls, rows: ArrayLike | None = None, columns: ArrayLike | None = None) -> Self:
        """Return the covariance of ``U1 N U2^T`` from U1 and U2; their products are rounded."""
        return cls(
            None if rows is None else _gram(checked_matrix(rows, "rows")),
            None if columns is None else _gram(checked_matrix(columns, "columns")),
        )

    @classmethod
    def from_directions(
        cls, rows: Directions | None = None, columns: Directions | None = None
    ) -> Self:
        """Return noise with given scales along orthonormal directions, the columns.

        The directions must come from public or already private data: singular vectors of the
        private matrix itself leak it.
        """
        return cls.from_factors(
            None if rows is None else _directional_factor(rows, "rows"),
            None if columns is None else _directional_factor(columns, "columns"),
        )

    @property
    def sides(self) -> tuple[SideCovariance, SideCovariance]:
        """The covariance of the rows and that of the columns, with what is proven of them."""
        return self._sides

    @property
    def smallest_singular_value(self) -> float:
        """A proven lower bound of ``sigma_min(U1) sigma_min(U2)``."""
        rows, columns = self.sides
        return product_down(rows.smallest_root, columns.smallest_root)

    @property
    def largest_singular_value(self) -> float:
        """``sigma_max(U1) sigma_max(U2)``, to float accuracy."""
        rows, columns = self.sides
        # Roots before the product, which may overflow.
        return float(rows.scales[-1]) * float(columns.scales[-1])

    def check_shape(self, shape: Shape) -> None:
        """Raise unless each side has the length of its covariance."""
        for side, name, length in zip(self.sides, ("rows", "columns"), shape, strict=True):
            if side.length not in {None, length}:
                raise ShapeError(
                    f"{name} is a covariance of {side.length} {name}, not for a matrix of shape "
                    f"{shape}"
                )

    @property
    def eigenbasis_scales(self) -> FloatArray:
        """The standard deviations in the eigenbases; they broadcast along a side left out."""
        rows, columns = self.sides
        return np.outer(rows.scales, columns.scales)

    def rotated(self, inner: FloatArray) -> FloatArray:
        """Return the matrix that has these coordinates in the eigenbases."""
        rows, columns = (side.vectors for side in self.sides)
        rotated = inner if rows is None else rows @ inner
        return rotated if columns is None else rotated @ columns.T

    def colour(self, standard: FloatArray) -> FloatArray:
        """Return ``U1 N U2^T`` with the factors ``V sqrt(Lambda)`` of the eigendecompositions."""
        return self.rotated(self.eigenbasis_scales * standard)

    def whiten(self, difference: FloatArray) -> FloatArray:
        """Return ``U1^-1 D U2^-T``."""
        rows, columns = self.sides
        inner = difference if rows.vectors is None else rows.vectors.T @ difference
        inner = inner if columns.vectors is None else inner @ columns.vectors
        # Divided one side after the other: the product of two roots may underflow.
        return inner / rows.scales[:, None] / columns.scales

    def entry_scales(self, shape: Shape) -> FloatArray:
        """Return ``sqrt((Sigma1)_ii (Sigma2)_jj)``."""
        self.check_shape(shape)
        rows, columns = self.sides
        scales = np.outer(np.sqrt(rows.variances), np.sqrt(columns.variances))
        return np.broadcast_to(scales, shape).copy()

    def scaled(self, factor: float) -> Self:
        """Return the covariance whose noise is larger by about a factor; its radius may be off."""
        factor = positive_number(factor, "factor")
        # Standard deviations are the root of the product of the two sides. One side takes the
        # factor twice instead of its square, which may overflow although the product does not.
        if self.rows is None or self.columns is None:
            return type(self)(
                None if self.rows is None else self.rows * factor * factor,
                None if self.columns is None else self.columns * factor * factor,
            )
        return type(self)(self.rows * factor, self.columns * factor)


def _gram(factor: FloatArray) -> FloatArray:
    """Return the product of a factor and its transpose, rounded and exactly symmetric."""
    # BLAS does not promise that a product with its own transpose comes out symmetric.
    product = factor @ factor.T
    return np.asarray((product + product.T) / 2)


def _directional_factor(side: Directions, name: str) -> FloatArray:
    """Return orthonormal directions times their scales."""
    directions, scales = side
    basis = checked_matrix(directions, f"{name} directions")
    lengths = positive_vector(scales, f"{name} scales")
    if basis.shape[0] != basis.shape[1] or lengths.shape != (basis.shape[0],):
        raise ShapeError(
            f"{name} has directions of shape {basis.shape} and scales of shape {lengths.shape}, "
            "which do not fit: pass a square matrix of directions and one scale for each"
        )
    defect = float(np.max(np.abs(basis.T @ basis - np.eye(len(basis)))))
    if not defect <= _ORTHONORMAL_TOLERANCE:
        raise InvalidParameterError(
            f"{name} has directions that are not orthonormal (off by {defect:.3g}): pass unit "
            "vectors at right angles, for instance the Q of a QR decomposition"
        )
    return np.asarray(basis * lengths)
