"""Strategies for unions of products with too many cells for their Gram matrix.

Two are made: the best single product, sought factor by factor, and the stack of the optima of all
products. Let product t have the optimum e_t. A stack with the scales ``c_t^2 = sqrt(e_t)`` has a
sensitivity of at most ``sum_t c_t^2``, squared, and an error of at most ``sum_t e_t / c_t^2`` at
unit noise: together ``(sum_t sqrt(e_t))^2``, which by the inequality of Cauchy and Schwarz is at
most T times the bound ``sum_t e_t``.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.bases import eigenvectors
from matrixdp.workloads.dual import Progress
from matrixdp.workloads.explicit import Explicit, certified_factor, optimal_factor
from matrixdp.workloads.operator import MOST_ANSWERS, FloatArray, Workload
from matrixdp.workloads.stacked import AnyStrategy, StackedStrategy, scaled, squared_diameter
from matrixdp.workloads.strategy import Strategy

__all__ = ["ForUnion", "strategies_for_union"]

_MOST_ROUNDS = 12
_ROUND_GAIN = 1e-3
# How much better than at first sight a product may become when its factors are optimised.
_HOPE = 2.0
_SMALLEST_SCALE = 2.0**-20
# Parts whose columns are nearly equal are measured up to so many times as well as others.
_LARGEST_FAVOUR = 16.0
_SMALLEST_ERROR = 2.0**-500
_RANK_TOLERANCE = 2.0**-48
_ROUNDED = 1.0 - 2.0**-48


class ForUnion(NamedTuple):
    """Strategies, and a proven lower bound of every strategy's error for adding or removing."""

    strategies: tuple[AnyStrategy, ...]
    lower_bound: float


def strategies_for_union(
    workload: Workload, neighbouring: Neighbouring, progress: Progress | None = None
) -> ForUnion:
    """Return a stack of products, and a single one unless that has no hope of being better.

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
    reached = math.inf if stack is None else math.fsum(map(math.sqrt, optima)) ** 2
    grams = {factor: factor.gram() for factor in factors}
    single = _best_product(
        [[grams[factor] for factor in term] for term in terms], reached, progress
    )
    strategies = tuple(found for found in (stack, single) if found is not None)
    return ForUnion(strategies, math.fsum(optima) * _ROUNDED)


def _balanced(
    products: Sequence[Strategy], optima: Sequence[float], neighbouring: Neighbouring
) -> StackedStrategy | None:
    """Return a stack in which every product has the share that it is worth; none if too large.

    With norms s_t, reaches d_t and the errors ``e_t / s_t^2`` at unit noise, the product
    ``(sum c_t^2 d_t^2) (sum e_t / (s_t c_t)^2)`` is least where ``c_t^2 = sqrt(e_t) / (s_t d_t)``.
    """
    if not sum(product.shape[0] for product in products) <= MOST_ANSWERS:
        return None
    squares = []
    for product, optimum in zip(products, optima, strict=True):
        norm = product.sensitivity("add-remove")
        reach = norm
        if neighbouring == "replace":
            reach = max(math.sqrt(squared_diameter([product])), norm / _LARGEST_FAVOUR)
        squares.append(math.sqrt(max(optimum, _SMALLEST_ERROR)) / (norm * reach))
    scales = [max(math.sqrt(square / max(squares)), _SMALLEST_SCALE) for square in squares]
    return StackedStrategy([scaled(*pair) for pair in zip(products, scales, strict=True)])


class _Step(NamedTuple):
    matrix: FloatArray
    shares: list[float]  # the squared error on each term, at sensitivity 1


def _best_product(
    grams: Sequence[Sequence[FloatArray]], reached: float, progress: Progress | None
) -> Strategy | None:
    """Return a product of strategies, each the optimum while the others stand still.

    The first rounds take the root of the Gram matrix for the optimum, which is close to it as a
    rule and costs a fraction; if they end far above what is reached already there is none.
    """

    def optimum(mixed: FloatArray, column: Sequence[FloatArray]) -> _Step:
        part = optimal_factor(Explicit(mixed, 2.0**-50, None), progress)
        return _Step(part.matrix, _shares(part.matrix, column))

    shares = np.array([[float(np.trace(gram)) for gram in row] for row in grams])
    _improved(grams, shares, _root_step)
    if not float(np.sum(np.prod(shares, axis=1))) <= _HOPE * reached:
        return None
    return Strategy(_improved(grams, shares, optimum))


def _improved(
    grams: Sequence[Sequence[FloatArray]],
    shares: FloatArray,
    step: Callable[[FloatArray, Sequence[FloatArray]], _Step],
) -> list[FloatArray]:
    """Return the factors after rounds that each see the others as they are; shares are updated."""
    places = range(shares.shape[1])
    best = math.inf
    for _ in range(_MOST_ROUNDS):
        matrices = []
        for place in places:
            others = np.prod(np.delete(shares, place, axis=1), axis=1)
            column = [row[place] for row in grams]
            weights = others / others.max()
            mixed = sum(weight * gram for weight, gram in zip(weights, column, strict=True))
            found = step(np.asarray(mixed), column)
            matrices.append(found.matrix)
            shares[:, place] = found.shares
        error = float(np.sum(np.prod(shares, axis=1)))
        if not error < best * (1.0 - _ROUND_GAIN):
            break
        best = error
    return matrices


def _shares(matrix: FloatArray, grams: Sequence[FloatArray]) -> list[float]:
    strategy = Strategy([matrix])
    inverse, size = strategy.inverses[0], strategy.sensitivity("add-remove")
    return [size**2 * float(np.einsum("ij,ij->", inverse, gram @ inverse)) for gram in grams]


def _root_step(mixed: FloatArray, grams: Sequence[FloatArray]) -> _Step:
    """Return the strategy with ``A^T A = G^(1/2)``, its columns brought to one norm if they can be.

    With D the diagonal of ``Q = G^(1/2)`` the error on a term is ``tr(G_t D^(1/2) Q^-1 D^(1/2))``,
    or ``max(D) tr(G_t Q^+)`` where G is singular.
    """
    values, vectors = eigenvectors(mixed.copy())
    kept = values > len(values) * _RANK_TOLERANCE * values[-1]
    roots, vectors = np.sqrt(values[kept]), vectors[:, kept]
    norms = np.sqrt(np.square(vectors) @ roots)
    if not kept.all():
        norms = np.full_like(norms, norms.max())
    response = norms[:, None] * (vectors / np.sqrt(roots))
    inverse = response @ response.T
    matrix = (vectors * np.sqrt(roots)).T / norms
    return _Step(matrix, [float(np.einsum("ij,ij->", inverse, gram)) for gram in grams])
