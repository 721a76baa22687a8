r"""Proven lower bounds of the error when a record is replaced.

For F with columns that sum to zero, ``F F^T`` is the sum over pairs of
``y_jk (e_j - e_k)(e_j - e_k)^T`` with ``y_jk = -(F F^T)_jk``. A strategy with
``Q_jj + Q_kk - 2 Q_jk <= 1`` for all pairs therefore has ``tr(F^T Q F) <= sum of max(y_jk, 0)``,
and by the Cauchy-Schwarz inequality of nuclear norms, ``||W F||_*^2 <= tr(G Q^+) tr(F^T Q F)``.
"""

import math

import numpy as np
import scipy

from matrixdp.parameters import LARGEST_EXACT_INTEGER
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.spectra import nuclear_norm_lower_bound, semidefinite_eigenvalue_bounds
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.solve.bases import eigenvectors
from matrixdp.workloads.solve.searches import ExplicitQueries
from matrixdp.workloads.strategies.plain import direct_sensitivity_squared
from matrixdp.workloads.strategies.strategy import MOST_PAIRS

__all__ = ["bound_from_pairs", "bound_from_spectra"]

# Sums of 8,192 multiples of 2**-38 that are at most 1 have 51 bits: they are exact.
_GRID = 2.0**38
# Splits the 38 bits in two halves, whose products with integers are exact more often.
_HALF_GRID = 2.0**19


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
