r"""The dual of the strategy problem, climbed by Newton's method.

For a Gram matrix G the best strategy has ``Q = A^T A`` that minimises ``tr(G Q^+)`` over Q with
``diag(Q) <= 1``. For every ``d >= 0`` with ``D = diag(d)``, ``K = D^(1/2) G D^(1/2)``,

    tr(G Q^+) >= (tr K^(1/2))^2 / sum(d)                                                  (bound)

by the Cauchy-Schwarz inequality of nuclear norms. With ``K = V diag(s^2) V^T`` over its rank,
``Q(d) = D^(-1/2) V diag(s) V^T D^(-1/2)`` attains it once its diagonal q is 1 wherever d > 0 and at
most 1 elsewhere. At uniform d it is the SVD bound of Li and Miklau (2013). In ``x = log d``,

    d(log q) = -diag(d q)^-1 M dx,
    (M y)_i = sum_ab V_ia V_ib (s_a s_b / (s_a + s_b)) (V^T diag(y) V)_ab,

M positive semidefinite, so that Newton's equation for ``log q = 0`` is ``M y = d q log q``, solved
by conjugate gradients at two matrix products a step.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.workloads.bases import (
    SMALLEST_ROOT,
    column_basis,
    eigenvectors,
    gram_basis,
    right_singular_vectors,
)
from matrixdp.workloads.conjugate_gradients import conjugate_gradients
from matrixdp.workloads.operator import FloatArray

__all__ = ["Ascent", "DualPoint", "Problem", "Progress", "ascend", "dual_point", "primal_value"]

Progress = Callable[[int, float], None]
"""Told the number of steps and the relative gap after each."""

_TARGET_GAP = 1e-10
_GOOD_GAP = 1e-8
_MOST_STEPS = 60
_PATIENCE = 10  # steps in which the gap must halve
_BOUNDARY = 0.9  # of the way to where some d would vanish
_MOST_INNER_STEPS = 40
_LONGEST_STEP = 4.0
_LOWEST_LOG = -60.0
# Of the Cholesky factor of a Gram matrix: above the one its eigenvalues are accurate beyond doubt,
# above the other they are good enough where there is nothing better.
_SAFE_PIVOT = 0.03
_SMALLEST_PIVOT = 1e-5


class Problem(NamedTuple):
    """A Gram matrix, and where it is singular a B of full column rank with ``B B^T = G``."""

    gram: FloatArray
    basis: FloatArray | None

    @classmethod
    def of(cls, gram: FloatArray, queries: Callable[[], FloatArray] | None = None) -> "Problem":
        """Tell the rank of a Gram matrix with a positive diagonal, brought to ones first.

        Where it is nearly singular or its columns differ much in size, the queries W behind it are
        used if they can be had: their singular values are twice as accurate as the eigenvalues of
        ``W^T W``, which are their squares.
        """
        sides = np.sqrt(np.diagonal(gram))
        scaled = gram / sides[:, None] / sides
        try:
            pivots = np.diagonal(linalg.cholesky(scaled, check_finite=False))
        except linalg.LinAlgError:
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
        scales = self.weights * (self.diagonal if rescaled else np.max(self.diagonal))
        return np.asarray(np.sqrt(self.roots)[:, None] * self.vectors.T / np.sqrt(scales))


def dual_point(problem: Problem, weights: FloatArray) -> DualPoint:
    """Return what there is to know at d > 0, with d rescaled to make the mean of q one.

    Where there is a B the decomposition is that of ``B^T D B = U diag(s^2) U^T``, which gives
    ``V = D^(1/2) B U diag(1/s)`` with rows as accurate as B's, however small some of d are.
    """
    sides = np.sqrt(weights)
    if problem.basis is None:
        values, vectors = eigenvectors(sides[:, None] * problem.gram * sides)
        roots = np.sqrt(np.maximum(values, SMALLEST_ROOT**2 * values[-1]))
    else:
        half = sides[:, None] * problem.basis
        roots, vectors = right_singular_vectors(half)
        vectors = (half @ vectors) / roots
    diagonal = np.square(vectors) @ roots / weights
    mean = float(np.sum(roots) / np.sum(weights))
    return DualPoint(weights * mean**2, vectors, roots * mean, diagonal / mean)


class Ascent(NamedTuple):
    """The point with the best strategy, and whether its columns are rescaled; the best bound."""

    primal: DualPoint
    rescaled: bool
    dual: DualPoint


def ascend(problem: Problem, progress: Progress | None = None) -> Ascent:
    """Return the point at which the gap is closed, or the best that was found.

    Newton's method in ``log d`` is the fastest where no d has to vanish; where it gets stuck, the
    central path of a barrier is followed, which never does.

    Parameters
    ----------
    problem : Problem
        With a positive diagonal.
    progress : callable, optional
        Told of every step.
    """
    search = _Search(problem, progress)
    _climb(problem, search)
    if search.gap > _GOOD_GAP:
        _follow_barrier(problem, search)
    return search.best


class _Search:
    """The best strategy and the best bound of all points that were looked at."""

    def __init__(self, problem: Problem, progress: Progress | None) -> None:
        self._problem = problem
        self._progress = progress
        self._least = math.inf
        self.steps = 0
        self.point = dual_point(problem, np.ones(len(problem.gram)))
        self.best = Ascent(self.point, rescaled=False, dual=self.point)
        self.look_at(self.point)

    @property
    def gap(self) -> float:
        """How far the best strategy is above the best bound, relatively."""
        return self._least / self.best.dual.bound - 1.0

    def look_at(self, point: DualPoint) -> None:
        """Go to a point, and keep what is good about it."""
        self.point = point
        if point.bound > self.best.dual.bound:
            self.best = self.best._replace(dual=point)
        for rescaled in (True, False):
            value = primal_value(self._problem, point, rescaled=rescaled)
            if value < self._least:
                self._least = value
                self.best = self.best._replace(primal=point, rescaled=rescaled)
        if self._progress is not None:
            self._progress(self.steps, self.gap)
        self.steps += 1


def _climb(problem: Problem, search: _Search) -> None:
    """Take Newton steps until the gap is closed, or no longer closes."""
    gaps = [search.gap]
    while search.gap > _TARGET_GAP and search.steps < _MOST_STEPS:
        before = search.gap
        search.look_at(_next_point(problem, search.point))
        gaps.append(search.gap)
        if before < 1e-8 and search.gap > 0.5 * before:
            return  # rounding ends what Newton would halve
        if len(gaps) > _PATIENCE and search.gap > 0.5 * gaps[-1 - _PATIENCE]:
            return


def _follow_barrier(problem: Problem, search: _Search) -> None:
    r"""Maximise ``2 tr K^(1/2) - sum(d) + t sum(log d)`` for ever smaller t.

    It is concave in d. In ``y = dd / d`` Newton's equation is ``(M + t) y = d (q - 1) + t``; on the
    central path ``q = 1 - t/d``, so that Q is feasible and the gap about ``t n / sum(d)``.
    """
    mean = float(np.mean(search.best.dual.weights))
    point = dual_point(problem, np.maximum(search.best.dual.weights, 1e-3 * mean))
    barrier = 0.1 * float(np.mean(point.weights))
    for _ in range(_MOST_STEPS):
        weights, diagonal = point.weights, point.diagonal
        step = conjugate_gradients(
            _curvature(point, np.full_like(weights, barrier)),
            weights * (diagonal - 1.0) + barrier,
            1.0 / (0.5 * weights * diagonal + barrier),
            _MOST_INNER_STEPS,
        )
        lowest = -float(np.min(step))
        length = 1.0 if lowest <= _BOUNDARY else _BOUNDARY / lowest
        point = dual_point(problem, weights * (1.0 + length * step))
        search.look_at(point)
        if not search.gap > _TARGET_GAP:
            return
        if length == 1.0:
            barrier *= 0.1
        if barrier * len(weights) < 1e-14 * float(np.sum(weights)):
            return


def primal_value(problem: Problem, point: DualPoint, *, rescaled: bool) -> float:
    """Return the value of a feasible strategy that is made from a point.

    With full rank the columns can be rescaled, ``Q_ij / sqrt(q_i q_j)``, so that the value is off
    by the square of what q is off. Otherwise that would leave the queries' range, and all of Q is
    divided by the largest q; so it is where some of d vanish, and their q is not known well.
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
        response = linalg.solve(point.measurements(rescaled=True).T, problem.basis)
    except linalg.LinAlgError:
        return math.inf
    return float(np.sum(np.square(response)))


def _next_point(problem: Problem, point: DualPoint) -> DualPoint:
    """Return the Newton step, shortened if the bound falls; at last the plain fixed point.

    A step y multiplies d by ``exp(y)``, or if that goes wrong by ``1 + y``, the step of Newton's
    method in d itself: it brings back at once what had become too small. The fixed point ``d q`` is
    that of Denisov et al. (2022).
    """
    direction = _newton_direction(problem, point)
    clipped = np.clip(direction, -_LONGEST_STEP, _LONGEST_STEP)
    lowest = np.exp(-_LONGEST_STEP)
    for step in (
        clipped,
        np.log(np.maximum(1.0 + direction, lowest)),
        0.25 * clipped,
        np.log(np.maximum(1.0 + 0.1 * direction, lowest)),
    ):
        found = _moved(problem, point, step)
        if found.bound >= point.bound * (1.0 - 1e-14):
            return found
    return _moved(problem, point, np.log(np.maximum(point.diagonal, 1e-300)))


def _moved(problem: Problem, point: DualPoint, step: FloatArray) -> DualPoint:
    logs = np.log(point.weights) + step
    return dual_point(problem, np.exp(np.maximum(logs - logs.max(), _LOWEST_LOG)))


def _newton_direction(problem: Problem, point: DualPoint) -> FloatArray:
    """Return the change of log d, by conjugate gradients preconditioned with ``d q / 2``.

    Without full rank, or close to that, some q stay below 1 and their d go to zero. There the
    equation is that of Newton's method on ``2 tr K^(1/2) - sum(d)``, with gradient ``d (q - 1)``
    and the slack ``d (1 - q)`` in its Hessian; what is far from 1, or tiny already, is sent on
    directly.
    """
    weights, diagonal = point.weights, point.diagonal
    slack = np.zeros_like(weights)
    target = weights * diagonal * np.log(np.maximum(diagonal, 1e-300))
    vanishing = np.zeros(len(weights), dtype=bool)
    if problem.basis is not None:
        slack = weights * np.maximum(1.0 - diagonal, 0.0)
        target = np.where(diagonal < 1.0, -slack, target)
        tiny = weights < 1e-3 * float(np.mean(weights))
        vanishing = (diagonal < 0.5) | ((diagonal < 0.99) & tiny)

    conditioner = 1.0 / (0.5 * weights * diagonal + slack)
    found = conjugate_gradients(_curvature(point, slack), target, conditioner, _MOST_INNER_STEPS)
    return np.where(vanishing, -_LONGEST_STEP, found)


def _curvature(point: DualPoint, added: FloatArray) -> Callable[[FloatArray], FloatArray]:
    """Return the map ``y -> M y + added y``."""
    vectors, roots = point.vectors, point.roots
    kernel = 1.0 / (1.0 / roots[:, None] + 1.0 / roots)

    def image(direction: FloatArray) -> FloatArray:
        inner = ((vectors.T * direction) @ vectors) * kernel
        return np.asarray(np.einsum("ij,ij->i", vectors @ inner, vectors) + added * direction)

    return image
