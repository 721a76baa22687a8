r"""Strategies for unions of products: the total of each attribute apart from the rest, weighted.

Let each attribute i have a square basis ``B_i``: a row of ones, rows ``F_i`` with columns of norm at
most 1, and where the queries do not need all directions, rows that are not measured. With a weight
``w_S`` for every set S of attributes that take F where the others take the total,

    A = diag(w) (B_1 x .. x B_k),    |a_j|^2 <= sum_S w_S^2,    ||W A^+||^2 = sum_S v_S / w_S^2,
    v_S = sum over terms of  prod_{i in S} tr(G_i U_i U_i^T)  prod_{i not in S} u_i^T G_i u_i,

where ``B_i^-1 = (u_i, U_i)``. By the Cauchy-Schwarz inequality the best weights are
``w_S^2 = v_S^(1/2)``, and the total squared error is ``(sum_S v_S^(1/2))^2``.

Such weights are those of ResidualPlanner (Xiao, He, Zhang and Kifer, NeurIPS 2023) and of its
successor for ranges (He et al., arXiv 2305.08175), where F consists of contrasts, ``F 1 = 0``. That
is not asked here: every ``Q = A^T A`` on one attribute with the total in its range splits into
``t 1 1^T + R``, ``R u = 0``, so that every product of strategies is among these, with equal weights.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.workloads.dual import Progress
from matrixdp.workloads.explicit import Explicit, optimal_factor
from matrixdp.workloads.operator import Factor, FloatArray, Workload
from matrixdp.workloads.ranges import Total
from matrixdp.workloads.strategy import Strategy

__all__ = ["residual_strategy"]

_MOST_ROUNDS = 6
_ROUND_GAIN = 1e-4
_IN_RANGE = 1e-9
_SMALLEST_WEIGHT = 2.0**-29
# How the share of the total answers to the weight of the total, on logarithmic scales, at first.
_FIRST_SLOPE = 0.5
_LONGEST_STEP = 4.0


class _Split(NamedTuple):
    """A basis, the block that each of its rows belongs to, and what its terms cost on a block.

    Blocks are the total, the rest and what is not measured, as far as there are such rows.
    """

    basis: FloatArray
    blocks: tuple[int, ...]  # rows of each block, in this order
    costs: FloatArray  # a row for each term, a column for each block
    share: float  # t: of the squared norm of a column, what the total takes; 0 if there is none


def residual_strategy(workload: Workload, product: Strategy, progress: Progress | None) -> Strategy:
    """Return weights on the totals and the rest of each attribute, and better bases for these.

    Parameters
    ----------
    workload : Workload
        A union of products, at most 2**26 cells.
    product : Strategy
        A single product that answers it; the error is not above that of this one.
    progress : callable, optional
        Told of every step of every problem that is solved.
    """
    workload.check_histogram()
    factors = list(zip(*workload.terms(), strict=True))
    splits = [
        _split(matrix, column) for matrix, column in zip(product.factors, factors, strict=True)
    ]
    searches = [_Search(column) for column in factors]
    for _ in range(_MOST_ROUNDS):
        before = _error(splits)
        for place, search in enumerate(searches):
            tried = list(splits)
            found = search.improved(splits[place], _prices(splits, place), progress)
            if found is not None:
                tried[place] = found
                splits = tried if _error(tried) < _error(splits) else splits
        if not _error(splits) < before * (1.0 - _ROUND_GAIN):
            break
    return Strategy([split.basis for split in splits], _weights(splits))


class _Search:
    """The search for a better basis of one attribute.

    Let the costs of a term be ``(m, c)`` and a, b their prices, the derivatives of the error. If
    all terms but totals have one Gram matrix G, the least ``a m + b c`` is that of the ordinary
    optimum Q for ``G + k 1 1^T`` with that k for which the share t of the total in Q has
    ``t / (1 - t) = b / a``: there ``m / t + c / (1 - t) = tr(G Q^+)``, and k is the multiplier of
    ``1^T Q^+ 1 = 1 / t``. With several Gram matrices it is a guess that is tried.
    """

    def __init__(self, factors: Sequence[Factor]) -> None:
        self._asked = np.array([not isinstance(factor, Total) for factor in factors])
        self._grams = [factor.gram() for factor in factors if not isinstance(factor, Total)]
        self._factors = factors
        self._tried: list[tuple[float, float]] = []  # log k and log(t / (1 - t))

    def improved(
        self, split: _Split, prices: FloatArray, progress: Progress | None
    ) -> _Split | None:
        """Return a basis that may be better, or None where there is nothing to choose."""
        if not (self._asked.any() and 0.0 < split.share < 1.0):
            return None
        costs, prices = split.costs[self._asked], prices[self._asked]
        if not (np.all(prices[:, 1] > 0.0) and float(costs[:, 0] @ prices[:, 0]) > 0.0):
            return None
        aim = math.log(float(costs[:, 0] @ prices[:, 1]) / float(costs[:, 0] @ prices[:, 0]))
        relative = prices[:, 1] / float(np.max(prices[:, 1]))
        gram = np.asarray(sum(p * g for p, g in zip(relative, self._grams, strict=True)))
        unit = float(np.mean(gram))
        if not unit > 0.0:
            return None
        weight = self._next_weight(math.log(split.share / (1.0 - split.share)), aim)
        ones = math.exp(weight) * unit * np.ones_like(gram)
        matrix = optimal_factor(Explicit(gram + ones, 2.0**-50, None), progress).matrix
        found = _split(matrix, self._factors)
        if 0.0 < found.share < 1.0:
            self._tried.append((weight, math.log(found.share / (1.0 - found.share))))
        return found

    def _next_weight(self, current: float, aim: float) -> float:
        """Return log k by the secant method."""
        if not self._tried:
            return 0.0
        weight, reached = self._tried[-1]
        slope = _FIRST_SLOPE
        if len(self._tried) > 1 and weight != self._tried[-2][0]:
            slope = (reached - self._tried[-2][1]) / (weight - self._tried[-2][0])
        step = (aim - reached) / slope if slope > 0.0 else 0.0
        return weight + min(max(step, -_LONGEST_STEP), _LONGEST_STEP)


def _split(matrix: FloatArray, factors: Sequence[Factor]) -> _Split:
    """Return the basis made of a strategy on one attribute, with the total apart.

    If ``A^T y = 1``, the rotation that takes y to the first axis makes ``1^T / |y|`` of the first
    row of A, and nothing of the total is left in the others' inverse. Otherwise the total is in no
    query, and nothing is taken apart.
    """
    rank, size = matrix.shape
    inverse = linalg.pinv(matrix)
    first = inverse.T @ np.ones(size)
    length = float(np.linalg.norm(first))
    rest, share = matrix, 0.0
    rows: list[FloatArray] = []
    if float(np.max(np.abs(matrix.T @ first - 1.0))) <= _IN_RANGE:
        rows.append(np.ones((1, size)))
        rest = linalg.qr(first[:, None])[0].T[1:] @ matrix
        share = 1.0 / (length**2 * float(np.max(np.sum(np.square(matrix), axis=0))))
    if len(rest):
        rows.append(rest / math.sqrt(float(np.max(np.sum(np.square(rest), axis=0)))))
    measured = len(rows)
    if rank < size:
        rows.append(linalg.null_space(matrix, rcond=_IN_RANGE).T)
    basis = np.concatenate(rows)
    blocks = tuple(len(row) for row in rows)
    return _Split(basis, blocks, _costs(basis, blocks, measured, factors), share)


def _costs(
    basis: FloatArray, blocks: Sequence[int], measured: int, factors: Sequence[Factor]
) -> FloatArray:
    """Return ``tr(G U U^T)`` for every term and block; nothing for what is not measured."""
    inverse = np.linalg.inv(basis)
    parts = np.split(inverse, np.cumsum(blocks)[:-1], axis=1)
    costs = np.zeros((len(factors), len(blocks)))
    for row, factor in zip(costs, factors, strict=True):
        if isinstance(factor, Total) and blocks[0] == 1:
            row[0] = 1.0
            continue
        gram = factor.gram()
        for place, part in enumerate(parts[:measured]):
            row[place] = max(float(np.einsum("ij,ij->", part, gram @ part)), 0.0)
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


def _prices(splits: Sequence[_Split], place: int) -> FloatArray:
    """Return the derivatives of the error, up to a factor, by the costs of one attribute."""
    roots = np.sqrt(_needs(splits))
    inverse = np.where(roots > 0.0, 1.0 / np.where(roots > 0.0, roots, 1.0), 0.0)
    others = [split.costs for at, split in enumerate(splits) if at != place]
    prices = []
    for term in range(len(splits[0].costs)):
        array = np.moveaxis(inverse, place, -1)
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
