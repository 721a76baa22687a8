r"""The dual of the strategy problem for replacing a record, by an interior-point method.

With R of full column rank, ``R R^T = P G P`` the Gram matrix of the queries' contrasts, weights
``y_jk >= 0`` on the pairs of cells and L their Laplacian, let ``R^T L R = U diag(s^2) U^T``. Then

    tr(G Q^+) >= sum(s)^2 / sum(y)                                                        (bound)

for every Q on the contrasts with ``Q_jj + Q_kk - 2 Q_jk <= 1`` for all pairs, and
``Q(y) = E diag(1/s) E^T``, ``E = R U``, attains it once its squared distances D are 1 wherever
y > 0 and at most 1 elsewhere. These are the optimality conditions of `interior_point`, with w = y,
r = D and, where ``A^T A = Q``,

    M v = distances of A^T (K o (A L(v) A^T)) A,     K_ab = 1 / (s_a + s_b).

About half of all pairs keep weight, so that all are carried along; M takes four matrix products.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.workloads.bases import right_singular_vectors
from matrixdp.workloads.interior_point import Iterate, Progress, central_step
from matrixdp.workloads.operator import FloatArray

__all__ = ["PairSearch", "laplacian", "search_pairs", "squared_distances"]

_TARGET_GAP = 5e-7
_MOST_STEPS = 60
_SMALLEST_SLACK = 1e-3
# So far apart weights may be for a Cholesky decomposition to see that their Laplacian is connected.
_SMALLEST_WEIGHT = 1e-14
_MOST_CELLS_IN_DOUBLE = 512


class PairPoint(NamedTuple):
    """A point of the dual, scaled so that the mean of D, weighted by y, is 1."""

    weights: FloatArray  # y, a symmetric matrix with a diagonal of zeros
    sides: FloatArray  # E
    roots: FloatArray  # s
    distances: FloatArray  # D

    @property
    def bound(self) -> float:
        """The lower bound, to float accuracy."""
        return float(np.sum(self.roots)) ** 2 / (float(np.sum(self.weights)) / 2.0)

    @property
    def value(self) -> float:
        """The error of the strategy, once its largest distance is brought to 1."""
        return float(np.sum(self.roots)) * float(np.max(self.distances))

    @property
    def contrasts(self) -> FloatArray:
        """The strategy, A with ``A^T A = Q``."""
        return np.asarray((self.sides / np.sqrt(self.roots)).T)


class PairSearch(NamedTuple):
    """The point with the least error, and the one with the highest bound."""

    primal: PairPoint
    dual: PairPoint

    @property
    def gap(self) -> float:
        """How far the strategy is above the bound, relatively."""
        return self.primal.value / self.dual.bound - 1.0

    def with_point(self, point: PairPoint) -> "PairSearch":
        """Return what is best once a point has been looked at as well."""
        return PairSearch(
            min(self.primal, point, key=lambda found: found.value),
            max(self.dual, point, key=lambda found: found.bound),
        )


def search_pairs(root: FloatArray, progress: Progress | None = None) -> PairSearch:
    """Return the point at which the gap is closed, or the best that was found.

    Parameters
    ----------
    root : ndarray, shape (cells, rank)
        R, of full column rank; at least two cells.
    progress : callable, optional
        Told of every step.
    """
    others = 1.0 - np.eye(len(root))
    point = pair_point(root, others)
    best = PairSearch(point, point)
    slacks, length = np.maximum(1.0 - point.distances, _SMALLEST_SLACK) * others, 0.0
    for step in range(_MOST_STEPS):
        if progress is not None:
            progress(step, best.gap)
        if not best.gap > _TARGET_GAP:
            break
        moved, slacks, length = central_step(
            Iterate(point.weights, slacks, length), point.distances, _curvature(point)
        )
        moved = (moved + moved.T) / 2.0  # or else rounding, which is not symmetric, would grow
        least = _SMALLEST_WEIGHT * float(np.max(moved))
        point = pair_point(root, np.maximum(moved, least * others))
        best = best.with_point(point)
    return best


def pair_point(root: FloatArray, weights: FloatArray) -> PairPoint:
    """Return what there is to know at y > 0, with y rescaled to make the mean of D one.

    As the columns of L sum to zero, ``R^T L R`` is that of all rows but the first, less the first;
    there L is positive definite with entries of the right sign, and its Cholesky factor accurate
    however far the weights are apart.
    """
    ground = int(np.argmax(np.sum(weights, axis=1)))
    rest = np.arange(len(root)) != ground
    grounded = linalg.cholesky(laplacian(weights)[np.ix_(rest, rest)], check_finite=False)
    roots, vectors = right_singular_vectors(grounded @ (root[rest] - root[ground]))
    sides = root @ vectors
    distances = squared_distances((sides / np.sqrt(roots)).T)
    mean = float(np.sum(roots)) / (float(np.sum(weights)) / 2.0)
    return PairPoint(weights * mean**2, sides, roots * mean, distances / mean)


def laplacian(weights: FloatArray) -> FloatArray:
    """Return ``diag(y 1) - y``."""
    return np.asarray(np.diag(np.sum(weights, axis=1)) - weights)


def squared_distances(matrix: FloatArray) -> FloatArray:
    """Return ``|a_j - a_k|^2`` for all columns."""
    return np.maximum(_distances(matrix.T @ matrix), 0.0)


def _distances(gram: FloatArray) -> FloatArray:
    squares = np.diagonal(gram)
    return np.asarray(squares[:, None] + squares - 2.0 * gram)


def _curvature(point: PairPoint) -> Callable[[FloatArray], FloatArray]:
    """Return the map ``x -> y M y x``.

    For many cells in single precision, which is twice as fast: what it
    is needed for is only solved to two digits.
    """
    many = len(point.weights) > _MOST_CELLS_IN_DOUBLE
    precision: type[np.floating[Any]] = np.float32 if many else np.float64
    unit = float(np.mean(point.roots))
    weights, measured = point.weights, point.contrasts.astype(precision)
    kernel = (1.0 / (point.roots[:, None] / unit + point.roots / unit)).astype(precision)

    def image(direction: FloatArray) -> FloatArray:
        moved = laplacian(weights * (direction / unit)).astype(precision)
        inner = (measured @ moved @ measured.T) * kernel
        change = (measured.T @ inner @ measured).astype(np.float64)
        return weights * _distances(change)

    return image
