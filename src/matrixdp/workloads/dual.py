r"""The dual of the strategy problem, climbed by Newton's method.

For a Gram matrix G the best strategy has ``Q = A^T A`` that minimises ``tr(G Q^+)`` over Q with
``diag(Q) <= 1``. For every ``d >= 0`` with ``D = diag(d)``, ``K = D^(1/2) G D^(1/2)``,

    tr(G Q^+) >= (tr K^(1/2))^2 / sum(d)                                                  (bound)

by the Cauchy-Schwarz inequality for nuclear norms, with equality for
``Q(d) = D^(-1/2) K^(1/2) D^(-1/2)`` once its diagonal q is constant. At uniform d the bound is the
SVD bound of Li and Miklau (2013). In ``x = log d`` the condition ``log q = 0`` has the Jacobian

    diag(d q) dx - H dx = diag(d q) log q,
    (H y)_i = 1/2 sum_ab V_ia V_ib (s_a^2 + s_b^2)/(s_a + s_b) (V^T diag(y) V)_ab

with ``K = V diag(s^2) V^T``: symmetric, solved by conjugate gradients at two matrix products each.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.workloads.operator import FloatArray

__all__ = ["DualPoint", "Progress", "ascend", "dual_point", "primal_value"]

Progress = Callable[[int, float], None]
"""Told the number of steps and the relative gap after each."""

_TARGET_GAP = 1e-11
_MOST_STEPS = 100
_MOST_INNER_STEPS = 40
_INNER_TOLERANCE = 1e-2
_LONGEST_STEP = 4.0
_LOWEST_LOG = -40.0
_RANK_TOLERANCE = 2.0**-50


class DualPoint(NamedTuple):
    """A point of the dual, scaled so that the mean of q, weighted by d, is 1."""

    weights: FloatArray  # d
    values: FloatArray  # eigenvalues of K
    vectors: FloatArray  # V
    roots: FloatArray  # s; zeros beyond the rank
    diagonal: FloatArray  # q

    @property
    def bound(self) -> float:
        """The lower bound, to float accuracy."""
        return float(np.sum(self.roots)) ** 2 / float(np.sum(self.weights))

    @property
    def full_rank(self) -> bool:
        """Whether no eigenvalue is zero."""
        return bool(np.all(self.roots > 0.0))


def dual_point(gram: FloatArray, weights: FloatArray) -> DualPoint:
    """Return what there is to know at d, with d rescaled to make the mean of q one."""
    sides = np.sqrt(weights)
    scaled = sides[:, None] * gram * sides
    values, vectors = linalg.eigh(scaled, driver="evd", overwrite_a=True, check_finite=False)
    floor = len(values) * _RANK_TOLERANCE * float(values[-1])
    roots = np.sqrt(np.where(values > floor, values, 0.0))
    diagonal = np.square(vectors) @ roots / weights
    mean = float(np.sum(roots) / np.sum(weights))
    return DualPoint(
        weights * mean**2, values * mean**2, vectors, roots * mean, diagonal / mean
    )


def ascend(gram: FloatArray, progress: Progress | None = None) -> DualPoint:
    """Return the point at which the gap is closed, or the best that was found.

    Parameters
    ----------
    gram : ndarray
        Positive semidefinite, with a positive diagonal.
    progress : callable, optional
        Told of every step.
    """
    point = dual_point(gram, np.ones(len(gram)))
    best, smallest = point, np.inf
    for step in range(_MOST_STEPS):
        gap = primal_value(gram, point) / point.bound - 1.0
        if gap < smallest:
            best, smallest = point, gap
        if progress is not None:
            progress(step, smallest)
        if not gap > _TARGET_GAP or (step > 0 and not _improved(smallest, gap)):
            break
        point = _next_point(gram, point)
    return best


def primal_value(gram: FloatArray, point: DualPoint) -> float:
    """Return the value of the feasible strategy that is made from a point.

    With full rank the columns are rescaled, ``Q_ij / sqrt(q_i q_j)``, so that the value is off by
    the square of what q is off. Otherwise that would leave the queries' range, and all of Q is
    divided by the largest q.
    """
    if not point.full_rank:
        return float(np.sum(point.roots) * np.max(point.diagonal))
    sides = np.sqrt(point.weights * point.diagonal)
    turned = point.vectors.T * sides
    return float(np.sum(np.einsum("ij,ij->i", turned @ gram, turned) / point.roots))


def _improved(smallest: float, gap: float) -> bool:
    """Return whether it is worth going on: rounding stops the gap somewhere above zero."""
    return gap <= 4.0 * smallest or gap > 1e-6


def _next_point(gram: FloatArray, point: DualPoint) -> DualPoint:
    """Return the Newton step, shortened until the bound does not fall; else the plain fixed point.

    The fixed point ``d q`` is that of Denisov et al. (2022), which always climbs.
    """
    direction = np.clip(_newton_direction(point), -_LONGEST_STEP, _LONGEST_STEP)
    for factor in (1.0, 0.25):
        found = _moved(gram, point, factor * direction)
        if found.bound >= point.bound * (1.0 - 1e-14):
            return found
    return _moved(gram, point, np.log(np.maximum(point.diagonal, 1e-300)))


def _moved(gram: FloatArray, point: DualPoint, step: FloatArray) -> DualPoint:
    logs = np.log(point.weights) + step
    return dual_point(gram, np.exp(np.maximum(logs - logs.max(), _LOWEST_LOG)))


def _newton_direction(point: DualPoint) -> FloatArray:
    """Return the change of log d, by conjugate gradients preconditioned with ``d q / 2``."""
    scale = point.weights * point.diagonal
    squares = np.square(point.roots)
    sums = point.roots[:, None] + point.roots
    kernel = (squares[:, None] + squares) / np.where(sums > 0.0, sums, 1.0)
    del sums

    def image(direction: FloatArray) -> FloatArray:
        inner = ((point.vectors.T * direction) @ point.vectors) * kernel
        curved = np.einsum("ij,ij->i", point.vectors @ inner, point.vectors)
        return np.asarray(scale * direction - 0.5 * curved)

    residual = scale * np.log(np.maximum(point.diagonal, 1e-300))
    solution = np.zeros_like(residual)
    preconditioned = 2.0 * residual / scale
    direction = preconditioned
    product = first = float(residual @ preconditioned)
    for _ in range(_MOST_INNER_STEPS):
        moved = image(direction)
        curvature = float(direction @ moved)
        if not curvature > 0.0 or not product > 0.0:
            break
        length = product / curvature
        solution = solution + length * direction
        residual = residual - length * moved
        preconditioned = 2.0 * residual / scale
        following = float(residual @ preconditioned)
        if following <= _INNER_TOLERANCE**2 * first:
            break
        direction = preconditioned + (following / product) * direction
        product = following
    return solution
