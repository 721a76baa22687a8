"""Projections: the nearest matrix, in Frobenius norm, of a set that the truth is known to be in.

A projection onto a convex set that holds the true matrix never moves further from it, whatever the
noise was.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from matrixdp.covariance import Covariance
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.parameters import checked_matrix, positive_number
from matrixdp.postprocess.correlation import nearest_correlation
from matrixdp.postprocess.spectrum import eigenvalues_of_symmetric
from matrixdp.postprocess.step import FloatArray, Shape, Step, check_choice

__all__ = ["Clamp", "CorrelationMatrix", "Over", "PositiveSemidefinite", "Simplex"]

Over = Literal["matrix", "rows"]


class _SquareStep(Step):
    """A step that takes square matrices only."""

    def check(self, shape: Shape, covariance: Covariance) -> None:
        """Raise unless the matrix is square."""
        del covariance
        if shape[0] != shape[1]:
            raise ShapeError(
                f"{type(self).__name__} takes square matrices, and the release has shape {shape}"
            )


@dataclass(frozen=True)
class PositiveSemidefinite(_SquareStep):
    """The nearest symmetric matrix without negative eigenvalues: for Gram and covariance matrices.

    Negative eigenvalues of the symmetric part become 0 (Higham, *Computing a nearest symmetric
    positive semidefinite matrix*, Linear Algebra Appl. 103 (1988)). Rounding may leave eigenvalues
    a few units in the last place of the largest one below 0.

    Examples
    --------
    >>> from matrixdp import SymmetricIsotropic
    >>> matrix = np.array([[0.0, 2.0], [2.0, 0.0]])
    >>> PositiveSemidefinite().apply(matrix, SymmetricIsotropic(1.0)).round(12).tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the nearest such matrix."""
        del covariance
        values, vectors = eigenvalues_of_symmetric(_symmetric_part(value))
        kept = values > 0.0
        nearest = (vectors[:, kept] * values[kept]) @ vectors[:, kept].T
        return _symmetric_part(nearest)

    def __str__(self) -> str:
        """Say what is nearest."""
        return "projected on the positive semidefinite matrices"


@dataclass(frozen=True)
class CorrelationMatrix(_SquareStep):
    """The nearest correlation matrix: ones on the diagonal and no negative eigenvalues.

    For releases whose diagonal should be 1. It does not divide by variances: a covariance matrix
    is not near a correlation matrix.

    Notes
    -----
    The problem of Higham (2002), solved by the Newton method of Qi and Sun (2006) until the
    diagonal is within 1e-11 of 1 (and the rounding of the eigenvalues), then scaled to 1. If it
    does not get there, `CalibrationError` is raised.

    Examples
    --------
    >>> from matrixdp import SymmetricIsotropic
    >>> matrix = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    >>> CorrelationMatrix().apply(matrix, SymmetricIsotropic(1.0)).round(4)
    array([[1.    , 0.7607, 0.1573],
           [0.7607, 1.    , 0.7607],
           [0.1573, 0.7607, 1.    ]])
    """

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the nearest correlation matrix."""
        del covariance
        return nearest_correlation(_symmetric_part(value))

    def __str__(self) -> str:
        """Say what is nearest."""
        return "projected on the correlation matrices"


@dataclass(frozen=True)
class Simplex(Step):
    """The nearest non-negative matrix whose entries sum to a public total.

    Parameters
    ----------
    total : float
        What the entries sum to. It must be public: 1 for probabilities, the number of records
        under ``"replace"``.
    over : {"matrix", "rows"}, optional
        Whether all entries sum to it, as in a table of counts, or those of every row, as in a
        matrix of transition probabilities.

    Notes
    -----
    One constant is taken off all entries, and those below 0 become 0; sorting finds the constant
    (Held, Wolfe and Crowder, *Validation of subgradient optimization*, Math. Program. 6 (1974)).

    Examples
    --------
    >>> from matrixdp import Isotropic
    >>> Simplex(10.0).apply(np.array([[7.0, 6.0], [-1.0, 0.5]]), Isotropic(1.0)).tolist()
    [[5.5, 4.5], [0.0, 0.0]]
    """

    total: float
    over: Over = "matrix"

    def __post_init__(self) -> None:
        """Raise unless the total is positive and the entries it is over are named."""
        object.__setattr__(self, "total", positive_number(self.total, "total"))
        check_choice(self.over, "over", get_args(Over))

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the nearest such matrix."""
        del covariance
        rows = value.reshape(1, -1) if self.over == "matrix" else value
        return _on_simplex(rows, self.total).reshape(value.shape)

    def __str__(self) -> str:
        """Say what sums to the total."""
        what = "matrices" if self.over == "matrix" else "rows"
        return f"projected on the non-negative {what} of total {self.total!r}"


@dataclass(frozen=True, eq=False)
class Clamp(Step):
    """Entries below a bound become the bound, and those above likewise: the nearest within a box.

    Parameters
    ----------
    lower, upper : float or array_like, optional
        Public bounds of the entries: one number, or a matrix of shape (m, n), (m, 1) or (1, n).
        At least one is needed.

    Examples
    --------
    >>> from matrixdp import Isotropic
    >>> Clamp(lower=0.0, upper=[[1.0, 9.0]]).apply(
    ...     np.array([[-2.0, 4.0], [3.0, 12.0]]), Isotropic(1.0)
    ... ).tolist()
    [[0.0, 4.0], [1.0, 9.0]]
    """

    lower: FloatArray | None
    upper: FloatArray | None

    def __init__(
        self, lower: float | ArrayLike | None = None, upper: float | ArrayLike | None = None
    ) -> None:
        low, high = _bound(lower, "lower"), _bound(upper, "upper")
        if low is None and high is None:
            raise InvalidParameterError("lower and upper are both missing: pass at least one")
        if low is not None and high is not None:
            _check_order(low, high)
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.lower, self.upper)

    def check(self, shape: Shape, covariance: Covariance) -> None:
        """Raise unless the bounds fit the matrix."""
        del covariance
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound is not None and not all(
                have in (1, want) for have, want in zip(bound.shape, shape, strict=True)
            ):
                raise ShapeError(
                    f"{name} has shape {bound.shape}, which does not fit a release of shape {shape}"
                )

    def apply(self, value: FloatArray, covariance: Covariance) -> FloatArray:
        """Return the nearest matrix within the bounds."""
        del covariance
        return np.array(np.clip(value, self.lower, self.upper))

    def __str__(self) -> str:
        """Say which bounds."""
        parts = (("at least", self.lower), ("at most", self.upper))
        said = [f"{words} {_said(bound)}" for words, bound in parts if bound is not None]
        return f"entries clamped to {' and '.join(said)}"


def _bound(bound: float | ArrayLike | None, name: str) -> FloatArray | None:
    """Return a bound as a matrix that can be broadcast."""
    if bound is None:
        return None
    # One number by numpy's idea of it; the gate says what is wrong with anything else.
    return checked_matrix([[bound]] if np.ndim(bound) == 0 else bound, name)


def _check_order(low: FloatArray, high: FloatArray) -> None:
    try:
        crossed = low > high
    except ValueError:
        raise ShapeError(
            f"lower has shape {low.shape} and upper {high.shape}: they do not fit one matrix"
        ) from None
    if bool(np.any(crossed)):
        raise InvalidParameterError("lower is above upper somewhere: exchange or correct them")


def _said(bound: FloatArray) -> str:
    return repr(bound.item()) if bound.size == 1 else f"public bounds of shape {bound.shape}"


def _symmetric_part(matrix: FloatArray) -> FloatArray:
    # Halved first: the sum of two large entries might overflow.
    return np.asarray(matrix / 2.0 + matrix.T / 2.0)


def _on_simplex(rows: FloatArray, total: float) -> FloatArray:
    """Return the nearest rows that are non-negative and sum to a total."""
    # Adding one number to a row does not move its projection. With a largest entry of 0, nothing
    # that matters is lost in the sums.
    shifted = rows - rows.max(axis=1, keepdims=True)
    falling = -np.sort(-shifted, axis=1)
    counts = np.arange(1, rows.shape[1] + 1)
    means = (np.cumsum(falling, axis=1) - total) / counts
    positive = np.count_nonzero(falling > means, axis=1)
    taken_off = np.take_along_axis(means, positive[:, None] - 1, axis=1)
    return np.asarray(np.maximum(shifted - taken_off, 0.0))
