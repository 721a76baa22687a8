"""Certificates: the error of a strategy, and a lower bound of the error of any."""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from matrixdp.errors import CalibrationError
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.spectra import nuclear_norm_lower_bound, semidefinite_eigenvalue_bounds
from matrixdp.workloads.operator import FloatArray, Workload
from matrixdp.workloads.solve.bases import RANK_TOLERANCE
from matrixdp.workloads.solve.dual import DualPoint
from matrixdp.workloads.strategies.attribute_sets import set_costs
from matrixdp.workloads.strategies.set_distances import shares

__all__ = ["Certificate", "certified_bound", "certified_bound_from_queries", "svd_bound"]

# Values are computed in float64 without error bounds; bounds are proven.
_ROUNDING_OF_VALUES = 1e-9
# The most cells of a union whose Gram matrix is decomposed for the SVD bound.
_WRITTEN_OUT = 2048


@dataclass(frozen=True, slots=True)
class Certificate:
    """The total squared error of a strategy and a bound that no strategy is below.

    Both are at unit noise: the sum of the variances of all queries in a release with mu = 1,
    without the millionth or so that `MatrixMechanism` adds for the rounding of measurements.
    `lower_bound` is proven, rounding included. `value` is that of the strategy as it is in memory,
    computed in float64; for a stack of products it is an upper bound.
    """

    value: float
    lower_bound: float

    def __post_init__(self) -> None:
        """Raise if the error is below the bound by more than its own rounding."""
        least = self.lower_bound * (1.0 - _ROUNDING_OF_VALUES)
        if not math.inf > self.value >= least >= 0.0:
            raise CalibrationError(
                f"value={self.value!r} is below lower_bound={self.lower_bound!r}, which no "
                "strategy can be: the workload's entries are too far apart in size for float64; "
                "scale its queries towards each other, or leave out tiny entries"
            )

    @property
    def gap(self) -> float:
        """How far the strategy is above the bound, relatively: the most it could be improved."""
        if not self.lower_bound > 0.0:
            return math.inf
        return max(self.value / self.lower_bound - 1.0, 0.0)


def certified_bound(gram: FloatArray, gram_error: float, point: DualPoint) -> float:
    """Return a proven lower bound of ``tr(G Q^+)`` over all Q with ``diag(Q) <= 1``.

    It is ``(tr K^(1/2))^2 / sum(d)`` of the dual, with the eigenvalues of K bounded from below by
    the residual of their float decomposition.

    Parameters
    ----------
    gram : ndarray
        G, as floats.
    gram_error : float
        How far that is from the workload's own Gram matrix in Frobenius norm, over the trace.
    point : DualPoint
        Any.
    """
    sides = np.sqrt(point.weights)
    scaled = sides[:, None] * gram * sides
    # The two roundings of every entry of K are allowed for where its decomposition is verified.
    error = gram_error * float(np.max(point.weights)) * float(np.trace(gram)) * (1.0 + 1e-12)
    bounds = semidefinite_eigenvalue_bounds(scaled, np.square(point.roots), point.vectors, error)
    # Summed without rounding; the factors cover the rounding of the roots and of the last line.
    roots = math.fsum(np.sqrt(bounds).tolist()) * (1.0 - 4 * UNIT_ROUNDOFF)
    return roots**2 / math.fsum(np.square(sides).tolist()) * (1.0 - 16 * UNIT_ROUNDOFF)


def certified_bound_from_queries(
    queries: FloatArray, weights: FloatArray, roundings: int = 0
) -> float:
    """Return the same bound as ``||W D^(1/2)||_*^2 / sum(d)``, from the queries themselves.

    It loses next to nothing where `certified_bound` loses the square of a small singular value
    beside that of a large one.

    Parameters
    ----------
    queries : ndarray
        W.
    weights : ndarray
        d, positive.
    roundings : int, optional
        How often the entries of W have been rounded.
    """
    sides = np.sqrt(weights)
    scaled = queries * sides
    left, _, right = scipy.linalg.svd(scaled, full_matrices=False, check_finite=False)
    roots = nuclear_norm_lower_bound(scaled, left, right)
    # ||E||_* <= rank^(1/2) ||E||_F for the rounding E of the queries.
    lost = (
        2 * roundings * UNIT_ROUNDOFF * math.sqrt(min(scaled.shape)) * float(np.linalg.norm(scaled))
    )
    roots = max(roots - lost, 0.0)
    return roots**2 / math.fsum(np.square(sides).tolist()) * (1.0 - 16 * UNIT_ROUNDOFF)


def svd_bound(workload: Workload) -> float:
    """Return ``(sum of singular values)^2 / cells``, below the error of every strategy.

    For a product of factors it is the product of theirs. For tables of counts it has a closed form.
    For any other union of products of more than 2,048
    cells the sum of the parts' bounds is returned instead, which is a lower bound as well.

    References
    ----------
    Li and Miklau, *Optimal error of query sets under the differentially-private matrix mechanism*,
    ICDT 2013, Theorem 1.
    """
    terms = workload.terms()
    if workload.asks_tables:
        asked = set_costs(workload)
        singular = np.sqrt(asked.costs * shares(asked.sets, workload.dimensions))
        return math.fsum(singular.tolist()) ** 2
    if len(terms) == 1:
        return math.prod(_factor_bound(factor.gram()) for factor in terms[0])
    if len(workload.dimensions) == 1 or workload.cells <= _WRITTEN_OUT:
        return _factor_bound(workload.gram())
    return sum(math.prod(_factor_bound(factor.gram()) for factor in term) for term in terms)


def _factor_bound(gram: FloatArray) -> float:
    values = scipy.linalg.eigvalsh(gram)
    # Leaving eigenvalues out lowers the bound, which then still holds.
    certain = values[values > len(values) * RANK_TOLERANCE * values[-1]]
    return float(np.sum(np.sqrt(certain))) ** 2 / len(gram)
