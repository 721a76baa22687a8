r"""Strategies for unions of products: the total of each attribute weighted apart from the rest.

Let each attribute i have a square basis ``B_i``: a row of ones, rows ``F_i`` with columns of norm
at most 1, and where the queries do not need all directions, rows that are not measured. Let every
set S of attributes that take F, while the others take the total, have a weight ``w_S``. Then

    A = diag(w) (B_1 x .. x B_k),    |a_j|^2 <= sum_S w_S^2,    ||W A^+||^2 = sum_S v_S / w_S^2,
    v_S = sum over terms of  prod_{i in S} tr(G_i U_i U_i^T)  prod_{i not in S} u_i^T G_i u_i,

where ``B_i^-1 = (u_i, U_i)``. By the Cauchy-Schwarz inequality the best weights are
``w_S^2 = v_S^(1/2)``, and the total squared error is ``(sum_S v_S^(1/2))^2``.

Such weights are those of ResidualPlanner (Xiao, He, Zhang and Kifer, NeurIPS 2023) and of its
extension to ranges, ResidualPlanner+, where F consists of contrasts, ``F 1 = 0``. Here it need not:
every ``Q = A^T A`` on one attribute with the total in its range splits into ``t 1 1^T + R``,
``R u = 0``, so that every product of strategies is among these, with equal weights, and on one
attribute nothing is lost.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.solve.explicit import optimal_factor
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.solve.searches import ExplicitQueries
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.unions.bound import cell_weights, weights_of_optimum

__all__ = ["residual_strategy"]

_MOST_ROUNDS = 6
_ROUND_GAIN = 1e-4
# How well the total must be a combination of the measurements to count as measured.
_IN_RANGE = 1e-9
# Weights of a strategy are 0 or at least 2**-30; what is smaller is not worth measuring.
_SMALLEST_WEIGHT = 2.0**-29
# The slope of the share of the total over its weight, on logarithmic scales, before it is known.
_FIRST_SLOPE = 0.5
_LONGEST_STEP = 4.0
# How close a share must be to its aim, on a logarithmic scale, for a search to end.
_CLOSE = 0.02
# Gram matrices that agree to this share have the same optimum for all that matters here.
_SAME = 1e-6


class _Split(NamedTuple):
    """A basis of one attribute, its blocks of rows, and the cost of each term on a block.

    Blocks are the total, the rest and the rows that are not measured, if there are any.
    """

    basis: FloatArray
    blocks: tuple[int, ...]  # the number of rows of each
    costs: FloatArray  # a row for each term, a column for each block
    share: float  # t: the total's share of the squared norm of a column; 0 if there is no total


def residual_strategy(
    workload: Workload, product: ProductStrategy, progress: Progress | None
) -> tuple[ProductStrategy, list[FloatArray]]:
    """Return weights on the totals and the rest of each attribute, with better bases for these.

    The second value holds, for each attribute, the weights of cells that its basis is optimal for.

    Parameters
    ----------
    workload : Workload
        A union of products, at most 2**26 cells.
    product : ProductStrategy
        A single product that answers it, whose error is not exceeded.
    progress : callable, optional
        Called after every step of every problem that is solved.
    """
    workload.check_histogram()
    columns = list(zip(*workload.terms(), strict=True))
    searches = [_Search(column) for column in columns]
    splits = [_split(*pair) for pair in zip(product.factors, columns, strict=True)]
    cells = cell_weights(workload, product)
    error = _error(splits)
    for round_number in range(_MOST_ROUNDS):
        before = error
        known: list[_Solved] = []
        # Before any attribute changes, so that equal attributes have equal prices, and are solved
        # once.
        prices = [_prices(splits, index) for index in range(len(splits))]
        for index, search in enumerate(searches):
            solved = search.next_optimum(splits[index], prices[index], known, progress)
            if solved is not None:
                found = _split(solved.matrix, columns[index])
                search.note(found.share)
                tried = [*splits[:index], found, *splits[index + 1 :]]
                if _error(tried) < error:
                    splits, error = tried, _error(tried)
                    cells[index] = solved.cells
        # The first step of a search is a guess and may gain nothing, so it does not end the search.
        if round_number > 0 and not error < before * (1.0 - _ROUND_GAIN):
            break
    return ProductStrategy([split.basis for split in splits], _weights(splits)), cells


class _Solved(NamedTuple):
    gram: FloatArray
    matrix: FloatArray
    cells: FloatArray


def _optimum(gram: FloatArray, known: list[_Solved], progress: Progress | None) -> _Solved:
    """Return the optimal strategy, solved once for attributes with the same Gram matrix."""
    for solved in known:
        if gram.shape == solved.gram.shape and np.allclose(gram, solved.gram, _SAME, 0.0):
            return solved
    matrix = optimal_factor(ExplicitQueries.of_mixture(gram), progress).best
    inverse = ProductStrategy([matrix]).inverses[0]
    known.append(_Solved(gram, matrix, weights_of_optimum(inverse @ inverse.T, gram)))
    return known[-1]


class _Search:
    """The search for a better basis of one attribute.

    Let a term cost m on the total and c on the rest, and let a and b be the prices of these: the
    derivatives of the error. If all terms but totals have one Gram matrix G, the least
    ``a m + b c`` is that of the ordinary optimum Q for ``G + k 1 1^T`` with that k for which the
    share t of the total in Q has ``t / (1 - t) = b / a``: there ``m / t + c / (1 - t)`` is
    ``tr(G Q^+)``, and k is the multiplier of ``1^T Q^+ 1 = 1 / t``. It is found by the secant
    method. With several Gram matrices the result is a guess that is kept only if it is better.
    """

    def __init__(self, factors: Sequence[Factor]) -> None:
        self._factors = factors
        self._totals = np.array([factor.is_total for factor in factors])
        self._weight = -math.inf  # log k
        self._tried: list[tuple[float, float]] = []  # log k and log(t / (1 - t))

    def next_optimum(
        self,
        split: _Split,
        prices: FloatArray,
        known: list[_Solved],
        progress: Progress | None,
    ) -> _Solved | None:
        """Return an optimum that may be better, or None where there is nothing to gain."""
        # Without both a total and a rest there is nothing to balance.
        if not 0.0 < split.share < 1.0 or np.all(self._totals):
            return None
        on_total, on_rest = prices[:, 0], np.where(self._totals, 0.0, prices[:, 1])
        paid = np.where(self._totals, 0.0, split.costs[:, 0])
        asked = not np.any(self._totals) or float(np.sum(on_total[self._totals])) > 0.0
        if not (asked and np.all(on_rest[~self._totals] > 0.0) and float(paid @ on_total) > 0.0):
            return None
        gram = np.asarray(
            sum(p * f.gram() for p, f in zip(on_rest / on_rest.max(), self._factors, strict=True))
        )
        self._weight = -math.inf
        if np.any(self._totals):
            aim = math.log(float(paid @ on_rest / (paid @ on_total)))
            if self._tried and abs(aim - self._tried[-1][1]) < _CLOSE:
                return None
            natural = math.log(float(np.sum(on_total[self._totals])) / float(on_rest.max()))
            self._weight = self._next_weight(aim) if self._tried else natural
        return _optimum(gram + math.exp(self._weight), known, progress)

    def note(self, share: float) -> None:
        """Note the share of the total in the optimum that was found last."""
        if self._weight > -math.inf and 0.0 < share < 1.0:
            self._tried.append((self._weight, math.log(share / (1.0 - share))))

    def _next_weight(self, aim: float) -> float:
        """Return log k by the secant method."""
        weight, found = self._tried[-1]
        slope = _FIRST_SLOPE
        if len(self._tried) > 1 and weight != self._tried[-2][0]:
            slope = (found - self._tried[-2][1]) / (weight - self._tried[-2][0])
        step = (aim - found) / slope if slope > 0.0 else 0.0
        return weight + min(max(step, -_LONGEST_STEP), _LONGEST_STEP)


def _split(matrix: FloatArray, factors: Sequence[Factor]) -> _Split:
    """Return the basis made of a strategy on one attribute, with the total in a row of its own.

    If ``A^T y = 1``, the rotation that takes y to the first axis makes ``1^T / |y|`` of the first
    row of A, and leaves nothing of the total to the others. Otherwise no query needs the total, and
    the strategy is one block.
    """
    rank, size = matrix.shape
    largest = float(np.max(np.sum(np.square(matrix), axis=0)))
    first = ProductStrategy([matrix]).inverses[0].T @ np.ones(size)
    rows: list[FloatArray] = []
    share = 0.0
    if float(np.max(np.abs(matrix.T @ first - 1.0))) <= _IN_RANGE:
        share = 1.0 / (float(first @ first) * largest)
        rows.append(np.ones((1, size)))
        matrix = scipy.linalg.qr(first[:, None])[0].T[1:] @ matrix
    if len(matrix):
        rows.append(matrix / math.sqrt(float(np.max(np.sum(np.square(matrix), axis=0)))))
    # Directions that no query needs complete the basis, because weights need square factors.
    measured = np.concatenate(rows)
    basis = np.concatenate([measured, scipy.linalg.qr(measured.T)[0].T[rank:]])
    blocks = [len(row) for row in rows]
    costs = _costs(basis, blocks, factors, total_first=share > 0.0)
    if rank < size:
        blocks.append(size - rank)
        costs = np.pad(costs, ((0, 0), (0, 1)))
    return _Split(basis, tuple(blocks), costs, share)


def _costs(
    basis: FloatArray, blocks: Sequence[int], factors: Sequence[Factor], *, total_first: bool
) -> FloatArray:
    """Return ``tr(G U U^T)`` for every term and block; a total costs 1 on the total alone."""
    inverse = ProductStrategy([basis]).inverses[0]
    ends = np.cumsum(blocks)
    costs = np.zeros((len(factors), len(blocks)))
    for row, factor in zip(costs, factors, strict=True):
        if total_first and factor.is_total:
            row[0] = 1.0
            continue
        gram = factor.gram()
        squares = np.einsum("ij,ij->j", inverse, gram @ inverse)[: ends[-1]]
        row[:] = [max(float(np.sum(part)), 0.0) for part in np.split(squares, ends[:-1])]
    return costs


def _needs(splits: Sequence[_Split]) -> FloatArray:
    """Return ``v_S`` for every choice of one block for each attribute."""
    total = np.zeros([len(split.blocks) for split in splits])
    for term in range(len(splits[0].costs)):
        product = np.ones(())
        for split in splits:
            product = np.multiply.outer(product, split.costs[term])
        total += product
    return total


def _error(splits: Sequence[_Split]) -> float:
    return float(np.sum(np.sqrt(_needs(splits)))) ** 2


def _prices(splits: Sequence[_Split], index: int) -> FloatArray:
    """Return the derivatives of the error, up to a factor, by the costs of one attribute."""
    # The derivative of (sum v^(1/2))^2 by v is v^(-1/2), up to a factor; blocks that nothing needs
    # have no price.
    roots = np.sqrt(_needs(splits))
    inverse = np.where(roots > 0.0, 1.0 / np.where(roots > 0.0, roots, 1.0), 0.0)
    others = [split.costs for at, split in enumerate(splits) if at != index]
    prices = []
    for term in range(len(splits[0].costs)):
        array = np.moveaxis(inverse, index, -1)
        for costs in others:
            array = np.tensordot(costs[term], array, 1)
        prices.append(array)
    return np.array(prices)


def _weights(splits: Sequence[_Split]) -> FloatArray:
    """Return ``v_S^(1/4)``, the largest 1, for every product of rows."""
    needs = _needs(splits)
    weights = (needs / float(np.max(needs))) ** 0.25
    weights = np.where(weights > _SMALLEST_WEIGHT, weights, 0.0)
    for axis, split in enumerate(splits):
        weights = np.repeat(weights, split.blocks, axis=axis)
    return np.asarray(weights)
