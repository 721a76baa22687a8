r"""The optimum for contingency tables, of any size and in closed form but for a few numbers.

Let the workload be a union of products of Identity and Total. With P_S the projection on contrasts
in the attributes S and on means in the others, its Gram matrix is ``sum over S of g_S P_S``,
``g_S = sum over tables that keep S of prod of the sizes of what they sum over``. Both strategy
problems are convex and do not change if the cells of an attribute are permuted, so that some
optimal Q does not change either: ``Q = sum of l_S P_S``, with error ``sum of c_S / l_S``,
``c_S = g_S prod_(i in S) (n_i - 1)``. It remains to find l.

*Adding or removing a record.* The diagonal of Q is constant, ``sum of l_S rank(P_S) / n = 1``;
hence ``l = g^(1/2)`` up to a factor, and the SVD bound is attained.

*Replacing a record.* Cells that differ in the attributes T are at the squared distance
``sum of E_TS l_S``, ``E_TS = 2 p_S (1 - prod_(i in S and T) -1 / (n_i - 1))`` with
``p_S = rank(P_S) / n``. For all ``y >= 0`` on the sets T,

    sum of c_S / l_S >= (sum over S of (c_S (E^T y)_S)^(1/2))^2 / sum(y),

the dual that `interior_point` solves. The mean of all cells, S empty, is in no distance: it is the
number of records, which is public.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from matrixdp.privacy.guarantee import Neighbouring
from matrixdp.workloads.operator import FloatArray, Workload
from matrixdp.workloads.solve.interior_point import maximise
from matrixdp.workloads.solve.results import Found, FoundStrategies
from matrixdp.workloads.strategies.product import ProductStrategy

__all__ = ["has_optimal_tables", "optimal_tables"]

# For replacing a record E has a row and a column for every set of attributes: 1,024 x 1,024.
_MOST_ATTRIBUTES = 10
# Otherwise one number per set of attributes; 26 attributes of two cells are all a histogram has.
_MOST_IN_MEMORY = 26
_TARGET_GAP = 1e-10
_SMALLEST_WEIGHT = 1e-25
# The noise of the total may add this share to the error.
_SHARE_OF_THE_TOTAL = 2.0**-22
# Sums of positive numbers with a few roundings each are off by far less.
_ROUNDED = 1.0 - 2.0**-40


def has_optimal_tables(workload: Workload, neighbouring: Neighbouring) -> bool:
    """Return whether a workload consists of tables of few enough attributes.

    They are at most 26 for adding or removing a record, and ten for replacing one.
    """
    factors = (factor for term in workload.terms() for factor in term)
    most = _MOST_ATTRIBUTES if neighbouring == "replace" else _MOST_IN_MEMORY
    return len(workload.dimensions) <= most and all(
        factor.symmetric_eigenvalues is not None for factor in factors
    )


def optimal_tables(workload: Workload, neighbouring: Neighbouring) -> FoundStrategies:
    """Return the optimal strategy for contingency tables, and a lower bound of every error.

    Parameters
    ----------
    workload : Workload
        A union of products of Identity and Total, of at most 2**26 cells.
    neighbouring : {"add-remove", "replace"}
        With "replace" some query must depend on more than the number of records.
    """
    workload.check_histogram()
    eigenvalues = _eigenvalues(workload)
    ranks = _along_attributes([np.array([1.0, size - 1.0]) for size in workload.dimensions])
    if neighbouring == "add-remove":
        levels = np.sqrt(eigenvalues)
        mean = float(np.sum(levels * ranks)) / workload.cells
        bound = mean**2 * workload.cells * _ROUNDED
        return Found((_strategy(workload, levels / mean, public_total=False),), bound)
    levels, bound = _for_replacement(workload.dimensions, eigenvalues * ranks)
    return Found((_strategy(workload, levels, public_total=True),), bound)


def _eigenvalues(workload: Workload) -> FloatArray:
    """Return g_S, laid out as 2 x .. x 2: whether each attribute is in S."""
    total = np.zeros((2,) * len(workload.dimensions))
    for term in workload.terms():
        # On each attribute: the mean of the cells first, their contrasts second.
        total += _along_attributes([np.array(factor.symmetric_eigenvalues) for factor in term])
    return total


def _along_attributes(parts: list[FloatArray]) -> FloatArray:
    """Return the outer product of one array for each attribute."""
    array = np.ones(())
    for part in parts:
        array = np.multiply.outer(array, part)
    return array


def _strategy(workload: Workload, levels: FloatArray, *, public_total: bool) -> ProductStrategy:
    """Return A with ``A^T A = sum of l_S P_S``: contrasts and totals of each attribute, weighted.

    A total is a row of ones, whose norm is the root of the size.
    """
    sizes = workload.dimensions
    # Row 0 of each basis is the total, all others are contrasts, which share one weight.
    bases = [np.concatenate([np.ones((1, size)), scipy.linalg.helmert(size)]) for size in sizes]
    kinds = [np.minimum(np.arange(size), 1) for size in sizes]
    norms = _along_attributes([np.array([math.sqrt(size), 1.0]) for size in sizes])
    weights = np.sqrt(levels) / norms
    if public_total:
        # A power of two is measured without rounding.
        weights.flat[0] = 2.0 ** math.ceil(math.log2(weights.flat[0]))
    return ProductStrategy(bases, weights[np.ix_(*kinds)])


class _TablePoint(NamedTuple):
    """A point of the dual for replacing a record, scaled so that the mean of r is 1."""

    distances: FloatArray  # E
    costs: FloatArray  # c
    weights: FloatArray  # y

    @property
    def pulled(self) -> FloatArray:
        """``E^T y``."""
        return np.asarray(self.distances.T @ self.weights)

    @property
    def levels(self) -> FloatArray:
        """The best l for these y."""
        return np.sqrt(self.costs / self.pulled)

    @property
    def constraint_values(self) -> FloatArray:
        """The squared distances."""
        return np.asarray(self.distances @ self.levels)

    @property
    def bound(self) -> float:
        """The lower bound, off by a few roundings."""
        roots = math.fsum(np.sqrt(self.costs * self.pulled).tolist())
        return roots**2 / math.fsum(self.weights.tolist())

    @property
    def value(self) -> float:
        """The error of the strategy, scaled to a largest distance of 1."""
        return float(np.sum(self.costs / self.levels)) * float(np.max(self.constraint_values))

    def curvature(self) -> Callable[[FloatArray], FloatArray]:
        """Return the map ``x -> y E diag(l / (2 E^T y)) E^T y x``."""
        slopes = self.levels / (2.0 * self.pulled)

        def image(direction: FloatArray) -> FloatArray:
            inner = slopes * (self.distances.T @ (self.weights * direction))
            return np.asarray(self.weights * (self.distances @ inner))

        return image


def _table_point(distances: FloatArray, costs: FloatArray, weights: FloatArray) -> _TablePoint:
    """Return the point with y rescaled: ``sum(y r) = sum (c E^T y)^(1/2) = sum(y)``."""
    mean = float(np.sum(np.sqrt(costs * (distances.T @ weights)))) / float(np.sum(weights))
    return _TablePoint(distances, costs, weights * mean**2)


def _for_replacement(sizes: tuple[int, ...], costs: FloatArray) -> tuple[FloatArray, float]:
    """Return l with a largest distance of 1, and the bound."""
    asked = (costs > 0.0).ravel()
    asked[0] = False  # the mean of all cells, which is public
    distances = _squared_distances(sizes)
    own = costs.ravel()[asked]
    found = maximise(
        lambda weights: _table_point(distances[:, asked], own, weights),
        np.ones(len(distances)),
        target_gap=_TARGET_GAP,
        smallest_weight=_SMALLEST_WEIGHT,
    )
    levels = np.zeros(costs.size)
    levels[asked] = found.primal.levels / np.max(found.primal.constraint_values)
    # The total costs no privacy, so that it gets as much weight as makes its noise negligible.
    levels[0] = costs.flat[0] / (_SHARE_OF_THE_TOTAL * found.primal.value)
    return levels.reshape(costs.shape), found.dual.bound * _ROUNDED


def _squared_distances(sizes: tuple[int, ...]) -> FloatArray:
    """Return ``E_TS`` for all sets T in which cells can differ, that is of sizes above 1."""
    shape = (2,) * len(sizes)
    shares = _along_attributes([np.array([1.0, size - 1.0]) / size for size in sizes]).ravel()
    sets = np.array(list(np.ndindex(shape)), dtype=bool)
    opposite = np.array([-1.0 / (size - 1.0) if size > 1 else 1.0 for size in sizes])
    possible = [kind for kind in sets if kind.any() and all(np.array(sizes)[kind] > 1)]
    ratios = [np.prod(np.where(kind & sets, opposite, 1.0), axis=1) for kind in possible]
    return np.asarray(2.0 * shares * (1.0 - np.array(ratios)))
