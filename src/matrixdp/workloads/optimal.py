"""The best strategy for a workload, by the structure that the workload has."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.accuracy import check_answers, squared_error
from matrixdp.workloads.certificate import Certificate
from matrixdp.workloads.dual import Progress
from matrixdp.workloads.explicit import Explicit, certified_factor, optimal_factor
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, Workload
from matrixdp.workloads.plain import (
    direct_measurements,
    direct_reach_squared,
    direct_strategy,
    identity_error,
    identity_strategy,
)
from matrixdp.workloads.ranges import Identity, Total
from matrixdp.workloads.replacement import check_contrasts, replacement_factor
from matrixdp.workloads.replacement_bound import bound_from_spectra
from matrixdp.workloads.stacked import AnyStrategy
from matrixdp.workloads.strategy import MOST_PAIRS, Strategy
from matrixdp.workloads.unions import strategies_for_union

__all__ = ["OptimalStrategy", "optimal_strategy"]

_MOST_CELLS_OF_A_UNION = 2048
_MOST_CELLS_FOR_PAIRS = 1024
# Closer to its bound a strategy cannot be worse than another by more than nothing.
_CLOSE = 1e-9
_ROUNDED = 1.0 - 2.0**-48


@dataclass(frozen=True, eq=False)
class OptimalStrategy:
    """A strategy for a workload, with the proof of how good it is.

    Attributes
    ----------
    workload : Workload
        What is asked.
    strategy : Strategy or StackedStrategy
        What is measured.
    neighbouring : {"add-remove", "replace"}
        The relation that it is the best for.
    certificate : Certificate
        Its error and the bound below every strategy's.
    """

    workload: Workload
    strategy: AnyStrategy
    neighbouring: Neighbouring
    certificate: Certificate

    @property
    def rmse(self) -> float:
        """The root mean squared error per query of a release with mu = 1."""
        return math.sqrt(self.certificate.value / self.workload.rows)


def optimal_strategy(
    workload: Workload, *, neighbouring: Neighbouring, progress: Progress | None = None
) -> OptimalStrategy:
    """Return the strategy of least total squared error under Gaussian noise, and its certificate.

    Parameters
    ----------
    workload : Workload
        The queries.
    neighbouring : {"add-remove", "replace"}
        Whether neighbouring histograms differ by one count, or by one count moved.
    progress : callable, optional
        Called with the number of steps and the relative gap, in each problem that is solved.

    Returns
    -------
    OptimalStrategy
        With ``strategy``, ``certificate`` and ``rmse``.

    Notes
    -----
    *Adding or removing a record.* On one attribute, for unions of up to 2,048 cells and for single
    products the strategy is optimal, to the gap that the certificate states. So it is for marginals
    of any size: their Gram matrix is the same from every cell, hence the SVD bound is attained. For
    other unions of T products it is the better of the best single product of strategies, sought
    factor by factor, and of a stack of the optima of the T products (see `StackedStrategy`). The
    bound is then the sum of those optima, and the gap at most T - 1. The value of a stack is an
    upper bound of its error, which least squares on all measurements stays below.

    *Replacing a record.* Up to 1,024 cells a strategy is sought for the pairs of cells (see
    `replacement`) to a gap of about 1e-3. Beyond, the strategy for adding and removing is used with
    its sensitivity for replacing, which may be far from the best, as its gap says.

    Where the strategy is not proven optimal, it is never worse than measuring every cell, or than
    measuring every query, as a stack of products where the queries cannot be written out.

    References
    ----------
    Li, Miklau, Hay, McGregor and Rastogi, *The matrix mechanism*, VLDB Journal 2015; McKenna,
    Miklau, Hay and Machanavajjhala, *Optimizing error of high-dimensional statistical queries under
    differential privacy*, PVLDB 2018.

    Examples
    --------
    >>> from matrixdp.workloads import Prefix, optimal_strategy
    >>> best = optimal_strategy(Prefix(128), neighbouring="add-remove")
    >>> round(best.rmse, 7), best.certificate.gap < 1e-9
    (2.3110012, True)
    """
    if not isinstance(workload, Workload):
        raise InvalidParameterError(
            f"workload is a {type(workload).__name__}: pass a workload; a matrix is a Dense"
        )
    relation = checked_neighbouring(neighbouring)
    search = _for_addition if relation == "add-remove" else _for_replacement
    found = search(workload, progress)
    strategy, value = _best(workload, found, relation)
    return OptimalStrategy(workload, strategy, relation, Certificate(value, found.lower_bound))


class _Found(NamedTuple):
    strategies: tuple[AnyStrategy, ...]
    lower_bound: float


def _best(workload: Workload, found: _Found, relation: Neighbouring) -> tuple[AnyStrategy, float]:
    """Return the best strategy with its error, or a plain one that is better.

    It is not certain to be better than measuring every cell, or every query, where it is not
    optimal; and where float64 cannot tell the rank of the workload it does not answer it.
    """
    errors = [_error(workload, strategy, relation) for strategy in found.strategies]
    value = min(errors)
    strategy = found.strategies[errors.index(value)]
    if value <= found.lower_bound * (1.0 + _CLOSE):
        return strategy, value
    if identity_error(workload, relation) < value * (1.0 - _CLOSE):
        plain = identity_strategy(workload)
        strategy, value = plain, _error(workload, plain, relation)
    direct = direct_strategy(workload) if _direct_may_win(workload, value, relation) else None
    error = math.inf if direct is None else _error(workload, direct, relation)
    if direct is not None and error < value:
        return direct, error
    return strategy, value


def _direct_may_win(workload: Workload, value: float, relation: Neighbouring) -> bool:
    """Tell whether the rank times the queries' own reach, as far as these are known, is less."""
    known = LARGEST_HISTOGRAM if relation == "add-remove" else MOST_PAIRS
    if len(workload.terms()) > 1 and workload.cells > known:
        return True
    reach = direct_reach_squared(workload, relation)
    return direct_measurements(workload) * reach < value * (1.0 - _CLOSE)


def _error(workload: Workload, strategy: AnyStrategy, relation: Neighbouring) -> float:
    """Return the total squared error at unit noise; without limit if something is not answered."""
    try:
        check_answers(workload, strategy)
        reach = strategy.sensitivity(relation)
    except InvalidParameterError:
        return math.inf
    return reach**2 * squared_error(workload, strategy)


def _for_addition(
    workload: Workload, progress: Progress | None, relation: Neighbouring = "add-remove"
) -> _Found:
    """Return what the structure suggests; another relation only changes the scales in a stack."""
    terms = workload.terms()
    if all(isinstance(factor, Identity | Total) for term in terms for factor in term):
        return _for_marginals(workload)
    if len(terms) == 1:
        parts = [certified_factor(factor, progress) for factor in terms[0]]
        bound = math.prod(part.lower_bound for part in parts)
        return _Found((Strategy([part.matrix for part in parts]),), bound * _ROUNDED)
    if len(workload.dimensions) == 1 or workload.cells <= _MOST_CELLS_OF_A_UNION:
        whole = optimal_factor(Explicit.of(workload), progress)
        return _Found((Strategy([whole.matrix]),), whole.lower_bound)
    return _Found(*strategies_for_union(workload, relation, progress))


def _for_marginals(workload: Workload) -> _Found:
    """Return the optimum for products of Identity and Total.

    Let each attribute have the orthonormal basis of the mean and of contrasts. The Gram matrix is
    diagonal in their products, with the eigenvalue
    ``sum over tables that keep T of prod of the sizes of what they sum over`` wherever T is the set
    of attributes with a contrast. ``Q = G^(1/2)`` has a constant diagonal, so that it is optimal
    and its error the SVD bound.
    """
    sizes = workload.dimensions
    workload.check_histogram()
    eigenvalues = np.zeros(sizes)
    for term in workload.terms():
        summed = [isinstance(f, Total) and size > 1 for f, size in zip(term, sizes, strict=True)]
        corner = tuple(slice(0, 1) if over else slice(None) for over in summed)
        eigenvalues[corner] += math.prod(
            size for over, size in zip(summed, sizes, strict=True) if over
        )
    weights = eigenvalues**0.25
    # Summed pairwise, which is off by far less than what the bound is lowered by.
    bound = float(np.sum(np.sqrt(eigenvalues))) ** 2 / workload.cells * (1.0 - 2.0**-44)
    bases = [np.asarray(linalg.helmert(size, full=True)) for size in sizes]
    norm = math.sqrt(float(np.sum(np.square(weights))) / workload.cells)
    return _Found((Strategy(bases, weights / norm),), bound)


def _for_replacement(workload: Workload, progress: Progress | None) -> _Found:
    check_contrasts(workload)
    if workload.cells <= _MOST_CELLS_FOR_PAIRS:
        part = replacement_factor(Explicit.of(workload), progress)
        return _Found((Strategy([part.matrix]),), part.lower_bound)
    found = _for_addition(workload, progress, "replace")
    return _Found(found.strategies, bound_from_spectra(workload))
