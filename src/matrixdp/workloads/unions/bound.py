r"""A proven lower bound of the error on a union of products, from each attribute alone.

For weights ``d = d_1 x .. x d_k`` on the cells no strategy's error is below
``||W D^(1/2)||_*^2 / sum(d)``, and ``||X||_* >= tr(Y^T X)`` for every Y with ``Y^T Y <= 1``. On
each attribute let V be an orthonormal basis, and for each term let ``X_i = W_i D_i^(1/2)`` have the
polar decomposition ``O_i K_i^(1/2)``, ``K_i = D_i^(1/2) G_i D_i^(1/2)``, with an isometry ``O_i``
(zeros may be put below X). Let Y be ``a_tr (O_1 x .. x O_k)`` on term t and the r-th product of
vectors of V. Then ``Y^T Y`` is ``sum_t a_tr^2`` on each of these, and nothing across them. The best
a give

    ||W D^(1/2)||_* >= sum_r ( sum_t prod_i x_tir^2 )^(1/2),    x_ti = diag(V^T K_i^(1/2) V).

With all vectors taken together it would be the sum of the parts' own bounds; it is more where the
parts need different directions. For totals ``K_i^(1/2) = s s^T / |s|`` with
``s = d^(1/2)``, so that s is the first vector of V where there are any.
"""

import math
from collections.abc import Sequence

import numpy as np
import scipy

from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.spectra import semidefinite_root
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, Factor, FloatArray, Workload
from matrixdp.workloads.solve.bases import differing_directions
from matrixdp.workloads.strategies.product import ProductStrategy

__all__ = ["cell_weights", "union_bound", "weights_of_optimum"]

# Directions in which roots differ need at least two of them.
_TO_DIFFER = 2


def cell_weights(workload: Workload, product: ProductStrategy) -> list[FloatArray]:
    """Return good weights d for each attribute, from a good product of strategies.

    On one attribute the optimum has ``Q^-1 G Q^-1 = D``. Here G is the mixture of the terms' Gram
    matrices, weighted by the costs of their other factors.
    """
    terms = workload.terms()
    covariances = [inverse @ inverse.T for inverse in product.inverses]
    grams = {factor: factor.gram() for term in terms for factor in term}
    costs = np.array(
        [
            [float(np.sum(grams[f] * part)) for f, part in zip(term, covariances, strict=True)]
            for term in terms
        ]
    )
    weights = []
    for index, covariance in enumerate(covariances):
        others = np.prod(np.delete(costs, index, axis=1), axis=1)
        shares = zip(others / others.max(), terms, strict=True)
        mixed = np.asarray(sum(share * grams[term[index]] for share, term in shares))
        weights.append(weights_of_optimum(covariance, mixed))
    return weights


def weights_of_optimum(covariance: FloatArray, gram: FloatArray) -> FloatArray:
    """Return d with sum 1, from a ``Q^-1`` that is close to the optimum for G."""
    # Rounding may leave entries a little below 0, and d must not be negative.
    diagonal = np.maximum(np.einsum("ij,ij->i", covariance @ gram, covariance), 0.0)
    return np.asarray(diagonal / float(np.sum(diagonal)))


def union_bound(workload: Workload, weights: Sequence[FloatArray]) -> float:
    """Return a proven lower bound of the total squared error of every strategy, at unit noise.

    Parameters
    ----------
    workload : Workload
        Any. With more than 2**26 cells only the totals are distinguished from the rest.
    weights : sequence of ndarray
        d for each attribute, none negative; the closer to the optimum's, the better the bound.
    """
    columns = list(zip(*workload.terms(), strict=True))
    sides = [np.sqrt(part) for part in weights]
    finely = workload.cells <= LARGEST_HISTOGRAM
    parts = [_traces(*pair, finely=finely) for pair in zip(columns, sides, strict=True)]
    layout = [traces.shape[1] for traces, _ in parts]
    if not math.prod(layout) <= LARGEST_HISTOGRAM:
        return 0.0  # a bound all the same, where the sum below would not fit in memory
    squares = np.zeros(layout)
    lost = 0.0
    for term in range(len(columns[0])):
        product = np.ones(())
        for traces, _ in parts:
            product = np.multiply.outer(product, np.square(traces[term]))
        squares += product
        # With sums T of x and errors e, the sum of |prod x - prod x'| is at most
        # prod (T + e) - prod T <= prod T (exp(sum of e / T) - 1).
        sums = [float(np.sum(traces[term])) for traces, _ in parts]
        if not min(sums) > 0.0:
            return 0.0
        shares = sum(errors[term] / total for (_, errors), total in zip(parts, sums, strict=True))
        lost += math.prod(sums) * math.expm1(shares) * (1.0 + 1e-6)
    # 512 covers the blocks in which numpy sums pairwise; the rest are products and roots.
    rounded = 1.0 - 4 * (len(columns[0]) + 4 * len(columns) + 512) * UNIT_ROUNDOFF
    found = max(float(np.sum(np.sqrt(squares, out=squares))) * rounded - lost, 0.0)
    size = math.prod(math.fsum(np.square(side).tolist()) for side in sides)
    return found**2 / size * rounded


def _traces(
    factors: Sequence[Factor], sides: FloatArray, *, finely: bool
) -> tuple[FloatArray, list[float]]:
    """Return x for every term, and a bound on the sum of each row's errors.

    All vectors but that of the totals are taken together unless it is done finely, and where all
    terms but totals are the same, because the bound is the same then.
    """
    roots = {factor: _root(factor, sides) for factor in factors}
    asked = [root for factor, (root, _) in roots.items() if not factor.is_total]
    total_first = len(asked) < len(roots)
    vectors = _directions(sides, asked, total_first=total_first)
    count = len(sides)
    rounding = 4 * (count + 4) ** 2 * UNIT_ROUNDOFF
    defect = float(np.linalg.norm(vectors.T @ vectors - np.eye(count))) + rounding
    found, errors = {}, {}
    for factor, (root, distance) in roots.items():
        traces = np.maximum(np.einsum("ij,ij->j", vectors, root @ vectors), 0.0)
        if not finely or len(asked) < _TO_DIFFER:
            traces = np.array([*traces[:total_first], np.sum(traces[total_first:])])
        # By how much V is not orthonormal, and the rounding of the products, summed over vectors.
        off = 3.0 * math.sqrt(count) * defect + rounding
        found[factor] = traces
        error = math.sqrt(count) * distance + off * float(np.linalg.norm(root))
        errors[factor] = error * (1.0 + 1e-6)
    return np.array([found[factor] for factor in factors]), [errors[factor] for factor in factors]


def _root(factor: Factor, sides: FloatArray) -> tuple[FloatArray, float]:
    """Return ``K^(1/2)`` and a bound of its error in Frobenius norm."""
    if factor.is_total:
        # In closed form: rounding of the zero eigenvalues would cost half the digits of a root.
        length = float(np.linalg.norm(sides))
        return np.outer(sides, sides) / length, 2 * (len(sides) + 8) * UNIT_ROUNDOFF * length
    gram = factor.gram()
    scaled = sides[:, None] * gram * sides
    # Three roundings per entry of K, whose Frobenius norm is at most its trace; and G's own.
    spread = float(np.max(np.square(sides))) * float(np.trace(gram))
    error = (4 * UNIT_ROUNDOFF * float(np.trace(scaled)) + factor.gram_error * spread) * (
        1.0 + 1e-6
    )
    return semidefinite_root((scaled + scaled.T) / 2, error)


def _directions(sides: FloatArray, roots: Sequence[FloatArray], *, total_first: bool) -> FloatArray:
    """Return V: the sides first if the total comes first, then where the roots differ most."""
    first = np.asarray(scipy.linalg.qr(sides[:, None])[0])
    kept = first[:, 1:] if total_first else np.eye(len(sides))
    if len(roots) >= _TO_DIFFER and kept.shape[1] > 0:
        kept = kept @ differing_directions([kept.T @ root @ kept for root in roots])
    return np.concatenate([first[:, :1], kept], axis=1) if total_first else kept
