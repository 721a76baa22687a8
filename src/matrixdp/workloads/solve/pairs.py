r"""The dual of the strategy problem for replacing a record, by an interior-point method.

With R of full column rank, ``R R^T = P G P`` the Gram matrix of the queries' contrasts, weights
``y_jk >= 0`` on the pairs of cells and L their Laplacian, let ``R^T L R = U diag(s^2) U^T``. Then

    tr(G Q^+) >= sum(s)^2 / sum(y)                                                        (bound)

for every Q on the contrasts with ``Q_jj + Q_kk - 2 Q_jk <= 1`` for all pairs, and
``Q(y) = E diag(1/s) E^T``, ``E = R U``, attains it once its squared distances D are 1 wherever
y > 0 and at most 1 elsewhere. These are the optimality conditions of `interior_point`, with w = y,
r = D and, where ``A^T A = Q``,

    M v = distances of A^T (K o (A L(v) A^T)) A,     K_ab = 1 / (s_a + s_b).

About half of all pairs keep weight, so that all are kept; M takes four matrix products.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.solve.bases import right_singular_vectors
from matrixdp.workloads.solve.interior_point import BestIterates, Progress, maximise

__all__ = ["MOST_CELLS_SEARCHED", "PairPoint", "laplacian", "search_pairs", "squared_distances"]

MOST_CELLS_SEARCHED = 4096
"""The most cells whose pairs are all given a weight."""

# Leaves room for what the total and the proof add, so that certificates state less than 1e-6.
_TARGET_GAP = 7e-7
# With more cells a step takes from seconds to a minute.
_MANY_CELLS = 1024
_TARGET_GAP_OF_MANY = 1e-3
_FIRST_STEPS = 4
_SMALLEST_FIRST_WEIGHT = 1e-6
# With weights further apart the Laplacian would look disconnected to a Cholesky decomposition.
_SMALLEST_WEIGHT = 1e-14
_MOST_CELLS_IN_DOUBLE = 512


class PairPoint(NamedTuple):
    """A point of the dual, scaled so that the mean of D, weighted by y, is 1."""

    weights: FloatArray  # y, a symmetric matrix with a diagonal of zeros
    sides: FloatArray  # E
    roots: FloatArray  # s
    constraint_values: FloatArray  # D

    @property
    def bound(self) -> float:
        """The lower bound, to float accuracy."""
        return float(np.sum(self.roots)) ** 2 / (float(np.sum(self.weights)) / 2.0)

    @property
    def value(self) -> float:
        """The error of the strategy, once its largest distance is brought to 1."""
        return float(np.sum(self.roots)) * float(np.max(self.constraint_values))

    @property
    def contrasts(self) -> FloatArray:
        """The strategy, A with ``A^T A = Q``."""
        return np.asarray((self.sides / np.sqrt(self.roots)).T)

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        """Return the map ``x -> y M y x``.

        For many cells in single precision, which is twice as fast: Newton's equation is only
        solved to two or three digits.
        """
        many = len(self.weights) > _MOST_CELLS_IN_DOUBLE
        precision: type[np.floating[Any]] = np.float32 if many else np.float64
        # In units of a typical root, so that single precision neither overflows nor underflows.
        unit = float(np.mean(self.roots))
        measured = self.contrasts.astype(precision)
        kernel = (1.0 / (self.roots[:, None] / unit + self.roots / unit)).astype(precision)

        def image(direction: FloatArray) -> FloatArray:
            moved = laplacian(self.weights * (direction / unit)).astype(precision)
            inner = (measured @ moved @ measured.T) * kernel
            change = (measured.T @ inner @ measured).astype(np.float64)
            return self.weights * _distances(change)

        return image


def search_pairs(root: FloatArray, progress: Progress | None = None) -> BestIterates[PairPoint]:
    """Return the iterates with the best strategy and with the best bound.

    Parameters
    ----------
    root : ndarray, shape (cells, rank)
        R, of full column rank; at least two cells.
    progress : callable, optional
        Called after every step.
    """
    others = 1.0 - np.eye(len(root))
    start = others
    for step in range(_FIRST_STEPS):
        # A fixed-point iteration like that of Denisov et al. (2022) is cheaper at first, because
        # it needs no conjugate gradients.
        point = _pair_point(root, start)
        if progress is not None:
            progress(step, point.value / point.bound - 1.0)
        start = point.weights * np.square(point.constraint_values)
        start = np.maximum(start / np.max(start), _SMALLEST_FIRST_WEIGHT * others)
    return maximise(
        # Averaged, because asymmetric rounding errors would otherwise grow.
        lambda weights: _pair_point(root, (weights + weights.T) / 2.0),
        start,
        target_gap=_TARGET_GAP if len(root) <= _MANY_CELLS else _TARGET_GAP_OF_MANY,
        smallest_weight=_SMALLEST_WEIGHT,
        progress=None if progress is None else _later(progress),
    )


def _later(progress: Progress) -> Progress:
    """Return a progress that counts on from the first steps."""
    return lambda step, gap: progress(step + _FIRST_STEPS, gap)


def _pair_point(root: FloatArray, weights: FloatArray) -> PairPoint:
    """Return the iterate at y > 0, with y rescaled to make the mean of D one.

    As the columns of L sum to zero, ``R^T L R`` does not change if one row is subtracted from all
    rows of R and left out. There L is positive definite, and its Cholesky factor accurate although
    the weights may differ by many orders of magnitude.
    """
    # The cell with the most weight, so that the smaller pivots keep their digits.
    ground = int(np.argmax(np.sum(weights, axis=1)))
    rest = np.arange(len(root)) != ground
    grounded = scipy.linalg.cholesky(laplacian(weights)[np.ix_(rest, rest)], check_finite=False)
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
