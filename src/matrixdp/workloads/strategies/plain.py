"""Strategies that need no search: measuring every cell, or every query, by itself."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.rounding import UNIT_ROUNDOFF
from matrixdp.workloads.operator import (
    LARGEST_EXPLICIT,
    MOST_ANSWERS,
    Factor,
    FloatArray,
    Workload,
)
from matrixdp.workloads.strategies.attribute_sets import asked_attributes
from matrixdp.workloads.strategies.diameters import product_diameter_squared
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.stacked import StackedStrategy
from matrixdp.workloads.strategies.strategy import MOST_PAIRS, Strategy

__all__ = [
    "direct_measurements",
    "direct_sensitivity_squared",
    "direct_strategy",
    "identity_error",
    "identity_strategy",
    "sensitivity_squared",
]

# Parts of a stack are scaled by no less than 2**-28 of the largest: factors stop at 2**-30.
_SMALLEST_LOG_SCALE = -28.0


def identity_error(workload: Workload, neighbouring: Neighbouring) -> float:
    """Return the total squared error of measuring every cell, at unit noise.

    It is ``||W||_F^2``, and twice that where a record that moves changes two cells.
    """
    return (1.0 if neighbouring == "add-remove" else 2.0) * workload.frobenius_squared()


def identity_strategy(workload: Workload) -> ProductStrategy:
    """Return the measurement of every cell."""
    return ProductStrategy([np.eye(size) for size in workload.dimensions])


def sensitivity_squared(grams: Sequence[FloatArray], neighbouring: Neighbouring) -> float:
    """Return the squared sensitivity of a product, from the Gram matrices of its factors.

    The largest entry of the diagonal, or ``G_jj + G_kk - 2 G_jk`` over all pairs.
    """
    if neighbouring == "replace":
        return product_diameter_squared(grams)
    return math.prod(float(np.max(np.diagonal(gram))) for gram in grams)


def direct_sensitivity_squared(workload: Workload, neighbouring: Neighbouring) -> float:
    """Return the squared sensitivity of the queries themselves.

    It is the variance of every answer if each query is measured by itself. For replacing a record
    and a union of more than 8,192 cells it is an upper bound: the sum of its parts' own, or four
    times the largest squared norm.
    """
    if workload.asks_tables:
        # A record is in one cell of each table; one that moves leaves one cell for another.
        changed = [
            1 if neighbouring == "add-remove" else 2 * bool(asked_attributes(term))
            for term in workload.terms()
        ]
        return float(sum(changed))
    # The bounds below are not tight for unions, so that every pair is compared while that is cheap.
    if neighbouring == "replace" and workload.cells <= MOST_PAIRS:
        return _largest_distance(workload.gram())
    terms = workload.terms()
    if neighbouring == "add-remove" and len(terms) > 1:
        return float(workload.column_norms_squared().max())
    parts = [
        sensitivity_squared([factor.gram() for factor in term], neighbouring) for term in terms
    ]
    if len(terms) == 1:
        return parts[0]
    return min(sum(parts), 4.0 * float(workload.column_norms_squared().max()))


def _largest_distance(gram: FloatArray) -> float:
    norms = np.diagonal(gram)
    return max(
        float(np.max(norm + norms - 2.0 * row)) for norm, row in zip(norms, gram, strict=True)
    )


def direct_measurements(workload: Workload) -> int:
    """Return how many measurements `direct_strategy` makes at most."""
    if _measured_whole(workload):
        return min(workload.shape)
    return sum(math.prod(min(factor.shape) for factor in term) for term in workload.terms())


def direct_strategy(workload: Workload) -> Strategy | None:
    """Return measurements with the Gram matrix of the queries, as good as the queries themselves.

    A product is measured by its factors; a union as a whole, where its queries can be written out
    and have at most 8,192 cells, and otherwise as a stack of its products. None is returned if
    that would take more than 2**28 measurements.
    """
    terms = workload.terms()
    if len(terms) == 1:
        return ProductStrategy([_measurements(factor).matrix for factor in terms[0]])
    if _measured_whole(workload):
        return ProductStrategy([_compressed(workload.written_out()).matrix])
    return _direct_stack(terms) if direct_measurements(workload) <= MOST_ANSWERS else None


def _measured_whole(workload: Workload) -> bool:
    return workload.writable and workload.cells <= LARGEST_EXPLICIT


def _direct_stack(terms: Sequence[Sequence[Factor]]) -> StackedStrategy:
    """Return the products' own measurements, in the proportions that the queries have."""
    # Sizes are added as logarithms, because the products of many could overflow.
    factors = dict.fromkeys(factor for term in terms for factor in term)
    known = {factor: _measurements(factor) for factor in factors}
    logs = [math.fsum(math.log2(known[factor].size) for factor in term) for term in terms]
    parts = []
    for term, log in zip(terms, logs, strict=True):
        product = ProductStrategy([known[factor].matrix for factor in term])
        parts.append(product.scaled(2.0 ** max(log - max(logs), _SMALLEST_LOG_SCALE)))
    return StackedStrategy(parts)


class _Measured(NamedTuple):
    matrix: FloatArray  # with a largest entry of 1
    size: float  # what was divided by


def _measurements(factor: Factor) -> _Measured:
    if factor.writable:
        return _compressed(factor.matrix_of_queries())
    # Only ranges are too many to be written out, and their Gram matrix is positive definite. A
    # matrix with so many rows may be singular; then the check of its support refuses the result.
    gram = factor.gram()
    ridge = 2 * UNIT_ROUNDOFF * float(np.trace(gram))
    return _compressed(scipy.linalg.cholesky(gram + ridge * np.eye(len(gram))))


def _compressed(queries: FloatArray) -> _Measured:
    """Return at most as many rows as columns with the same Gram matrix, up to a factor."""
    if queries.shape[0] > queries.shape[1]:
        # R of a QR decomposition has the Gram matrix of the queries, and fewer rows.
        queries = scipy.linalg.qr(queries, mode="r", check_finite=False)[0][: queries.shape[1]]
    size = float(np.max(np.abs(queries)))
    return _Measured(np.asarray(queries / size), size)
