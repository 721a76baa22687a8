"""The best strategies on cells that are written out, for each neighbouring relation.

If a record is replaced, neighbours differ by ``e_j - e_k``, so the constraint is ``Q_jj + Q_kk - 2
Q_jk <= 1`` for every pair, and adding ``c 1 1^T`` to Q costs nothing: the number of records is
public. The contrasts come from `search_pairs`; the total is measured in addition.
"""

import math

import numpy as np
import scipy

from matrixdp.errors import InvalidParameterError
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.solve.bases import column_basis, gram_basis
from matrixdp.workloads.solve.certificate import (
    bound_from_pairs,
    certified_bound,
    certified_bound_from_queries,
)
from matrixdp.workloads.solve.dual import Problem, maximise_dual
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.solve.pairs import laplacian, search_pairs, squared_distances
from matrixdp.workloads.solve.searches import ExplicitQueries, Found, FoundMatrix

__all__ = ["certified_factor", "check_contrasts", "optimal_factor", "replacement_factor"]

# Less than this share of the squares of W is lost in the rounding of its Gram matrix.
_SMALLEST_CONTRAST = 1e-12
# The noise of the total may add this share to the error.
_SHARE_OF_THE_TOTAL = 1e-7
# The largest entry of a strategy, and its largest ratio to the contrasts: 2**-30 is the smallest.
_LARGEST_TOTAL_WEIGHT = 2.0**20
_LARGEST_TOTAL_RATIO = 2.0**30


def certified_factor(factor: Factor, progress: Progress | None = None) -> FoundMatrix:
    """Return the optimum on one attribute, without a search where the factor knows it."""
    known = factor.known_optimum()
    if known is not None:
        return Found(*known)
    return optimal_factor(ExplicitQueries.of(factor), progress)


def optimal_factor(explicit: ExplicitQueries, progress: Progress | None = None) -> FoundMatrix:
    """Return the strategy of least total squared error for adding or removing a record.

    Cells that no query asks about are left out of the problem, and not measured. If the Gram matrix
    has full rank the strategy is upper triangular with columns of norm 1; otherwise it has as many
    rows as the rank, all of them in the range of G.
    """
    gram, gram_error, queries, roundings = explicit
    asked = np.flatnonzero(np.diagonal(gram) > 0.0)
    # A power of four, so that neither it nor its root rounds anything.
    scale = 4.0 ** (math.frexp(float(np.max(np.diagonal(gram))))[1] // 2)
    part = gram[np.ix_(asked, asked)] / scale
    # Scaled like the part, because the problem takes its basis from them.
    asking = None if queries is None else lambda: queries()[:, asked] / math.sqrt(scale)
    problem = Problem.of(part, asking)
    found = maximise_dual(problem, progress)
    best = found.primal
    matrix = np.zeros((len(best.point.roots), len(gram)))
    measured = best.point.measurements(rescaled=best.rescaled)
    if best.rescaled:
        # Any rotation of the measurements is as good; half of a triangular one is zeros, which
        # measuring skips.
        measured = scipy.linalg.qr(measured, mode="r", overwrite_a=True, check_finite=False)[0]
    matrix[:, asked] = measured
    # The strategy may come from one iterate and the bound from another: both are the best known.
    if problem.basis is not None and queries is not None:
        bound = certified_bound_from_queries(queries()[:, asked], found.dual.weights, roundings)
        return Found(matrix, bound)
    return Found(matrix, certified_bound(part, gram_error, found.dual.point) * scale)


def check_contrasts(workload: Workload) -> None:
    """Raise if the answers of a workload do not change when a record is replaced.

    ``||W||_F^2 - ||W 1||^2 / n`` remains of W without the means of its rows.

    Raises
    ------
    InvalidParameterError
        If that is less than a part in 1e12.
    """
    kept = 0.0
    for term in workload.terms():
        traces = [factor.gram_traces for factor in term]
        kept += math.prod(whole for _, whole in traces) - math.prod(mean for mean, _ in traces)
    if not kept > _SMALLEST_CONTRAST * workload.frobenius_squared():
        raise InvalidParameterError(
            "neighbouring='replace' with a workload whose answers hardly change, or not at all, "
            "when a record is replaced, compared with the part that depends on the number of "
            "records: subtract a multiple of that public number from each query first, and leave "
            "out queries that are then zero"
        )


def replacement_factor(explicit: ExplicitQueries, progress: Progress | None = None) -> FoundMatrix:
    """Return the strategy of least total squared error for replacing a record.

    It measures contrasts of the cells, and the total. Its error is never above that of measuring
    the contrasts of every cell or query.
    """
    root = _contrasts_of_queries(explicit)
    found = search_pairs(root, progress)
    contrasts, least = found.primal.contrasts, found.primal.value
    # Where rounding stops the search early, a plain strategy may be better than what it found.
    cells = np.asarray(scipy.linalg.helmert(len(root)))
    for plain, error in ((cells, float(np.sum(np.square(root)))), (root.T, float(root.shape[1]))):
        value = float(np.max(squared_distances(plain))) * error
        if value < least:
            contrasts, least = plain, value
    bound = bound_from_pairs(explicit, laplacian(found.dual.weights))
    return Found(_with_total(explicit, contrasts, least), bound)


def _contrasts_of_queries(explicit: ExplicitQueries) -> FloatArray:
    """Return R of full column rank with ``R R^T = P G P``, where P subtracts the mean."""
    if explicit.queries is None:
        gram = explicit.gram - np.mean(explicit.gram, axis=0)
        gram -= np.mean(gram, axis=1)[:, None]
        return gram_basis((gram + gram.T) / 2.0)
    queries = explicit.queries()
    queries = queries - queries[:, :1]  # first, so that what all cells share does not round
    return column_basis(queries - np.mean(queries, axis=1, keepdims=True))


def _with_total(explicit: ExplicitQueries, contrasts: FloatArray, error: float) -> FloatArray:
    """Return contrasts, and the public total with so much weight that its noise hardly counts.

    With weight w beside contrasts of diameter 1 it adds ``||W 1||^2 / (n w)^2`` to the error. The
    weight is a power of two, which is measured without rounding and cancels in every difference.
    """
    cells = len(explicit.gram)
    means = math.sqrt(max(float(np.sum(explicit.gram)), 0.0)) / cells
    wanted = means / math.sqrt(_SHARE_OF_THE_TOTAL * error)
    weight = 2.0 ** math.ceil(math.log2(min(max(wanted, 1.0), _LARGEST_TOTAL_RATIO)))
    # A weight above the largest entry is reached by making the contrasts smaller instead.
    scale = min(1.0, _LARGEST_TOTAL_WEIGHT / weight)
    even = contrasts * (scale / math.sqrt(float(np.max(squared_distances(contrasts)))))
    return np.concatenate([even, np.full((1, cells), weight * scale)])
