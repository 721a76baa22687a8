"""The optimal strategy for adding or removing a record, on cells that are written out."""

import math

import numpy as np
import scipy

from matrixdp.workloads.operator import Factor
from matrixdp.workloads.solve.certificate import certified_bound, certified_bound_from_queries
from matrixdp.workloads.solve.dual import Problem, maximise_dual
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.solve.searches import ExplicitQueries, Found, FoundMatrix

__all__ = ["certified_factor", "optimal_factor"]


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
