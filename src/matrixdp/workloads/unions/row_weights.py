r"""A weight of its own for every measurement of a strategy on several attributes.

With square bases B and ``A = diag(w) (B_1 x .. x B_k)`` the total squared error and the columns are

    ||W A^+||^2 = sum_r v_r / w_r^2,        v_r = sum over terms of prod_i (U_i^T G_i U_i)_rr,
    |a_j|^2 = sum_r w_r^2 b_rj^2,           b_rj the entries of B_1 x .. x B_k, U_i = B_i^-1.

The best weights are a convex problem. For any d on the cells with sum 1 the error is at least
``(sum_r (v_r p_r)^(1/2))^2``, ``p_r = sum_j b_rj^2 d_j``, which is attained by
``w_r^2 = (v_r / p_r)^(1/2)`` if ``|a_j|`` is the same wherever d is positive; d is multiplied by a
power of ``|a_j|`` until it nearly is. It helps where the terms need the rows in different
proportions, and the bases are rotated to make these as different as possible.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matrixdp.workloads.operator import Factor, FloatArray, Workload, along_axes
from matrixdp.workloads.solve.bases import differing_directions
from matrixdp.workloads.strategies.product import ProductStrategy

__all__ = ["row_weighted_strategy"]

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
