"""Candidates for unions of products with too many cells for their Gram matrix.

They are the best single product, found factor by factor; that product with better weights (see
`residual` and `row_weights`); and the stack of the optima of all products. Let product t have the
optimum e_t. A stack with the scales ``c_t^2 = sqrt(e_t)`` has a sensitivity of at most
``sum_t c_t^2``, squared, and an error of at most ``sum_t e_t / c_t^2`` at unit noise: together
``(sum_t sqrt(e_t))^2``, which by the Cauchy-Schwarz inequality is at most T times the bound
``sum_t e_t``.
"""

import math
from collections.abc import Sequence

import numpy as np

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, MOST_ANSWERS, FloatArray, Workload
from matrixdp.workloads.solve.addition import certified_factor, optimal_factor
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.solve.searches import ExplicitQueries, Found, FoundStrategies
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.stacked import StackedStrategy, squared_diameter
from matrixdp.workloads.unions.bound import cell_weights, union_bound
from matrixdp.workloads.unions.residual import residual_strategy
from matrixdp.workloads.unions.row_weights import row_weighted_strategy

__all__ = ["strategies_for_union", "weighted_strategies"]

_MOST_ROUNDS = 12
_ROUND_GAIN = 1e-2
# Factors may be scaled down to 2**-30; a part's own may already be small.
_SMALLEST_SCALE = 2.0**-20
# Parts whose columns are nearly equal cost little when a record is replaced. They get at most this
# many times the scale of others, so that their rounding does not dominate the sensitivity.
_LARGEST_FAVOUR = 16.0
_SMALLEST_ERROR = 2.0**-500
# A product and a sum of a few bounds round by far less.
_ROUNDED = 1.0 - 2.0**-48


def strategies_for_union(
    workload: Workload, neighbouring: Neighbouring, progress: Progress | None = None
) -> FoundStrategies:
    """Return a single product, the same with better weights, and the stack of all optima.

    The stack is left out if it is too large. The bound is for adding or removing a record.

    Parameters
    ----------
    workload : Workload
        A union.
    neighbouring : {"add-remove", "replace"}
        The relation that the scales of the stack are for.
    progress : callable, optional
        Called after every step in each problem that is solved.
    """
    terms = workload.terms()
    # Equal factors are solved once: a union of all pairs of attributes has few different ones.
    factors = dict.fromkeys(factor for term in terms for factor in term)
    alone = {factor: certified_factor(factor, progress) for factor in factors}
    optima = [math.prod(alone[factor].lower_bound for factor in term) for term in terms]
    products = [ProductStrategy([alone[factor].best for factor in term]) for term in terms]
    stack = _balanced(products, optima, neighbouring)
    known = {factor: factor.gram() for factor in factors}
    single = _best_product([[known[factor] for factor in term] for term in terms], progress)
    weighted = weighted_strategies(workload, single, progress)
    stacks = () if stack is None else (stack,)
    return Found(
        (single, *weighted.best, *stacks),
        max(math.fsum(optima) * _ROUNDED, weighted.lower_bound),
    )


def weighted_strategies(
    workload: Workload, product: ProductStrategy, progress: Progress | None = None
) -> FoundStrategies:
    """Return strategies with weights that are made of a single product, and the union's bound.

    There are none for more than 2**26 cells, each of which would need a weight.
    """
    bound = union_bound(workload, cell_weights(workload, product))
    if workload.cells > LARGEST_HISTOGRAM:
        return Found((), bound)
    residual, cells = residual_strategy(workload, product, progress)
    rows = row_weighted_strategy(workload, residual, cells)
    strategies = (residual,) if rows is None else (residual, rows)
    # Either weights of the cells give a bound, and neither is always the better.
    return Found(strategies, max(bound, union_bound(workload, cells)))


def _balanced(
    products: Sequence[ProductStrategy], optima: Sequence[float], neighbouring: Neighbouring
) -> StackedStrategy | None:
    """Return a stack in which every product has its best share; None if it is too large.

    With norms s_t, sensitivities d_t and the errors ``e_t / s_t^2`` at unit noise, the product
    ``(sum c_t^2 d_t^2) (sum e_t / (s_t c_t)^2)`` is least where ``c_t^2 = sqrt(e_t) / (s_t d_t)``.
    """
    if not sum(product.shape[0] for product in products) <= MOST_ANSWERS:
        return None
    squares = []
    for product, optimum in zip(products, optima, strict=True):
        norm = product.largest_norm
        sensitivity = norm
        if neighbouring == "replace":
            # Not `diameter`, which raises for the total: that costs nothing here.
            sensitivity = max(math.sqrt(squared_diameter([product])), norm / _LARGEST_FAVOUR)
        squares.append(math.sqrt(max(optimum, _SMALLEST_ERROR)) / (norm * sensitivity))
    scales = [max(math.sqrt(square / max(squares)), _SMALLEST_SCALE) for square in squares]
    pairs = zip(products, scales, strict=True)
    return StackedStrategy([product.scaled(scale) for product, scale in pairs])


def _best_product(
    grams: Sequence[Sequence[FloatArray]], progress: Progress | None
) -> ProductStrategy:
    """Return a product of strategies, each the optimum while the others are fixed.

    The error of a product on a union is the sum over its terms of products of one share per
    attribute. Seen from one attribute, that is the error on a union of its factors, each weighted
    by the other attributes' shares.
    """
    # Before anything is solved every cell is measured, with the trace as error.
    shares = np.array([[float(np.trace(gram)) for gram in row] for row in grams])
    matrices: dict[int, FloatArray] = {}
    best = math.inf
    for _ in range(_MOST_ROUNDS):
        for index in range(shares.shape[1]):
            weights = np.prod(np.delete(shares, index, axis=1), axis=1)
            column = [row[index] for row in grams]
            mixed = sum(w * gram for w, gram in zip(weights / weights.max(), column, strict=True))
            explicit = ExplicitQueries.of_mixture(np.asarray(mixed))
            matrices[index] = optimal_factor(explicit, progress).best
            shares[:, index] = _shares(matrices[index], column)
        error = float(np.sum(np.prod(shares, axis=1)))
        # Weights come next, which gain more than further rounds of less than a per cent.
        if not error < best * (1.0 - _ROUND_GAIN):
            break
        best = error
    return ProductStrategy([matrices[index] for index in sorted(matrices)])


def _shares(matrix: FloatArray, grams: Sequence[FloatArray]) -> list[float]:
    """Return the squared error of one factor on each term, at sensitivity 1."""
    strategy = ProductStrategy([matrix])
    inverse, size = strategy.inverses[0], strategy.largest_norm
    return [size**2 * float(np.einsum("ij,ij->", inverse, gram @ inverse)) for gram in grams]
