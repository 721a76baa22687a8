"""The optimal strategy for a Gram matrix that is written out."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.workloads.dense import Dense
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.ranges import Identity, Total
from matrixdp.workloads.solve.certificate import certified_bound, certified_bound_from_queries
from matrixdp.workloads.solve.dual import Problem, maximise_dual
from matrixdp.workloads.solve.interior_point import Progress

__all__ = ["Certified", "Explicit", "certified_factor", "optimal_factor"]


class Explicit(NamedTuple):
    """What is known of the queries on one attribute.

    The Gram matrix, how far it is off in Frobenius norm over its trace, and the queries themselves
    where they are needed and can be written out.
    """

    gram: FloatArray
    gram_error: float
    queries: Callable[[], FloatArray] | None
    roundings: int = 0  # of each entry of the queries as they are written out

    @classmethod
    def of(cls, workload: Workload) -> "Explicit":
        """Return what a workload says of itself.

        The queries matter where entries are of any size; otherwise the Gram matrix is exact.
        """
        any_size = any(isinstance(factor, Dense) for term in workload.terms() for factor in term)
        queries = workload.written_out if any_size and workload.writable else None
        roundings = len(workload.dimensions) - 1
        return cls(workload.gram(), workload.gram_error, queries, roundings)


class Certified(NamedTuple):
    """A strategy on one attribute, and a proven lower bound of every strategy's error."""

    matrix: FloatArray
    lower_bound: float


def certified_factor(factor: Factor, progress: Progress | None = None) -> Certified:
    """Return the optimum on one attribute: cells and totals are their own."""
    if isinstance(factor, Identity):
        return Certified(np.eye(factor.cells), float(factor.cells))
    if isinstance(factor, Total):
        return Certified(np.ones((1, factor.cells)), 1.0)
    return optimal_factor(Explicit.of(factor), progress)


def optimal_factor(explicit: Explicit, progress: Progress | None = None) -> Certified:
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
    # In units of the scale, so that the basis that is made of them is that of the part.
    asking = None if queries is None else lambda: queries()[:, asked] / math.sqrt(scale)
    problem = Problem.of(part, asking)
    found = maximise_dual(problem, progress)
    best = found.primal
    matrix = np.zeros((len(best.point.roots), len(gram)))
    measured = best.point.measurements(rescaled=best.rescaled)
    if best.rescaled:
        measured = linalg.qr(measured, mode="r", overwrite_a=True, check_finite=False)[0]
    matrix[:, asked] = measured
    if problem.basis is not None and queries is not None:
        bound = certified_bound_from_queries(queries()[:, asked], found.dual.weights, roundings)
        return Certified(matrix, bound)
    return Certified(matrix, certified_bound(part, gram_error, found.dual.point) * scale)
