r"""Strategies for replacing a record, where only differences of columns matter.

Neighbours differ by ``e_j - e_k``, so the constraint is ``Q_jj + Q_kk - 2 Q_jk <= 1`` for every
pair, and adding ``c 1 1^T`` to Q costs nothing: the number of records is public. For weights
``y_jk >= 0`` on the pairs with Laplacian L, as in `dual`,

    tr(G Q^+) >= (tr (L^(1/2) G L^(1/2))^(1/2))^2 / sum(y)

over all Q that satisfy the constraint, and the Q that attains the left side for a given L is known.
The weights are multiplied by the squared distances that they lead to, twice over, until these are
equal where there is weight. That converges slowly towards the end; the gap is reported as it is.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.errors import InvalidParameterError
from matrixdp.workloads.certificate import Certificate
from matrixdp.workloads.dual import Progress
from matrixdp.workloads.explicit import Certified
from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.strategy import Strategy

__all__ = ["replacement_bound", "replacement_factor"]

_TARGET_GAP = 1e-3
_MOST_STEPS = 60
_RANK_TOLERANCE = 2.0**-46
_SMALLEST_SHARE = 1e-12
# Rounding in the bounds below is not proven, but is some n^2 units in the last place.
_ROUNDING = 1e-9
# How much better the public total is measured than the rest: its noise adds less than a part in ten
# thousand to the error, and its rounding as little to the sensitivity.
_TOTAL_WEIGHT = 32.0


class _PairPoint(NamedTuple):
    bound: float
    value: float
    distances: FloatArray
    contrasts: FloatArray  # X with X X^T = Q


def replacement_factor(gram: FloatArray, progress: Progress | None = None) -> Certified:
    """Return a strategy of small total squared error for replacing a record.

    It measures contrasts of the cells, and the total. The search stops at a gap of 1e-3 or after 60
    steps. The lower bound is computed in float64 and lowered by 1e-9 of itself for its rounding.

    Raises
    ------
    InvalidParameterError
        If no answer can change when a record is replaced.
    """
    basis = _contrast_basis(gram)
    reduced = basis.T @ gram @ basis
    pairs = np.ones_like(gram) - np.eye(len(gram))
    best = point = _pair_point(basis, reduced, pairs)
    bound = point.bound
    for step in range(_MOST_STEPS):
        if progress is not None:
            progress(step, best.value / bound - 1.0)
        if best.value <= bound * (1.0 + _TARGET_GAP):
            break
        pairs = np.maximum(pairs * np.square(point.distances), _SMALLEST_SHARE * (pairs > 0.0))
        pairs /= pairs.max()
        point = _pair_point(basis, reduced, pairs)
        best = min(best, point, key=lambda found: found.value)
        bound = max(bound, point.bound)
    total = np.full((1, len(gram)), _TOTAL_WEIGHT)
    scale = float(np.sqrt(np.max(best.distances)))
    strategy = Strategy([np.concatenate([best.contrasts.T / scale, total])])
    response = strategy.inverses[0]
    error = float(np.einsum("ij,ij->", response, gram @ response))
    value = strategy.sensitivity("replace") ** 2 * error
    return Certified(strategy.factors[0], Certificate(value, bound * (1.0 - _ROUNDING)))


def replacement_bound(roots: float, largest: float, cells: int) -> float:
    """Return a lower bound of the error when records are replaced, from singular values alone.

    With equal weights on all pairs the bound of this module is
    ``2 (tr (P G P)^(1/2))^2 / (n - 1)``, P the projection that takes out the mean; by interlacing,
    ``tr (P G P)^(1/2)`` is at least the sum of all singular values of W less the largest.

    Parameters
    ----------
    roots : float
        The sum of the singular values of the workload.
    largest : float
        The largest of them.
    cells : int
        n, at least 2.
    """
    return 2.0 * (roots - largest) ** 2 / (cells - 1) * (1.0 - _ROUNDING)


def _contrast_basis(gram: FloatArray) -> FloatArray:
    """Return an orthonormal basis of the contrasts, or refuse a workload that has none."""
    size = len(gram)
    if size > 1:
        basis = np.asarray(linalg.helmert(size)).T
        if float(np.trace(basis.T @ gram @ basis)) > 1e-12 * float(np.trace(gram)):
            return basis
    raise InvalidParameterError(
        "neighbouring='replace' with a workload whose answers hardly change, or not at all, when a "
        "record is replaced, beside what they owe to the number of records: subtract a multiple of "
        "that public number from each query first, and leave out queries that are then zero"
    )


def _pair_point(basis: FloatArray, reduced: FloatArray, pairs: FloatArray) -> _PairPoint:
    """Return the best Q for weights on the pairs.

    With ``L = C C^T`` on the contrasts it is ``Q = C^-T (C^T G C)^(1/2) C^-1``.
    """
    laplacian = np.diag(np.sum(pairs, axis=1)) - pairs
    lower = linalg.cholesky(basis.T @ laplacian @ basis, lower=True)
    values, vectors = linalg.eigh(lower.T @ reduced @ lower, driver="evd")
    kept = values > len(values) * _RANK_TOLERANCE * values[-1]
    roots = np.sqrt(values[kept])
    half = linalg.solve_triangular(lower, vectors[:, kept] * np.sqrt(roots), lower=True, trans="T")
    contrasts = basis @ half
    gram = contrasts @ contrasts.T
    squares = np.diagonal(gram)
    distances = np.maximum(squares[:, None] + squares - 2.0 * gram, 0.0)
    total = float(np.sum(roots))
    return _PairPoint(
        bound=total**2 / (float(np.sum(pairs)) / 2.0),
        value=float(np.max(distances)) * total,
        distances=distances,
        contrasts=contrasts,
    )
