r"""Certificates: the error of a strategy, and a lower bound of the error of any.

*If a record is replaced.* For F with columns that sum to zero, ``F F^T`` is the sum over pairs of
``y_jk (e_j - e_k)(e_j - e_k)^T`` with ``y_jk = -(F F^T)_jk``. A strategy with
``Q_jj + Q_kk - 2 Q_jk <= 1`` for all pairs therefore has ``tr(F^T Q F) <= sum of max(y_jk, 0)``,
and by the Cauchy-Schwarz inequality of nuclear norms, ``||W F||_*^2 <= tr(G Q^+) tr(F^T Q F)``.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy

from matrixdp.errors import CalibrationError
from matrixdp.parameters import LARGEST_EXACT_INTEGER
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.spectra import nuclear_norm_lower_bound, semidefinite_eigenvalue_bounds
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.solve.bases import RANK_TOLERANCE, eigenvectors
from matrixdp.workloads.solve.dual import DualPoint
from matrixdp.workloads.solve.searches import ExplicitQueries
from matrixdp.workloads.strategies.attribute_sets import set_costs
from matrixdp.workloads.strategies.plain import direct_sensitivity_squared
from matrixdp.workloads.strategies.set_distances import shares
from matrixdp.workloads.strategies.strategy import MOST_PAIRS

__all__ = [
    "Certificate",
    "bound_from_pairs",
    "bound_from_spectra",
    "certified_bound",
    "certified_bound_from_queries",
    "svd_bound",
]

# Values are computed in float64 without error bounds; bounds are proven.
_ROUNDING_OF_VALUES = 1e-9
# The most cells of a union whose Gram matrix is decomposed for the SVD bound.
_WRITTEN_OUT = 2048
# Sums of 8,192 multiples of 2**-38 that are at most 1 have 51 bits: they are exact.
_GRID = 2.0**38
# Splits the 38 bits in two halves, whose products with integers are exact more often.
_HALF_GRID = 2.0**19


@dataclass(frozen=True, slots=True)
class Certificate:
    """The total squared error of a strategy, and a proven lower bound for all strategies.

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


def bound_from_pairs(explicit: ExplicitQueries, laplacian: FloatArray) -> float:
    """Return a proven lower bound of the error of every strategy, from weights on the pairs.

    Parameters
    ----------
    explicit : ExplicitQueries
        The queries, on at most 8,192 cells.
    laplacian : ndarray
        Of the weights y; its errors make the bound lower but not wrong.
    """
    values, vectors = eigenvectors(laplacian.copy())
    side = _balanced(vectors * np.sqrt(np.maximum(values, 0.0)))
    roots = _roots_from_queries(explicit, side) if explicit.queries else _roots(explicit, side)
    # From here on F is exact, and only its products round.
    count = side.shape[1]
    product = side @ side.T
    rounding = (
        (count + 4)
        * UNIT_ROUNDOFF
        * (np.abs(side) @ np.abs(side.T))
        * (1.0 + count * UNIT_ROUNDOFF)
    )
    # Rounded up, and negative weights to 0: a larger sum of weights only lowers the bound.
    weights = np.triu(np.maximum(rounding - product, 0.0), 1)
    total = math.fsum(np.sum(weights, axis=1).tolist()) * (1.0 + (len(side) + 4) * UNIT_ROUNDOFF)
    return roots**2 / total * (1.0 - 8 * UNIT_ROUNDOFF) if total > 0.0 else 0.0


def bound_from_spectra(workload: Workload) -> float:
    """Return a proven lower bound from the factors' singular values alone.

    With equal weights on all pairs the bound is ``2 (tr (P G P)^(1/2))^2 / (n - 1)``, P the
    projection that subtracts the mean; by interlacing ``tr (P G P)^(1/2)`` is at least the sum of
    all singular values less the largest. The parts of a union are bounded one by one. With weight
    on one pair alone the bound is ``||W (e_j - e_k)||^2``, tried for up to 8,192 cells.
    """
    total = 0.0
    for term in workload.terms():
        spectra = [_sum_and_largest(factor) for factor in term]
        roots = math.prod(lower for lower, _ in spectra)
        largest = math.prod(upper for _, upper in spectra)
        # Rounded against the bound: the sum from below, the largest from above.
        rest = max(roots - largest * (1.0 + 4 * len(term) * UNIT_ROUNDOFF), 0.0)
        total += 2.0 * rest**2 / (workload.cells - 1)
    return max(total * (1.0 - 2.0**-44), _largest_distance_squared(workload))


def _largest_distance_squared(workload: Workload) -> float:
    """Return a lower bound of the largest squared distance of two columns of W."""
    if workload.cells > MOST_PAIRS:
        return 0.0
    # A distance is made of four entries of the Gram matrix.
    error = 4.0 * (workload.gram_error + 4 * UNIT_ROUNDOFF) * workload.frobenius_squared()
    return max(direct_sensitivity_squared(workload, "replace") - error * (1.0 + 2.0**-40), 0.0)


def _balanced(side: FloatArray) -> FloatArray:
    """Return a matrix close to one given whose columns sum to zero exactly.

    The entries are rounded to a grid on which sums of up to 8,192 are exact; the first row is minus
    the sum of the others.
    """
    whole = np.rint(side * (_GRID / float(np.max(np.abs(side)))))
    # All of these are integers below 2**53, so that the sum of a column is exactly 0.
    whole[0] = -np.sum(whole[1:], axis=0)
    return np.asarray(whole / _GRID)


def _roots_from_queries(explicit: ExplicitQueries, side: FloatArray) -> float:
    """Return a lower bound of ``||W F||_*``, after subtracting what all cells share."""
    queries = explicit.queries() if explicit.queries else np.zeros((1, len(side)))
    # The rounding of the entries as they were written out, before what they share cancels.
    written = 2 * explicit.roundings * (np.abs(queries) + np.abs(queries[:, :1]))
    queries = queries - queries[:, :1]
    image = queries @ side
    spread = ((side.shape[0] + 4) * np.abs(queries) + written) @ np.abs(side)
    rounding = UNIT_ROUNDOFF * float(np.linalg.norm(spread)) * (1.0 + 1e-6)
    left, _, right = scipy.linalg.svd(image, full_matrices=False, check_finite=False)
    # ||E||_* <= rank^(1/2) ||E||_F for the rounding E of the image.
    lost = math.sqrt(min(image.shape)) * rounding
    roots = nuclear_norm_lower_bound(image, left, right)
    return max(float(roots - lost), 0.0) * (1.0 - 4 * UNIT_ROUNDOFF)


def _roots(explicit: ExplicitQueries, side: FloatArray) -> float:
    """Return the same from the Gram matrix, ``tr (F^T G F)^(1/2)``."""
    image, image_error = _image(explicit.gram, side)
    product = side.T @ image
    product = (product + product.T) / 2.0
    spread = np.abs(side.T) @ ((len(side) + 4) * UNIT_ROUNDOFF * np.abs(image) + image_error)
    stretch = float(np.sum(np.square(side)))
    error = float(np.linalg.norm(spread))
    error += explicit.gram_error * float(np.trace(explicit.gram)) * stretch
    values, vectors = eigenvectors(product.copy())
    bounds = semidefinite_eigenvalue_bounds(product, values, vectors, error * (1.0 + 1e-6))
    return math.fsum(np.sqrt(bounds).tolist()) * (1.0 - 4 * UNIT_ROUNDOFF)


def _image(gram: FloatArray, side: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return ``G F`` and a bound of its error, entry by entry.

    F is on a grid. If G is whole and not too large, the products with the upper and the lower bits
    of F are exact, and only their sum rounds: large numbers that cancel in ``G F`` cost nothing.
    """
    whole = side * _GRID
    high = np.rint(whole / _HALF_GRID)
    low = whole - high * _HALF_GRID
    largest = float(np.max(np.sum(np.abs(gram), axis=1)))
    digits = max(float(np.max(np.abs(high))), float(np.max(np.abs(low))))
    if np.array_equal(gram, np.rint(gram)) and largest * digits < LARGEST_EXACT_INTEGER / 2:
        image = ((gram @ high) * _HALF_GRID + gram @ low) / _GRID
        return image, UNIT_ROUNDOFF * np.abs(image)
    image = gram @ side
    return image, (len(side) + 4) * UNIT_ROUNDOFF * (np.abs(gram) @ np.abs(side))


def _sum_and_largest(factor: Factor) -> tuple[float, float]:
    """Return the sum of the singular values, from below, and the largest of them, from above.

    The largest eigenvalue is at most the trace less lower bounds of all the others.
    """
    gram = factor.gram()
    trace = math.fsum(np.diagonal(gram).tolist()) * (1.0 + 2 * UNIT_ROUNDOFF)
    error = factor.gram_error * trace
    values, vectors = eigenvectors(gram.copy())
    bounds = semidefinite_eigenvalue_bounds(gram, values, vectors, error)
    largest = trace * (1.0 + factor.gram_error) - math.fsum(bounds[:-1].tolist())
    roots = math.fsum(np.sqrt(bounds).tolist()) * (1.0 - 8 * UNIT_ROUNDOFF)
    return roots, math.sqrt(largest + 4 * UNIT_ROUNDOFF * trace) * (1.0 + 8 * UNIT_ROUNDOFF)
