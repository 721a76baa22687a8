"""The optimal strategy for a Gram matrix that is written out."""

from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.workloads.certificate import Certificate, certified_bound
from matrixdp.workloads.dual import DualPoint, Problem, Progress, ascend
from matrixdp.workloads.operator import FloatArray
from matrixdp.workloads.strategy import Strategy

__all__ = ["Certified", "optimal_factor"]


class Certified(NamedTuple):
    """A strategy on one attribute and its certificate."""

    matrix: FloatArray
    certificate: Certificate


def optimal_factor(
    gram: FloatArray, gram_error: float, progress: Progress | None = None
) -> Certified:
    """Return the strategy of least total squared error for adding or removing a record.

    Cells that no query asks about are left out of the problem, and not measured. If the Gram matrix
    has full rank the strategy is upper triangular with columns of norm 1; otherwise it has as many
    rows as the rank, all of them in the range of G.
    """
    asked = np.flatnonzero(np.diagonal(gram) > 0.0)
    scale = float(np.max(np.diagonal(gram)))
    part = gram[np.ix_(asked, asked)] / scale
    point = ascend(Problem.of(part), progress)
    matrix = np.zeros((len(point.roots), len(gram)))
    matrix[:, asked] = _measurements(point)
    strategy = Strategy([matrix])
    response = strategy.inverses[0]
    error = float(np.einsum("ij,ij->", response, gram @ response))
    # The division by the scale rounds once more per entry, by less than u times the trace.
    bound = certified_bound(part, gram_error + 2.0**-52, point) * scale * (1.0 - 2.0**-52)
    return Certified(matrix, Certificate(strategy.sensitivity("add-remove") ** 2 * error, bound))


def _measurements(point: DualPoint) -> FloatArray:
    """Return A with ``A^T A = Q_ij / sqrt(q_i q_j)``, or ``Q / max(q)`` where the rank is less."""
    half = np.sqrt(point.roots)[:, None] * point.vectors.T
    if point.full_rank:
        half /= np.sqrt(point.weights * point.diagonal)
        return np.asarray(linalg.qr(half, mode="r", overwrite_a=True, check_finite=False)[0])
    return np.asarray(half / np.sqrt(point.weights * np.max(point.diagonal)))
