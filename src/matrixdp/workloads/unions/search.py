"""Candidates for unions of products with too many cells for their Gram matrix.

They are the best single product, found factor by factor; that product with better weights (see
`residual` and below); and the stack of the optima of all products. Let product t have the
optimum e_t. A stack with the scales ``c_t^2 = sqrt(e_t)`` has a sensitivity of at most
``sum_t c_t^2``, squared, and an error of at most ``sum_t e_t / c_t^2`` at unit noise: together
``(sum_t sqrt(e_t))^2``, which by the Cauchy-Schwarz inequality is at most T times the bound
``sum_t e_t``.

*A weight for every measurement.* With square bases B and ``A = diag(w) (B_1 x .. x B_k)`` the total
squared error and the columns are

    ||W A^+||^2 = sum_r v_r / w_r^2,        v_r = sum over terms of prod_i (U_i^T G_i U_i)_rr,
    |a_j|^2 = sum_r w_r^2 b_rj^2,           b_rj the entries of B_1 x .. x B_k, U_i = B_i^-1.

The best weights are a convex problem. For any d on the cells with sum 1 the error is at least
``(sum_r (v_r p_r)^(1/2))^2``, ``p_r = sum_j b_rj^2 d_j``, which is attained by
``w_r^2 = (v_r / p_r)^(1/2)`` if ``|a_j|`` is the same wherever d is positive; d is multiplied by a
power of ``|a_j|`` until it nearly is. It helps where the terms need the rows in different
proportions, and the bases are rotated to make these as different as possible.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import (
    LARGEST_HISTOGRAM,
    MOST_ANSWERS,
    Factor,
    FloatArray,
    Workload,
    along_axes,
)
from matrixdp.workloads.solve.bases import differing_directions
from matrixdp.workloads.solve.explicit import certified_factor, optimal_factor
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.solve.searches import ExplicitQueries, Found, FoundStrategies
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.stacked import StackedStrategy, squared_diameter
from matrixdp.workloads.unions.bound import cell_weights, union_bound
from matrixdp.workloads.unions.residual import residual_strategy

__all__ = ["row_weighted_strategy", "strategies_for_union", "weighted_strategies"]

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
# Multiplications in one step; with more of them a search would take minutes.
_MOST_WORK = 2**30
_MOST_STEPS = 60
_GOOD_GAP = 1e-3
# A power of one would be the fixed point of Denisov et al.; up to four it converges, and faster.
_POWER = 3.0
# Every cell starts with some weight, because multiplying never raises one from 0.
_LEAST_SHARE = 1e-3
# Weights of a strategy are 0 or at least 2**-30; what is smaller is not worth measuring.
_SMALLEST_WEIGHT = 2.0**-29


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


def row_weighted_strategy(
    workload: Workload, strategy: ProductStrategy, start: Sequence[FloatArray]
) -> ProductStrategy | None:
    """Return weights for every row, or None where they gain nothing or are too much work.

    Parameters
    ----------
    workload : Workload
        A union of products.
    strategy : ProductStrategy
        With square bases and weights; a first row of ones is that of the total, and rows without
        weight are not measured.
    start : sequence of ndarray
        d for each attribute to start from.
    """
    columns = list(zip(*workload.terms(), strict=True))
    work = workload.cells * sum(workload.dimensions)
    if strategy.weights is None or not work <= _MOST_WORK:
        return None
    # With one kind of queries per attribute the weights of blocks are the best already.
    if not any(len(_kinds(column)) > 1 for column in columns):
        return None
    bases, costs = [], []
    for index, column in enumerate(columns):
        others = tuple(axis for axis in range(len(columns)) if axis != index)
        measured = np.any(strategy.weights, axis=others)
        basis, cost = _turned(strategy.factors[index], measured, column)
        bases.append(basis)
        costs.append(cost)
    needs = np.zeros(strategy.layout)
    for term in range(len(columns[0])):
        product = np.ones(())
        for cost in costs:
            product = np.multiply.outer(product, cost[term])
        needs += product
    squares = [np.square(basis) for basis in bases]
    weights = np.sqrt(_best_squares(needs, squares, np.square(strategy.weights), start))
    weights /= float(np.max(weights))
    return ProductStrategy(bases, np.where(weights > _SMALLEST_WEIGHT, weights, 0.0))


def _kinds(factors: Sequence[Factor]) -> list[Factor]:
    """Return the different factors, without totals."""
    return [factor for factor in dict.fromkeys(factors) if not factor.is_total]


def _turned(
    basis: FloatArray, measured: NDArray[np.bool_], factors: Sequence[Factor]
) -> tuple[FloatArray, FloatArray]:
    """Return the basis with all rows but the total's rotated, and each term's cost on each row."""
    total_first = bool(np.all(basis[0] == 1.0))
    rest = np.flatnonzero(measured)[int(total_first) :]
    inverse = np.array(ProductStrategy([basis]).inverses[0])
    kinds = _kinds(factors)
    if len(kinds) > 1 and len(rest) > 1:
        columns = inverse[:, rest]
        # A rotation of the rows rotates the columns of the inverse; no need to invert again.
        turn = differing_directions([columns.T @ factor.gram() @ columns for factor in kinds])
        basis = basis.copy()
        basis[rest] = turn.T @ basis[rest]
        inverse[:, rest] = columns @ turn
    costs: dict[Factor, FloatArray] = {}
    for factor in dict.fromkeys(factors):
        if total_first and factor.is_total:
            costs[factor] = np.eye(1, len(basis))[0]
        else:
            squares = np.einsum("ij,ij->j", inverse, factor.gram() @ inverse)
            costs[factor] = np.where(measured, np.maximum(squares, 0.0), 0.0)
    return basis, np.array([costs[factor] for factor in factors])


def _best_squares(
    needs: FloatArray,
    squares: Sequence[FloatArray],
    known: FloatArray,
    start: Sequence[FloatArray],
) -> FloatArray:
    """Return the squares of the best weights, to a gap of about 1e-3, starting from known ones."""
    down = [lambda array, m=part: np.tensordot(m, array, 1) for part in squares]
    up = [lambda array, m=part: np.tensordot(m.T, array, 1) for part in squares]
    cells = np.ones(())
    for part in start:
        cells = np.multiply.outer(cells, part / float(np.sum(part)) + _LEAST_SHARE / len(part))
    best, bound = known, 0.0
    least = float(np.max(along_axes(up, known))) * float(np.sum(_ratio(needs, known)))
    for _ in range(_MOST_STEPS):
        cells /= float(np.sum(cells))
        prices = along_axes(down, cells)
        found = np.sqrt(_ratio(needs, prices))
        norms = along_axes(up, found)
        total = float(np.sum(np.sqrt(needs * prices)))
        bound = max(bound, total**2)
        error = float(np.max(norms)) * total
        # The error need not fall in every step, so the best weights are kept.
        if error < least:
            best, least = found, error
        if least < bound * (1.0 + _GOOD_GAP):
            break
        cells = cells * (norms / float(np.max(norms))) ** _POWER
    return best


def _ratio(numbers: FloatArray, others: FloatArray) -> FloatArray:
    """Return ``x / y``, or 0 where nothing is measured."""
    return np.divide(numbers, others, out=np.zeros_like(numbers), where=others > 0.0)
