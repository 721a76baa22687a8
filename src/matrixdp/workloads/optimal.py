"""The best strategy for a workload, by the structure that the workload has."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from matrixdp.errors import InvalidParameterError
from matrixdp.privacy.guarantee import Neighbouring, checked_neighbouring
from matrixdp.workloads.composed import Union
from matrixdp.workloads.operator import LARGEST_HISTOGRAM, Workload
from matrixdp.workloads.solve.certificate import Certificate, bound_from_spectra
from matrixdp.workloads.solve.explicit import (
    certified_factor,
    check_contrasts,
    optimal_factor,
    replacement_factor,
)
from matrixdp.workloads.solve.interior_point import Progress
from matrixdp.workloads.solve.pairs import MOST_CELLS_SEARCHED
from matrixdp.workloads.solve.searches import ExplicitQueries, Found, FoundStrategies
from matrixdp.workloads.solve.tables import has_few_sets, optimal_tables
from matrixdp.workloads.strategies.plain import (
    direct_measurements,
    direct_sensitivity_squared,
    direct_strategy,
    identity_error,
    identity_strategy,
)
from matrixdp.workloads.strategies.product import ProductStrategy
from matrixdp.workloads.strategies.strategy import MOST_PAIRS, Strategy
from matrixdp.workloads.unions.search import strategies_for_union

__all__ = ["OptimalStrategy", "optimal_strategy"]

# Larger unions are not solved as a whole for adding or removing a record: it would take minutes.
_MOST_CELLS_OF_A_UNION = 2048
# A strategy this close to its bound cannot be worse than another by more than rounding.
_CLOSE = 1e-9
# Measuring every cell is preferred where it is as good: it needs no arithmetic.
_AS_GOOD = 5e-7
# A product of a few bounds rounds by far less.
_ROUNDED = 1.0 - 2.0**-48
# The largest matrix for which BLAS gets one thread. Searches up to here take a few seconds at most.
_FEW_ROWS = 256


@dataclass(frozen=True, eq=False)
class OptimalStrategy:
    """A strategy for a workload, with the proof of how good it is.

    Attributes
    ----------
    workload : Workload
        The queries.
    strategy : Strategy
        The measurements.
    neighbouring : {"add-remove", "replace"}
        The relation that it is optimised for.
    certificate : Certificate
        Its error, and a lower bound of every strategy's error.
    """

    workload: Workload
    strategy: Strategy
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
    of any size, which are never written out cell by cell (see `tables`), and for queries about one
    attribute that sum over the others. For other unions of T products there are several candidates,
    of which the best is returned: a single product of strategies, optimised factor by factor; the
    same with better weights for its measurements (see `residual` and `search`); and a stack of
    the optima of the T products
    (see `StackedStrategy`), whose gap is at most T - 1. The bound is for all parts together, from
    each attribute alone (see `union_bound`). The gap is a few per cent for prefixes, ranges and
    cells, and may be tens of per cent for other matrices. The value of a stack is an upper bound of
    its error, because least squares on all measurements is never worse.

    *Replacing a record.* Up to 4,096 cells every pair of cells is given a weight (see `pairs`),
    which closes the gap to 1e-6, or to 1e-3 with more than 1,024 cells. Marginals of up to 16
    attributes are optimal at any size; with more of them the gap is at most 1 / (n - 1), n the
    smallest number of cells of an attribute. Beyond, the strategies for adding and removing are
    used with their sensitivity for replacing, which may be far from the best; the gap states how
    far.

    Where the strategy is not proven optimal, it is never worse than measuring every cell, or than
    measuring every query, as a stack of products where the queries cannot be written out.

    *Threads.* BLAS gets one thread if no matrix of more than 256 rows is decomposed, in the whole
    process and while the search runs. Larger searches use the caller's setting.

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
    with _chosen_threads(workload, relation):
        found = _search(workload, relation, progress)
        strategy, value = _best(workload, found, relation)
    return OptimalStrategy(workload, strategy, relation, Certificate(value, found.lower_bound))


@contextmanager
def _chosen_threads(workload: Workload, relation: Neighbouring) -> Iterator[None]:
    """Use one BLAS thread for small matrices, and as many as the caller has set for large ones.

    The limit holds for the whole process while it is active.
    """
    # A decomposition of a small matrix is many short products. Threads wait for each other after
    # every one, and where cores are shared they also wait for other processes: 128 prefixes took
    # 0.03 s with one thread and 1.1 s with two on two busy cores. Larger searches take minutes,
    # which idle cores can shorten, and only the caller knows whether they are idle.
    if _largest_matrix(workload, relation) > _FEW_ROWS:
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield


def _largest_matrix(workload: Workload, relation: Neighbouring) -> int:
    """Return the most rows of a matrix that the search decomposes."""
    # A union or a replacement is solved as a whole up to its limit, and otherwise by attributes.
    whole = MOST_CELLS_SEARCHED if relation == "replace" else _MOST_CELLS_OF_A_UNION
    several = relation == "replace" or len(workload.terms()) > 1
    if several and workload.cells <= whole:
        return workload.cells
    return max(workload.dimensions)


def _best(
    workload: Workload, found: FoundStrategies, relation: Neighbouring
) -> tuple[Strategy, float]:
    """Return the best strategy with its error, or a plain one that is better.

    Where a strategy is not optimal, measuring every cell or every query may be better. Where
    float64 cannot decide the rank of the workload, only these may answer it.
    """
    if _cells_are_as_good(workload, found.lower_bound, relation):
        plain = identity_strategy(workload)
        return plain, _error(workload, plain, relation)
    # Candidates are compared by the errors they really have, not by what the searches expected.
    errors = [_error(workload, strategy, relation) for strategy in found.best]
    value = min(errors)
    strategy = found.best[errors.index(value)]
    if not _in_memory(workload) or value <= found.lower_bound * (1.0 + _CLOSE):
        return strategy, value
    # Tables for replacing a record are as good as optimal: the public total adds its share.
    if workload.asks_tables and value <= found.lower_bound * (1.0 + _AS_GOOD):
        return strategy, value
    if identity_error(workload, relation) < value * (1.0 - _CLOSE):
        plain = identity_strategy(workload)
        strategy, value = plain, _error(workload, plain, relation)
    # Measuring the queries is tried last: writing them out can take longer than the search.
    direct = direct_strategy(workload) if _direct_may_win(workload, value, relation) else None
    error = math.inf if direct is None else _error(workload, direct, relation)
    if direct is not None and error < value:
        return direct, error
    return strategy, value


def _in_memory(workload: Workload) -> bool:
    """Return whether cells can be measured; tables can do without."""
    return workload.cells <= LARGEST_HISTOGRAM or not workload.asks_tables


def _cells_are_as_good(workload: Workload, bound: float, relation: Neighbouring) -> bool:
    """Return whether every cell may be measured by itself, and nothing is better by much."""
    measured = _in_memory(workload)
    return measured and identity_error(workload, relation) <= bound * (1.0 + _AS_GOOD)


def _direct_may_win(workload: Workload, value: float, relation: Neighbouring) -> bool:
    """Return whether measuring the queries may have less error; it is costly to find out."""
    known = LARGEST_HISTOGRAM if relation == "add-remove" else MOST_PAIRS
    if len(workload.terms()) > 1 and workload.cells > known:
        return True
    # The rank times the squared sensitivity is the least error that measuring the queries has.
    sensitivity_squared = direct_sensitivity_squared(workload, relation)
    return direct_measurements(workload) * sensitivity_squared < value * (1.0 - _CLOSE)


def _error(workload: Workload, strategy: Strategy, relation: Neighbouring) -> float:
    """Return the total squared error at unit noise; infinity if some query is not answered."""
    try:
        strategy.check_supports(workload)
        sensitivity = strategy.sensitivity(relation)
    except InvalidParameterError:
        return math.inf
    return sensitivity**2 * strategy.squared_error(workload)


def _search(
    workload: Workload, relation: Neighbouring, progress: Progress | None
) -> FoundStrategies:
    """Return candidates and a bound by the first structure that applies, the best one first."""
    if relation == "replace":
        check_contrasts(workload)
    tables = has_few_sets(workload)
    # Set by set, whatever else is possible: only that needs no histogram.
    if tables and workload.cells > LARGEST_HISTOGRAM:
        return optimal_tables(workload, relation)
    index = _only_attribute(workload)
    if index is not None:
        return _from_one_attribute(workload, index, relation, progress)
    # A single table is a product, which is solved factor by factor for adding or removing.
    alone = relation == "add-remove" and len(workload.terms()) == 1
    if tables and not alone:
        return optimal_tables(workload, relation)
    if relation == "add-remove":
        return _for_addition(workload, relation, progress)
    if workload.cells <= MOST_CELLS_SEARCHED:
        part = replacement_factor(ExplicitQueries.of(workload), progress)
        return Found((ProductStrategy([part.best]),), part.lower_bound)
    found = _for_addition(workload, relation, progress)
    # Bounds for adding or removing a record do not hold here: the public total is free.
    return Found(found.best, bound_from_spectra(workload))


def _only_attribute(workload: Workload) -> int | None:
    """Return the attribute that the queries are about, if they sum over all the others."""
    columns = list(zip(*workload.terms(), strict=True))
    asked = [
        index
        for index, column in enumerate(columns)
        if not all(factor.is_total for factor in column)
    ]
    return asked[0] if len(columns) > 1 and len(asked) == 1 else None


def _from_one_attribute(
    workload: Workload, index: int, relation: Neighbouring, progress: Progress | None
) -> FoundStrategies:
    """Return the best on one attribute, with totals over the others.

    Cells that differ in these alone have equal columns. Any strategy restricted to one cell of each
    kind answers the queries on the one attribute, so that none can be better.
    """
    factors = [term[index] for term in workload.terms()]
    found = _search(factors[0] if len(factors) == 1 else Union(factors), relation, progress)
    totals = [np.ones((1, size)) for size in workload.dimensions]
    whole = []
    for strategy in found.best:
        rows = strategy.written_out()
        # Weights need square factors, which totals are not: they are multiplied into the rows, and
        # rows without weight are left out.
        measured = rows[np.any(rows, axis=1)]
        whole.append(ProductStrategy([*totals[:index], measured, *totals[index + 1 :]]))
    return Found(tuple(whole), found.lower_bound)


def _for_addition(
    workload: Workload, relation: Neighbouring, progress: Progress | None
) -> FoundStrategies:
    """Return the best for adding a record; the relation only changes the scales in a stack."""
    terms = workload.terms()
    if len(terms) == 1:
        known = {factor: certified_factor(factor, progress) for factor in dict.fromkeys(terms[0])}
        parts = [known[factor] for factor in terms[0]]
        bound = math.prod(part.lower_bound for part in parts)
        return Found((ProductStrategy([part.best for part in parts]),), bound * _ROUNDED)
    if len(workload.dimensions) == 1 or workload.cells <= _MOST_CELLS_OF_A_UNION:
        whole = optimal_factor(ExplicitQueries.of(workload), progress)
        return Found((ProductStrategy([whole.best]),), whole.lower_bound)
    return strategies_for_union(workload, relation, progress)
