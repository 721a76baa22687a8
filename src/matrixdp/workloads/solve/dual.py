r"""The dual of the strategy problem, for adding or removing a record.

For a Gram matrix G the best strategy has ``Q = A^T A`` that minimises ``tr(G Q^+)`` over Q with
``diag(Q) <= 1``. For every ``d >= 0`` with ``D = diag(d)``, ``K = D^(1/2) G D^(1/2)``,

    tr(G Q^+) >= (tr K^(1/2))^2 / sum(d)                                                  (bound)

by the Cauchy-Schwarz inequality of nuclear norms. With ``K = V diag(s^2) V^T`` over its rank,
``Q(d) = D^(-1/2) V diag(s) V^T D^(-1/2)`` attains it once its diagonal q is 1 wherever d > 0 and at
most 1 elsewhere. At uniform d it is the SVD bound of Li and Miklau (2013). These are the optimality
conditions of `interior_point`, with r = q and, where ``L(y) = V^T diag(y) V``,

    (d M d y)_i = (V (L(y) o N) V^T)_ii,     N_ab = s_a s_b / (s_a + s_b),

which takes two matrix products.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.solve.bases import (
    SMALLEST_ROOT,
    column_basis,
    eigenvectors,
    gram_basis,
    right_singular_vectors,
)
from matrixdp.workloads.solve.interior_point import BestIterates, Progress, maximise

__all__ = ["Candidate", "DualPoint", "Problem", "dual_point", "maximise_dual"]

# Well below what the proof of the bound loses to rounding, about 3e-8 at 1,024 cells.
_TARGET_GAP = 1e-10
# Below this share of the largest a weight has vanished.
_SMALLEST_WEIGHT = 1e-25
# The smallest pivot of the Cholesky factor: above the first the eigenvalues are accurate beyond
# doubt, above the second they are good enough where there is nothing better.
_SAFE_PIVOT = 0.03
_SMALLEST_PIVOT = 1e-5


class Problem(NamedTuple):
    """A Gram matrix, and where it is singular a B of full column rank with ``B B^T = G``."""

    gram: FloatArray
    basis: FloatArray | None

    @classmethod
    def of(cls, gram: FloatArray, queries: Callable[[], FloatArray] | None = None) -> "Problem":
        """Decide the rank of a Gram matrix with a positive diagonal, scaled to ones first.

        Where it is nearly singular or its columns differ much in size, the queries W behind it are
        used if they are known: their singular values have twice the digits that the eigenvalues of
        ``W^T W``, their squares, have.
        """
        sides = np.sqrt(np.diagonal(gram))
        scaled = gram / sides[:, None] / sides
        # With ones on the diagonal the pivots show how nearly dependent the columns are.
        try:
            pivots = np.diagonal(scipy.linalg.cholesky(scaled, check_finite=False))
        except scipy.linalg.LinAlgError:
            pivots = np.zeros(1)
        smallest, graded = float(pivots.min()), float(sides.min() / sides.max())
        if queries is not None and not smallest * graded > _SAFE_PIVOT:
            return cls(gram, sides[:, None] * column_basis(queries() / sides))
        if smallest > _SMALLEST_PIVOT:
            return cls(gram, None)
        return cls(gram, sides[:, None] * gram_basis(scaled))


class DualPoint(NamedTuple):
    """A point of the dual, scaled so that the mean of q, weighted by d, is 1."""

    weights: FloatArray  # d
    vectors: FloatArray  # V
    roots: FloatArray  # s, all positive
    diagonal: FloatArray  # q

    @property
    def bound(self) -> float:
        """The lower bound, to float accuracy."""
        return float(np.sum(self.roots)) ** 2 / float(np.sum(self.weights))

    @property
    def full_rank(self) -> bool:
        """Whether there are as many vectors as cells."""
        return len(self.weights) == len(self.roots)

    def measurements(self, *, rescaled: bool) -> FloatArray:
        """Return A with ``A^T A = Q_ij / sqrt(q_i q_j)`` if rescaled, or else ``Q / max(q)``."""
        # Dividing all of Q by one number keeps it in the range of the queries.
        scales = self.weights * (self.diagonal if rescaled else np.max(self.diagonal))
        return np.asarray(np.sqrt(self.roots)[:, None] * self.vectors.T / np.sqrt(scales))


def dual_point(problem: Problem, weights: FloatArray) -> DualPoint:
    """Return the point at d > 0, with d rescaled to make the mean of q one.

    With a B it comes from ``B^T D B = U diag(s^2) U^T``, which gives
    ``V = D^(1/2) B U diag(1/s)`` with rows as accurate as B's, however small some of d are.
    """
    sides = np.sqrt(weights)
    if problem.basis is None:
        values, vectors = eigenvectors(sides[:, None] * problem.gram * sides)
        # Rounding may leave eigenvalues at or below 0, and later steps divide by their roots.
        roots = np.sqrt(np.maximum(values, SMALLEST_ROOT**2 * values[-1]))
    else:
        half = sides[:, None] * problem.basis
        roots, vectors = right_singular_vectors(half)
        vectors = (half @ vectors) / roots
    diagonal = np.square(vectors) @ roots / weights
    mean = float(np.sum(roots) / np.sum(weights))
    return DualPoint(weights * mean**2, vectors, roots * mean, diagonal / mean)


class Candidate(NamedTuple):
    """A point as an iterate, with the error of the better strategy that is made from it."""

    point: DualPoint
    value: float
    rescaled: bool

    @property
    def weights(self) -> FloatArray:
        """Return d."""
        return self.point.weights

    @property
    def constraint_values(self) -> FloatArray:
        """Return q."""
        return self.point.diagonal

    @property
    def bound(self) -> float:
        """Return the lower bound."""
        return self.point.bound

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        """Return the map ``y -> d M d y``."""
        vectors, roots = self.point.vectors, self.point.roots
        # s_a s_b / (s_a + s_b) as a harmonic sum, which cannot overflow.
        kernel = 1.0 / (1.0 / roots[:, None] + 1.0 / roots)

        def image(direction: FloatArray) -> FloatArray:
            inner = ((vectors.T * direction) @ vectors) * kernel
            return np.asarray(np.einsum("ij,ij->i", vectors @ inner, vectors))

        return image


def maximise_dual(problem: Problem, progress: Progress | None = None) -> BestIterates[Candidate]:
    """Return the iterates with the best strategy and with the best bound.

    Parameters
    ----------
    problem : Problem
        With a positive diagonal.
    progress : callable, optional
        Called after every step.
    """
    return maximise(
        lambda weights: _candidate(problem, dual_point(problem, weights)),
        np.ones(len(problem.gram)),
        target_gap=_TARGET_GAP,
        smallest_weight=_SMALLEST_WEIGHT,
        progress=progress,
    )


def _candidate(problem: Problem, point: DualPoint) -> Candidate:
    # Neither way is always better, and both are cheap beside the decomposition.
    values = {way: _primal_value(problem, point, rescaled=way) for way in (True, False)}
    rescaled = min(values, key=lambda way: values[way])
    return Candidate(point, values[rescaled], rescaled)


def _primal_value(problem: Problem, point: DualPoint, *, rescaled: bool) -> float:
    """Return the error of a feasible strategy that is made from a point.

    With full rank the columns can be rescaled, ``Q_ij / sqrt(q_i q_j)``, so that the error of the
    strategy is quadratic in the error of q. Otherwise that would leave the queries' range, and all
    of Q is divided by the largest q. That is also better where some of d vanish, whose q is not
    known well.
    """
    if not rescaled:
        return float(np.sum(point.roots) * np.max(point.diagonal))
    if not point.full_rank:
        return math.inf
    if problem.basis is None:
        turned = point.vectors.T * np.sqrt(point.weights * point.diagonal)
        squares = np.einsum("ij,ij->i", turned @ problem.gram, turned)
        return float(np.sum(squares / point.roots))
    try:
        response = scipy.linalg.solve(point.measurements(rescaled=True).T, problem.basis)
    except scipy.linalg.LinAlgError:
        return math.inf
    return float(np.sum(np.square(response)))
