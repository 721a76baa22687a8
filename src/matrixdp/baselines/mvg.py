"""The Matrix-Variate Gaussian mechanism (MVG), with unimodal directional noise."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.baselines.precision_budget import Zeta, mvg_precision_budget
from matrixdp.covariance import Covariance, Diagonal, Kronecker
from matrixdp.covariance.side import Side, checked_side
from matrixdp.errors import InvalidParameterError, ShapeError
from matrixdp.mechanisms.drawing import CheckedMatrix
from matrixdp.mechanisms.gaussian import GaussianMechanism, checked_set, largest_norm
from matrixdp.parameters import (
    checked_choice,
    integer_array,
    positive_integer,
    positive_vector,
    proper_fraction,
)
from matrixdp.privacy.budget import Budget
from matrixdp.sensitivity.sets import HasSensitivity, SensitivitySet

__all__ = ["MVG", "binary_precision"]

FloatArray = NDArray[np.float64]

# Float shares that should add up to 1 do so within this; they are then divided by their sum.
_SUM_TOLERANCE = 1e-9
# Some ten float operations on each scale; this rounds them up.
_MARGIN = 1e-14
# A matrix clipped to the norm bound in float arithmetic may exceed it by its rounding.
_NORM_TOLERANCE = 1e-9


class MVG(GaussianMechanism):
    """Matrix Gaussian noise under MVG's precision budget: directional on one side of the matrix.

    It is here to be compared with: on the Frobenius ball `IMGM` makes the same promise with less
    noise in *every* direction.

    Parameters
    ----------
    sensitivity : FrobeniusBall, SymmetricBall, RowBounds or RowBox; or a query
        What one record can change; MVG uses the largest Frobenius norm in it.
    budget : Budget
        What is to be guaranteed; its epsilon must be above 0.
    shape : tuple of int
        The shape of the matrices to be released.
    norm_bound : float
        The largest Frobenius norm that a matrix can have, gamma; at least half of the largest norm
        of a difference.
    zeta : Zeta or str, optional
        The constant of the proof; by default the sharp one, MVG at its best.
    side : {"rows", "columns"}, optional
        Which side of the matrix the directions belong to; the noise is the same for all of the
        other side.
    precision : array_like, optional
        The share of the precision that each direction gets, positive and adding up to 1: see
        `binary_precision`. By default all the same, which is i.i.d. noise.
    directions : array_like, optional
        Orthonormal directions, as columns; by default the rows or columns themselves. They must
        come from public or already private data, for instance `private_directions`: the singular
        vectors of the private matrix leak it.

    Raises
    ------
    InvalidParameterError
        If a parameter is outside its domain.
    ShapeError
        If ``precision`` or ``directions`` do not fit the shape.

    Notes
    -----
    With P the square of `mvg_precision_budget` over the length of the other side, direction i gets
    noise of variance ``1/sqrt(share_i P)``.

    A matrix beyond ``norm_bound`` is refused. The refusal itself reveals that the norm is larger:
    scale every matrix to that norm beforehand.

    *Guarantee:* (budget.epsilon, budget.delta)-DP under the set's relation, twice over: by MVG's
    theorem for matrices within ``norm_bound``, and by the exact curve for all matrices. The second
    is what ``guarantee.mu`` states: its weakest direction has scale ``s2 / mu`` and is drawn
    exactly, the rest of the noise is post-processing. ``guarantee.epsilon_at(delta)`` is what the
    noise really guarantees.

    References
    ----------
    Chanyaswad, Dytso, Poor and Mittal (2018), *MVG Mechanism: Differential Privacy under
    Matrix-Valued Query*: the theorem that proves it private, and unimodal directional noise.

    Examples
    --------
    >>> import matrixdp as mdp
    >>> ball = mdp.FrobeniusBall(1.0, neighbouring="replace")
    >>> mechanism = mdp.baselines.MVG(ball, mdp.Budget(1.0, 1e-5), shape=(10, 10), norm_bound=1.0)
    >>> round(mechanism.covariance.smallest_singular_value, 1)
    404.8
    >>> round(mechanism.guarantee.epsilon_at(1e-5), 4)  # what that noise really guarantees
    0.0056
    """

    norm_bound: float
    shape: tuple[int, int]
    zeta: Zeta

    def __init__(
        self,
        sensitivity: SensitivitySet | HasSensitivity,
        budget: Budget,
        *,
        shape: tuple[int, int],
        norm_bound: float,
        zeta: Zeta | str = Zeta.SHARP,
        side: Side = "rows",
        precision: ArrayLike | None = None,
        directions: ArrayLike | None = None,
    ) -> None:
        # Before the formula, which uses both.
        members = checked_set(sensitivity, budget)
        rows, columns = _checked_shape(shape)
        size, other = (rows, columns) if checked_side(side) == "rows" else (columns, rows)
        # Without a precision all directions share alike, which is i.i.d. noise.
        shares = np.full(size, 1.0 / size) if precision is None else _shares(precision, size)
        allowed = mvg_precision_budget(
            rows,
            columns,
            norm_bound=norm_bound,
            sensitivity=largest_norm(members),
            epsilon=budget.epsilon,
            delta=budget.delta,
            zeta=zeta,
        )
        # The scale is the root of variance_i = 1/sqrt(share_i P), with P = allowed^2 / other.
        scales = (other / shares) ** 0.25 / math.sqrt(allowed) * (1.0 + _MARGIN)
        super().__init__(members, budget, _covariance(scales, directions, side))
        # The base class is frozen.
        object.__setattr__(self, "norm_bound", float(norm_bound))
        object.__setattr__(self, "shape", (rows, columns))
        object.__setattr__(self, "zeta", checked_choice(zeta, Zeta, "zeta"))

    def checked(self, matrix: Any) -> CheckedMatrix:
        """Return a matrix that the mechanism may release, or raise with the reason."""
        checked = super().checked(matrix)
        if checked.array.shape != self.shape:
            raise ShapeError(
                f"matrix has shape {checked.array.shape}, but this MVG is for shape={self.shape}: "
                "its noise depends on it"
            )
        # In float64, because the square of a float32 entry may overflow.
        norm = float(np.linalg.norm(checked.array.astype(np.float64)))
        if not norm <= self.norm_bound * (1.0 + _NORM_TOLERANCE):
            raise InvalidParameterError(
                f"matrix has a larger Frobenius norm than norm_bound={self.norm_bound!r}: scale it "
                "down to that norm, which cannot increase the sensitivity"
            )
        return checked


def binary_precision(size: int, important: ArrayLike, share: float) -> FloatArray:
    """Return MVG's binary allocation: a share for the important directions, split equally.

    Parameters
    ----------
    size : int
        The number of directions.
    important : array_like of int
        The numbers of the important directions, from 0; some, but not all.
    share : float
        Of the precision, for all important directions together; above 0 and below 1.

    Examples
    --------
    >>> from matrixdp.baselines import binary_precision
    >>> binary_precision(5, important=[0, 1], share=0.9).round(3).tolist()
    [0.45, 0.45, 0.033, 0.033, 0.033]
    """
    size = positive_integer(size, "size")
    # A direction that is named twice counts once.
    chosen = np.unique(integer_array(important, "important"))
    part = proper_fraction(share, "share")
    if not bool(np.all((chosen >= 0) & (chosen < size))):
        raise InvalidParameterError(f"important must be integers from 0 to {size - 1}")
    if not 1 <= len(chosen) < size:
        raise InvalidParameterError(
            f"important names {len(chosen)} of {size} directions: name some, but not all"
        )
    # Within a group all directions share alike: "binary" is about the two groups.
    shares = np.full(size, (1.0 - part) / (size - len(chosen)))
    shares[chosen] = part / len(chosen)
    return shares


def _checked_shape(shape: object) -> tuple[int, int]:
    if not isinstance(shape, tuple | list) or len(shape) != 2:
        raise InvalidParameterError(f"shape={shape!r} must be (rows, columns)")
    return positive_integer(shape[0], "shape"), positive_integer(shape[1], "shape")


def _shares(precision: ArrayLike, size: int) -> FloatArray:
    """Return one positive share for each direction, adding up to 1."""
    # Positive, because a direction without precision would need infinite noise.
    shares = positive_vector(precision, "precision")
    if shares.shape != (size,):
        raise ShapeError(f"precision has shape {shares.shape}: give one share for each of {size}")
    # Shares that add up to more than 1 would exceed the budget, so they are divided by their sum.
    total = float(np.sum(shares))
    if not abs(total - 1.0) <= _SUM_TOLERANCE:
        raise InvalidParameterError(f"precision adds up to {total!r}: its shares must add up to 1")
    return np.asarray(shares / total)


def _covariance(scales: FloatArray, directions: ArrayLike | None, side: Side) -> Covariance:
    """Return the noise of these scales on one side, and the same for all of the other side."""
    # Independent entries are drawn exactly one by one, with no rotation in floats.
    if directions is None:
        return Diagonal(scales[:, None] if side == "rows" else scales[None, :])
    return Kronecker.from_directions(**{side: (directions, scales)})
