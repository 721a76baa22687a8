"""Strategies that need no search: every cell, or every query, by itself."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import (
    LARGEST_EXPLICIT,
    MOST_ANSWERS,
    Factor,
    FloatArray,
    Workload,
)
from matrixdp.workloads.strategies.diameters import product_diameter_squared
from matrixdp.workloads.strategies.product import MOST_PAIRS, Strategy
from matrixdp.workloads.strategies.stacked import AnyStrategy, StackedStrategy, scaled

__all__ = [
    "direct_measurements",
    "direct_sensitivity_squared",
    "direct_strategy",
    "identity_error",
    "identity_strategy",
    "sensitivity_squared",
]

_SMALLEST_LOG_SCALE = -28.0


def identity_error(workload: Workload, neighbouring: Neighbouring) -> float:
    """Return the total squared error of measuring every cell, at unit noise.

    It is ``||W||_F^2``, and twice that where a record that moves changes two cells.
    """
    return (1.0 if neighbouring == "add-remove" else 2.0) * workload.frobenius_squared()


def identity_strategy(workload: Workload) -> Strategy:
    """Return the measurement of every cell."""
    return Strategy([np.eye(size) for size in workload.dimensions])


def sensitivity_squared(grams: Sequence[FloatArray], neighbouring: Neighbouring) -> float:
    """Return the square of how far neighbours are apart, from Gram matrices of the factors.

    The largest entry of the diagonal, or ``G_jj + G_kk - 2 G_jk`` over all pairs.
    """
    if neighbouring == "replace":
        return product_diameter_squared(grams)
    return math.prod(float(np.max(np.diagonal(gram))) for gram in grams)


def direct_sensitivity_squared(workload: Workload, neighbouring: Neighbouring) -> float:
    """Return the same for the queries themselves.

    It is the variance of every answer if each query is measured by itself. For replacing a record
    and a union of more than 8,192 cells it is a bound: the sum of its parts' own, or four times the
    largest norm.
    """
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


def direct_strategy(workload: Workload) -> AnyStrategy | None:
    """Return measurements with the Gram matrix of the queries, as good as these themselves.

    A product is measured by its factors; a union as a whole, where its queries can be written out
    and have at most 8,192 cells, and otherwise as a stack of its products. There is none with more
    than 2**28 measurements.
    """
    terms = workload.terms()
    if len(terms) == 1:
        return Strategy([_measurements(factor).matrix for factor in terms[0]])
    if _measured_whole(workload):
        return Strategy([_compressed(workload.written_out()).matrix])
    return _direct_stack(terms) if direct_measurements(workload) <= MOST_ANSWERS else None


def _measured_whole(workload: Workload) -> bool:
    return workload.writable and workload.cells <= LARGEST_EXPLICIT


def _direct_stack(terms: Sequence[Sequence[Factor]]) -> StackedStrategy:
    """Return the products' own measurements, in the proportions that the queries have.

    What is 2**-28 of the largest, or less, is measured at that: it is hardly felt there.
    """
    factors = dict.fromkeys(factor for term in terms for factor in term)
    known = {factor: _measurements(factor) for factor in factors}
    logs = [math.fsum(math.log2(known[factor].size) for factor in term) for term in terms]
    parts = []
    for term, log in zip(terms, logs, strict=True):
        product = Strategy([known[factor].matrix for factor in term])
        parts.append(scaled(product, 2.0 ** max(log - max(logs), _SMALLEST_LOG_SCALE)))
    return StackedStrategy(parts)


class _Measured(NamedTuple):
    matrix: FloatArray  # with a largest entry of 1
    size: float  # what was divided by


def _measurements(factor: Factor) -> _Measured:
    if factor.writable:
        return _compressed(factor.matrix_of_queries())
    # Only ranges are too many to be written out, and their Gram matrix is positive definite; the
    # same holds for a matrix with so many rows, or else it is refused where its answers are tried.
    gram = factor.gram()
    ridge = np.finfo(np.float64).eps * float(np.trace(gram))
    return _compressed(linalg.cholesky(gram + ridge * np.eye(len(gram))))


def _compressed(queries: FloatArray) -> _Measured:
    """Return at most as many rows as columns with the same Gram matrix, up to a factor."""
    if queries.shape[0] > queries.shape[1]:
        queries = linalg.qr(queries, mode="r", check_finite=False)[0][: queries.shape[1]]
    size = float(np.max(np.abs(queries)))
    return _Measured(np.asarray(queries / size), size)
