r"""Strategies for replacing a record, where only differences of columns matter.

Neighbours differ by ``e_j - e_k``, so the constraint is ``Q_jj + Q_kk - 2 Q_jk <= 1`` for every
pair, and adding ``c 1 1^T`` to Q costs nothing: the number of records is public. For weights
``y_jk >= 0`` on the pairs with Laplacian L, as in `dual`,

    tr(G Q^+) >= (tr (L^(1/2) G L^(1/2))^(1/2))^2 / sum(y)

over all Q that satisfy the constraint, and the Q that attains the left side for a given L is known.
The weights are multiplied by the squared distances that they lead to, twice over, until these are
equal where there is weight. That converges slowly towards the end; the gap is reported as it is.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.errors import InvalidParameterError
from matrixdp.workloads.bases import SMALLEST_ROOT, column_basis, eigenvectors, gram_basis
from matrixdp.workloads.dual import Progress
from matrixdp.workloads.explicit import Certified, Explicit
from matrixdp.workloads.operator import FloatArray, Workload
from matrixdp.workloads.replacement_bound import bound_from_pairs

__all__ = ["check_contrasts", "replacement_factor"]

_TARGET_GAP = 1e-3
_MOST_STEPS = 60
_SMALLEST_CONTRAST = 1e-12
# Every pair keeps this share of the largest weight, so that no direction is lost on the way.
_SMALLEST_SHARE = 1e-10
# The noise of the total may add this share to the error.
_SHARE_OF_THE_TOTAL = 1e-6
_LARGEST_TOTAL_WEIGHT = 2.0**20
_LARGEST_TOTAL_RATIO = 2.0**30


class _PairPoint(NamedTuple):
    bound: float
    value: float
    contrasts: FloatArray  # A with A^T A = Q
    distances: FloatArray


def check_contrasts(workload: Workload) -> None:
    """Refuse a workload whose answers do not change when a record is replaced.

    ``||W||_F^2 - ||W 1||^2 / n`` is what is left of W without the means of its rows.

    Raises
    ------
    InvalidParameterError
        If that is less than a part in 1e12.
    """
    kept = 0.0
    for term in workload.terms():
        grams = [factor.gram() for factor in term]
        means = math.prod(float(np.sum(gram)) / len(gram) for gram in grams)
        kept += math.prod(float(np.trace(gram)) for gram in grams) - means
    if not kept > _SMALLEST_CONTRAST * workload.frobenius_squared():
        raise InvalidParameterError(
            "neighbouring='replace' with a workload whose answers hardly change, or not at all, "
            "when a record is replaced, beside what they owe to the number of records: subtract a "
            "multiple of that public number from each query first, and leave out queries that are "
            "then zero"
        )


def replacement_factor(explicit: Explicit, progress: Progress | None = None) -> Certified:
    """Return a strategy of small total squared error for replacing a record.

    It measures contrasts of the cells, and the total. The search stops at a gap of 1e-3 or after 60
    steps, and never ends above the error of measuring the contrasts of every cell or query.
    """
    root = _contrasts_of_queries(explicit)
    best, laplacian = _search(root, progress)
    cells = np.asarray(linalg.helmert(len(root)))
    for plain, error in ((cells, float(np.sum(np.square(root)))), (root.T, float(root.shape[1]))):
        distances = _squared_distances(plain)
        value = float(np.max(distances)) * error
        if value < best.value:
            best = _PairPoint(0.0, value, plain, distances)
    return Certified(_with_total(explicit, best), bound_from_pairs(explicit, laplacian))


def _contrasts_of_queries(explicit: Explicit) -> FloatArray:
    """Return R of full column rank with ``R R^T = P G P``, P taking out the mean."""
    if explicit.queries is None:
        gram = explicit.gram - np.mean(explicit.gram, axis=0)
        gram -= np.mean(gram, axis=1)[:, None]
        return gram_basis((gram + gram.T) / 2.0)
    queries = explicit.queries()
    queries = queries - queries[:, :1]  # first, so that what all cells share does not round
    return column_basis(queries - np.mean(queries, axis=1, keepdims=True))


def _search(root: FloatArray, progress: Progress | None) -> tuple[_PairPoint, FloatArray]:
    """Return the best strategy found, and the Laplacian of the weights with the best bound."""
    others = 1.0 - np.eye(len(root))
    pairs = others
    best = highest = point = _pair_point(root, pairs)
    proof = pairs
    for step in range(_MOST_STEPS):
        if progress is not None:
            progress(step, best.value / highest.bound - 1.0)
        if best.value <= highest.bound * (1.0 + _TARGET_GAP):
            break
        pairs = pairs * np.square(point.distances)
        pairs = np.maximum(pairs / pairs.max(), _SMALLEST_SHARE * others)
        point = _pair_point(root, pairs)
        best = min(best, point, key=lambda found: found.value)
        if point.bound > highest.bound:
            highest, proof = point, pairs
    return best, _laplacian(proof)


def _pair_point(root: FloatArray, pairs: FloatArray) -> _PairPoint:
    """Return the best Q for weights on the pairs.

    With ``R^T L R = U diag(s^2) U^T`` it is ``Q = R U diag(1/s) U^T R^T``.
    """
    values, vectors = eigenvectors(root.T @ _laplacian(pairs) @ root)
    roots = np.sqrt(np.maximum(values, (SMALLEST_ROOT * values[-1])))
    contrasts = (root @ vectors / np.sqrt(roots)).T
    distances = _squared_distances(contrasts)
    total = float(np.sum(roots))
    return _PairPoint(
        bound=total**2 / (float(np.sum(pairs)) / 2.0),
        value=float(np.max(distances)) * total,
        contrasts=contrasts,
        distances=distances,
    )


def _laplacian(pairs: FloatArray) -> FloatArray:
    return np.asarray(np.diag(np.sum(pairs, axis=1)) - pairs)


def _squared_distances(matrix: FloatArray) -> FloatArray:
    gram = matrix.T @ matrix
    squares = np.diagonal(gram)
    return np.asarray(np.maximum(squares[:, None] + squares - 2.0 * gram, 0.0))


def _with_total(explicit: Explicit, point: _PairPoint) -> FloatArray:
    """Return contrasts, and the public total so that its noise hardly adds to the error.

    With weight w beside contrasts of diameter 1 it adds ``||W 1||^2 / (n w)^2``. The weight is a
    power of two, which is measured without rounding and cancels in every difference.
    """
    cells = len(explicit.gram)
    means = math.sqrt(max(float(np.sum(explicit.gram)), 0.0)) / cells
    wanted = means / math.sqrt(_SHARE_OF_THE_TOTAL * point.value)
    weight = 2.0 ** math.ceil(math.log2(min(max(wanted, 1.0), _LARGEST_TOTAL_RATIO)))
    scale = min(1.0, _LARGEST_TOTAL_WEIGHT / weight)
    contrasts = point.contrasts * (scale / math.sqrt(float(np.max(point.distances))))
    return np.concatenate([contrasts, np.full((1, cells), weight * scale)])
