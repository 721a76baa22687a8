"""Sensitivity sets: what the difference of two neighbouring answers can be.

A set describes the difference itself, under either neighbouring relation; the relation is carried
into the guarantee and multiplies nothing. Each set knows its radius under a covariance, the largest
whitened norm of a member (which is the mu of a release), and the covariance with the least total
variance that keeps the radius at a budget's mu.
"""

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from matrixdp.covariance import (
    Covariance,
    Diagonal,
    Directional,
    Isotropic,
    Kronecker,
    SymmetricDiagonal,
    SymmetricIsotropic,
)
from matrixdp.covariance.linear_map import noise_factor
from matrixdp.errors import ShapeError
from matrixdp.parameters import EqualByValue, positive_number, positive_vector
from matrixdp.privacy.budget import Budget, check_budget
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.rounding import inflated, quotient_up, ratio_up
from matrixdp.sensitivity.radius import (
    Radius,
    agree,
    check_full_side,
    check_known,
    check_sides,
    normalised,
    refuse_mirrored,
    resolved,
    unknown_covariance,
)
from matrixdp.sensitivity.scaled import ScaledBall, ScaledSymmetricBall

__all__ = [
    "FrobeniusBall",
    "HasSensitivity",
    "RowBounds",
    "RowBox",
    "SensitivitySet",
    "SymmetricBall",
]

FloatArray = NDArray[np.float64]
Shape = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FrobeniusBall:
    """All differences with Frobenius norm at most ``bound``: the l2 sensitivity.

    Parameters
    ----------
    bound : float
        The largest Frobenius norm of a difference.
    neighbouring : {"add-remove", "replace"}
        The relation under which that holds.

    Notes
    -----
    *Best noise:* i.i.d. of scale ``bound / mu``. A covariance is valid iff it is at least that
    times the identity in the Loewner order, so i.i.d. noise is best for every use, not only in
    total variance.

    Examples
    --------
    >>> from matrixdp import Budget, FrobeniusBall, Isotropic
    >>> ball = FrobeniusBall(1.0, neighbouring="replace")
    >>> ball.radius(Isotropic(4.0))
    Radius(value=0.25, exact=True)
    >>> round(ball.best_covariance(Budget(1.0, 1e-5)).scale, 4)
    3.7306
    """

    bound: float
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise unless the bound is positive and the relation known."""
        _check_ball(self)

    def check_shape(self, shape: Shape) -> None:
        """Accept every shape."""

    def radius(self, covariance: Covariance) -> Radius:
        """Return ``bound / sigma_min``, exactly attained by the weakest direction (Theorem 2).

        Directional noise counts with its `floor`, which any machine can prove.
        """
        refuse_mirrored(covariance)
        if isinstance(covariance, Directional):
            weakest = covariance.proven_floor()
            exact = agree(weakest, covariance.estimated_floor)
            return Radius(quotient_up(self.bound, weakest), exact=exact)
        return Radius(quotient_up(self.bound, covariance.smallest_singular_value), exact=True)

    def best_covariance(self, budget: Budget) -> Isotropic:
        """Return i.i.d. noise of scale ``bound / mu`` (Algorithm 1)."""
        check_budget(budget)
        return Isotropic(noise_factor("sensitivity of bound", self.bound, budget.mu))


@dataclass(frozen=True, slots=True)
class SymmetricBall:
    """All symmetric differences with Frobenius norm at most ``bound``: Gram, covariance matrices.

    Notes
    -----
    *Best noise:* `SymmetricIsotropic` of scale ``bound / mu``: half the variance off the diagonal
    that i.i.d. noise on every entry would take, and the answer stays symmetric.
    """

    bound: float
    neighbouring: Neighbouring

    def __post_init__(self) -> None:
        """Raise unless the bound is positive and the relation known."""
        _check_ball(self)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless the shape is square."""
        if shape[0] != shape[1]:
            raise ShapeError(f"a SymmetricBall does not describe a matrix of shape {shape}")

    def radius(self, covariance: Covariance) -> Radius:
        """Return the radius; with independent entries a pair counts with its mean precision."""
        check_known(covariance)
        match covariance:
            case SymmetricIsotropic() | Isotropic():
                # On symmetric matrices both kinds of noise weigh every direction alike.
                return Radius(quotient_up(self.bound, covariance.scale), exact=True)
            case SymmetricDiagonal():
                weakest = covariance.smallest_singular_value
                return Radius(quotient_up(self.bound, weakest), exact=True)
            case Diagonal():
                # A member with entries x and x at (i, j) and (j, i) has the squared norm 2 x^2, and
                # whitened (1/s_ij^2 + 1/s_ji^2) x^2: its weight is the mean of the precisions.
                size = max(covariance.scales.shape)
                smallest = covariance.smallest_singular_value
                squares = np.square(smallest / covariance.entry_scales((size, size)))
                worst = math.sqrt(float(np.max((squares + squares.T) / 2)))
                return Radius(inflated(ratio_up([self.bound, worst], smallest), 16), exact=True)
            case _:
                whole = quotient_up(self.bound, covariance.smallest_singular_value)
                same = (
                    isinstance(covariance, Kronecker)
                    and covariance.rows is not None
                    and covariance.columns is not None
                    and np.array_equal(covariance.rows, covariance.columns)
                )
                # With equal covariances the weakest direction v v^T is symmetric.
                return Radius(whole, exact=same and resolved(covariance))

    def best_covariance(self, budget: Budget) -> SymmetricIsotropic:
        """Return symmetric noise of scale ``bound / mu``."""
        # Best for every use: on symmetric matrices the ball is round, as the Frobenius ball is.
        check_budget(budget)
        return SymmetricIsotropic(noise_factor("sensitivity of bound", self.bound, budget.mu))


@dataclass(frozen=True, eq=False)
class RowBounds(EqualByValue):
    """One row changes: row i by a vector of norm at most ``bounds[i]``.

    A record that can move from one row to another changes two rows and does not fit this set.

    Parameters
    ----------
    bounds : array_like, shape (m,)
        Positive.
    neighbouring : {"add-remove", "replace"}
        The relation under which that holds.

    Notes
    -----
    *Best noise:* row i gets scale ``bounds[i] / mu``, the least for every row at once.

    Examples
    --------
    >>> from matrixdp import Budget, RowBounds
    >>> rows = RowBounds([1.0, 3.0], neighbouring="add-remove")
    >>> rows.best_covariance(Budget(1.0, 1e-5)).scales.round(4).tolist()
    [[3.7306], [11.1919]]
    """

    bounds: FloatArray
    neighbouring: Neighbouring

    def __init__(self, bounds: ArrayLike, neighbouring: Neighbouring) -> None:
        object.__setattr__(self, "bounds", positive_vector(bounds, "bounds"))
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.bounds, self.neighbouring)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless there is one bound for each row."""
        if shape[0] != len(self.bounds):
            raise ShapeError(
                f"bounds has {len(self.bounds)} rows and the matrix has shape {shape}: give one "
                "bound for each row"
            )

    def radius(self, covariance: Covariance) -> Radius:
        """Return ``max_i bounds[i] sqrt((Sigma1^-1)_ii lambda_max(Sigma2^-1))``.

        That is for Kronecker noise; for independent entries it is a quotient of bound and scale.
        """
        refuse_mirrored(covariance)
        match covariance:
            case Isotropic():
                return Radius(quotient_up(float(self.bounds.max()), covariance.scale), exact=True)
            case Diagonal():
                # A row may change along any direction, so its weakest entry counts.
                check_sides(covariance.scales.shape[0], len(self.bounds), "rows")
                weakest = covariance.scales.min(axis=1)
                return Radius(inflated(float(np.max(self.bounds / weakest)), 4), exact=True)
            case Kronecker():
                rows, columns = covariance.sides
                check_full_side(rows, len(self.bounds), "rows")
                inverse = rows.inverse(len(self.bounds))
                # With the inverse at the lower and the upper end of its enclosure: if both agree,
                # the radius is exact.
                least, most = (
                    self._whitened(np.diagonal(inverse.matrix) + error, smallest)
                    for error, smallest in (
                        (-inverse.error, float(columns.scales[0]) ** 2),
                        (inverse.error, float(columns.eigenvalues(1)[0])),
                    )
                )
                return Radius(most, exact=agree(least, most))
        raise unknown_covariance(covariance)

    def _whitened(self, precisions: FloatArray, smallest: float) -> float:
        """Return ``max_i bounds[i] sqrt(precisions[i] / smallest)``, with its rounding added."""
        size, relative = normalised(self.bounds)
        precision, shares = normalised(np.maximum(precisions, 0.0))
        if not precision > 0.0:
            return 0.0  # the lower end of an enclosure that is wider than the number itself
        worst = float(np.max(relative * np.sqrt(shares)))
        factors = [size, worst, math.sqrt(precision)]
        return inflated(ratio_up(factors, math.sqrt(smallest)), 16)

    def best_covariance(self, budget: Budget) -> Diagonal:
        """Return row scales ``bounds / mu``."""
        # Every row is as hard to hide as any other then, so no row has more noise than it needs.
        return Diagonal(self.bounds[:, None]).rescaled_for(self, budget)


@dataclass(frozen=True, eq=False)
class RowBox(EqualByValue):
    """One row changes, any one: its entry j by at most ``bounds[j]`` either way.

    Parameters
    ----------
    bounds : array_like, shape (n,)
        Positive.
    neighbouring : {"add-remove", "replace"}
        The relation under which that holds.
    weights : array_like, shape (n,), optional
        What a unit of variance in each column costs its reader; by default all the same.

    Notes
    -----
    *Best noise:* column j gets ``scale_j^2 = (c_j/sqrt(w_j)) sum_k c_k sqrt(w_k) / mu^2``, in total
    ``(sum c)^2 / mu^2`` per row for equal weights, where i.i.d. noise takes ``n sum c^2 / mu^2``.

    Examples
    --------
    >>> from matrixdp import RowBox, Budget
    >>> box = RowBox([1.0, 100.0], neighbouring="replace")
    >>> box.best_covariance(Budget(1.0, 1e-5)).scales.round(2).tolist()
    [[37.49, 374.92]]
    """

    bounds: FloatArray
    neighbouring: Neighbouring
    weights: FloatArray

    def __init__(
        self, bounds: ArrayLike, neighbouring: Neighbouring, weights: ArrayLike | None = None
    ) -> None:
        checked = positive_vector(bounds, "bounds")
        # Weights only choose among covariances; every choice keeps the budget.
        weighing = positive_vector(np.ones_like(checked) if weights is None else weights, "weights")
        if weighing.shape != checked.shape:
            raise ShapeError(
                f"weights of shape {weighing.shape} do not fit bounds of shape {checked.shape}"
            )
        object.__setattr__(self, "bounds", checked)
        object.__setattr__(self, "neighbouring", checked_neighbouring(neighbouring))
        object.__setattr__(self, "weights", weighing)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and unpickle through the constructor: numpy forgets that arrays are read-only."""
        return type(self), (self.bounds, self.neighbouring, self.weights)

    def check_shape(self, shape: Shape) -> None:
        """Raise unless there is one bound for each column."""
        if shape[1] != len(self.bounds):
            raise ShapeError(
                f"bounds has {len(self.bounds)} columns and the matrix has shape {shape}: give one "
                "bound for each column"
            )

    def radius(self, covariance: Covariance) -> Radius:
        """Return the norm of the box's corner, whitened; an upper bound for full covariances.

        With a full column covariance the largest corner is NP-hard to find; ``c^T |Sigma2^-1| c``
        bounds it.
        """
        refuse_mirrored(covariance)
        size = len(self.bounds)
        match covariance:
            case Isotropic():
                largest, relative = normalised(self.bounds)
                corner = math.sqrt(float(np.sum(np.square(relative))))
                value = ratio_up([largest, corner], covariance.scale)
                return Radius(inflated(value, size + 16), exact=True)
            case Diagonal():
                check_sides(covariance.scales.shape[1], size, "columns")
                # Whichever row changes, all of its entries may be at their bounds at once.
                largest, relative = normalised(self.bounds / covariance.scales)
                corners = np.sum(np.square(relative), axis=1)
                value = largest * math.sqrt(float(np.max(corners)))
                return Radius(inflated(value, size + 16), exact=True)
            case Kronecker():
                check_full_side(covariance.sides[1], size, "columns")
                # Any row may change, so the one with the least noise decides.
                rows, columns = (
                    side.inverse(length)
                    for side, length in zip(covariance.sides, (1, size), strict=True)
                )
                least, most = (
                    self._whitened(
                        float(np.max(np.diagonal(rows.matrix))) + sign * rows.error,
                        np.abs(columns.matrix) + sign * columns.error,
                    )
                    for sign in (-1.0, 1.0)
                )
                # For a diagonal inverse the bound c^T |P| c is attained by the corner itself.
                full = covariance.columns
                diagonal = full is None or bool(np.count_nonzero(full) == size)
                return Radius(most, exact=diagonal and agree(least, most))
        raise unknown_covariance(covariance)

    def _whitened(self, row_precision: float, precisions: FloatArray) -> float:
        """Return ``sqrt(row_precision c^T P c)`` for the corner c, with its rounding added."""
        largest, relative = normalised(self.bounds)
        corner = float(relative @ np.maximum(precisions, 0.0) @ relative)
        if not (corner > 0.0 and row_precision > 0.0):
            return 0.0
        # Two sums of as many terms as columns, and a few products: 2 n + 64 roundings at most.
        value = ratio_up([largest, math.sqrt(row_precision), math.sqrt(corner)], 1.0)
        return inflated(value, 2 * len(relative) + 64)

    def best_covariance(self, budget: Budget) -> Diagonal:
        """Return the column scales of least weighted variance."""
        # The shape of the optimum; `rescaled_for` finds the common factor.
        scales = np.sqrt(self.bounds / np.sqrt(self.weights))
        return Diagonal(scales[None, :]).rescaled_for(self, budget)


SensitivitySet = (
    FrobeniusBall | SymmetricBall | RowBounds | RowBox | ScaledBall | ScaledSymmetricBall
)
"""Any of the sets."""


class HasSensitivity(Protocol):
    """Anything that states what one record can change in it: a query."""

    @property
    def sensitivity(self) -> SensitivitySet:
        """What one record can change."""


def _check_ball(ball: FrobeniusBall | SymmetricBall) -> None:
    object.__setattr__(ball, "bound", positive_number(ball.bound, "bound"))
    object.__setattr__(ball, "neighbouring", checked_neighbouring(ball.neighbouring))
