r"""The optimum for contingency tables, of any size and in closed form except for a few numbers.

Let the workload be a union of products of Identity and Total. Both strategy problems are convex and
do not change if the cells of an attribute are permuted, so that some optimal ``Q = A^T A`` does not
change either. Such a Q is a sum of one part for each set S of attributes: the contrasts in S of the
table of S, with some squared weight q_S. The error is ``sum of u_S / q_S`` (see `attribute_sets`).
It remains to find q.

*Adding or removing a record.* All columns of A have the squared norm ``sum of p_S q_S = 1``,
``p_S = prod_(i in S) (1 - 1 / n_i)``; hence ``q_S = (u_S / p_S)^(1/2)`` up to a factor, the error
is ``(sum of (u_S p_S)^(1/2))^2`` (Cauchy and Schwarz), and the SVD bound is attained. That is the
closed form of ResidualPlanner (Xiao, He, Zhang and Kifer, NeurIPS 2023).

*Replacing a record.* Records that differ in the attributes T are at the squared distance
``sum of 2 p_S q_S E_TS`` (see `set_distances`). For all ``y >= 0`` on the sets T,

    sum of u_S / q_S >= (sum over S of (2 u_S p_S (E^T y)_S)^(1/2))^2 / sum(y),

the dual that `interior_point` solves. S empty is in no distance: it is the number of records, which
is public.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, FloatArray, Workload
from matrixdp.workloads.solve.interior_point import BestIterates, maximise
from matrixdp.workloads.solve.searches import Found, FoundStrategies
from matrixdp.workloads.strategies.attribute_sets import (
    MOST_LISTED,
    MOST_NUMBERED,
    SetCosts,
    listed_sets,
    members,
    set_costs,
)
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.residual import ResidualStrategy
from matrixdp.workloads.strategies.set_distances import SetDistances, largest_ratio, shares
from matrixdp.workloads.strategies.strategy import Strategy

__all__ = ["has_few_sets", "optimal_tables"]

# For replacing a record every set of attributes has a weight in the search: 65,536 of them.
_MOST_ATTRIBUTES = 16
# Where a histogram fits in memory and sets are more than this, one product measures all of them
# quicker than each does by itself.
_MANY_SETS = 2**12
_TARGET_GAP = 1e-10
# Where most sets T of a search have next to no weight, the last digits take long: below this gap
# they are found with the others alone.
_ROUGH_GAP = 1e-6
_NEXT_TO_NOTHING = 1e-8
_SMALLEST_WEIGHT = 1e-25
# The noise of the total may add this share to the error.
_SHARE_OF_THE_TOTAL = 2.0**-22
# Sums of positive numbers with a few roundings each are off by far less.
_ROUNDED = 1.0 - 2.0**-40


def has_few_sets(workload: Workload) -> bool:
    """Return whether a workload consists of tables, with at most 2**22 sets of attributes."""
    few = workload.asks_tables and len(workload.dimensions) <= MOST_NUMBERED
    return few and listed_sets(workload) <= MOST_LISTED


def optimal_tables(workload: Workload, neighbouring: Neighbouring) -> FoundStrategies:
    """Return the optimal strategy for contingency tables, and a lower bound of every error.

    With more than 16 attributes in the tables, those for replacing a record are not optimal: each
    set is taken to meet its own worst case.

    Parameters
    ----------
    workload : Workload
        A union of products of Identity and Total.
    neighbouring : {"add-remove", "replace"}
        With "replace" some query must depend on more than the number of records.
    """
    asked = set_costs(workload)
    of_norm = shares(asked.sets, workload.dimensions)
    if neighbouring == "add-remove":
        roots = np.sqrt(asked.costs * of_norm)
        error = math.fsum(roots.tolist())
        precisions = np.sqrt(asked.costs / of_norm) / error
        return Found((_strategy(workload, asked, precisions),), error**2 * _ROUNDED)
    kept = int(np.bitwise_or.reduce(asked.sets)).bit_count()
    solve = _for_replacement if kept <= _MOST_ATTRIBUTES else _in_the_worst_case
    precisions, bound = solve(workload.dimensions, asked, of_norm)
    return Found((_strategy(workload, asked, precisions),), bound)


def _strategy(workload: Workload, asked: SetCosts, precisions: FloatArray) -> Strategy:
    """Return the strategy with these squared weights of the sets."""
    sizes = workload.dimensions
    if len(asked.sets) > _MANY_SETS and workload.cells <= LARGEST_HISTOGRAM:
        return _as_product(sizes, asked, precisions)
    sets = [members(number) for number in asked.sets.tolist()]
    return ResidualStrategy(sizes, sets, np.sqrt(precisions))


def _as_product(sizes: tuple[int, ...], asked: SetCosts, precisions: FloatArray) -> ProductStrategy:
    """Return the same measurements as one product: contrasts and totals of each attribute."""
    # Row 0 of each basis is the total, all others are contrasts, which share one weight.
    bases = [np.concatenate([np.ones((1, size)), scipy.linalg.helmert(size)]) for size in sizes]
    kinds = [np.minimum(np.arange(size), 1) for size in sizes]
    weights = np.zeros([min(size, 2) for size in sizes])
    belongs = [asked.sets >> index & 1 for index in range(len(sizes))]
    weights[tuple(belongs)] = np.sqrt(precisions)
    return ProductStrategy(bases, weights[np.ix_(*kinds)])


class _TablePoint(NamedTuple):
    """A point of the dual for replacing a record, scaled so that the mean of r is 1."""

    distances: SetDistances  # E
    norms: FloatArray  # 2 p
    costs: FloatArray  # u
    weights: FloatArray  # y

    @property
    def pulled(self) -> FloatArray:
        """``2 p E^T y``, not below a rounding of it."""
        least = self.distances.rounding * float(np.sum(self.weights))
        return self.norms * np.maximum(self.distances.apply_transpose(self.weights), least)

    @property
    def precisions(self) -> FloatArray:
        """The best q for these y."""
        return np.sqrt(self.costs / self.pulled)

    @property
    def constraint_values(self) -> FloatArray:
        """The squared distances."""
        return self.distances.apply(self.norms * self.precisions)

    @property
    def bound(self) -> float:
        """The lower bound, off by a few roundings; what the sums over T may be off is taken out."""
        total = math.fsum(self.weights.tolist())
        found = self.distances.apply_transpose(self.weights)
        certain = np.maximum(found - 2.0 * self.distances.rounding * total, 0.0)
        return math.fsum(np.sqrt(self.costs * self.norms * certain).tolist()) ** 2 / total

    @property
    def value(self) -> float:
        """The error of the strategy, scaled to a largest distance of 1."""
        error = float(np.sum(self.costs / self.precisions))
        return error * float(np.max(self.constraint_values))

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        """Return the map ``x -> y E diag(p q / E^T y) E^T y x``."""
        slopes = self.norms**2 * self.precisions / (2.0 * self.pulled)

        def image(direction: FloatArray) -> FloatArray:
            inner = slopes * self.distances.apply_transpose(self.weights * direction)
            return np.asarray(self.weights * self.distances.apply(inner))

        return image


def _table_point(
    distances: SetDistances, norms: FloatArray, costs: FloatArray, weights: FloatArray
) -> _TablePoint:
    """Return the point with y rescaled: ``sum(y r) = sum (2 u p E^T y)^(1/2) = sum(y)``."""
    pulled = _TablePoint(distances, norms, costs, weights).pulled
    mean = float(np.sum(np.sqrt(costs * pulled))) / float(np.sum(weights))
    return _TablePoint(distances, norms, costs, weights * mean**2)


def _for_replacement(
    sizes: tuple[int, ...], asked: SetCosts, of_norm: FloatArray
) -> tuple[FloatArray, float]:
    """Return q with a largest distance of 1, and the bound."""
    # The number of records is public; sets are in order, and the empty one is the first.
    contrasts = slice(1, None)
    distances = SetDistances(asked.sets[contrasts], sizes)
    costs, norms = asked.costs[contrasts], 2.0 * of_norm[contrasts]
    start = np.ones(distances.count)
    start[0] = 0.0  # records that do not differ
    found = _solved(lambda weights: _table_point(distances, norms, costs, weights), start)
    best = found.primal.precisions / float(np.max(found.primal.constraint_values))
    total = _of_the_total(float(asked.costs[0]), found.primal.value)
    return np.array([total, *best]), found.dual.bound * _ROUNDED


def _solved(
    evaluate: Callable[[FloatArray], _TablePoint], start: FloatArray
) -> BestIterates[_TablePoint]:
    """Return the solution for all sets T, its last digits from those that have weight."""
    rough = maximise(evaluate, start, target_gap=_ROUGH_GAP, smallest_weight=_SMALLEST_WEIGHT)
    weights = rough.dual.weights
    some = np.where(weights > _NEXT_TO_NOTHING * float(np.max(weights)), weights, 0.0)
    fine = maximise(evaluate, some, target_gap=_TARGET_GAP, smallest_weight=_SMALLEST_WEIGHT)
    # Errors and bounds are those of all sets T either way; if one was left out wrongly, only the
    # rough solution is good.
    return rough.including(fine.primal).including(fine.dual)


def _in_the_worst_case(
    sizes: tuple[int, ...], asked: SetCosts, of_norm: FloatArray
) -> tuple[FloatArray, float]:
    """Return q for distances of at most ``sum of 2 p_S q_S (1 + max over S of -r_i) = 1``.

    The bound is the better of two: for y on the set of all attributes alone, and for two records
    drawn at random, for which ``E^T y = sum(y)``.
    """
    sets, costs = asked.sets[1:], asked.costs[1:]
    norms = 2.0 * of_norm[1:]
    worst = norms * (1.0 + largest_ratio(sets, sizes))
    root = math.fsum(np.sqrt(costs * worst).tolist())
    total = _of_the_total(float(asked.costs[0]), root**2)
    products = np.ones(len(sets))
    for index, size in enumerate(sizes):
        if size > 1:
            products = np.where(sets >> index & 1, products / (1.0 - size), products)
    everywhere = math.fsum(np.sqrt(costs * norms * np.maximum(1.0 - products, 0.0)).tolist())
    at_random = math.fsum(np.sqrt(costs * norms).tolist())
    bound = max(everywhere, at_random) ** 2 * _ROUNDED
    return np.array([total, *(np.sqrt(costs / worst) / root)]), bound


def _of_the_total(cost: float, error: float) -> float:
    """Return a q of the number of records with which its noise adds next to nothing to an error.

    It costs no privacy. Its root is a power of two, which multiplies counts without rounding.
    """
    return 4.0 ** math.ceil(math.log2(math.sqrt(cost / (_SHARE_OF_THE_TOTAL * error))))
