"""Strategies for unions of products with too many cells for their Gram matrix.

They are the best single product, sought factor by factor, what `weighted` makes of it, and the
stack of the optima of all products. Let product t have the optimum e_t. A stack with the scales
``c_t^2 = sqrt(e_t)`` has a sensitivity of at most ``sum_t c_t^2``, squared, and an error of at most
``sum_t e_t / c_t^2`` at unit noise: together ``(sum_t sqrt(e_t))^2``, which by the inequality of
Cauchy and Schwarz is at most T times the bound ``sum_t e_t``.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import MOST_ANSWERS, FloatArray, Workload
from matrixdp.workloads.solve.explicit import Explicit, certified_factor, optimal_factor
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.strategies.product import Strategy
from matrixdp.workloads.strategies.stacked import (
    AnyStrategy,
    StackedStrategy,
    scaled,
    squared_diameter,
)
from matrixdp.workloads.unions.weighted import weighted_strategies

__all__ = ["ForUnion", "strategies_for_union"]

_MOST_ROUNDS = 12
_ROUND_GAIN = 1e-2
_SMALLEST_SCALE = 2.0**-20
# Parts whose columns are nearly equal are measured up to so many times as well as others.
_LARGEST_FAVOUR = 16.0
_SMALLEST_ERROR = 2.0**-500
_ROUNDED = 1.0 - 2.0**-48


class ForUnion(NamedTuple):
    """Strategies, and a proven lower bound of every strategy's error for adding or removing."""

    strategies: tuple[AnyStrategy, ...]
    lower_bound: float


def strategies_for_union(
    workload: Workload, neighbouring: Neighbouring, progress: Progress | None = None
) -> ForUnion:
    """Return a single product, it with better weights, and the stack of all products' optima.

    The stack is left out if it is too large.

    Parameters
    ----------
    workload : Workload
        A union.
    neighbouring : {"add-remove", "replace"}
        The relation that the scales of the stack are for.
    progress : callable, optional
        Told of every step in each problem that is solved.
    """
    terms = workload.terms()
    factors = dict.fromkeys(factor for term in terms for factor in term)
    alone = {factor: certified_factor(factor, progress) for factor in factors}
    optima = [math.prod(alone[factor].lower_bound for factor in term) for term in terms]
    products = [Strategy([alone[factor].matrix for factor in term]) for term in terms]
    stack = _balanced(products, optima, neighbouring)
    known = {factor: factor.gram() for factor in factors}
    single = _best_product([[known[factor] for factor in term] for term in terms], progress)
    weighted = weighted_strategies(workload, single, progress)
    strategies: list[AnyStrategy] = [single, *weighted.strategies]
    if stack is not None:
        strategies.append(stack)
    return ForUnion(tuple(strategies), max(math.fsum(optima) * _ROUNDED, weighted.lower_bound))


def _balanced(
    products: Sequence[Strategy], optima: Sequence[float], neighbouring: Neighbouring
) -> StackedStrategy | None:
    """Return a stack in which every product has the share that it is worth; none if too large.

    With norms s_t, distances d_t and the errors ``e_t / s_t^2`` at unit noise, the product
    ``(sum c_t^2 d_t^2) (sum e_t / (s_t c_t)^2)`` is least where ``c_t^2 = sqrt(e_t) / (s_t d_t)``.
    """
    if not sum(product.shape[0] for product in products) <= MOST_ANSWERS:
        return None
    squares = []
    for product, optimum in zip(products, optima, strict=True):
        norm = product.sensitivity("add-remove")
        distance = norm
        if neighbouring == "replace":
            distance = max(math.sqrt(squared_diameter([product])), norm / _LARGEST_FAVOUR)
        squares.append(math.sqrt(max(optimum, _SMALLEST_ERROR)) / (norm * distance))
    scales = [max(math.sqrt(square / max(squares)), _SMALLEST_SCALE) for square in squares]
    return StackedStrategy([scaled(*pair) for pair in zip(products, scales, strict=True)])


def _best_product(grams: Sequence[Sequence[FloatArray]], progress: Progress | None) -> Strategy:
    """Return a product of strategies, each the optimum while the others stand still.

    The error of a product on a union is the sum over its terms of products of one share per
    attribute; seen from one attribute, that is the error on a union of its factors, weighted by
    what the others make of each term.
    """
    shares = np.array([[float(np.trace(gram)) for gram in row] for row in grams])
    matrices: dict[int, FloatArray] = {}
    best = math.inf
    for _ in range(_MOST_ROUNDS):
        for place in range(shares.shape[1]):
            weights = np.prod(np.delete(shares, place, axis=1), axis=1)
            column = [row[place] for row in grams]
            mixed = sum(w * gram for w, gram in zip(weights / weights.max(), column, strict=True))
            explicit = Explicit(np.asarray(mixed), 2.0**-50, None)
            matrices[place] = optimal_factor(explicit, progress).matrix
            shares[:, place] = _shares(matrices[place], column)
        error = float(np.sum(np.prod(shares, axis=1)))
        if not error < best * (1.0 - _ROUND_GAIN):
            break
        best = error
    return Strategy([matrices[place] for place in sorted(matrices)])


def _shares(matrix: FloatArray, grams: Sequence[FloatArray]) -> list[float]:
    """Return the squared error of one factor on each term, at sensitivity 1."""
    strategy = Strategy([matrix])
    inverse, size = strategy.inverses[0], strategy.sensitivity("add-remove")
    return [size**2 * float(np.einsum("ij,ij->", inverse, gram @ inverse)) for gram in grams]
